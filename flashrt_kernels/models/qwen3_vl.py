# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL's vision tower: still images in blocks of merge × merge patches, DeepStack features on the way.

A block of patches becomes one token of the language model; as its patches are neighbours in memory, the merge
is a view.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from flashrt_kernels.attention import self_attention
from flashrt_kernels.checkpoint import groot_layout
from flashrt_kernels.checkpoint.groot_dims import GrootVisionDims
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.norm import layer_norm
from flashrt_kernels.rope import rope_qk

VISION = groot_layout.VISION["n17"]
POSITIONS, ROTATION = VISION + "pos_embed of the grid", VISION + "rotation"  # names of constants
ROPE_THETA = 10_000.0


def in_blocks(x: torch.Tensor, merge: int) -> torch.Tensor:
    """[rows, columns, …] of a grid → [rows · columns, …], merge × merge blocks one after another."""
    rows, columns = x.shape[0] // merge, x.shape[1] // merge
    return x.unflatten(1, (columns, merge)).unflatten(0, (rows, merge)).transpose(1, 2).flatten(0, 3)


def fold_grid(w: Weights, dims: GrootVisionDims, rows: int, columns: int) -> None:
    """POSITIONS [patches, width] and ROTATION [patches, head_dim] of a grid, in block order.

    Positions: the learned square table, read bilinearly at evenly spaced places from its first row and column
    to its last. Rotation, [cos | sin]: the first half of the frequencies turns with the row, the second with
    the column.
    """
    edge = dims.position_grid
    table = w.once(VISION + "pos_embed.weight").double().view(edge, edge, -1)
    down, across = (between(edge, count).to(w.device) for count in (rows, columns))
    grid = torch.einsum("ia,jb,abc->ijc", down, across, table)
    w.keep(POSITIONS, in_blocks(grid, dims.merge).float())
    quarter = dims.head_dim // 4
    powers = ROPE_THETA ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    places = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), dim=-1)
    angles = (in_blocks(places, dims.merge)[..., None] * powers).flatten(1)  # [patches, head_dim/2]
    w.keep(ROTATION, torch.cat([angles.cos(), angles.sin()], dim=1).float().to(w.device))


def between(edge: int, count: int) -> torch.Tensor:
    """[count, edge] float64: weights that read a table of `edge` entries at `count` even places."""
    places = np.linspace(0, edge - 1, count)
    low = places.astype(int)
    weights = np.zeros((count, edge))
    weights[np.arange(count), low] += 1 - (places - low)
    weights[np.arange(count), np.minimum(low + 1, edge - 1)] += places - low
    return torch.from_numpy(weights)


def vision_tower(
    g: StaticGraph, w: Weights, dims: GrootVisionDims, patches: Buffer, cameras: int, out: Buffer
) -> tuple[Buffer, ...]:
    """patches [cameras·n, 3·patch² filled up to a multiple of 8] → out [tokens, language width].

    Patches come in block order. Returns the DeepStack features, of out's shape in fp32. Attention stays in
    an image. Marks `vis.<stage>`.
    """
    embed = VISION + "patch_embed.proj"
    merged = (out.shape[0], dims.merged)
    x = g.call(
        matmul,
        x=patches,
        weight=w.derived(g, embed + " of a still image", lambda: still(w.once(embed + ".weight")), w.dtype),
        bias=w.vector(g, embed + ".bias"),
        out_dtype=RESIDUAL,
        residual=w.repeated(g, POSITIONS, cameras),
    )
    g.mark("vis.embeddings", x)
    table = w.repeated(g, ROTATION, cameras)
    deep: list[Buffer] = []
    for i in range(dims.depth):
        x = layer(g, w, f"{VISION}blocks.{i}.", dims, x, table, cameras)
        g.mark(f"vis.block{i}", x)
        if i in dims.deepstack:
            key = f"{VISION}deepstack_merger_list.{len(deep)}."
            h = norm(g, w, key + "norm", dims, x.view(*merged))  # behind the merge, unlike the last one
            deep.append(project(g, w, key, h, out_dtype=RESIDUAL))
            g.mark(f"vis.deepstack{len(deep) - 1}", deep[-1])
    h = norm(g, w, VISION + "merger.norm", dims, x)
    project(g, w, VISION + "merger.", h.view(*merged), out=out)
    g.mark("vis.merger", out)
    return tuple(deep)


def still(weight: torch.Tensor) -> torch.Tensor:
    """A convolution [outputs, 3, frames, y, x] as a matmul weight for one frame that is all of them."""
    flat = weight.sum(dim=2).flatten(1)
    return F.pad(flat, (0, -flat.shape[1] % 8))


def layer(
    g: StaticGraph, w: Weights, key: str, dims: GrootVisionDims, x: Buffer, table: Buffer, cameras: int
) -> Buffer:
    """One pre-norm transformer layer: x [cameras·n, width] → the same shape, fp32."""
    size = {"heads": dims.heads, "head_dim": dims.head_dim}
    qkv = linear(g, w, key + "attn.qkv", norm(g, w, key + "norm1", dims, x))
    g.call(rope_qk, qkv=qkv, table=table, **size)
    attended = g.call(self_attention, qkv=qkv, sequences=cameras, **size)
    x = linear(g, w, key + "attn.proj", attended, residual=x, out_dtype=RESIDUAL)
    h = norm(g, w, key + "norm2", dims, x)
    h = linear(g, w, key + "mlp.linear_fc1", h, activation="gelu_tanh")
    return linear(g, w, key + "mlp.linear_fc2", h, residual=x, out_dtype=RESIDUAL)


def project(g: StaticGraph, w: Weights, key: str, h: Buffer, **end: object) -> Buffer:
    """Merged patches [tokens, merge²·width] → [tokens, language width]. end: as in `matmul`."""
    h = linear(g, w, key + "linear_fc1", h, activation="gelu_erf")
    return linear(g, w, key + "linear_fc2", h, **end)


def norm(g: StaticGraph, w: Weights, key: str, dims: GrootVisionDims, x: Buffer) -> Buffer:
    """Layer norm with the weights under `key`."""
    weight, bias = w.vector(g, key + ".weight"), w.vector(g, key + ".bias")
    return g.call(layer_norm, x=x, weight=weight, bias=bias, eps=dims.layer_norm_eps, out_dtype=w.dtype)


def mrope_axes(sections: tuple[int, int, int]) -> torch.Tensor:
    """Axis (0 time, 1 row, 2 column) of every frequency, int32 [head_dim/2]: the three take turns.

    Frequency i is of rows where i % 3 = 1, of columns where i % 3 = 2, until each has as many as its section.
    """
    axes = torch.zeros(sum(sections), dtype=torch.int32)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes
