# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The attention that runs on every GPU: bf16 on mma.sync, and any types and head sizes on the fp32 units.

q, k, v and out are [sequences · length, heads · head_dim], possibly columns of a wider tensor (a fused
projection): what counts is where a tensor starts and how far its rows are apart.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flashrt_kernels.cuda.families import Dtypes, Parameters, Shapes, Tensors
from flashrt_kernels.cuda.families.elements import ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.errors import GraphError

FAMILY = "attention"


@dataclass(frozen=True)
class Variant:
    """A compiled kernel of attention.cu: tiles of `rows` × `keys`, `groups` of them at a time in a block."""

    name: str
    rows: int
    keys: int
    groups: int
    threads: int
    head_dim: int  # at most; smaller ones are padded with zeros

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the query tile, and a key and a value tile of each group."""
        chunks = self.head_dim // 8  # of 16 bytes
        return (self.rows + 2 * self.groups * self.keys) * (chunks if chunks % 8 == 0 else chunks | 1) * 16


# the first that takes a head and fits into the GPU's shared memory is used
VARIANTS = (
    Variant("attention_64x64", 64, 64, 1, 128, 64),
    Variant("attention_80x64", 64, 64, 1, 128, 80),
    Variant("attention_128x64", 64, 64, 1, 128, 128),
    Variant("attention_256x64", 64, 64, 2, 256, 256),
    Variant("attention_256x32", 64, 32, 2, 256, 256),
)
GENERIC = Variant("attention_generic", 32, 32, 1, 256, 256)
LARGEST = 256  # head_dim
COMBINE_THREADS = 128
MOST_PARTS = 32  # one for each lane of a warp


class Attention(ctypes.Structure):
    """Mirror of Attention in attention.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "key_valid", "mask", "out", "partial")),
        *((name, ctypes.c_int32) for name in ("q_stride", "kv_stride", "out_stride", "queries", "keys")),
        *((name, ctypes.c_int32) for name in ("sequences", "heads", "kv_heads", "head_dim", "parts")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("q_bf16", "k_bf16", "v_bf16", "out_bf16")),
    )


def variant(gpu: Gpu, head_dim: int, dtypes: Sequence[torch.dtype | None]) -> Variant:
    """The kernel for q, k and v of these types. Raises GraphError for heads that no kernel takes."""
    if head_dim > LARGEST:
        raise GraphError(f"attention: head_dim is {head_dim}; expected at most {LARGEST}")
    if head_dim % 8 or any(dtype != torch.bfloat16 for dtype in dtypes):
        return GENERIC
    return next(v for v in VARIANTS if v.head_dim >= head_dim and v.shared <= gpu.shared_memory)


def shared_bytes(kernel: Variant, head_dim: int) -> int:
    """Dynamic shared memory of a block; the generic kernel's tiles are fp32 and as wide as the head."""
    if kernel is not GENERIC:
        return kernel.shared
    width = ceil_div(head_dim, 32) * 32 + 4
    return 4 * ((kernel.rows + kernel.keys) * width + kernel.rows * (kernel.keys + 4))


def parts_of(gpu: Gpu, kernel: Variant, rows: int, heads: int, keys: int) -> int:
    """Into how many parts the keys are split, so that few rows use all multiprocessors. rows: of one head."""
    tiles = ceil_div(keys, kernel.keys)
    blocks = max(1, ceil_div(rows, kernel.rows) * heads)
    if not tiles:
        return 1
    wanted = max(1, min(gpu.multiprocessors // blocks, ceil_div(tiles, kernel.groups), MOST_PARTS))
    return ceil_div(tiles, ceil_div(tiles, wanted))  # none of them empty


def workspace_portable(
    gpu: Gpu,
    dtypes: Sequence[torch.dtype | None],
    queries: int,
    keys: int,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    sequences: int = 1,
) -> int:
    """Bytes that `launch_portable` needs. dtypes: of q, k, v. queries, keys: of one sequence."""
    kernel = variant(gpu, head_dim, dtypes)
    rows = queries * heads // kv_heads
    parts = parts_of(gpu, kernel, rows, sequences * kv_heads, keys)
    return 4 * parts * sequences * kv_heads * rows * (head_dim + 2) if parts > 1 else 0


def launch_portable(
    gpu: Gpu,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    key_valid: torch.Tensor | None,
    mask: torch.Tensor | None,
    out: torch.Tensor,
    workspace: torch.Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    sequences: int = 1,
) -> list[Launch]:
    """softmax(q·kᵀ / √head_dim)·v as `attention` and `self_attention` declare it.

    key_valid [keys], mask [queries, keys]: bool. workspace: at least `workspace_portable` bytes.
    """
    kernel = variant(gpu, head_dim, [t.dtype for t in (q, k, v)])
    queries, keys = q.shape[0] // sequences, k.shape[0] // sequences
    rows = queries * heads // kv_heads
    parts = parts_of(gpu, kernel, rows, sequences * kv_heads, keys)
    shared = shared_bytes(kernel, head_dim)
    arguments = Attention(
        *(None if t is None else t.data_ptr() for t in (q, k, v, key_valid, mask, out)),
        workspace.data_ptr() if parts > 1 and workspace is not None else None,
        *(q.stride(0), k.stride(0), out.stride(0), queries, keys),
        *(sequences, heads, kv_heads, head_dim, parts),
        math.log2(math.e) / math.sqrt(head_dim),
        *(t.dtype == torch.bfloat16 for t in (q, k, v, out)),
    )
    grid = (ceil_div(rows, kernel.rows), sequences * kv_heads, parts)
    function = gpu.function(FAMILY, kernel.name, shared=shared)
    launches = [
        Launch(function, grid, kernel.threads, (arguments,), shared=shared, pdl=gpu.pdl, name=kernel.name)
    ]
    if parts > 1:
        grid = (ceil_div(rows * ceil_div(head_dim, 128), 4), sequences * kv_heads, 1)
        combine = gpu.function(FAMILY, "attention_combine")
        launches.append(
            Launch(combine, grid, COMBINE_THREADS, (arguments,), pdl=gpu.pdl, name="attention_combine")
        )
    return launches


# ---- the declared kernels ----


def attention_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """Bytes that `launch_attention` needs."""
    q, k = shapes["q"], shapes["k"]
    assert q is not None
    assert k is not None
    heads = {name: p[name] for name in ("heads", "kv_heads", "head_dim")}
    return workspace_portable(gpu, [dtypes[name] for name in "qkv"], q[0], k[0], **heads)


def launch_attention(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> list[Launch]:
    """The launches of `attention`."""
    heads = {name: p[name] for name in ("heads", "kv_heads", "head_dim")}
    return launch_portable(gpu, a["q"], a["k"], a["v"], a["key_valid"], a["mask"], a["out"], memory, **heads)


def self_attention_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """Bytes that `launch_self_attention` needs."""
    qkv = shapes["qkv"]
    assert qkv is not None
    length = qkv[0] // p["sequences"]
    return workspace_portable(gpu, [dtypes["qkv"]], length, length, kv_heads=p["heads"], **p)


def launch_self_attention(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> list[Launch]:
    """The launches of `self_attention`."""
    q, k, v = a["qkv"].chunk(3, dim=1)
    return launch_portable(gpu, q, k, v, None, None, a["out"], memory, kv_heads=p["heads"], **p)
