# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T N1.7's self-attention over the backbone's features, in front of the diffusion transformer."""

from __future__ import annotations

from flashrt_kernels.attention import attention
from flashrt_kernels.checkpoint.groot_dims import HeadDims
from flashrt_kernels.checkpoint.groot_layout import VLSA
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.models.dit import BLOCK_EPS, feed_forward
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.norm import layer_norm


def vl_self_attention(g: StaticGraph, w: Weights, dims: HeadDims, x: Buffer, valid: Buffer) -> Buffer:
    """x [rows, width] fp32 → the same shape, in the dtype that matmuls read.

    Every token sees every other: valid, bool [rows], only hides what fills the prompt up.
    """
    heads = {"heads": dims.vlsa_heads, "kv_heads": dims.vlsa_heads, "head_dim": x.shape[1] // dims.vlsa_heads}
    for i in range(dims.vlsa_depth):
        key = f"{VLSA}transformer_blocks.{i}."
        h = norm(g, w, key + "norm1", x)
        q, k, v = (linear(g, w, f"{key}attn1.to_{part}", h) for part in "qkv")
        h = g.call(attention, q=q, k=k, v=v, key_valid=valid, **heads)
        x = linear(g, w, key + "attn1.to_out.0", h, residual=x, out_dtype=RESIDUAL)
        last = i == dims.vlsa_depth - 1
        x = feed_forward(g, w, key, norm(g, w, key + "norm3", x), x, w.dtype if last else RESIDUAL)
    return x


def norm(g: StaticGraph, w: Weights, key: str, x: Buffer) -> Buffer:
    """Layer norm with the weights under `key`."""
    weight, bias = w.vector(g, key + ".weight"), w.vector(g, key + ".bias")
    return g.call(layer_norm, x=x, weight=weight, bias=bias, eps=BLOCK_EPS, out_dtype=w.dtype)
