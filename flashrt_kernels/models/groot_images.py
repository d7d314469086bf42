# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The image rule of a GR00T checkpoint, from what its files say about images."""

from __future__ import annotations

from collections.abc import Callable

from flashrt_kernels.checkpoint.groot import GrootCheckpoint
from flashrt_kernels.checkpoint.groot_dims import Version
from flashrt_kernels.image_rules import Staged
from flashrt_kernels.image_rules_groot import GrootImages, groot_n16, groot_n17

RULES: dict[Version, Callable[..., Staged]] = {"n16": groot_n16, "n17": groot_n17}


def image_rule(checkpoint: GrootCheckpoint) -> Staged:
    """Raises CheckpointError where the checkpoint says too little, or asks for what was never published."""
    given, vision = checkpoint.images, checkpoint.dims.vision
    settings = GrootImages(
        image_target_size=given.target_size,
        image_crop_size=given.crop_size,
        shortest_image_edge=given.shortest_edge,
        crop_fraction=given.crop_fraction,
        use_albumentations=given.albumentations,
        letter_box_transform=given.letter_box,
    )
    return RULES[checkpoint.dims.version](settings, vision.patch, vision.merge, given.camera_size)
