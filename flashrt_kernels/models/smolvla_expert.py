# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLA's action expert: layers that attend to prefix and chunk, and layers that read the prefix only.

The latter make keys and values of the prefix's own, as the language model's layer of the same number left
them, rotated: nothing of that depends on noise or time, so it is computed once in a decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_kernels.attention import attention
from flashrt_kernels.checkpoint.dims import GemmaDims
from flashrt_kernels.checkpoint.smolvla import EXPERT
from flashrt_kernels.checkpoint.smolvla_config import SmolVLADims
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import interleave, matmul, matmul_rope_qkv
from flashrt_kernels.models.gemma import Cache, Span, project
from flashrt_kernels.models.llama import Attend, layer, norm
from flashrt_kernels.models.weights import Weights


@dataclass(frozen=True)
class Chunk:
    """What the expert's layers read beside its tokens.

    caches: of each layer: with room for the chunk, or, where the layer reads the prefix only, what
    `prefix_only` made of it. span, mask: the chunk's rows and, bool [horizon, keys], who sees whom, in layers
    that attend to the chunk too. table: rotation in the others, where positions begin at 0.
    """

    caches: list[Cache]
    span: Span
    mask: Buffer
    table: Buffer


def prefix_only(g: StaticGraph, w: Weights, i: int, cache: Cache) -> Cache:
    """Keys and values of expert layer i from those of the language model's. Marks `cross.<i>.{k,v}`."""
    made = []
    for part, source in (("k", cache.keys), ("v", cache.values)):
        weight = w.matrix(g, f"{EXPERT}layers.{i}.self_attn.{part}_proj.weight")
        made.append(g.call(matmul, x=source, weight=weight))
        g.mark(f"cross.{i}.{part}", made[-1])
    return Cache(*made)


def expert(g: StaticGraph, w: Weights, dims: SmolVLADims, h: Buffer, chunk: Chunk, label: str) -> Buffer:
    """h [horizon, width] through all layers and the last norm. Marks `<label>.layer<i>`, `.final_norm`."""
    for i, cross in enumerate(dims.cross):
        make = cross_attend if cross else self_attend
        attend = make(g, w, f"{EXPERT}layers.{i}.self_attn.", dims.expert, chunk.caches[i], chunk)
        h = layer(g, w, f"{EXPERT}layers.{i}.", h, dims.rms_eps, attend)
        g.mark(f"{label}.layer{i}", h)
    h = norm(g, w, EXPERT + "norm", h, dims.rms_eps)
    g.mark(f"{label}.final_norm", h)
    return h


def self_attend(g: StaticGraph, w: Weights, key: str, dims: GemmaDims, cache: Cache, chunk: Chunk) -> Attend:
    """Attention to the valid prefix and, causally, to the chunk."""

    def attend(h: Buffer) -> Buffer:
        q = project(g, w, key, dims, h, cache, chunk.span, heads=dims.num_heads)
        return look(g, dims, q, cache, chunk.span.key_valid, chunk.mask, settled=chunk.span.settled)

    return attend


def cross_attend(g: StaticGraph, w: Weights, key: str, dims: GemmaDims, cache: Cache, chunk: Chunk) -> Attend:
    """Attention to the valid prefix."""
    rows = cache.keys.shape[0]

    def attend(h: Buffer) -> Buffer:
        q = g.call(
            matmul_rope_qkv,
            x=h,
            weight=queries(g, w, key + "q_proj.weight", dims),
            table=chunk.table,
            k_out=None,
            v_out=None,
            heads=dims.num_heads,
            kv_heads=0,
            head_dim=dims.head_dim,
        )[0]
        return look(g, dims, q, cache, chunk.span.key_valid[:rows], None, settled=rows)

    return attend


def queries(g: StaticGraph, w: Weights, key: str, dims: GemmaDims) -> Buffer:
    """Weights of rotated queries without keys and values, in the order that matmul_rope_qkv wants."""

    def make() -> torch.Tensor:
        halves = w.once(key).unflatten(0, (dims.num_heads, 2, dims.head_dim // 2))
        return interleave(halves[:, 0], halves[:, 1]).flatten(0, 3)

    return w.derived(g, f"{key} alone", make, w.dtype)


def look(
    g: StaticGraph,
    dims: GemmaDims,
    q: Buffer,
    cache: Cache,
    key_valid: Buffer,
    mask: Buffer | None,
    settled: int = 0,
) -> Buffer:
    """Attention of q to all rows of `cache`, grouped heads."""
    seen: Buffer = g.call(
        attention,
        q=q,
        k=cache.keys,
        v=cache.values,
        key_valid=key_valid,
        mask=mask,
        heads=dims.num_heads,
        kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        settled=settled,
    )
    return seen
