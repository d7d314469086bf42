# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Gemma: the transformer block that language model and action expert share, and the prefix pass over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flashrt_kernels.attention import attention
from flashrt_kernels.checkpoint.dims import GemmaDims
from flashrt_kernels.decoding import write_rows
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
    """The tokens that a block computes: their rows of the cache, their rotation, the keys that they see.

    at: int32 [1], where among `own` the keys and values of these tokens go, when that is known at replay
    only; None: they fill `own`.
    """

    own: slice
    table: Buffer  # [tokens, head_dim] from rope_table
    key_valid: Buffer  # [keys]: the first `keys` rows of the cache are seen, where True
    settled: int = 0  # rows in front that earlier sections of the graph, or graphs before, have written
    at: Buffer | None = None


class PlainNorms:
    """Gemma's RMS norms, whose branches have no gate: `Norm` of block."""

    def __init__(self, g: StaticGraph, w: Weights, eps: float) -> None:
        self._g, self._w, self._eps = g, w, eps

    def __call__(self, name: str, x: Buffer) -> tuple[Buffer, None]:
        weight = self._w.vector(self._g, name + ".weight")
        return self._g.call(rms_norm, x=x, weight=weight, eps=self._eps, out_dtype=self._w.dtype), None


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
    only: slice | None = None,
) -> Buffer:
    """One layer: x [tokens, width] → the same shape; its keys and values go into `cache`.

    split_query: queries come from a launch of their own, so that a replay which needs only keys and values of
    this layer skips everything else. only: the tokens that go on to the next layer; all give keys and values.
    """
    h, gate = norm(key + "input_layernorm", x)
    attn = key + "self_attn."
    if split_query or only is not None:
        project(g, w, attn, dims, h, cache, span, heads=0)
        rows = slice(None) if only is None else only
        q = query(g, w, attn, dims, h[rows], span.table[rows])
        x = x[rows]
    else:
        q = project(g, w, attn, dims, h, cache, span, heads=dims.num_heads)
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
        settled=span.settled,
    )
    x = add_branch(g, w, attn + "o_proj.weight", h, gate, x)
    h, gate = norm(key + "post_attention_layernorm", x)
    h = g.call(
        matmul_gelu_mul, x=h, weight=w.pair(g, key + "mlp.gate_proj.weight", key + "mlp.up_proj.weight")
    )
    return add_branch(g, w, key + "mlp.down_proj.weight", h, gate, x)


def add_branch(g: StaticGraph, w: Weights, key: str, h: Buffer, gate: Buffer | None, x: Buffer) -> Buffer:
    """x + gate · (h · weightᵀ): the end of a branch."""
    return g.call(matmul, x=h, weight=w.matrix(g, key), gate=gate, residual=x, out_dtype=RESIDUAL)


def fused(g: StaticGraph, w: Weights, key: str, dims: GemmaDims) -> Buffer:
    """Weights of queries, keys and values below each other."""
    q, k, v = (f"{key}{name}_proj.weight" for name in ("q", "k", "v"))
    return w.qkv(g, q, k, v, dims.num_heads, dims.num_kv_heads, dims.head_dim)


def project(
    g: StaticGraph, w: Weights, key: str, dims: GemmaDims, h: Buffer, cache: Cache, span: Span, heads: int
) -> Any:
    """Rotated keys and values of h [tokens, width] go into the cache.

    Returns rotated queries [tokens, heads·head_dim]; None for heads = 0.
    """
    weight, keys, values = fused(g, w, key, dims), cache.keys[span.own], cache.values[span.own]
    given: dict[str, Buffer | None] = {} if span.at is not None else {"k_out": keys, "v_out": values}
    if not heads:
        weight, given["q_out"] = weight[dims.num_heads * dims.head_dim :], None
    q, k, v = g.call(
        matmul_rope_qkv,
        x=h,
        weight=weight,
        table=span.table,
        heads=heads,
        kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        **given,
    )
    if span.at is not None:
        g.call(write_rows, rows=k, at=span.at, cache=keys)
        g.call(write_rows, rows=v, at=span.at, cache=values)
    return q


def query(g: StaticGraph, w: Weights, key: str, dims: GemmaDims, h: Buffer, table: Buffer) -> Buffer:
    """Rotated queries alone, [tokens, heads·head_dim]."""
    q: Buffer = g.call(
        matmul_rope_qkv,
        x=h,
        weight=fused(g, w, key, dims)[: dims.num_heads * dims.head_dim],
        table=table,
        k_out=None,
        v_out=None,
        heads=dims.num_heads,
        kv_heads=0,
        head_dim=dims.head_dim,
    )[0]
    return q


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

    norm = PlainNorms(g, w, eps)
    for i, cache in enumerate(caches):
        x = block(g, w, f"{key}layers.{i}.", dims, x, norm, cache, span, split_query=i == len(caches) - 1)
        g.mark(f"prefix.layer{i}", x)
        g.mark(f"prefix.kv.{i}.k", cache.keys[span.own])
        g.mark(f"prefix.kv.{i}.v", cache.values[span.own])
