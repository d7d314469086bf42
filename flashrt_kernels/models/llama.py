# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Llama's transformer layer around any attention: RMS norms in front of both branches, SwiGLU behind."""

from __future__ import annotations

from collections.abc import Callable

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul_silu_mul
from flashrt_kernels.models.gemma import add_branch
from flashrt_kernels.models.weights import Weights
from flashrt_kernels.norm import rms_norm

# normalised x [rows, width] → what the heads read, [rows, heads·head_dim]
Attend = Callable[[Buffer], Buffer]


def layer(g: StaticGraph, w: Weights, key: str, x: Buffer, eps: float, attend: Attend) -> Buffer:
    """One layer: x [rows, width] → the same shape, fp32."""
    h = attend(norm(g, w, key + "input_layernorm", x, eps))
    x = add_branch(g, w, key + "self_attn.o_proj.weight", h, None, x)
    h = norm(g, w, key + "post_attention_layernorm", x, eps)
    gate_up = w.pair(g, key + "mlp.gate_proj.weight", key + "mlp.up_proj.weight")
    h = g.call(matmul_silu_mul, x=h, weight=gate_up)
    return add_branch(g, w, key + "mlp.down_proj.weight", h, None, x)


def norm(g: StaticGraph, w: Weights, key: str, x: Buffer, eps: float) -> Buffer:
    """x / rms · weight. The kernel multiplies by 1 + its weight, so one is taken off."""
    weight = w.derived(g, f"{key}.weight − 1", lambda: w.once(key + ".weight") - 1)
    h: Buffer = g.call(rms_norm, x=x, weight=weight, eps=eps, out_dtype=w.dtype)
    return h
