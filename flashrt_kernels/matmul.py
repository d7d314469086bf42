# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matrix products with fused epilogues. Weights are stored [outputs, inputs]; accumulation is fp32."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.activation import ACTIVATIONS, Activation
from flashrt_kernels.kernel import FLOAT, FLOAT32, In, Out, kernel
from flashrt_kernels.rope import rope_qkv


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("n k", FLOAT, align=16),
    bias=In("n", FLOAT32, optional=True),
    gate=In("n", FLOAT32, optional=True),
    residual=In("rows n", FLOAT, optional=True),
    out=Out("rows n", FLOAT, like="x"),
)
def matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gate: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    *,
    activation: Activation = "none",
) -> None:
    """residual + gate · activation(x · weightᵀ + bias); parts that are not given drop out.

    The operands may differ in dtype and are used as stored; everything after them is fp32 and rounded once
    into `out`.
    """
    y = F.linear(x.float(), weight.float(), bias)  # [rows, n]
    y = ACTIVATIONS[activation](y)
    if gate is not None:
        y.mul_(gate)
    if residual is not None:
        y.add_(residual)
    out.copy_(y)


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("2 f k", FLOAT, align=16),
    out=Out("rows f", FLOAT, like="x"),
)
def matmul_gelu_mul(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """gelu_tanh(x · weight[0]ᵀ) · (x · weight[1]ᵀ): gate and up of a Gemma MLP in one pass over x."""
    both = F.linear(x.float(), weight.float().flatten(0, 1))  # [rows, 2·f]
    gate, up = both.chunk(2, dim=1)
    torch.mul(F.gelu(gate, approximate="tanh"), up, out=both[:, : gate.shape[1]])
    out.copy_(both[:, : gate.shape[1]])


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("heads*head_dim+2*kv_heads*head_dim k", FLOAT, align=16),
    table=In("rows head_dim", FLOAT32),
    q_out=Out("rows heads*head_dim", FLOAT, like="x", optional=True),
    k_out=Out("rows kv_heads*head_dim", FLOAT, like="x"),
    v_out=Out("rows kv_heads*head_dim", FLOAT, like="x"),
    multiples=[("head_dim", "2")],
)
def matmul_rope_qkv(
    x: torch.Tensor,
    weight: torch.Tensor,
    table: torch.Tensor,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor,
    v_out: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
) -> None:
    """rope_qkv of x · weightᵀ: projection, rotation and the write into the cache in one pass over x."""
    qkv = F.linear(x.float(), weight.float())  # [rows, (heads + 2·kv_heads)·head_dim]
    rope_qkv.reference(qkv, table, q_out, k_out, v_out, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
