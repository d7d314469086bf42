# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rotary positions on the GPU: when these fail, attention there mixes up what lies where."""

from typing import Any

import pytest
import torch

from flashrt_kernels.rope import norm_rope_qkv, rope, rope_qk, rope_qkv, rope_table, rope_table_axes
from test.cuda.support import check, compare, gpu, random, requires_cuda

pytestmark = requires_cuda
DTYPES = (torch.float32, torch.bfloat16)


def table(rows: int, head_dim: int) -> torch.Tensor:
    """Angles of positions 0 …; computed by the reference."""
    angles: torch.Tensor = rope_table(positions=torch.arange(rows, dtype=torch.int32), head_dim=head_dim)
    return angles.cuda()


@pytest.mark.parametrize("head_dim", [256, 72, 2, 6, 600])
@pytest.mark.parametrize("rows", [968, 1, 13])
@pytest.mark.parametrize("theta", [1e4, 5e6])
def test_table_is_that_of_the_cpu(rows: int, head_dim: int, theta: float) -> None:
    """Angles of hundreds of radians show every error of the powers."""
    from flashrt_kernels.cuda.backend import run

    positions = torch.arange(rows, dtype=torch.int32) * 3
    out = torch.full((rows, head_dim), torch.nan, device="cuda")
    run(rope_table, gpu(), positions=positions.cuda(), out=out, head_dim=head_dim, theta=theta)
    want = rope_table(positions=positions, head_dim=head_dim, theta=theta)
    compare("rope_table", out.cpu(), want, (5e-5, 4e-4))


@pytest.mark.parametrize("half", [64, 36, 1, 300])
@pytest.mark.parametrize(("axes", "rows"), [(3, 400), (2, 1), (1, 13)])
@pytest.mark.parametrize("theta", [1e4, 5e6])
def test_table_along_axes_is_that_of_the_cpu(half: int, axes: int, rows: int, theta: float) -> None:
    """A frequency that turns with another axis confuses rows of an image with its columns."""
    from flashrt_kernels.cuda.backend import run

    generator = torch.Generator().manual_seed(half + rows)
    positions = torch.randint(0, 1000, (axes, rows), generator=generator, dtype=torch.int32)
    axis = torch.randint(0, axes, (half,), generator=generator, dtype=torch.int32)
    out = torch.full((rows, 2 * half), torch.nan, device="cuda")
    run(rope_table_axes, gpu(), positions=positions.cuda(), axis=axis.cuda(), out=out, theta=theta)
    want = rope_table_axes(positions=positions, axis=axis, theta=theta)
    compare("rope_table_axes", out.cpu(), want, (5e-5, 4e-4))


@pytest.mark.parametrize(("heads", "head_dim"), [(8, 256), (3, 72), (1, 2), (5, 6)])
@pytest.mark.parametrize("x", DTYPES, ids=str)
@pytest.mark.parametrize("out", DTYPES, ids=str)
def test_rope(heads: int, head_dim: int, x: torch.dtype, out: torch.dtype) -> None:
    """Every head turns by the row's angles."""
    given: dict[str, Any] = {
        "x": random((11, heads * head_dim), x),
        "table": table(11, head_dim),
        "out_dtype": out,
    }
    check(rope, heads=heads, head_dim=head_dim, **given)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(8, 1, 256), (2, 2, 10), (16, 8, 128), (4, 0, 8)]
)
@pytest.mark.parametrize("qkv", DTYPES, ids=str)
def test_rope_qkv(heads: int, kv_heads: int, head_dim: int, qkv: torch.dtype) -> None:
    """q and k turn, v does not, each into its own array."""
    x = random((13, (heads + 2 * kv_heads) * head_dim), qkv)
    sizes: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    dtypes = (torch.bfloat16, torch.bfloat16, torch.float32)
    given: dict[str, Any] = dict(zip(("q_out_dtype", "k_out_dtype", "v_out_dtype"), dtypes, strict=True))
    if not kv_heads:
        given = {"k_out": None, "v_out": None, "q_out_dtype": torch.bfloat16}
    check(rope_qkv, qkv=x, table=table(13, head_dim), **sizes, **given)


@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "head_dim"),
    [(300, 16, 8, 128), (1, 16, 8, 128), (13, 3, 1, 10), (7, 1, 1, 2), (50, 2, 2, 600)],
)
@pytest.mark.parametrize("qkv", DTYPES, ids=str)
@pytest.mark.parametrize("out", DTYPES, ids=str)
@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_norm_rope_qkv(
    rows: int, heads: int, kv_heads: int, head_dim: int, qkv: torch.dtype, out: torch.dtype, eps: float
) -> None:
    """Each head by itself: the norm of a neighbour, or the weight of k for q, would still look right."""
    x = random((rows, (heads + 2 * kv_heads) * head_dim), qkv, scale=3)
    weights: dict[str, Any] = {
        "q_weight": random((head_dim,), seed=1),
        "k_weight": random((head_dim,), seed=2),
    }
    sizes: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "eps": eps}
    dtypes: dict[str, Any] = {f"{name}_out_dtype": out for name in "qkv"}
    check(norm_rope_qkv, qkv=x, table=table(rows, head_dim), **weights, **sizes, **dtypes)


@pytest.mark.parametrize(("rows", "heads", "head_dim"), [(512, 16, 64), (1, 1, 2), (13, 3, 10), (7, 2, 600)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rope_qk(rows: int, heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """q and k turn where they lie, v stays."""
    x = random((rows, 3 * heads * head_dim), dtype)
    check(rope_qk, qkv=x, table=table(rows, head_dim), heads=heads, head_dim=head_dim)


def test_k_and_v_alone() -> None:
    """The last language layer has no q."""
    x = random((7, 2 * 256))
    check(rope_qkv, qkv=x, table=table(7, 256), q_out=None, heads=0, kv_heads=1, head_dim=256)


def test_arrays_may_start_anywhere() -> None:
    """A cache row is where it is."""
    x = random((3 * 16 + 1,))[1:].view(3, 16)
    check(rope, x=x, table=table(3, 8), heads=2, head_dim=8)
