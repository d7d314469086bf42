# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rotary embedding: when it fails, tokens lose their order."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels import GraphError
from flashrt_kernels.matmul import matmul_rope_qkv
from flashrt_kernels.rope import norm_rope_qkv, rope, rope_qk, rope_qkv, rope_table, rope_table_axes
from test.kernels.support import check, compare, dtypes, poisoned, random, seeds, wide

sizes = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 9).map(lambda half: 2 * half))


def turn(x: np.ndarray, positions: np.ndarray, heads: int, theta: float) -> np.ndarray:
    """Complex multiplication: element i and element i + half are one complex number."""
    rows, half = x.shape[0], x.shape[1] // heads // 2
    split = x.reshape(rows, heads, 2, half)
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    z = (split[:, :, 0] + 1j * split[:, :, 1]) * np.exp(1j * angle)[:, None]
    return np.stack([z.real, z.imag], 2).reshape(x.shape)


def table_of(positions: list[int], head_dim: int, theta: float = 10000.0) -> torch.Tensor:
    out = poisoned((len(positions), head_dim), torch.float32)
    rope_table(positions=torch.tensor(positions, dtype=torch.int32), out=out, head_dim=head_dim, theta=theta)
    return out


@given(sizes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_rope(size: tuple[int, int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """Half-split form at any position, the same rotation in every head."""
    rows, heads, head_dim = size
    rng = np.random.default_rng(seed)
    positions = rng.integers(-1, 50, rows)
    x = random(rng, (rows, heads * head_dim), source)
    want = turn(wide(x), positions, heads, 10000.0)
    table = table_of(positions.tolist(), head_dim)
    check(
        rope,
        want,
        target,
        None if target == torch.bfloat16 else 2e-5,
        x=x,
        table=table,
        heads=heads,
        head_dim=head_dim,
    )


@given(sizes, st.integers(1, 3), dtypes, seeds)
@settings(deadline=None)
def test_rope_qkv(size: tuple[int, int, int], kv_heads: int, dtype: torch.dtype, seed: int) -> None:
    """q and k turn, v does not, and each lands in its own buffer."""
    rows, heads, head_dim = size
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 50, rows)
    q, k, v = (random(rng, (rows, n * head_dim), dtype) for n in (heads, kv_heads, kv_heads))
    outs = {f"{n}_out": poisoned(tuple(t.shape), dtype) for n, t in (("q", q), ("k", k), ("v", v))}
    parameters = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    rope_qkv(qkv=torch.cat([q, k, v], 1), table=table_of(positions.tolist(), head_dim), **outs, **parameters)
    limit = 2**-8 if dtype == torch.bfloat16 else 2e-5
    compare(outs["q_out"], turn(wide(q), positions, heads, 10000.0), limit)
    compare(outs["k_out"], turn(wide(k), positions, kv_heads, 10000.0), limit)
    assert torch.equal(outs["v_out"], v)


@given(sizes, dtypes, seeds)
@settings(deadline=None)
def test_rope_qk(size: tuple[int, int, int], dtype: torch.dtype, seed: int) -> None:
    """q and k turn where they lie, v keeps its bits."""
    rows, heads, head_dim = size
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 50, rows)
    qkv = random(rng, (rows, 3 * heads * head_dim), dtype)
    q, k, v = (part.clone() for part in qkv.chunk(3, dim=1))
    table = table_of(positions.tolist(), head_dim)
    assert rope_qk(qkv=qkv, table=table, heads=heads, head_dim=head_dim) is qkv
    limit = 2**-8 if dtype == torch.bfloat16 else 2e-5
    for came, x in zip(qkv.chunk(3, dim=1), (q, k), strict=False):
        compare(came, turn(wide(x), positions, heads, 10000.0), limit)
    assert torch.equal(qkv.chunk(3, dim=1)[2], v)


@given(sizes, st.integers(1, 3), st.sampled_from((1e-6, 0.1)), dtypes, dtypes, seeds)
@settings(deadline=None)
def test_norm_rope_qkv(
    size: tuple[int, int, int],
    kv_heads: int,
    eps: float,
    source: torch.dtype,
    target: torch.dtype,
    seed: int,
) -> None:
    """Each head of q and k is normalised by itself, then turned, with a rounding at the end alone."""
    rows, heads, head_dim = size
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 50, rows)
    q, k, v = (random(rng, (rows, n * head_dim), source) for n in (heads, kv_heads, kv_heads))
    weights = {name: random(rng, (head_dim,)) for name in ("q_weight", "k_weight")}
    outs = {f"{n}_out": poisoned(tuple(t.shape), target) for n, t in (("q", q), ("k", k), ("v", v))}
    parameters = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "eps": eps}
    table = table_of(positions.tolist(), head_dim)
    norm_rope_qkv(qkv=torch.cat([q, k, v], 1), table=table, **weights, **outs, **parameters)
    for name, x, count in (("q", q, heads), ("k", k, kv_heads)):
        each = wide(x).reshape(rows, count, head_dim)
        scale = 1 / np.sqrt((each**2).mean(-1, keepdims=True) + eps)
        normed = (each * scale * wide(weights[f"{name}_weight"])).reshape(rows, -1)
        limit = 2**-8 if target == torch.bfloat16 else 2e-5
        compare(outs[f"{name}_out"], turn(normed, positions, count, 10000.0), limit)
    assert torch.equal(outs["v_out"], v.to(target))


