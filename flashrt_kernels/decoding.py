# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decoding token by token: the next token, caches that grow, and how far a text has come.

That is kept on the device: the graph for a token has no inputs, and may be started again before the host
has seen what it wrote.
"""

from __future__ import annotations

import torch

from flashrt_kernels.kernel import BOOL, FLOAT, FLOAT32, INT32, In, InOut, Out, kernel


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


@kernel(
    next=In("1", INT32),
    position=In("1", INT32),
    prompt=In("rows", BOOL),
    text=Out("limit", INT32),
    visible=Out("rows+limit", BOOL),
    place=Out("2", INT32),
)
def begin_text(
    next: torch.Tensor,
    position: torch.Tensor,
    prompt: torch.Tensor,
    text: torch.Tensor,
    visible: torch.Tensor,
    place: torch.Tensor,
) -> None:
    """The first token of a text behind a prompt.

    text: that token and zeros. visible: which rows of the cache count: those of the prompt, then the token's.
    place: where the token stands in the text, 0, and its position.
    """
    text.zero_()
    text[0] = next[0]
    rows = prompt.shape[0]
    visible[:rows] = prompt
    visible[rows:] = False
    visible[rows] = True
    place[0] = 0
    place[1] = position[0]


@kernel(
    next=In("1", INT32),
    text=InOut("limit", INT32),
    visible=InOut("limit", BOOL),
    place=InOut("2", INT32),
)
def advance_text(next: torch.Tensor, text: torch.Tensor, visible: torch.Tensor, place: torch.Tensor) -> None:
    """One more token: `place` as in begin_text goes on by one, `text` and `visible` (its rows) get it.

    Behind the end of the text nothing is written.
    """
    place += 1
    at = int(place[0])
    if at < text.shape[0]:
        text[at] = next[0]
        visible[at] = True
