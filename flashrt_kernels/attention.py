# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention over fixed sequences, with grouped key/value heads and masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import BOOL, FLOAT, In, Out, kernel


@kernel(
    q=In("queries heads*head_dim", FLOAT, align=16),
    k=In("keys kv_heads*head_dim", FLOAT, align=16, early="settled"),
    v=In("keys kv_heads*head_dim", FLOAT, align=16, early="settled"),
    key_valid=In("keys", BOOL, optional=True),
    mask=In("queries keys", BOOL, optional=True),
    out=Out("queries heads*head_dim", FLOAT, like="q"),
    multiples=[("heads", "kv_heads")],
)
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    key_valid: torch.Tensor | None,
    mask: torch.Tensor | None,
    out: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    settled: int = 0,
) -> None:
    """softmax(q·kᵀ / √head_dim)·v per head (Vaswani et al. 2017), softmax in fp32.

    key_valid (True = may be seen) holds for all queries, mask for each; both apply. A query that sees no key
    gives 0. kv_heads < heads: consecutive query heads share one.

    settled: so many leading rows of k and v are complete before the graph's section begins. A GPU
    loads them while the launches in front still run; the result is the same.
    """
    split_q = q.float().view(1, -1, heads, head_dim).transpose(1, 2)  # [1, heads, queries, head_dim]
    split_k = k.float().view(1, -1, kv_heads, head_dim).transpose(1, 2)
    split_v = v.float().view(1, -1, kv_heads, head_dim).transpose(1, 2)
    visible = key_valid if mask is None else mask if key_valid is None else mask & key_valid
    if visible is not None:
        visible = visible.expand(1, 1, q.shape[0], k.shape[0])
    grouped = heads != kv_heads
    y = F.scaled_dot_product_attention(split_q, split_k, split_v, attn_mask=visible, enable_gqa=grouped)
    out.view(1, -1, heads, head_dim).copy_(y.transpose(1, 2))


@kernel(
    qkv=In("rows 3*heads*head_dim", FLOAT, align=16),
    out=Out("rows heads*head_dim", FLOAT, like="qkv"),
    multiples=[("rows", "sequences")],
)
def self_attention(
    qkv: torch.Tensor, out: torch.Tensor, *, heads: int, head_dim: int, sequences: int = 1
) -> None:
    """Unmasked attention of a fused projection [q | k | v] to itself, softmax in fp32.

    The rows are `sequences` sequences of equal length one after another, each attending only within itself.
    """
    q, k, v = qkv.float().view(sequences, -1, 3, heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v)  # [sequences, heads, rows/sequences, head_dim]
    out.view(sequences, -1, heads, head_dim).copy_(y.transpose(1, 2))
