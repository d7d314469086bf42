# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pixels as cameras deliver them. Without torch: whoever only hands images on need not wait for it."""

from __future__ import annotations

import operator
from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flashrt_kernels.errors import ObservationError


class PixelFormat(NamedTuple):
    """Where red, green and blue lie in one pixel of `channels` bytes."""

    code: int
    channels: int
    rgb: tuple[int, int, int]


FORMATS = {
    "rgb8": PixelFormat(0, 3, (0, 1, 2)),
    "bgr8": PixelFormat(1, 3, (2, 1, 0)),
    "rgba8": PixelFormat(2, 4, (0, 1, 2)),
    "bgra8": PixelFormat(3, 4, (2, 1, 0)),
    "mono8": PixelFormat(4, 1, (0, 0, 0)),
}
BY_CODE = {pixel_format.code: pixel_format for pixel_format in FORMATS.values()}


@dataclass(frozen=True, eq=False)
class RawImage:
    """Pixels as a driver delivers them, not copied: `height` rows of `step` bytes (0: rows are packed).

    Raises ObservationError where the encoding is not one of FORMATS or the sizes contradict each other.
    """

    data: bytes | bytearray | memoryview | array[int] | np.ndarray
    height: int
    width: int
    step: int
    encoding: str

    def __post_init__(self) -> None:
        if self.encoding not in FORMATS:
            raise ObservationError(f"image encoding {self.encoding!r}; expected one of {', '.join(FORMATS)}")
        try:
            packed = memoryview(self.data).c_contiguous  # type: ignore[arg-type]
            for name in ("height", "width", "step"):  # NumPy's integers would wrap around below
                object.__setattr__(self, name, operator.index(getattr(self, name)))
        except TypeError as error:
            raise ObservationError(f"image: {error}; expected bytes and integer sizes") from None
        if not packed:
            raise ObservationError(
                "image data has gaps; expected contiguous bytes (see step for padded rows)"
            )
        row = self.width * FORMATS[self.encoding].channels
        if self.step == 0:
            object.__setattr__(self, "step", row)
        came = f"{self.encoding} image, {self.width}×{self.height}, step {self.step}, {self.length} bytes"
        if self.height < 1 or self.width < 1:
            raise ObservationError(f"{came}; expected a size of at least 1×1")
        if self.step < row:
            raise ObservationError(f"{came}; expected a step of at least {row}")
        if self.length < self.bytes:
            raise ObservationError(f"{came}; expected at least {self.bytes} bytes")
        if self.height == 1:
            object.__setattr__(self, "step", row)  # nothing follows; drivers leave any number here

    @classmethod
    def from_array(cls, pixels: np.ndarray) -> RawImage:
        """An RGB array, uint8 [height, width, 3] in any memory layout."""
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[2:] != (3,):
            came = (
                f"{pixels.dtype} {list(pixels.shape)}"
                if isinstance(pixels, np.ndarray)
                else type(pixels).__name__
            )
            raise ObservationError(f"image is {came}; expected uint8 [height, width, 3] (RGB) or a RawImage")
        height, width, _ = pixels.shape
        return cls(np.ascontiguousarray(pixels), height, width, 3 * width, "rgb8")

    @property
    def length(self) -> int:
        """Bytes that `data` holds."""
        return np.frombuffer(self.data, np.uint8).size

    @property
    def bytes(self) -> int:
        """Bytes that are read: the padding after the last row may be missing."""
        return (self.height - 1) * self.step + self.width * FORMATS[self.encoding].channels

    def write(self, pixels: np.ndarray, info: np.ndarray) -> None:
        """Copy into the inputs of resize_to_patches: pixels uint8 [capacity], info int32 [4]."""
        pixels[: self.bytes] = np.frombuffer(self.data, np.uint8, self.bytes)
        info[:] = (self.height, self.width, self.step, FORMATS[self.encoding].code)
