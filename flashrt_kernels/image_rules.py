# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From pixels as a camera delivers them to the patches of a vision tower, as each policy was trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image import fitted_size, patches_to_image, resize_to_patches
from flashrt_kernels.image_resample import MOST_SHRINK, Filter, Fitting, resample, result_size, window_of


class ImageRule(Protocol):
    """height, width: pixels that the tower sees. patch: edge of a patch in pixels.

    merge: patches come in blocks of merge × merge (see resize_to_patches).
    """

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def patch(self) -> int: ...
    @property
    def merge(self) -> int: ...

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
    """Resized into height × width with its aspect ratio kept, on black, in one kernel.

    filter, place: `bilinear`, `centre` as LeRobot for Pi0 and Pi0.5; `bilinear`, `end` as LeRobot for
    SmolVLA; `antialias`, `centre` as openpi's model for images that nobody resized before (see
    resize_to_patches).
    """

    height: int
    width: int
    patch: int
    filter: Literal["bilinear", "antialias"] = "bilinear"
    place: Literal["centre", "end"] = "centre"
    merge: int = 1

    @property
    def rows(self) -> int:
        return (self.height // self.patch) * (self.width // self.patch)

    def compose(self, g: StaticGraph, pixels: Buffer, info: Buffer, out: Buffer) -> None:
        g.call(resize_to_patches, pixels=pixels, info=info, out=out, **asdict(self))

    def problem(self, height: int, width: int) -> str | None:
        if min(fitted_size(height, width, self.height, self.width)) < 1:
            return f"is {width}×{height}; expected a wider or higher one"
        return None

    def picture(self, patches: np.ndarray) -> np.ndarray:
        return patches_to_image(patches, self.height, self.width, self.patch, self.merge)

    def describe(self) -> str:
        return f"resized with padding to {self.width}×{self.height} ({self.filter})"


@dataclass(frozen=True)
class Stage:
    """One resize in whole levels; see `resample` for what the fields mean."""

    filter: Filter
    height: int
    width: int
    fitting: Fitting = "stretch"
    edge: int = 0
    square: bool = False
    crop: float = 1.0
    crop_size: Literal["round", "floor"] = "floor"

    def size(self, rows: int, columns: int) -> tuple[int, int]:
        """Height and width of the result."""
        window = window_of(rows, columns, self.square, self.crop, self.crop_size)
        return result_size(window.rows, window.columns, self.fitting, self.edge, self.height, self.width)

    def describe(self) -> str:
        to = {
            "stretch": f"to {self.width}×{self.height}",
            "inside": f"into {self.width}×{self.height}",
            "shortest": f"to a shorter edge of {self.edge}",
        }
        black = "made square with black, " if self.square else ""
        cut = f"the middle {self.crop:.3g} of it " if self.crop < 1 else ""
        return f"{black}{cut}resized {to[self.fitting]} ({self.filter})"


@dataclass(frozen=True)
class Staged:
    """Resized in stages, each in whole levels; what is smaller than height × width is centred on black.

    final: from the size before the last stage to the size that the training code would resize it to; images
    for which that is not height × width are refused, since the number of tokens would be another one.
    """

    height: int
    width: int
    patch: int
    stages: tuple[Stage, ...]
    merge: int = 1
    final: Callable[[int, int], tuple[int, int]] | None = None

    @property
    def rows(self) -> int:
        return (self.height // self.patch) * (self.width // self.patch)

    def compose(self, g: StaticGraph, pixels: Buffer, info: Buffer, out: Buffer) -> None:
        for stage in self.stages:
            pixels, info = g.call(resample, pixels=pixels, info=info, **asdict(stage))
        size = {"height": self.height, "width": self.width, "patch": self.patch, "merge": self.merge}
        g.call(resize_to_patches, pixels=pixels, info=info, out=out, filter="none", **size)

    def problem(self, height: int, width: int) -> str | None:
        sizes = [(height, width)]
        for stage in self.stages:
            sizes.append(stage.size(*sizes[-1]))
        came = f"is {width}×{height}"
        if min(min(size) for size in sizes) < 1:
            return f"{came}; expected a wider or higher one"
        trained = self.final(*sizes[-2]) if self.final else (self.height, self.width)
        if trained != (self.height, self.width) or not self.has_room(sizes[1:]):
            return (
                f"is {width}×{height}, which makes {self.grid(*trained)} patches; this policy was loaded for "
                f"{self.grid(self.height, self.width)}: pass image_size=({height}, {width}) when loading it "
                f"(the node: image_size: {width}x{height})"
            )
        for before, after in pairwise(sizes):
            if max(before[0] / after[0], before[1] / after[1]) > MOST_SHRINK:
                return (
                    f"{came}; expected at most {MOST_SHRINK} times the {after[1]}×{after[0]} that it becomes"
                )
        return None

    def has_room(self, sizes: list[tuple[int, int]]) -> bool:
        """Whether the results of all stages fit into their buffers."""
        rooms = zip(self.stages, sizes, strict=True)
        return all(height <= stage.height and width <= stage.width for stage, (height, width) in rooms)

    def grid(self, height: int, width: int) -> str:
        """Patches across × down."""
        return f"{width // self.patch}×{height // self.patch}"

    def picture(self, patches: np.ndarray) -> np.ndarray:
        return patches_to_image(patches, self.height, self.width, self.patch, self.merge)

    def describe(self) -> str:
        return ", then ".join(stage.describe() for stage in self.stages)


def openpi(height: int, width: int, patch: int) -> Staged:
    """What openpi's clients and server do: Pillow's bilinear filter, the aspect ratio kept, centred on black.

    Its model would resize once more, but only images of another size.
    """
    return Staged(height, width, patch, (Stage("bilinear", height, width, "inside"),))
