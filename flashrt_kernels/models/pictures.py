# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Camera images → the patches that a vision tower reads, for every policy alike."""

from __future__ import annotations

import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image_rules import ImageRule


def compose_pictures(
    g: StaticGraph, rule: ImageRule, cameras: int, image_bytes: int, dtype: torch.dtype
) -> Buffer:
    """Patches [cameras·rule.rows, features] in [−1, 1], features filled up to a multiple of 8.

    Inputs `image<i>.{pixels, info}`, pixels with room for `image_bytes`; outputs and marks
    `image<i>.patches`.
    """
    features = align_up(3 * rule.patch**2, 8)
    patches = g.buffer("patches", (cameras * rule.rows, features), dtype)
    for i in range(cameras):
        part = patches[i * rule.rows : (i + 1) * rule.rows]
        pixels = g.input(f"image{i}.pixels", (image_bytes,), torch.uint8)
        info = g.input(f"image{i}.info", (4,), torch.int32)
        rule.compose(g, pixels, info, part)
        g.output(f"image{i}.patches", part)
        g.mark(f"image{i}.patches", part)
    return patches
