# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Graphs that follow one another: vision runs while the prompt is made, and must be what is then read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import GraphError, arena
from flashrt_kernels.activation import gelu, silu
from flashrt_kernels.backend import CpuBackend, CpuProgram, Step
from flashrt_kernels.graph import StaticGraph

X, TEXT = np.full((2, 4), 0.5, np.float32), np.full((1, 4), -2, np.float32)


@dataclass
class Pair:
    """The first keeps three rows and writes two of them; the second writes the third and reads all."""

    first: StaticGraph
    second: StaticGraph

    def run(self) -> np.ndarray:
        self.first.write("x", X)
        self.second.write("text", TEXT)
        self.second.replay()
        return self.second.read("y")


def pair(backend: CpuBackend | None = None) -> Pair:
    first = StaticGraph("first", backend or CpuBackend())
    with first.section("early"):
        rows = first.buffer("rows", (3, 4), torch.float32)
        first.call(gelu, x=first.call(silu, x=first.input("x", (2, 4), torch.float32)), out=rows[:2])
        first.mark("seen", rows[:2])
    first.keep("rows", rows)
    second = StaticGraph("second", first.backend, after=first)
    with second.section("late"):
        rows = second.borrow("rows")
        second.call(silu, x=second.input("text", (1, 4), torch.float32), out=rows[2:])
        second.mark("all", rows)
        second.output("y", second.call(gelu, x=rows))
    return Pair(first, second)


def planned(backend: CpuBackend | None = None) -> Pair:
    found = pair(backend)
    found.first.plan()
    found.second.plan()
    return found


def expected() -> np.ndarray:
    x, text = map(torch.from_numpy, (X, TEXT))
    return gelu(x=torch.cat([gelu(x=silu(x=x)), silu(x=text)])).numpy()


def test_a_graph_computes_with_what_the_one_before_keeps() -> None:
    """Else the language model reads rows that the vision tower never wrote."""
    found = planned()
    np.testing.assert_array_equal(found.run(), expected())
    assert list(found.second.timings) == ["early", "late"]


def test_started_early_or_not_gives_the_same() -> None:
    """A vision tower that was started while the prompt was made is not computed again, nor is it stale."""
    found = planned()
    found.first.write("x", X)
    found.first.start()
    found.first.host("x")[:] = np.nan  # too late for this replay
    found.second.write("text", TEXT)
    found.second.replay()
    np.testing.assert_array_equal(found.second.read("y"), expected())
    found.second.replay()
    assert np.isnan(found.second.read("y")[0]).all()
    np.testing.assert_array_equal(found.run(), expected())


def test_taps_of_both_graphs() -> None:
    """A user looks at intermediates by name and does not know which graph has them."""
    found = planned()
    found.run()
    assert found.second.marks == ("seen", "all")
    copies = found.second.replay(taps=("all", "seen"))
    np.testing.assert_array_equal(copies["all"][:2], copies["seen"])
    np.testing.assert_array_equal(found.second.read("y"), expected())


def test_what_is_kept_is_not_used_for_anything_else() -> None:
    """Rows that the first graph leaves to the second must not be scratch of the first's later launches."""
    found = pair()
    places = {
        p.request.name: range(p.offset, p.offset + p.request.bytes) for p in found.first.layout().placements
    }
    rows = places.pop("rows")
    assert len(places) == 2  # the input and what silu writes
    assert all(place.stop <= rows.start or rows.stop <= place.start for place in places.values())


def test_several_graphs_follow_one() -> None:
    """One vision tower serves every length of prompt."""
    found = planned()
    third = StaticGraph("third", found.first.backend, after=found.first)
    third.output("y", third.call(silu, x=third.borrow("rows")[:2]))
    third.plan()
    np.testing.assert_array_equal(found.run(), expected())
    third.replay()
    x = torch.from_numpy(X)
    np.testing.assert_array_equal(third.read("y"), silu(x=gelu(x=silu(x=x))).numpy())


def test_start_that_fails_waits_for_what_was_started() -> None:
    """Else the next images are written over those that are still being copied."""
    ended: list[str] = []
    broken: set[str] = set()

    class Backend(CpuBackend):
        def program(
            self,
            name: str,
            steps: Sequence[Step],
            memory: arena.Memory,
            inputs: tuple[int, int],
            outputs: Any,
        ) -> CpuProgram:
            class Program(CpuProgram):
                def start(self) -> None:
                    if name in broken:
                        raise RuntimeError("no launch")
                    super().start()

                def finish(self, first: object) -> None:
                    ended.append(name)

            return Program(steps, outputs)

    found = planned(Backend())
    found.run()
    ended.clear()
    broken.add("second")
    with pytest.raises(RuntimeError, match="no launch"):
        found.run()
    assert ended == ["first", "second"]


def test_borrowing_is_refused_where_it_cannot_work() -> None:
    """A graph bound to memory of something else computes nonsense in silence."""
    found = pair()
    with pytest.raises(GraphError, match=r"second: borrow\('columns'\).*\['rows'\]"):
        found.second.borrow("columns")
    with pytest.raises(GraphError, match=r"first: borrow\('rows'\): the graph before keeps \[\]"):
        found.first.borrow("rows")
    with pytest.raises(GraphError, match="has another backend"):
        StaticGraph("other", CpuBackend(), after=found.first)
    with pytest.raises(GraphError, match="mark 'seen' exists already"):
        found.second.mark("seen", found.second._outputs["y"])
    with pytest.raises(GraphError, match=r"plan\(\) before that of 'first'"):
        found.second.plan()
    found.first.plan()
    found.second.plan()
    found.first.plan()
    with pytest.raises(GraphError, match=r"replay\(\) after 'first' was planned again"):
        found.second.replay()
