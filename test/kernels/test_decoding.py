# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decoding token by token: when it fails, a policy says other tokens, or forgets those it said."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt_kernels import GraphError
from flashrt_kernels.decoding import advance_text, argmax, begin_text, clear, write_rows
from flashrt_kernels.graph import StaticGraph
from test.kernels.support import dtypes, poisoned, random, seeds, wide


@given(st.integers(1, 5), st.integers(1, 300), st.integers(1, 4), seeds)
def test_argmax_is_the_first_of_equals(rows: int, vocabulary: int, levels: int, seed: int) -> None:
    """Ties are common in bf16 logits: two machines must not say different tokens."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, levels, (rows, vocabulary)).astype(np.float32)
    out = argmax(logits=torch.from_numpy(logits))
    assert out.dtype == torch.int32
    assert out.tolist() == [row.tolist().index(row.max()) for row in logits]


def test_argmax_of_logits_that_are_all_hidden() -> None:
    """A mask over everything still gives a token of the vocabulary."""
    assert argmax(logits=torch.full((2, 7), -torch.inf)).tolist() == [0, 0]


@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 5), st.integers(0, 5), dtypes, dtypes, seeds)
def test_write_rows(
    count: int,
    width: int,
    before: int,
    behind: int,
    source: torch.dtype,
    target: torch.dtype,
    seed: int,
) -> None:
    """The rows land where `at` says, every other row of the cache stays."""
    rng = np.random.default_rng(seed)
    cache, rows = random(rng, (before + count + behind, width), target), random(rng, (count, width), source)
    want = cache.clone()
    want[before : before + count] = rows.to(target)
    assert write_rows(rows=rows, at=torch.tensor([before], dtype=torch.int32), cache=cache) is cache
    assert torch.equal(cache, want)


def test_write_rows_reads_its_place_in_every_replay() -> None:
    """A place that was fixed when the graph was planned would overwrite one token for ever."""
    g = StaticGraph("growing")
    rows, at = g.input("rows", (1, 3), torch.float32), g.input("at", (1,), torch.int32)
    cache = g.buffer("cache", (4, 3), torch.float32)
    g.call(clear, out=cache)
    g.call(write_rows, rows=rows, at=at, cache=cache)
    g.output("cache", cache)
    g.plan()
    for place in (2, 0):
        g.write("rows", np.full((1, 3), place + 1, np.float32))
        g.write("at", np.array([place], np.int32))
        g.replay()
        want = np.zeros((4, 3), np.float32)
        want[place] = place + 1
        assert np.array_equal(g.read("cache"), want)


def test_rows_of_another_width_are_refused() -> None:
    """They would shift every row behind them."""
    at = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(GraphError, match=re.escape("cache is [3, 5] float32; expected [3, 4]")):
        write_rows(rows=torch.zeros(1, 4), at=at, cache=torch.zeros(3, 5))


@given(st.integers(1, 5), st.integers(1, 9), dtypes)
def test_clear(rows: int, width: int, dtype: torch.dtype) -> None:
    """NaN of the launch before must not stay in rows that a mask hides."""
    out = poisoned((rows, width), dtype)
    assert clear(out=out) is out
    assert not wide(out).any()


def test_a_text_begins_behind_its_prompt_and_goes_on() -> None:
    """A token that is not visible, or stands elsewhere than it was trained to, changes all that follow."""
    prompt, limit = torch.tensor([True, False, True]), 3
    text, visible = torch.full((limit,), 9, dtype=torch.int32), torch.ones(6, dtype=torch.bool)
    place = torch.full((2,), 9, dtype=torch.int32)
    first, position = torch.tensor([5], dtype=torch.int32), torch.tensor([2], dtype=torch.int32)
    begin_text(next=first, position=position, prompt=prompt, text=text, visible=visible, place=place)
    assert text.tolist() == [5, 0, 0]
    assert visible.tolist() == [True, False, True, True, False, False]
    assert place.tolist() == [0, 2]
    seen = []
    for token in (7, 8, 4):  # the last one no longer fits
        following = torch.tensor([token], dtype=torch.int32)
        advance_text(next=following, text=text, visible=visible[3:], place=place)
        seen.append((text.tolist(), visible[3:].tolist(), place.tolist()))
    assert seen == [
        ([5, 7, 0], [True, True, False], [1, 3]),
        ([5, 7, 8], [True, True, True], [2, 4]),
        ([5, 7, 8], [True, True, True], [3, 5]),
    ]
