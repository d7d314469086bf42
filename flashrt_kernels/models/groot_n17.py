# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T N1.7: Qwen3-VL → the head's self-attention → diffusion transformer."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt_kernels.checkpoint.groot_layout import LLM
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.flow import euler_step
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.models.groot import Groot
from flashrt_kernels.models.groot_rows import Bools, Ints, grid_offsets, place
from flashrt_kernels.models.qwen3 import Order, layer
from flashrt_kernels.models.qwen3_vl import fold_grid, mrope_axes, vision_tower
from flashrt_kernels.rope import rope_table_axes

AXES = "axes of the rotary embedding"  # name of a constant


class GrootN17(Groot):
    """The features are those of the last language layer, not normalised."""

    name = "groot_n17"
    language = LLM["n17"]
    axes = 3

    def _fold_vision(self, rows: int, columns: int) -> None:
        fold_grid(self.weights, self.dims.vision, rows, columns)
        sections = self.dims.llm.mrope_section
        if sections is None:
            raise CheckpointError(
                "mrope_section is missing; expected three numbers, as N1.7 has positions on three axes"
            )
        self.weights.keep(AXES, mrope_axes(sections).to(self.weights.device))
        self._offsets = grid_offsets(*self.grid)

    def _vision(self, g: StaticGraph, patches: Buffer, cameras: int, out: Buffer) -> tuple[Buffer, ...]:
        return vision_tower(g, self.weights, self.dims.vision, patches, cameras, out)

    def _rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        axis = self.weights.kept(g, AXES)
        return g.call(rope_table_axes, positions=positions, axis=axis, theta=self.dims.llm.theta)

    def _backbone(self, g: StaticGraph, x: Buffer, order: Order, deep: Sequence[Buffer]) -> Buffer:
        """Behind each of the first layers, features out of the vision tower are added to the images."""
        for i in range(self.dims.llm.depth):
            x = layer(g, self.weights, f"{self.language}layers.{i}.", self.dims.llm, x, order)
            g.mark(f"llm.layer{i}", x)
            if i < len(deep):
                g.call(euler_step, x=x[: deep[i].shape[0]], velocity=deep[i], dt=1.0)  # a plain sum
        return x

    def _places(self, is_image: Bools, rows: int) -> Ints:
        """An image is as long as its longer edge, and its tokens differ by row and column."""
        return place(is_image, max(self.grid), self._offsets, rows)
