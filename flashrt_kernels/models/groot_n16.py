# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T N1.6: SigLIP2 with 2 × 2 patches per token → Qwen3 → diffusion transformer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from flashrt_kernels.checkpoint import groot_layout
from flashrt_kernels.checkpoint.dims import VisionDims
from flashrt_kernels.checkpoint.groot_dims import GrootVisionDims
from flashrt_kernels.checkpoint.groot_layout import PROJECTOR
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models import qwen3, siglip
from flashrt_kernels.models.groot import Groot
from flashrt_kernels.models.groot_rows import Bools, Ints, place
from flashrt_kernels.models.qwen3 import Order
from flashrt_kernels.models.qwen3_vl import in_blocks
from flashrt_kernels.models.weights import RESIDUAL, linear
from flashrt_kernels.norm import layer_norm
from flashrt_kernels.rope import rope_table

VISION = groot_layout.VISION["n16"]
POSITIONS = VISION + "positions of the grid"  # name of a constant
PROJECTOR_EPS = 1e-5


class GrootN16(Groot):
    """The features are those of the last language layer behind the final norm."""

    name = "groot_n16"
    language = groot_layout.LLM["n16"]
    axes = 1

    def _fold_vision(self, rows: int, columns: int) -> None:
        """The square position table, resized to the grid as an image is: bilinear, antialiased."""
        vision = self.dims.vision
        edge = vision.position_grid
        table = self.weights.once(VISION + "embeddings.position_embedding.weight").T.view(1, -1, edge, edge)
        grid = F.interpolate(table, size=(rows, columns), mode="bilinear", antialias=True)[0]
        self.weights.keep(POSITIONS, in_blocks(grid.permute(1, 2, 0), vision.merge))

    def _vision(self, g: StaticGraph, patches: Buffer, cameras: int, out: Buffer) -> tuple[Buffer, ...]:
        w, dims = self.weights, siglip_dims(self.dims.vision)
        embed = VISION + "embeddings.patch_embedding."
        x = g.call(
            matmul,
            x=patches,
            weight=w.derived(g, embed + "weight by channel", self._patch_weight, w.dtype),
            bias=w.vector(g, embed + "bias"),
            residual=w.repeated(g, POSITIONS, cameras),
            out_dtype=RESIDUAL,
        )
        g.mark("vis.embeddings", x)
        for i in range(dims.num_hidden_layers):
            x = siglip.layer(g, w, f"{VISION}encoder.layers.{i}.", dims, x, cameras)
            g.mark(f"vis.block{i}", x)
        x = self._post_norm(g, x)
        g.mark("vis.out", x)
        self._project(g, x.view(out.shape[0], self.dims.vision.merged), out)
        return ()

    def _post_norm(self, g: StaticGraph, x: Buffer) -> Buffer:
        w, key = self.weights, VISION + "post_layernorm"
        weight, bias, eps = (
            w.vector(g, key + ".weight"),
            w.vector(g, key + ".bias"),
            self.dims.vision.layer_norm_eps,
        )
        return g.call(layer_norm, x=x, weight=weight, bias=bias, eps=eps, out_dtype=RESIDUAL)

    def _project(self, g: StaticGraph, x: Buffer, out: Buffer) -> None:
        """x [tokens, 4·width], the patches of a token side by side → out [tokens, language width].

        The checkpoint has the features of a token by channel, then by patch: its weights are reordered, which
        a norm over all of them does not notice.
        """
        w = self.weights

        def reordered(name: str) -> Buffer:
            key = f"{PROJECTOR}{name}"
            dtype = w.dtype if name == "1.weight" else torch.float32
            return w.derived(
                g, key + " by patch", lambda: by_patch(w.once(key), self.dims.vision.merge), dtype
            )

        weight, bias = reordered("0.weight"), reordered("0.bias")
        h = g.call(layer_norm, x=x, weight=weight, bias=bias, eps=PROJECTOR_EPS, out_dtype=w.dtype)
        bias = w.vector(g, PROJECTOR + "1.bias")
        h = g.call(matmul, x=h, weight=reordered("1.weight"), bias=bias, activation="gelu_erf")
        linear(g, w, PROJECTOR + "3", h, out=out)
        g.mark("vis.mlp1", out)

    def _patch_weight(self) -> torch.Tensor:
        """[width, (y, x, channel)] → [width, (channel, y, x) filled up to a multiple of 8]."""
        patch = self.dims.vision.patch
        weight = self.weights.once(VISION + "embeddings.patch_embedding.weight")
        flat = weight.unflatten(1, (patch, patch, 3)).permute(0, 3, 1, 2).flatten(1)
        return F.pad(flat, (0, -flat.shape[1] % 8))

    def _rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        llm = self.dims.llm
        return g.call(rope_table, positions=positions[0], head_dim=llm.head_dim, theta=llm.theta)

    def _backbone(self, g: StaticGraph, x: Buffer, order: Order, deep: Sequence[Buffer]) -> Buffer:
        w, llm = self.weights, self.dims.llm
        for i in range(llm.depth):
            x = qwen3.layer(g, w, f"{self.language}layers.{i}.", llm, x, order)
            g.mark(f"llm.layer{i}", x)
        x = qwen3.norm(g, w, self.language + "norm", llm, x, RESIDUAL)
        g.mark("llm.norm", x)
        return x

    def _places(self, is_image: Bools, rows: int) -> Ints:
        return place(is_image, self.image_tokens, self._sequence, rows)


def siglip_dims(vision: GrootVisionDims) -> VisionDims:
    """The same tower in the words of `siglip`."""
    return VisionDims(
        hidden_size=vision.width,
        intermediate_size=vision.mlp,
        num_hidden_layers=vision.depth,
        num_attention_heads=vision.heads,
        patch_size=vision.patch,
        image_size=vision.patch * vision.position_grid,
        layer_norm_eps=vision.layer_norm_eps,
    )


def by_patch(x: torch.Tensor, merge: int) -> torch.Tensor:
    """[…, (channel, patch of the token)] → […, (patch of the token, channel)]."""
    return x.unflatten(-1, (-1, merge**2)).transpose(-1, -2).flatten(-2)
