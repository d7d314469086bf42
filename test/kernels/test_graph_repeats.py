# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A graph that repeats behind another, as the one for a token does behind the one for the prompt."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from flashrt_kernels import GraphError
from flashrt_kernels.activation import silu
from flashrt_kernels.backend import CpuBackend
from flashrt_kernels.decoding import clear, write_rows
from flashrt_kernels.graph import StaticGraph

PROMPT = np.arange(8, dtype=np.float32).reshape(2, 4)


@dataclass
class Pair:
    """The first fills two rows of a cache of five, the second writes one row more with each replay."""

    first: StaticGraph
    second: StaticGraph

    def write(self, at: int, value: float) -> np.ndarray:
        """Write a row; the cache afterwards, as the second graph reads it."""
        self.second.host("at")[0] = at
        self.second.write("row", np.full((1, 4), value, np.float32))
        self.second.replay()
        return self.second.read("all")


def pair(rewritable: bool = True) -> Pair:
    first = StaticGraph("prompt", CpuBackend())
    with first.section("prompt"):
        cache = first.buffer("cache", (5, 4), torch.float32)
        first.call(silu, x=first.input("x", (2, 4), torch.float32), out=cache[:2])
        first.call(clear, out=cache[2:])
        first.mark("prompt rows", cache[:2])
    first.keep("cache", cache, rewritable=rewritable)
    second = StaticGraph("token", first.backend, after=first, repeats=True)
    with second.section("token"):
        cache = second.borrow("cache")
        row = second.input("row", (1, 4), torch.float32)
        second.call(write_rows, rows=row, at=second.input("at", (1,), torch.int32), cache=cache[2:])
        out = second.call(silu, x=cache)
        second.mark("token rows", out)
        second.output("all", out)
    return Pair(first, second)


def planned() -> Pair:
    found = pair()
    found.first.plan()
    found.second.plan()
    found.first.write("x", PROMPT)
    found.first.replay()
    return found


def twice(x: np.ndarray) -> np.ndarray:
    return silu(x=silu(x=torch.from_numpy(x))).numpy()


def test_rows_add_up_over_replays() -> None:
    """Every token must see the prompt and all tokens before it."""
    found = planned()
    np.testing.assert_array_equal(found.write(0, 1.0)[:2], twice(PROMPT))
    after = found.write(1, 2.0)
    want = silu(x=torch.tensor([[1.0] * 4, [2.0] * 4, [0.0] * 4])).numpy()
    np.testing.assert_array_equal(after[2:], want)


def test_a_replay_does_not_start_the_graph_before() -> None:
    """Else every token would compute the prompt again: a hundred times the work."""
    found = planned()
    found.write(0, 1.0)
    found.first.write("x", PROMPT + 1)
    np.testing.assert_array_equal(found.write(1, 1.0)[:2], twice(PROMPT))
    found.first.replay()
    after = found.write(0, 3.0)
    np.testing.assert_array_equal(after[:2], twice(PROMPT + 1))
    np.testing.assert_array_equal(after[3:], 0)  # what the last text wrote is gone


def test_timings_and_marks_are_its_own() -> None:
    """Milliseconds of a token must not hold those of the prompt."""
    found = planned()
    found.write(0, 1.0)
    assert set(found.second.timings) == {"token"}
    assert found.second.marks == ("token rows",)
    copies = found.second.replay(("token rows",))
    np.testing.assert_array_equal(copies["token rows"], found.second.read("all"))
    with pytest.raises(GraphError, match="no marks"):
        found.second.replay(("prompt rows",))


def test_only_what_is_rewritable_may_be_overwritten() -> None:
    """A graph that overwrites what another relies on gives wrong actions from the second decision on."""
    with pytest.raises(GraphError, match="would overwrite what the graph before wrote into 'cache'"):
        pair(rewritable=False)


def test_repeating_needs_a_graph_before() -> None:
    """There is nothing that it could repeat behind."""
    with pytest.raises(GraphError, match="alone: repeats without a graph before"):
        StaticGraph("alone", repeats=True)


def test_replay_after_the_graph_before_was_planned_again_is_refused() -> None:
    """Its caches are elsewhere then; reading the old ones is a use after free."""
    found = planned()
    found.first.plan()
    with pytest.raises(GraphError, match="planned again"):
        found.second.replay()


def test_started_ahead_it_can_be_looked_at_before_it_has_all_ended() -> None:
    """The host reads one token while the device is at the next; what it reads must be complete."""
    found = planned()
    found.second.host("at")[0] = 0
    found.second.write("row", np.full((1, 4), 1.0, np.float32))
    found.second.start()
    found.second.start()
    found.second.settle(behind=1)
    np.testing.assert_array_equal(found.second.peek("all")[2], silu(x=torch.ones(1, 4)).numpy()[0])
    with pytest.raises(GraphError, match="before what was started has been waited for"):
        found.second.read("all")
    found.second.finish()
    np.testing.assert_array_equal(found.second.read("all"), found.second.peek("all"))
    with pytest.raises(GraphError, match=r"peek\('x'\); it has \['all'\]"):
        found.second.peek("x")
