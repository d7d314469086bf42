# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""StaticGraph: when these fail, a replay computes something else than the composed kernels."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels import arena
from flashrt_kernels.activation import gelu, gelu_mul, silu
from flashrt_kernels.buffer import Buffer
from flashrt_kernels.flow import euler_step, start_flow
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.matmul import matmul


@dataclass
class Recorder:
    """Composes a graph and computes the same eagerly; logs which launch touches which buffer on its own."""

    graph: StaticGraph = field(default_factory=lambda: StaticGraph("random"))
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    touched: dict[str, list[int]] = field(default_factory=dict)
    marks: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    launches: int = 0

    def input(self, value: torch.Tensor) -> None:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = value.clone()
        self.buffers.append(self.graph.input(name, value.shape, value.dtype))
        self.values.append(value)

    def call(self, kernel: Any, **arguments: Any) -> None:
        """Arguments that are integers are buffers by number."""
        picked = {k: v for k, v in arguments.items() if isinstance(v, int)}
        other = {k: v for k, v in arguments.items() if k not in picked}
        result = self.graph.call(kernel, **{k: self.buffers[v] for k, v in picked.items()}, **other)
        value = kernel(**{k: self.values[v] for k, v in picked.items()}, **other)
        for buffer in (*(self.buffers[v] for v in picked.values()), result):
            self.touched.setdefault(buffer.storage.name, []).append(self.launches)
        self.launches += 1
        if kernel is not euler_step:
            self.buffers.append(result)
            self.values.append(value)

    def mark(self, number: int) -> None:
        name = f"mark{len(self.marks)}"
        self.graph.mark(name, self.buffers[number])
        self.marks[name] = self.values[number].clone()
        self.touched.setdefault(self.buffers[number].storage.name, []).append(max(self.launches - 1, 0))

    def output(self, number: int) -> None:
        name = f"out{len(self.outputs)}"
        self.graph.output(name, self.buffers[number])
        self.outputs[name] = number

    def run(self, reuse: bool, poison: bool, taps: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
        memory = arena.allocate(self.graph.layout(reuse).bytes)
        memory.arena.fill_(0xFF if poison else 0)  # 0xFF is NaN in every float format
        self.graph.plan(reuse=reuse, memory=memory)
        for name, value in self.inputs.items():
            self.graph.write(name, value.numpy())
        tapped = self.graph.replay(taps)
        return tapped or {name: self.graph.read(name) for name in self.outputs}


@st.composite
def graphs(draw: st.DrawFn) -> Recorder:
    """Random chains, diamonds and in-place updates over [rows, width] buffers of one shape."""
    seed = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 9)))
    r = Recorder()
    for _ in range(draw(st.integers(1, 3))):
        r.input(torch.randn(shape, generator=seed))
    for _ in range(draw(st.integers(1, 15))):
        any_buffer = st.integers(0, len(r.buffers) - 1)
        kind = draw(st.sampled_from(("gelu", "silu", "mul", "copy", "euler", "mark", "output")))
        computed = [i for i, b in enumerate(r.buffers) if b.storage.kind == "buffer"]
        if kind == "mul":
            r.call(gelu_mul, gate=draw(any_buffer), up=draw(any_buffer))
        elif kind == "copy":
            r.call(start_flow, noise=draw(any_buffer))
        elif kind == "euler" and len(computed) > 1:
            target = draw(st.sampled_from(computed))
            others = [i for i in range(len(r.buffers)) if i != target]
            r.call(euler_step, x=target, velocity=draw(st.sampled_from(others)), dt=-0.5)
        elif kind == "mark":
            r.mark(draw(any_buffer))
        elif kind == "output":
            r.output(draw(any_buffer))
        else:
            r.call(silu if kind == "silu" else gelu, x=draw(any_buffer))
    r.call(silu, x=len(r.buffers) - 1)
    r.output(len(r.buffers) - 1)
    return r


def assert_equal(got: dict[str, np.ndarray], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value.numpy(), err_msg=name)


@given(graphs())
@settings(deadline=None)
def test_plan_keeps_buffers_apart_while_both_are_used(r: Recorder) -> None:
    """Brute force over lifetimes that the test logs itself, inputs and outputs alive throughout."""
    kept = {r.buffers[number].storage.name for number in r.outputs.values()}
    end = r.launches - 1
    alive = {}
    for name, uses in r.touched.items():
        alive[name] = (min(uses), end if name in kept else max(uses))
    alive |= dict.fromkeys(r.inputs, (0, end))
    places = {p.request.name: (p.offset, p.offset + p.request.bytes) for p in r.graph.layout().placements}
    assert places.keys() == alive.keys()
    names = sorted(places)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            together = alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
            apart = places[a][1] <= places[b][0] or places[b][1] <= places[a][0]
            assert apart or not together, f"{a} and {b}"


@given(graphs(), st.booleans(), st.booleans())
@settings(deadline=None)
def test_replay_gives_what_the_kernels_give(r: Recorder, reuse: bool, poison: bool) -> None:
    """With and without reuse, whatever was in the arena before: the same bits as eager calls."""
    assert_equal(r.run(reuse, poison), {name: r.values[number] for name, number in r.outputs.items()})


@given(graphs())
@settings(deadline=None)
def test_taps_see_the_value_at_the_mark(r: Recorder) -> None:
    """A tap that sees a later or an overwritten value sends a debugging user the wrong way."""
    if r.marks:
        assert_equal(r.run(reuse=True, poison=True, taps=tuple(r.marks)), r.marks)


def chain(length: int = 6) -> StaticGraph:
    g = StaticGraph("chain")
    x = g.input("x", (4, 64), torch.float32)
    for i in range(length):
        with g.section("first" if i < 2 else "second"):
            x = g.call(gelu, x=x)
        g.mark(f"after{i}", x)
    g.output("y", x)
    return g


