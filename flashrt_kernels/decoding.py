# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decoding token by token: the next token, and caches that grow."""

from __future__ import annotations

import torch

from flashrt_kernels.kernel import FLOAT, FLOAT32, INT32, In, InOut, Out, kernel


@kernel(logits=In("rows vocabulary", FLOAT32), out=Out("rows", INT32))
def argmax(logits: torch.Tensor, out: torch.Tensor) -> None:
    """Index of the largest value of each row, the first one of equals: greedy decoding."""
    out.copy_(logits.argmax(dim=1))


@kernel(
    rows=In("count width", FLOAT),
    at=In("1", INT32),
    cache=InOut("capacity width", FLOAT),
)
def write_rows(rows: torch.Tensor, at: torch.Tensor, cache: torch.Tensor) -> None:
    """cache[at : at + count] = rows; `at` is read when the kernel runs. The rows must fit."""
    start = int(at)
    cache[start : start + len(rows)].copy_(rows)


@kernel(out=Out("rows width", FLOAT))
def clear(out: torch.Tensor) -> None:
    """Zeros: rows of a cache that a mask hides still go through 0 · value, and 0 · NaN is NaN."""
    out.zero_()
