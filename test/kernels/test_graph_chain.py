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
    with pytest.raises(GraphError, match=r"keep 'again' shares bytes with \['rows'\]"):
        found.first.keep("again", found.first._kept["rows"][1:])
    with pytest.raises(GraphError, match="has another backend"):
        StaticGraph("other", CpuBackend(), after=found.first)
    with pytest.raises(GraphError, match="mark 'seen' exists already"):
        found.second.mark("seen", found.second._outputs["y"])
    with pytest.raises(GraphError, match=r"plan\(\) before that of 'first'"):
        found.second.plan()
    found.first.plan()
    found.second.plan()
    found.first.plan()
    with pytest.raises(GraphError, match=r"replay\(\) after 'first', which it follows, was planned again"):
        found.second.replay()
    found.first.close()
    with pytest.raises(GraphError, match=r"start\(\) after 'first', which it follows, was closed"):
        found.second.start()


def test_results_are_not_read_while_they_are_computed() -> None:
    """They would be those of the decision before."""
    found = planned()
    found.run()
    found.second.start()
    with pytest.raises(GraphError, match=r"second: read\('y'\) before what was started"):
        found.second.read("y")
    found.second.finish()
    np.testing.assert_array_equal(found.second.read("y"), expected())


def test_plan_forgets_what_was_started() -> None:
    """A vision tower planned anew would be skipped, and memory that nobody wrote read."""
    found = planned()
    found.first.start()
    found.first.plan()
    found.second.plan()
    np.testing.assert_array_equal(found.run(), expected())


def test_rows_that_nobody_wrote_are_not_read() -> None:
    """The rows of the prompt are left to the graph behind; without them it computes with garbage."""
    found = pair()
    third = StaticGraph("third", found.first.backend, after=found.first)
    with pytest.raises(GraphError, match="no earlier call wrote"):
        third.call(gelu, x=third.borrow("rows"))


def test_what_the_graph_before_wrote_is_not_overwritten() -> None:
    """The next bucket would find pictures that another one changed."""
    found = pair()
    third = StaticGraph("third", found.first.backend, after=found.first)
    with pytest.raises(GraphError, match="would overwrite"):
        third.call(silu, x=third.input("i", (2, 4), torch.float32), out=third.borrow("rows")[:2])


def test_kept_weights_are_not_overwritten() -> None:
    """They would be wrong until the policy is loaded again."""
    first = StaticGraph("first", CpuBackend())
    first.keep("w", first.constant("w", torch.ones(2, 4)))
    second = StaticGraph("second", first.backend, after=first)
    with pytest.raises(GraphError, match="would overwrite"):
        second.call(silu, x=second.input("i", (2, 4), torch.float32), out=second.borrow("w"))


def test_graphs_behind_one_another_do_not_share_memory() -> None:
    """What the first keeps would be scratch of the second."""
    found, memory = pair(), arena.allocate(1 << 16)
    found.first.plan(memory=memory)
    with pytest.raises(GraphError):
        found.second.plan(memory=memory)


def test_taps_after_an_early_start_do_not_leave_it_started() -> None:
    """The decision after one with taps would use its pictures."""
    found = planned()
    found.first.write("x", X * 9)
    found.second.write("text", TEXT)
    found.first.start()
    found.second.replay(taps=("all",))
    np.testing.assert_array_equal(found.run(), expected())


def chain_of_three() -> tuple[StaticGraph, StaticGraph, StaticGraph]:
    found = pair()
    found.second.keep("y", found.second._outputs["y"])
    third = StaticGraph("third", found.first.backend, after=found.second)
    third.output("z", third.call(silu, x=third.borrow("y")))
    third.mark("z", third._outputs["z"])
    return found.first, found.second, third


def test_marks_of_all_graphs_before_are_distinct() -> None:
    """A tap would show one of two intermediates, and not say which."""
    _, _, third = chain_of_three()
    with pytest.raises(GraphError, match="exists already"):
        third.mark("seen", third._outputs["z"])


def test_taps_through_a_graph_that_was_planned_again() -> None:
    """They would come from memory that was given back."""
    graphs = chain_of_three()
    for graph in graphs:
        graph.plan()
    graphs[0].plan()
    with pytest.raises(GraphError, match="planned again"):
        graphs[2].replay(taps=("z",))


def test_times_of_both_graphs_on_a_gpu() -> None:
    """The GPU's time of vision alone is no decision's; the last graph must know where it began."""
    asked: list[Any] = []

    class Backend(CpuBackend):
        def program(self, name: str, steps: Any, memory: Any, inputs: Any, outputs: Any) -> CpuProgram:
            class Program(CpuProgram):
                def finish(self, first: Any) -> None:
                    asked.append(first)

            return Program(steps, outputs)

    found = planned(Backend())
    third = StaticGraph("third", found.first.backend, after=found.first)
    third.output("z", third.call(silu, x=third.borrow("rows")[:2]))
    third.plan()
    found.first._program.timings = {"early": 1.0, "gpu": 1.0}  # type: ignore[union-attr]
    found.second._program.timings = {}  # type: ignore[union-attr]
    assert found.second.timings == {"early": 1.0}
    found.second.replay()
    assert asked == [None, found.first._program]
