# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matrix products with fused epilogues. Weights are stored [outputs, inputs]; accumulation is fp32.

Outputs that an epilogue combines in pairs (gate and up; the two halves of a rotated head) are stored
interleaved in blocks of BLOCK rows: BLOCK first ones, their BLOCK partners, and so on. One thread of a
tensor core's result then holds both of a pair, whichever operand the weights are. `interleave` makes that
order.
"""

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


BLOCK = 8  # rows; what a fragment of mma.sync or wgmma holds apart in one thread


def interleave(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """[…, f, k] and [.., f, k] → […, f/8, 2, 8, k]: rows in blocks of 8, each beside its partners."""
    pair = (first.unflatten(-2, (-1, BLOCK)), second.unflatten(-2, (-1, BLOCK)))
    return torch.stack(pair, dim=-3)


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("blocks 2 8 k", FLOAT, align=16),
    out=Out("rows blocks*8", FLOAT, like="x"),
)
def matmul_gelu_mul(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """gelu_tanh(x · gateᵀ) · (x · upᵀ) with weight = interleave(gate, up): half a Gemma MLP in one pass."""
    gate, up = gate_and_up(x, weight)
    out.copy_(F.gelu(gate, approximate="tanh").mul_(up).flatten(1))


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("blocks 2 8 k", FLOAT, align=16),
    out=Out("rows blocks*8", FLOAT, like="x"),
)
def matmul_silu_mul(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """silu(x · gateᵀ) · (x · upᵀ) with weight = interleave(gate, up): SwiGLU (Shazeer 2020), as in Qwen3."""
    gate, up = gate_and_up(x, weight)
    out.copy_(F.silu(gate).mul_(up).flatten(1))


def gate_and_up(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both products in fp32, [rows, f/8, 8] each; weight = interleave(gate, up)."""
    both = F.linear(x.float(), weight.float().flatten(0, 2))  # [rows, 2·f]
    gate, up = both.unflatten(1, (-1, 2, BLOCK)).unbind(2)
    return gate, up


@kernel(
    x=In("rows k", FLOAT, align=16),
    weight=In("heads*head_dim+2*kv_heads*head_dim k", FLOAT, align=16),
    table=In("rows head_dim", FLOAT32),
    q_out=Out("rows heads*head_dim", FLOAT, like="x", optional=True),
    k_out=Out("rows kv_heads*head_dim", FLOAT, like="x", optional=True),
    v_out=Out("rows kv_heads*head_dim", FLOAT, like="x", optional=True),
    multiples=[("head_dim", "16")],
)
def matmul_rope_qkv(
    x: torch.Tensor,
    weight: torch.Tensor,
    table: torch.Tensor,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor | None,
    v_out: torch.Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
) -> None:
    """rope_qkv of x · weightᵀ: projection, rotation and the write into the cache in one pass over x.

    The rows of each head of q and k are interleave(first half, second half); those of v are in order.
    heads = 0 with q_out=None: keys and values only; kv_heads = 0 with k_out=None and v_out=None: queries
    only.
    """
    qkv = F.linear(x.float(), weight.float())  # [rows, (heads + 2·kv_heads)·head_dim]
    turned = (heads + kv_heads) * head_dim
    pairs = qkv[:, :turned].unflatten(1, (heads + kv_heads, -1, 2, BLOCK)).transpose(2, 3)
    qkv = torch.cat([pairs.flatten(1), qkv[:, turned:]], dim=1)  # halves in order again
    rope_qkv.reference(qkv, table, q_out, k_out, v_out, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
