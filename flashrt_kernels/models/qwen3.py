# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Qwen3's transformer layer: grouped key/value heads, an RMS norm of every head of q and k, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashrt_kernels.attention import attention
from flashrt_kernels.checkpoint.groot_dims import QwenDims
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul, matmul_silu_mul
from flashrt_kernels.models.weights import RESIDUAL, Weights
from flashrt_kernels.norm import rms_norm
from flashrt_kernels.rope import norm_rope_qkv


@dataclass(frozen=True)
class Order:
    """table: rotation of each row, [rows, head_dim]. mask: bool [rows, rows], which rows a row sees.

    The rows may lie in any order: the mask says who came before whom.
    """

    table: Buffer
    mask: Buffer


def layer(g: StaticGraph, w: Weights, key: str, dims: QwenDims, x: Buffer, order: Order) -> Buffer:
    """One layer: x [rows, width] → the same shape, fp32."""
    attn = key + "self_attn."
    h = norm(g, w, key + "input_layernorm", dims, x, w.dtype)
    names = (f"{attn}{part}_proj.weight" for part in "qkv")
    q, k, v = g.call(
        norm_rope_qkv,
        qkv=g.call(matmul, x=h, weight=w.matrix(g, *names)),
        table=order.table,
        q_weight=w.vector(g, attn + "q_norm.weight"),
        k_weight=w.vector(g, attn + "k_norm.weight"),
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        head_dim=dims.head_dim,
        eps=dims.eps,
    )
    h = g.call(
        attention,
        q=q,
        k=k,
        v=v,
        mask=order.mask,
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        head_dim=dims.head_dim,
    )
    x = g.call(matmul, x=h, weight=w.matrix(g, attn + "o_proj.weight"), residual=x, out_dtype=RESIDUAL)
    h = norm(g, w, key + "post_attention_layernorm", dims, x, w.dtype)
    gate_up = w.pair(g, key + "mlp.gate_proj.weight", key + "mlp.up_proj.weight")
    h = g.call(matmul_silu_mul, x=h, weight=gate_up)
    down = w.matrix(g, key + "mlp.down_proj.weight")
    return g.call(matmul, x=h, weight=down, residual=x, out_dtype=RESIDUAL)


def norm(g: StaticGraph, w: Weights, key: str, dims: QwenDims, x: Buffer, dtype: torch.dtype) -> Buffer:
    """x / rms · weight. The kernel multiplies by 1 + its weight, so one is taken off."""
    weight = w.derived(g, f"{key}.weight − 1", lambda: w.once(key + ".weight") - 1)
    return g.call(rms_norm, x=x, weight=weight, eps=dims.eps, out_dtype=dtype)
