# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Gemma: the transformer block that language model and action expert share, and the prefix pass over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashrt_kernels.attention import attention
from flashrt_kernels.checkpoint.dims import GemmaDims
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul, matmul_gelu_mul, matmul_rope_qkv
from flashrt_kernels.models.weights import RESIDUAL, Weights
from flashrt_kernels.norm import rms_norm

# (key of the norm, x) → (normalised x, gate of the branch or None)
Norm = Callable[[str, Buffer], tuple[Buffer, Buffer | None]]


@dataclass(frozen=True)
class Cache:
    """Rotated keys and values of one layer, each [tokens, kv_heads·head_dim]."""

    keys: Buffer
    values: Buffer


@dataclass(frozen=True)
class Span:
    """The tokens that a block computes: their rows of the cache, their rotation, the keys that they see."""

    own: slice  # rows in front of it are of earlier sections of the graph
    table: Buffer  # [own, head_dim] from rope_table
    key_valid: Buffer  # [keys]: the first `keys` rows of the cache are seen, where True


def block(
    g: StaticGraph,
    w: Weights,
    key: str,
    dims: GemmaDims,
    x: Buffer,
    norm: Norm,
    cache: Cache,
    span: Span,
    split_query: bool = False,
) -> Buffer:
    """One layer: x [own, width] → the same shape; its keys and values go into `cache`.

    split_query: queries come from a launch of their own, so that a replay which needs only keys and values of
    this layer skips everything else.
    """
    h, gate = norm(key + "input_layernorm", x)
    q = project(g, w, key + "self_attn.", dims, h, cache, span, split_query)
    seen = slice(0, span.key_valid.shape[0])
    h = g.call(
        attention,
        q=q,
        k=cache.keys[seen],
        v=cache.values[seen],
        key_valid=span.key_valid,
        heads=dims.num_heads,
        kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        settled=span.own.start,
    )
    x = add_branch(g, w, key + "self_attn.o_proj.weight", h, gate, x)
    h, gate = norm(key + "post_attention_layernorm", x)
    h = g.call(
        matmul_gelu_mul, x=h, weight=w.pair(g, key + "mlp.gate_proj.weight", key + "mlp.up_proj.weight")
    )
    return add_branch(g, w, key + "mlp.down_proj.weight", h, gate, x)


def add_branch(g: StaticGraph, w: Weights, key: str, h: Buffer, gate: Buffer | None, x: Buffer) -> Buffer:
    """x + gate · (h · weightᵀ): the end of a branch."""
    return g.call(matmul, x=h, weight=w.matrix(g, key), gate=gate, residual=x, out_dtype=RESIDUAL)


def project(
    g: StaticGraph, w: Weights, key: str, dims: GemmaDims, h: Buffer, cache: Cache, span: Span, split: bool
) -> Buffer:
    """Rotated queries [own, heads·head_dim]; rotated keys and values go into the cache."""
    q, k, v = (f"{key}{name}_proj.weight" for name in ("q", "k", "v"))
    head_dim = dims.head_dim
    weight = w.qkv(g, q, k, v, dims.num_heads, dims.num_kv_heads, head_dim)
    common = {
        "x": h,
        "table": span.table,
        "k_out": cache.keys[span.own],
        "v_out": cache.values[span.own],
        "kv_heads": dims.num_kv_heads,
        "head_dim": head_dim,
    }
    if not split:
        return g.call(matmul_rope_qkv, weight=weight, heads=dims.num_heads, **common)[0]
    q_width = dims.num_heads * head_dim
    g.call(matmul_rope_qkv, weight=weight[q_width:], q_out=None, heads=0, **common)
    alone = common | {"kv_heads": 0, "k_out": None, "v_out": None}
    return g.call(matmul_rope_qkv, weight=weight[:q_width], heads=dims.num_heads, **alone)[0]


def prefix(
    g: StaticGraph,
    w: Weights,
    key: str,
    dims: GemmaDims,
    x: Buffer,
    caches: list[Cache],
    span: Span,
    eps: float,
) -> None:
    """Fill the caches from the prefix x [tokens, width].

    The policy does not use the hidden states, so the end of the last layer runs only for taps.
    Marks `prefix.layer<i>` and `prefix.kv.<i>.{k,v}`.
    """

    def norm(name: str, x: Buffer) -> tuple[Buffer, None]:
        return g.call(rms_norm, x=x, weight=w.vector(g, name + ".weight"), eps=eps, out_dtype=w.dtype), None

    for i, cache in enumerate(caches):
        x = block(g, w, f"{key}layers.{i}.", dims, x, norm, cache, span, split_query=i == len(caches) - 1)
        g.mark(f"prefix.layer{i}", x)
        g.mark(f"prefix.kv.{i}.k", cache.keys[span.own])
        g.mark(f"prefix.kv.{i}.v", cache.values[span.own])
