# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLM2's way from patches to image tokens: SigLIP, then scale × scale neighbours become one token."""

from __future__ import annotations

import math

from flashrt_kernels.checkpoint.smolvla import CONNECTOR, VISION
from flashrt_kernels.checkpoint.smolvla_config import SmolVLADims
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.qwen3_vl import in_blocks
from flashrt_kernels.models.siglip import layer, norm
from flashrt_kernels.models.weights import RESIDUAL, Weights

EMBED = VISION + "embeddings."
POSITIONS = EMBED + "position_embedding in blocks"  # name of a constant


def fold_positions(w: Weights, dims: SmolVLADims) -> None:
    """POSITIONS [patches, width], in the order of the patches: blocks of scale × scale."""
    edge = dims.vision.image_size // dims.vision.patch_size
    table = w.once(EMBED + "position_embedding.weight")
    w.keep(POSITIONS, in_blocks(table.view(edge, edge, -1), dims.scale).contiguous())


def image_tokens(
    g: StaticGraph, w: Weights, dims: SmolVLADims, patches: Buffer, cameras: int, out: Buffer
) -> None:
    """patches [cameras·n, 3·patch²] in blocks of scale × scale → out [cameras·n/scale², language width].

    As the patches of a block are neighbours in memory, the pixel shuffle is a view. The factor √width of the
    image tokens is in the connector's weights. Marks `vision.<stage>.cam<i>`.
    """
    vision = dims.vision

    def mark(stage: str, x: Buffer) -> None:
        rows = x.shape[0] // cameras
        for camera in range(cameras):
            g.mark(f"vision.{stage}.cam{camera}", x[camera * rows : (camera + 1) * rows])

    x = g.call(
        matmul,
        x=patches,
        weight=w.patches(g, EMBED + "patch_embedding.weight"),
        bias=w.vector(g, EMBED + "patch_embedding.bias"),
        residual=w.repeated(g, POSITIONS, cameras),
        out_dtype=RESIDUAL,
    )
    mark("embeddings", x)
    for i in range(vision.num_hidden_layers):
        x = layer(g, w, f"{VISION}encoder.layers.{i}.", vision, x, cameras)
        mark(f"layer{i}", x)
    x = norm(g, w, VISION + "post_layernorm", vision, x)
    mark("post_layernorm", x)
    scale = math.sqrt(dims.text.width)
    weight = w.derived(g, f"{CONNECTOR} · √width", lambda: scale * w.once(CONNECTOR + ".weight"), w.dtype)
    g.call(matmul, x=x.view(out.shape[0], weight.shape[1]), weight=weight, out=out)
    mark("connector", out)
