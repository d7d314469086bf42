# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Attention on a GPU: Hopper's kernels where they fit, else the portable ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flashrt_kernels.attention import attention, self_attention
from flashrt_kernels.cuda.families import Dtypes, Parameters, Shapes, Tensors, launches, workspace
from flashrt_kernels.cuda.families import attention_hopper as hopper
from flashrt_kernels.cuda.families import attention_portable as portable
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.errors import GraphError

Launches = list[Callable[[], Any]]


def on_hopper(gpu: Gpu) -> bool:
    """The GPU has the instructions and nobody asked for the portable kernels."""
    return gpu.hopper and gpu.options.attention != "portable"


def attention_on_hopper(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> bool:
    """Whether a call of `attention` takes Hopper's kernel."""
    return on_hopper(gpu) and hopper.fits_attention(gpu, shapes, dtypes, p)


def self_attention_on_hopper(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> bool:
    """Whether a call of `self_attention` takes Hopper's kernel."""
    return on_hopper(gpu) and hopper.fits_self_attention(gpu, shapes, dtypes, p)


def facts(a: Tensors) -> tuple[Shapes, Dtypes]:
    """Shapes and dtypes of tensors."""
    return (
        {name: None if t is None else tuple(t.shape) for name, t in a.items()},
        {name: None if t is None else t.dtype for name, t in a.items()},
    )


def check_keys(keys: int) -> None:
    """Raises GraphError where there are none."""
    if not keys:
        raise GraphError("attention: there are no keys; expected at least one")


def check_out(out: torch.Tensor, head_dim: int) -> None:
    """Raises GraphError: the tensor cores' kernels write two values at a time, as whole heads allow."""
    pair = 2 * out.itemsize
    if head_dim % 8 == 0 and (off := out.data_ptr() % pair):
        raise GraphError(f"attention: out starts {off} bytes off; expected {pair}-byte alignment on a GPU")


@workspace(attention)
def attention_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """Bytes for partial results where keys are split."""
    check_keys((shapes["k"] or (0,))[0])
    if attention_on_hopper(gpu, shapes, dtypes, p):
        return 0
    return portable.attention_scratch(gpu, shapes, dtypes, p)


@launches(attention)
def launch_attention(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """softmax(q·kᵀ / √head_dim)·v per head."""
    if not a["out"].numel():
        return []
    check_keys(a["k"].shape[0])
    check_out(a["out"], p["head_dim"])
    if attention_on_hopper(gpu, *facts(a), p):
        return list(hopper.launch_attention(gpu, a, p))
    return list(portable.launch_attention(gpu, a, p, memory))


@workspace(self_attention)
def self_attention_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """As attention_scratch."""
    if self_attention_on_hopper(gpu, shapes, dtypes, p):
        return 0
    return portable.self_attention_scratch(gpu, shapes, dtypes, p)


@launches(self_attention)
def launch_self_attention(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """Attention of a fused projection to itself."""
    if not a["out"].numel():
        return []
    check_out(a["out"], p["head_dim"])
    if self_attention_on_hopper(gpu, *facts(a), p):
        return list(hopper.launch_self_attention(gpu, a, p))
    return list(portable.launch_self_attention(gpu, a, p, memory))
