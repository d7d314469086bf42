# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding (Su et al. 2021), half-split: element i turns with element i + head_dim/2."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, FLOAT32, INT32, In, InOut, Out, kernel


@kernel(
    positions=In("rows", INT32),
    out=Out("rows head_dim", FLOAT32),
    multiples=[("head_dim", "2")],
)
def rope_table(positions: torch.Tensor, out: torch.Tensor, *, head_dim: int, theta: float = 10000.0) -> None:
    """[cos | sin] of position · theta^(−2i/head_dim), i < head_dim/2: computed once, read by every layer."""
    half = head_dim // 2
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float()[:, None] / theta**exponents  # [rows, half]
    torch.cos(angles, out=out[:, :half])
    torch.sin(angles, out=out[:, half:])


@kernel(
    positions=In("axes rows", INT32),
    axis=In("half", INT32),
    out=Out("rows 2*half", FLOAT32),
)
def rope_table_axes(
    positions: torch.Tensor, axis: torch.Tensor, out: torch.Tensor, *, theta: float = 10000.0
) -> None:
    """As rope_table, with positions along several axes: frequency i turns with positions[axis[i]].

    Multi-axis RoPE (Qwen2-VL, Wang et al. 2024); how the frequencies are dealt out is in `axis`.
    """
    half = axis.shape[0]
    exponents = torch.arange(0, half, dtype=torch.float32, device=positions.device) / half
    angles = positions[axis.long()].T.float() / theta**exponents  # [rows, half]
    torch.cos(angles, out=out[:, :half])
    torch.sin(angles, out=out[:, half:])


@kernel(
    x=In("rows heads*head_dim", FLOAT),
    table=In("rows head_dim", FLOAT32),
    out=Out("rows heads*head_dim", FLOAT, like="x"),
    multiples=[("head_dim", "2")],
)
def rope(x: torch.Tensor, table: torch.Tensor, out: torch.Tensor, *, heads: int, head_dim: int) -> None:
    """Rotate every head of x by the row of `table` (from rope_table)."""
    rotate(x, table, out, heads, head_dim)


@kernel(
    qkv=InOut("rows 3*heads*head_dim", FLOAT),
    table=In("rows head_dim", FLOAT32),
    multiples=[("head_dim", "2")],
)
def rope_qk(qkv: torch.Tensor, table: torch.Tensor, *, heads: int, head_dim: int) -> None:
    """Rotate q and k of a fused projection [q | k | v] where they lie: in front of `self_attention`."""
    for x in qkv.chunk(3, dim=1)[:2]:
        turned = torch.empty_like(x, memory_format=torch.contiguous_format)
        rotate(x, table, turned, heads, head_dim)
        x.copy_(turned)


@kernel(
    qkv=In("rows heads*head_dim+2*kv_heads*head_dim", FLOAT),
    table=In("rows head_dim", FLOAT32),
    q_out=Out("rows heads*head_dim", FLOAT, like="qkv", optional=True),
    k_out=Out("rows kv_heads*head_dim", FLOAT, like="qkv", optional=True),
    v_out=Out("rows kv_heads*head_dim", FLOAT, like="qkv", optional=True),
    multiples=[("head_dim", "2")],
)
def rope_qkv(
    qkv: torch.Tensor,
    table: torch.Tensor,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor | None,
    v_out: torch.Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
) -> None:
    """Split a fused projection [q | k | v], rotate q and k, write k and v where the caller keeps its cache.

    heads = 0 with q_out=None: the projection holds k and v only; kv_heads = 0 with k_out=None and
    v_out=None: q only.
    """
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    if q_out is not None:
        rotate(qkv[:, :q_width], table, q_out, heads, head_dim)
    if k_out is not None:
        rotate(qkv[:, q_width : q_width + kv_width], table, k_out, kv_heads, head_dim)
    if v_out is not None:
        v_out.copy_(qkv[:, q_width + kv_width :])


@kernel(
    qkv=In("rows heads*head_dim+2*kv_heads*head_dim", FLOAT),
    table=In("rows head_dim", FLOAT32),
    q_weight=In("head_dim", FLOAT32),
    k_weight=In("head_dim", FLOAT32),
    q_out=Out("rows heads*head_dim", FLOAT, like="qkv"),
    k_out=Out("rows kv_heads*head_dim", FLOAT, like="qkv"),
    v_out=Out("rows kv_heads*head_dim", FLOAT, like="qkv"),
    multiples=[("head_dim", "2")],
)
def norm_rope_qkv(
    qkv: torch.Tensor,
    table: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    q_out: torch.Tensor,
    k_out: torch.Tensor,
    v_out: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    eps: float = 1e-6,
) -> None:
    """rope_qkv with an RMS norm, x / √(mean(x²) + eps) · weight, of every head of q and k in front: Qwen3."""
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    parts = (
        (qkv[:, :q_width], q_weight, q_out, heads),
        (qkv[:, q_width : q_width + kv_width], k_weight, k_out, kv_heads),
    )
    for x, weight, out, count in parts:
        each = x.float().unflatten(1, (count, head_dim))
        rotate(F.rms_norm(each, (head_dim,), weight, eps).flatten(1), table, out, count, head_dim)
    v_out.copy_(qkv[:, q_width + kv_width :])


def rotate(x: torch.Tensor, table: torch.Tensor, out: torch.Tensor, heads: int, head_dim: int) -> None:
    """out = rotation of x [rows, heads·head_dim] by table [rows, head_dim] = [cos | sin]."""
    rows, half = x.shape[0], head_dim // 2
    first, second = x.float().unflatten(1, (heads, 2, half)).unbind(2)  # [rows, heads, half] each
    cos, sin = table.view(rows, 1, 2, half).unbind(2)  # [rows, 1, half] each
    turned = out.view(rows, heads, 2, half)
    turned[:, :, 0] = first * cos - second * sin
    turned[:, :, 1] = second * cos + first * sin
