# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What StaticGraph refuses: a wrong graph that replays computes something nobody asked for, in silence."""

from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import arena
from flashrt_kernels.activation import gelu, silu
from flashrt_kernels.attention import attention
from flashrt_kernels.errors import DeviceError, GraphError
from flashrt_kernels.graph import Buffer, StaticGraph


def misuse_overlap(g: StaticGraph, x: Buffer) -> None:
    b = g.buffer("b", (4, 3), torch.float32)
    g.call(silu, x=x, out=b[0:2])
    g.call(silu, x=b[0:2], out=b[1:3])


def misuse_gap(g: StaticGraph, x: Buffer) -> None:
    b = g.buffer("b", (5, 3), torch.float32)
    g.call(silu, x=x, out=b[0:2])
    g.call(silu, x=x, out=b[3:5])
    g.call(silu, x=b[0:2])
    g.call(silu, x=b[1:4])


def misuse_empty(g: StaticGraph, x: Buffer) -> None:
    b = g.buffer("b", (2, 3), torch.float32)
    g.call(silu, x=x[1:1], out=b[0:0])
    g.output("o", b)


def misuse_late(kind: str) -> Any:
    def misuse(g: StaticGraph, x: Buffer) -> None:
        early = g.call(silu, x=x)
        g.output("o", g.call(silu, x=early))
        g.plan()
        getattr(g, kind)("late", early)

    return misuse


def misaligned(bytes: int) -> arena.Memory:
    memory = arena.allocate(bytes).arena[1:]
    return arena.Memory(memory, memory)


def misuse_section(g: StaticGraph, x: Buffer) -> None:
    with g.section("a"), g.section("b"):
        g.call(silu, x=x)


def misuse_settled(rows: int) -> Any:
    def misuse(g: StaticGraph, x: Buffer) -> None:
        cache = g.buffer("cache", (4, 3), torch.float32)
        with g.section("prefix"):
            g.call(silu, x=x, out=cache[0:2])
        with g.section("action"):
            g.call(silu, x=x, out=cache[2:4])
            for settled in (2, rows):
                g.call(attention, q=x, k=cache, v=cache, heads=1, kv_heads=1, head_dim=3, settled=settled)

    return misuse


