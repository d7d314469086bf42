# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From pixels as a camera delivers them to the patches of a vision tower, as each policy was trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image import fitted_size, patches_to_image, resize_to_patches


class ImageRule(Protocol):
    """height, width: pixels that the tower sees. patch: edge of a patch in pixels."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def patch(self) -> int: ...

    @property
    def rows(self) -> int:
        """Patches of one image."""

    def compose(self, g: StaticGraph, pixels: Buffer, info: Buffer, out: Buffer) -> None:
        """pixels uint8 [capacity], info int32 [4] as `RawImage.write` → out [rows, features] in [−1, 1]."""

    def problem(self, height: int, width: int) -> str | None:
        """What is wrong with a camera image of this size, in words; None: nothing."""

    def picture(self, patches: np.ndarray) -> np.ndarray:
        """patches [rows, features] → uint8 [height, width, 3]: what the model sees."""

    def describe(self) -> str:
        """The rule in words."""


@dataclass(frozen=True)
class Fit:
    """Resized into height × width with its aspect ratio kept, centred on black.

    filter: `bilinear` as LeRobot, `antialias` as openpi (see resize_to_patches).
    """

    height: int
    width: int
    patch: int
    filter: Literal["bilinear", "antialias"] = "bilinear"

    @property
    def rows(self) -> int:
        return (self.height // self.patch) * (self.width // self.patch)

    def compose(self, g: StaticGraph, pixels: Buffer, info: Buffer, out: Buffer) -> None:
        g.call(
            resize_to_patches,
            pixels=pixels,
            info=info,
            out=out,
            height=self.height,
            width=self.width,
            patch=self.patch,
            filter=self.filter,
        )

    def problem(self, height: int, width: int) -> str | None:
        if min(fitted_size(height, width, self.height, self.width)) < 1:
            return f"is {width}×{height}; expected a wider or higher one"
        return None

    def picture(self, patches: np.ndarray) -> np.ndarray:
        return patches_to_image(patches, self.height, self.width, self.patch)

    def describe(self) -> str:
        return f"resized with padding to {self.width}×{self.height} ({self.filter})"
