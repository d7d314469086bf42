# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images as cameras deliver them → the patches a vision tower reads."""

from __future__ import annotations

import operator
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from flashrt_kernels.errors import ObservationError
from flashrt_kernels.kernel import FLOAT, INT32, UINT8, In, Out, kernel


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


@kernel(
    pixels=In("capacity", UINT8),
    info=In("4", INT32),
    out=Out("(height//patch)*(width//patch) 3*patch*patch", FLOAT),
    multiples=[("height", "patch"), ("width", "patch")],
)
def resize_to_patches(
    pixels: torch.Tensor, info: torch.Tensor, out: torch.Tensor, *, height: int, width: int, patch: int
) -> None:
    """One camera image → patches in [−1, 1], row-major, features ordered (channel, y, x) as in a conv weight.

    info = [rows, columns, bytes per row, format code] of `pixels`; rows = 0 is a missing camera: −1
    everywhere. The image keeps its aspect ratio and is centred on black; bilinear with half-pixel centres
    and without antialias, as LeRobot's resize_with_pad does for Pi0 and Pi0.5.
    """
    rows, columns, step, code = info.tolist()
    canvas = out.new_full((height, width, 3), -1.0, dtype=torch.float32)
    if rows:
        new_height, new_width = fitted_size(rows, columns, height, width)
        top, left = (height - new_height) // 2, (width - new_width) // 2
        source = pixels.as_strided((rows, columns * BY_CODE[code].channels), (step, 1))
        small = resize(source, new_height, new_width, code)  # [new_height, new_width·3] in 0 … 255
        canvas[top : top + new_height, left : left + new_width] = (
            small.view(new_height, new_width, 3).mul_(2 / 255).sub_(1)
        )
    grid = canvas.view(height // patch, patch, width // patch, patch, 3)
    out.view(height // patch, width // patch, 3, patch, patch).copy_(grid.permute(0, 2, 4, 1, 3))


def resize(source: torch.Tensor, height: int, width: int, code: int) -> torch.Tensor:
    """Bilinear resize of raw rows [rows, columns·channels] uint8 → [height, width·3] float32 in RGB order.

    Only the rows and columns that the result needs are touched: the cost follows the result, not the camera.
    """
    pixel = BY_CODE[code]
    device = str(source.device)
    upper, lower, down = row_taps(source.shape[0], height, device)
    left, right, across = column_taps(source.shape[1] // pixel.channels, width, pixel, device)
    lines = torch.lerp(source.index_select(0, upper).float(), source.index_select(0, lower).float(), down)
    return torch.lerp(lines.index_select(1, left), lines.index_select(1, right), across)


@lru_cache(maxsize=64)
def row_taps(count: int, size: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Upper row, lower row [size] and the weight of the lower one [size, 1] for each row of the result."""
    # torch's interpolate rounds the ratio to fp32 and then computes the position without rounding in between
    ratio = float(np.float32(count) / np.float32(size))
    at = ((torch.arange(size, dtype=torch.float64, device=device) + 0.5) * ratio - 0.5).float().clamp_(min=0)
    upper = at.long().clamp_(max=count - 1)
    return upper, (upper + 1).clamp_(max=count - 1), (at - upper)[:, None]


@lru_cache(maxsize=64)
def column_taps(
    count: int, size: int, pixel: PixelFormat, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Byte positions of the left and right neighbours, and the weight of the right one, each [size·3]."""
    left, right, weight = row_taps(count, size, device)
    rgb = torch.tensor(pixel.rgb, device=device)
    positions = [(side[:, None] * pixel.channels + rgb).flatten() for side in (left, right)]
    return positions[0], positions[1], weight.expand(-1, 3).flatten()


def fitted_size(rows: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """Largest size of the same aspect ratio inside height × width, cut to whole pixels as LeRobot does."""
    ratio = max(columns / width, rows / height)
    return int(rows / ratio), int(columns / ratio)


def patches_to_image(patches: np.ndarray, height: int, width: int, patch: int) -> np.ndarray:
    """Patches [n, 3·patch²] in [−1, 1] → uint8 [height, width, 3]: what the model saw."""
    grid = patches.reshape(height // patch, width // patch, 3, patch, patch).transpose(0, 3, 1, 4, 2)
    return np.rint((grid.reshape(height, width, 3) + 1) * 127.5).clip(0, 255).astype(np.uint8)
