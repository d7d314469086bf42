# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""How GR00T N1.6 and N1.7 prepare camera images.

Most of it keeps the aspect ratio of the camera, so the number of tokens depends on it: a rule is made for
cameras of one size and refuses those that would give another grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.image_resample import Filter
from flashrt_kernels.image_rules import Stage, Staged

FILE = "processor_config.json"
# Fewest and most blocks of merge × merge patches. Qwen3-VL's lower bound is the 64 of 256×256 pixels, which
# no released setting falls below, and tiny policies must.
EAGLE, QWEN = (4, 4096), (0, 16384)


@dataclass(frozen=True)
class GrootImages:
    """The fields of processor_config.json that speak of images; sizes are (height, width)."""

    image_target_size: tuple[int, int] | None = None
    image_crop_size: tuple[int, int] | None = None
    shortest_image_edge: int | None = None
    crop_fraction: float | None = None
    use_albumentations: bool = True
    letter_box_transform: bool = False

    @property
    def edge(self) -> int:
        """Pixels of the edge that everything is resized to. Raises CheckpointError where nothing says it."""
        edge = self.shortest_image_edge or (self.image_target_size or (0,))[0]
        if edge < 1:
            raise CheckpointError(f"{FILE}: no shortest_image_edge and no image_target_size; expected one")
        return edge

    @property
    def crop(self) -> float:
        """Part of each edge that is kept. Raises CheckpointError where nothing sensible says it."""
        crop = self.crop_fraction
        if crop is None and self.image_crop_size and self.image_target_size:
            crop = self.image_crop_size[0] / self.image_target_size[0]
        if crop is None or not 0 < crop <= 1:
            raise CheckpointError(
                f"{FILE}: crop_fraction={crop}; expected 0 < crop_fraction ≤ 1, or image_crop_size and "
                "image_target_size"
            )
        return crop


def groot_n17(
    images: GrootImages,
    patch: int = 16,
    merge: int = 2,
    camera_size: tuple[int, int] | None = None,
    filter: Filter = "bicubic",
) -> Staged:
    """GR00T N1.7. camera_size: (height, width) of the cameras; None: square ones.

    With use_albumentations as `area_stages`. Otherwise squashed to a square, the middle cut out, back to
    image_target_size. filter: of the latter; LeRobot's `bicubic`, or the `bilinear` of Isaac-GR00T.
    Then Qwen3-VL's processor rounds the edges to whole blocks of patches.

    Raises CheckpointError where `images` says too little, and for a camera_size that would change nothing.
    """
    last = partial(whole_blocks, factor=patch * merge, blocks=QWEN)
    if images.use_albumentations:
        return area_rule(images, patch, merge, camera_size, last)
    if camera_size is not None:
        raise CheckpointError(
            f"image_size is {camera_size}, but {FILE} squashes cameras of any size (use_albumentations is "
            "false); leave it out"
        )
    if images.image_target_size is None:
        raise CheckpointError(f"{FILE}: no image_target_size; expected [height, width]")
    edge, target = images.edge, images.image_target_size
    stages = [
        Stage(filter, edge, edge, square=images.letter_box_transform),
        Stage(filter, *target, crop=images.crop, crop_size="round"),
    ]
    size = last(*target)
    if size != target:
        stages.append(Stage("bicubic", *size))
    return Staged(*size, patch, tuple(stages), merge)


def groot_n16(
    images: GrootImages, patch: int = 14, merge: int = 2, camera_size: tuple[int, int] | None = None
) -> Staged:
    """GR00T N1.6: `area_rule`, then Eagle's processor rounds the edges to whole blocks of patches.

    camera_size: (height, width) of the cameras; None: square ones.

    Raises CheckpointError where `images` says too little, and for use_albumentations = false.
    """
    if not images.use_albumentations:
        raise CheckpointError(
            f"{FILE}: use_albumentations is false; expected true: N1.6 was published with two other ways"
        )
    last = partial(whole_blocks, factor=patch * merge, blocks=EAGLE)
    return area_rule(images, patch, merge, camera_size, last)


def area_rule(
    images: GrootImages,
    patch: int,
    merge: int,
    camera_size: tuple[int, int] | None,
    last: partial[tuple[int, int]],
) -> Staged:
    """The shorter edge by area, the middle cut out, the shorter edge again; then bicubic to what `last` says.

    The rooms of the stages leave a block of patches for cameras of slightly another shape.
    """
    height, width = camera_size or (images.edge, images.edge)
    block = patch * merge
    stages: list[Stage] = []
    for square, crop in ((images.letter_box_transform, 1.0), (False, images.crop)):
        shortest = Stage("area", 0, 0, "shortest", images.edge, square, crop)
        height, width = shortest.size(height, width)
        room = height + block, width + block
        stages.append(Stage("area", *room, "shortest", images.edge, square, crop))
    size = last(height, width)
    return Staged(*size, patch, (*stages, Stage("bicubic", *size)), merge, last)


def whole_blocks(height: int, width: int, factor: int, blocks: tuple[int, int]) -> tuple[int, int]:
    """Both edges rounded to multiples of `factor`; more or less of them where the area leaves the bounds.

    blocks: factor² pixels at least and at most. Halves go to even, as in the training code.
    """
    size = max(factor, round(height / factor) * factor), max(factor, round(width / factor) * factor)
    fewest, most = (count * factor**2 for count in blocks)
    if size[0] * size[1] > most:
        shrink = math.sqrt(size[0] * size[1] / most)
        return int(size[0] / shrink / factor) * factor, int(size[1] / shrink / factor) * factor
    if size[0] * size[1] < fewest:
        grow = math.sqrt(fewest / (height * width))
        return math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return size
