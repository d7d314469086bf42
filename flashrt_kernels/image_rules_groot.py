# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""How GR00T N1.6 and N1.7 prepare camera images.

Most of it keeps the aspect ratio of the camera, so the number of tokens depends on it: a rule is made for
cameras of one size and refuses those that would give another grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from flashrt_kernels.checkpoint.groot_dims import Version
from flashrt_kernels.checkpoint.groot_processing import GrootImages
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.image_resample import Filter
from flashrt_kernels.image_rules import Stage, Staged

FILE = "processor_config.json"
# Fewest and most blocks of merge × merge patches. Qwen3-VL's lower bound is the 64 of 256×256 pixels, which
# no released setting falls below, and tiny policies must.
EAGLE, QWEN = (4, 4096), (0, 16384)


def groot_n17(images: GrootImages, patch: int = 16, merge: int = 2, filter: Filter = "bicubic") -> Staged:
    """GR00T N1.7.

    With albumentations as `area_rule`. Otherwise squashed to a square, the middle cut out, back to
    target_size. filter: of the latter; LeRobot's `bicubic`, or the `bilinear` of Isaac-GR00T.
    Then Qwen3-VL's processor rounds the edges to whole blocks of patches.

    Raises CheckpointError where `images` says too little, and for a camera_size without effect.
    """
    last = partial(whole_blocks, factor=patch * merge, blocks=QWEN)
    if images.albumentations:
        return area_rule(images, patch, merge, last)
    if images.camera_size is not None:
        raise CheckpointError(
            f"image_size is {images.camera_size}, but {FILE} squashes cameras of any size "
            "(use_albumentations is false); leave it out"
        )
    if images.target_size is None:
        raise CheckpointError(f"{FILE}: no image_target_size; expected [height, width]")
    edge, target = edge_of(images), images.target_size
    stages = [
        Stage(filter, edge, edge, square=images.letter_box),
        Stage(filter, *target, crop=crop_of(images), crop_size="round"),
    ]
    size = last(*target)
    if size != target:
        stages.append(Stage("bicubic", *size))
    return Staged(*size, patch, tuple(stages), merge)


def groot_n16(images: GrootImages, patch: int = 14, merge: int = 2) -> Staged:
    """GR00T N1.6: `area_rule`, then Eagle's processor rounds the edges to whole blocks of patches.

    Raises CheckpointError where `images` says too little, and for use_albumentations = false.
    """
    if not images.albumentations:
        raise CheckpointError(
            f"{FILE}: use_albumentations is false; expected true: N1.6 was published with two other ways"
        )
    last = partial(whole_blocks, factor=patch * merge, blocks=EAGLE)
    return area_rule(images, patch, merge, last)


def area_rule(images: GrootImages, patch: int, merge: int, last: partial[tuple[int, int]]) -> Staged:
    """The shorter edge by area, the middle cut out, the shorter edge again; then bicubic to what `last` says.

    The rooms of the stages leave a block of patches for cameras of slightly another shape.
    """
    height, width = images.camera_size or (edge_of(images), edge_of(images))
    block = patch * merge
    stages: list[Stage] = []
    for square, crop in ((images.letter_box, 1.0), (False, crop_of(images))):
        shortest = Stage("area", 0, 0, "shortest", edge_of(images), square, crop)
        height, width = shortest.size(height, width)
        room = height + block, width + block
        stages.append(Stage("area", *room, "shortest", edge_of(images), square, crop))
    size = last(height, width)
    return Staged(*size, patch, (*stages, Stage("bicubic", *size)), merge, last)


def edge_of(images: GrootImages) -> int:
    """Pixels of the edge that everything is resized to. Raises CheckpointError where nothing says it."""
    edge = images.shortest_edge or (images.target_size or (0,))[0]
    if edge < 1:
        raise CheckpointError(f"{FILE}: no shortest_image_edge and no image_target_size; expected one")
    return edge


def crop_of(images: GrootImages) -> float:
    """Part of each edge that is kept. Raises CheckpointError where nothing sensible says it."""
    crop = images.crop_fraction
    if crop is None and images.crop_size and images.target_size:
        crop = images.crop_size[0] / images.target_size[0]
    if crop is None or not 0 < crop <= 1:
        raise CheckpointError(
            f"{FILE}: crop_fraction={crop}; expected 0 < crop_fraction ≤ 1, or image_crop_size and "
            "image_target_size"
        )
    return crop


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


RULES: dict[Version, Callable[[GrootImages, int, int], Staged]] = {"n16": groot_n16, "n17": groot_n17}
