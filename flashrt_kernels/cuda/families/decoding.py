# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of argmax, write_rows, clear, begin_text and advance_text."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import decoding
from flashrt_kernels.cuda.families import Dtypes, Parameters, Shapes, Tensors, launches, workspace
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, fours, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.errors import GraphError

FAMILY = "decoding"
ARGMAX_VALUES = 8  # of a thread, VALUES of decoding.cu
LAST_THREADS = 128  # of argmax_last
BEST_BYTES = 8  # struct Best


def argmax_parts(vocabulary: int) -> int:
    """Thread blocks that share a row. Raises GraphError where it is empty."""
    if not vocabulary:
        raise GraphError("argmax: logits have no columns; expected at least one")
    return ceil_div(vocabulary, ARGMAX_VALUES * THREADS)


@workspace(decoding.argmax)
def argmax_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """Bytes for what each thread block found."""
    shape = shapes["logits"]
    assert shape is not None
    return shape[0] * argmax_parts(shape[1]) * BEST_BYTES


@launches(decoding.argmax)
def argmax(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    rows, vocabulary = a["logits"].shape
    parts = argmax_parts(vocabulary)
    if not rows:
        return []
    assert workspace is not None
    first, last = (gpu.function(FAMILY, name) for name in ("argmax_part", "argmax_last"))
    given, found = (a["logits"], vocabulary, workspace), (workspace, parts, a["out"])
    return [
        Launch(first, (rows, parts), THREADS, given, pdl=gpu.pdl, name="argmax_part"),
        Launch(last, (rows,), LAST_THREADS, found, pdl=gpu.pdl, name="argmax_last"),
    ]


@launches(decoding.write_rows)
def write_rows(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    rows, cache = a["rows"], a["cache"]
    (count, width), capacity = rows.shape, cache.shape[0]
    if not rows.numel():
        return []
    by_four = width % 4 == 0 and fours(rows, cache)
    name, units = ("write_rows", width // 4) if by_four else ("write_rows_any", width)
    threads = min(ceil_div(units, 32) * 32, THREADS)
    arguments = (rows, is_bf16(rows), a["at"], cache, is_bf16(cache), width, capacity)
    grid = (count, ceil_div(units, threads))
    return [Launch(gpu.function(FAMILY, name), grid, threads, arguments, pdl=gpu.pdl, name=name)]


@launches(decoding.clear)
def clear(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    out = a["out"]
    count = out.numel()
    if not count:
        return []
    by_four = fours(out)
    name, units = ("clear", count // 4 + count % 4) if by_four else ("clear_any", count)
    arguments = (out, is_bf16(out), ctypes.c_int64(count))
    handle = gpu.function(FAMILY, name)
    return [Launch(handle, (ceil_div(units, THREADS),), THREADS, arguments, pdl=gpu.pdl, name=name)]


@launches(decoding.begin_text)
def begin_text(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    rows, limit = a["prompt"].shape[0], a["text"].shape[0]
    arguments = (
        *(a[name] for name in ("next", "position", "prompt", "text", "visible", "place")),
        rows,
        limit,
    )
    grid = (ceil_div(rows + limit, THREADS),)
    return [
        Launch(gpu.function(FAMILY, "begin_text"), grid, THREADS, arguments, pdl=gpu.pdl, name="begin_text")
    ]


@launches(decoding.advance_text)
def advance_text(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    arguments = (*(a[name] for name in ("next", "text", "visible", "place")), a["text"].shape[0])
    handle = gpu.function(FAMILY, "advance_text")
    return [Launch(handle, (1,), 32, arguments, pdl=gpu.pdl, name="advance_text")]