MISUSE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "input written": (lambda g, x: g.call(silu, x=g.call(gelu, x=x), out=x), ("silu: out", "input 'x'")),
    "constant written": (
        lambda g, x: g.call(silu, x=x, out=g.constant("w", torch.zeros(2, 3))),
        ("silu: out", "constant 'w'"),
    ),
    "never written": (
        lambda g, x: g.call(silu, x=g.buffer("b", (2, 3), torch.float32)),
        ("silu: x reads 'b'", "no earlier call wrote"),
    ),
    "half written": (misuse_gap, ("silu: x reads 'b'", "no earlier call wrote there")),
    "nothing written": (misuse_empty, ("output 'o' is 'b'", "never written there")),
    "a tensor": (lambda g, x: g.call(silu, x=torch.zeros(2, 3)), ("silu: x is a Tensor", "buffer of 'g'")),
    "no array": (lambda g, x: g.call(silu, x=3.0), ("silu: x is 3.0", "rows width")),
    "negative size": (lambda g, x: g.input("n", (-1, 3), torch.float32), ("'n' has shape [-1, 3]",)),
    "overlap": (misuse_overlap, ("silu: out shares bytes of 'b'", "['x']")),
    "other graph": (
        lambda g, x: StaticGraph("other").call(silu, x=x),
        ("silu: x ('x')", "graph 'other'"),
    ),
    "name twice": (lambda g, x: g.input("x", (1,), torch.float32), ("'x' exists already",)),
    "mark twice": (lambda g, x: (g.mark("m", x), g.mark("m", x)), ("mark 'm' exists already",)),
    "output twice": (lambda g, x: (g.output("o", x), g.output("o", x)), ("output 'o' exists already",)),
    "mark elsewhere": (lambda g, x: StaticGraph("other").mark("m", x), ("mark 'm' is 'x' of another graph",)),
    "output elsewhere": (lambda g, x: StaticGraph("other").output("o", x), ("'x' of another graph",)),
    "late mark": (misuse_late("mark"), ("mark 'late' after plan()",)),
    "late output": (misuse_late("output"), ("output 'late' after plan()",)),
    "mark of nothing": (
        lambda g, x: g.mark("m", g.buffer("b", (1,), torch.float32)),
        ("mark 'm' is 'b'", "never written"),
    ),
    "output of nothing": (
        lambda g, x: g.output("o", g.buffer("b", (1,), torch.float32)),
        ("'o'", "never written"),
    ),
    "strided constant": (lambda g, x: g.constant("w", torch.zeros(3, 2).t()), ("constant w", "contiguous")),
    "slice with step": (lambda g, x: x[::2], ("x:", "contiguous part of [2, 3]")),
    "index outside": (lambda g, x: x[2], ("x: [2]", "[2, 3]")),
    "nested sections": (misuse_section, ("section 'b' inside section 'a'",)),
    "settled too early": (misuse_settled(3), ("attention: settled=3", "silu of the same section", "'cache'")),
    "too much settled": (misuse_settled(5), ("attention: settled=5 of 4 rows of k",)),
    "replay before plan": (lambda g, x: g.replay(), ("replay() before plan()",)),
    "read before plan": (lambda g, x: (g.output("o", x), g.read("o")), ("read('o') before plan()",)),
    "float arena": (lambda g, x: g.plan(memory=torch.zeros(512)), ("not aligned uint8", "arena.allocate()")),
    "misaligned arena": (lambda g, x: g.plan(memory=misaligned(512)), ("not aligned uint8",)),
    "small arena": (lambda g, x: g.plan(memory=arena.allocate(1)), ("arena of 1 bytes", "needs 256")),
    "unused buffer": (lambda g, x: (g.buffer("b", (1,), torch.float32), g.plan()), ("'b' is never used",)),
    "wrong shape": (
        lambda g, x: (g.plan(), g.write("x", np.zeros((3, 2), np.float32))),
        ("x is [3, 2] float32", "expected [2, 3] float32"),
    ),
    "wrong dtype": (
        lambda g, x: (g.plan(), g.write("x", np.zeros((2, 3)))),
        ("x is [2, 3] float64", "expected [2, 3] float32"),
    ),
    "unknown input": (lambda g, x: (g.plan(), g.write("z", np.zeros(1))), ("no input 'z'", "['x']")),
    "unknown output": (lambda g, x: (g.plan(), g.read("z")), ("no output 'z'",)),
    "unknown tap": (lambda g, x: (g.plan(), g.replay(taps=("z",))), ("no marks ['z']",)),
    "late call": (
        lambda g, x: (
            g.call(silu, x=x, out=g.buffer("b", (2, 3), torch.float32)),
            g.plan(),
            g.call(gelu, x=x),
        ),
        ("gelu after plan()",),
    ),
    "late buffer": (lambda g, x: (g.plan(), g.buffer("b", (1,), torch.float32)), ("'b' after plan()",)),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_refused_while_composing(case: str) -> None:
    """Replays check nothing: whatever is wrong must be said before."""
    misuse, words = MISUSE[case]
    g = StaticGraph("g")
    x = g.input("x", (2, 3), torch.float32)
    with pytest.raises(GraphError) as error:
        misuse(g, x)
    for word in words:
        assert word in str(error.value)


def test_a_refused_call_leaves_nothing() -> None:
    """Whoever catches the error and composes on would be told of a buffer that he never made."""
    g = StaticGraph("g")
    x, rows = g.input("x", (2, 3), torch.float32), g.buffer("rows", (2, 3), torch.float32)
    with pytest.raises(GraphError, match="no earlier call wrote"):
        g.call(silu, x=rows)
    g.call(silu, x=x, out=rows)
    g.output("y", g.call(silu, x=rows))
    g.plan()


def test_unknown_device_is_refused() -> None:
    """A graph must not fall back to the CPU silently."""
    with pytest.raises(DeviceError, match=r"g 'tpu': expected one of cpu"):
        StaticGraph("g", device="tpu")