def test_rows_written_by_several_calls_are_one_buffer() -> None:
    """A prefix is filled camera by camera, in any order, before a layer may read it whole."""
    g = StaticGraph("g")
    x, b = g.input("x", (1, 3), torch.float32), g.buffer("b", (4, 3), torch.float32)
    for row in (3, 0, 2, 1):
        g.call(silu, x=x, out=b[row : row + 1])
    g.output("y", g.call(silu, x=b))
    g.plan()
    g.write("x", np.ones((1, 3), np.float32))
    g.replay()
    assert len(np.unique(g.read("y"))) == 1


def test_chain_reuses_memory() -> None:
    """Without reuse the arena of a full-size policy is several times as large."""
    g = chain()
    with_reuse, without = g.layout(), g.layout(reuse=False)
    assert with_reuse.bytes == 3 * 1024  # the input and two in turn
    assert without.bytes == with_reuse.bytes_without_reuse == 7 * 1024


def test_replay_can_be_repeated_and_does_not_touch_inputs() -> None:
    """A second replay of the same observation must give the same bits (R31)."""
    g = chain()
    g.plan()
    x = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    g.write("x", x)
    results = []
    for _ in range(3):
        g.replay()
        results.append(g.read("y"))
    np.testing.assert_array_equal(g.host("x"), x)
    assert np.isfinite(results[0]).all()
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_read_is_a_copy() -> None:
    """A chunk that is kept must not change when the next decision is made."""
    g = chain()
    g.plan()
    g.write("x", np.ones((4, 64), np.float32))
    g.replay()
    first = g.read("y")
    kept = first.copy()
    g.write("x", np.zeros((4, 64), np.float32))
    g.replay()
    np.testing.assert_array_equal(first, kept)


def test_sections_are_timed() -> None:
    """Diagnostics show where the time of a decision went."""
    g = chain()
    g.plan()
    g.replay()
    assert list(g.timings) == ["first", "second"]
    assert all(value > 0 for value in g.timings.values())


def test_launches_without_effect_on_outputs_run_only_for_taps() -> None:
    """The end of the last language layer costs 1/18 of the prefix, and no output needs it."""
    g = StaticGraph("side branch")
    x = g.input("x", (2, 3), torch.float32)
    y = g.call(silu, x=x)
    side = g.call(gelu, x=y)
    g.mark("side", side)
    g.output("y", y)
    g.plan()
    assert "launches: 1, and 1 that run only for taps" in g.describe_plan()
    g.write("x", np.ones((2, 3), np.float32))
    tapped = g.replay(taps=("side",))["side"]
    np.testing.assert_array_equal(tapped, gelu(x=silu(x=torch.ones(2, 3))).numpy())
    memory = arena.allocate(g.layout().bytes)
    g.plan(memory=memory)
    g.write("x", np.ones((2, 3), np.float32))
    memory.arena[g.layout().placements[-1].offset :] = 0
    g.replay()
    assert g.layout().placements[-1].request.name == side.storage.name
    assert memory.arena[g.layout().placements[-1].offset :].eq(0).all()


def test_slices_write_one_buffer_from_several_calls() -> None:
    """Prefix and suffix share one key/value buffer: rows must land where they belong."""
    g = StaticGraph("slices")
    x = g.input("x", (2, 3), torch.float32)
    cache = g.buffer("cache", (5, 3), torch.float32)
    g.call(silu, x=x, out=cache[0:2])
    g.call(gelu, x=x, out=cache[2:4])
    g.call(gelu, x=cache[3:4], out=cache[4:5])
    g.output("cache", cache)
    g.plan()
    value = torch.tensor([[1.0, -2, 3], [0.5, 0, -1]])
    g.write("x", value.numpy())
    g.replay()
    second = gelu(x=value)
    np.testing.assert_array_equal(
        g.read("cache"), torch.cat([silu(x=value), second, gelu(x=second[1:])]).numpy()
    )


def test_constants_are_not_in_the_arena() -> None:
    """Weights of several gigabytes must not be copied."""
    g = StaticGraph("weights")
    x = g.input("x", (1, 256), torch.float32)
    weight = torch.randn(256, 256)
    y = g.call(matmul, x=x, weight=g.constant("w", weight)[16:32])
    g.output("y", y)
    assert g.layout().bytes < 256 * 256
    g.plan()
    g.write("x", np.ones((1, 256), np.float32))
    weight.fill_(0.5)
    g.replay()
    np.testing.assert_array_equal(g.read("y"), np.full((1, 16), 128, np.float32))


def test_graphs_share_one_arena() -> None:
    """One arena serves all prompt buckets."""
    small, large = chain(2), chain(5)
    memory = arena.allocate(max(small.layout().bytes, large.layout().bytes))
    results = []
    for g in (small, large):
        g.plan(memory=memory)
        g.write("x", np.ones((4, 64), np.float32))
        g.replay()
        results.append(g.read("y"))
    assert not np.array_equal(results[0], results[1])
    expected = torch.ones(4, 64)
    for _ in range(5):
        expected = gelu(x=expected)
    np.testing.assert_array_equal(results[1], expected.numpy())


def test_bf16_is_read_as_float32() -> None:
    """NumPy has no bf16."""
    g = StaticGraph("bf16")
    x = g.input("x", (1, 2), torch.float32)
    g.output("y", g.call(matmul, x=x, weight=g.constant("w", torch.eye(2)), out_dtype=torch.bfloat16))
    g.plan()
    g.write("x", np.array([[1.0, 1 / 3]], np.float32))
    g.replay()
    assert g.read("y").dtype == np.float32
    assert g.read("y")[0, 1] == torch.tensor(1 / 3).bfloat16().item()