def test_norm_rope_qkv_wants_a_weight_for_every_column_of_a_head() -> None:
    """A weight over all heads belongs to another kind of norm."""
    given_sizes = {"heads": 2, "kv_heads": 1, "head_dim": 4}
    weights = {"q_weight": torch.ones(8), "k_weight": torch.ones(4)}
    with pytest.raises(GraphError, match=re.escape("q_weight is [8] float32; expected [4]")):
        norm_rope_qkv(qkv=torch.ones(3, 16), table=table_of([0, 1, 2], 4), **weights, **given_sizes)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 12), st.sampled_from((1e4, 5e6)), seeds)
def test_rope_table_axes(axes: int, rows: int, half: int, theta: float, seed: int) -> None:
    """Frequency i turns with the axis that it is dealt: rows and columns of an image, or time."""
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 60, (axes, rows)).astype(np.int32)
    axis = rng.integers(0, axes, half).astype(np.int32)
    given_arrays = {"positions": torch.from_numpy(positions), "axis": torch.from_numpy(axis)}
    angle = positions[axis].T * theta ** (-np.arange(half) / half)
    want = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    check(rope_table_axes, want, torch.float32, 2e-5, theta=theta, **given_arrays)


def test_text_turns_along_all_axes_alike() -> None:
    """A token of text has one position: the table is that of plain RoPE, bit by bit."""
    positions, axis = torch.arange(50, dtype=torch.int32), torch.arange(64, dtype=torch.int32) % 3
    table = rope_table_axes(positions=positions.repeat(3, 1), axis=axis, theta=5e6)
    assert torch.equal(table, rope_table(positions=positions, head_dim=128, theta=5e6))


def stored_rows(heads: int, head_dim: int) -> list[int]:
    """Rows of rotated heads as the fused kernel wants them: 8 of the first half, their partners, and on."""
    within = [
        start + j for i in range(0, head_dim // 2, 8) for start in (i, head_dim // 2 + i) for j in range(8)
    ]
    return [head * head_dim + row for head in range(heads) for row in within]


@given(sizes, st.integers(1, 3), st.integers(1, 40), dtypes, dtypes, st.booleans(), seeds)
@settings(deadline=None)
def test_matmul_rope_qkv(
    size: tuple[int, int, int],
    kv_heads: int,
    width: int,
    source: torch.dtype,
    target: torch.dtype,
    queries: bool,
    seed: int,
) -> None:
    """A fused projection gives what its parts give, without rounding between them."""
    rows, heads, head_dim = size[0], size[1] * queries, 8 * size[2]
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 50, rows)
    x = random(rng, (rows, width), source)
    weight = random(rng, ((heads + 2 * kv_heads) * head_dim, width), source)
    shapes = {"q": heads, "k": kv_heads, "v": kv_heads}
    outs = {f"{name}_out": poisoned((rows, n * head_dim), target) for name, n in shapes.items()}
    given_outs = outs if queries else outs | {"q_out": None}
    sizes_of = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    table = table_of(positions.tolist(), head_dim)
    stored = torch.cat([weight[stored_rows((heads + kv_heads), head_dim)], weight[-kv_heads * head_dim :]])
    matmul_rope_qkv(x=x, weight=stored, table=table, **given_outs, **sizes_of)
    q, k, v = np.split(wide(x) @ wide(weight).T, np.cumsum([heads * head_dim, kv_heads * head_dim]), axis=1)
    limit = 2**-8 if target == torch.bfloat16 else 2e-5
    if queries:
        compare(outs["q_out"], turn(q, positions, heads, 10000.0), limit)
    compare(outs["k_out"], turn(k, positions, kv_heads, 10000.0), limit)
    compare(outs["v_out"], v, limit)


def test_matmul_rope_qkv_of_queries_alone() -> None:
    """The last layer of a prefix computes its queries only for taps."""
    rng = np.random.default_rng(1)
    x, weight = random(rng, (3, 8)), random(rng, (32, 8))
    table = table_of([4, 5, 6], 16)
    stored = weight[stored_rows(2, 16)]
    alone = {"k_out": None, "v_out": None, "heads": 2, "kv_heads": 0, "head_dim": 16}
    q, k, v = matmul_rope_qkv(x=x, weight=stored, table=table, **alone)
    assert k is None
    assert v is None
    compare(q, turn(wide(x) @ wide(weight).T, np.array([4, 5, 6]), 2, 10000.0), 2e-5)


def test_rope_qkv_without_queries() -> None:
    """The last layer of a prefix needs only keys and values."""
    rng = np.random.default_rng(0)
    kv = random(rng, (3, 2 * 8))
    table = table_of([4, 5, 6], 8)
    q, k, v = rope_qkv(qkv=kv, table=table, q_out=None, heads=0, kv_heads=1, head_dim=8)
    assert q is None
    compare(k, turn(wide(kv[:, :8]), np.array([4, 5, 6]), 1, 10000.0), 1e-5)
    assert torch.equal(v, kv[:, 8:])


def test_theta_sets_the_wavelengths() -> None:
    """Other language models use other bases."""
    table = table_of([7], 4, theta=100.0)
    compare(table, np.array([[np.cos(7), np.cos(0.7), np.sin(7), np.sin(0.7)]]))
