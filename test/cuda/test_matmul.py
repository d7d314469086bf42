# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matrix products on the GPU: when these fail, every number a policy computes there is wrong."""

from itertools import product
from typing import Any

import pytest
import torch

from flashrt_kernels.matmul import interleave, matmul, matmul_gelu_mul, matmul_rope_qkv, matmul_silu_mul
from test.cuda.support import check, gpu, random, requires_cuda

pytestmark = requires_cuda

BF16, FP32 = torch.bfloat16, torch.float32
DTYPES = (FP32, BF16)
PATHS = ("own", "portable", "cublaslt")  # CudaOptions.matmul
path = pytest.mark.parametrize("path", PATHS)
GATED = {"gelu_mul": matmul_gelu_mul, "silu_mul": matmul_silu_mul}
gated = pytest.mark.parametrize("gated", GATED)

# (rows, n, k) of no model: beside every tile's edges, fewer than a tile, one of each
ODD = [
    (1, 8, 8),
    (3, 16, 24),
    (17, 40, 136),
    (50, 97, 1000),
    (65, 200, 64),
    (131, 257, 264),
    (300, 72, 512),
    (129, 384, 72),
]
# and the layers of Pi0.5: SigLIP, prefix, expert
SIGLIP = [
    (768, 3456, 1152),
    (512, 1152, 1152),
    (768, 4304, 1152),
    (768, 1152, 4304),
    (768, 1152, 592),
    (768, 2048, 1152),
]
GEMMA = [(968, 2048, 2048), (532, 2048, 16384), (968, 512, 2048)]
EXPERT = [(50, 1024, 2048), (10, 1024, 4096), (50, 1024, 4096), (10, 1024, 2048)]
# one token: down of a language model, and a vocabulary
TOKEN = [(1, 2048, 16384), (1, 257152, 2048)]


def operands(rows: int, n: int, k: int, x: torch.dtype = BF16, weight: torch.dtype = BF16) -> dict[str, Any]:
    """x [rows, k] and weight [n, k] whose products are of size 1."""
    seed = rows + n + k
    return {"x": random((rows, k), x, seed), "weight": random((n, k), weight, seed + 1, scale=k**-0.5)}


def extras(rows: int, n: int, residual: torch.dtype | None, bias: bool, gate: bool) -> dict[str, Any]:
    """The optional arguments of `matmul`."""
    return {
        "bias": random((n,), seed=2) if bias else None,
        "gate": random((n,), seed=3) if gate else None,
        "residual": random((rows, n), residual, seed=4) if residual else None,
    }


def rope_operands(
    rows: int, k: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, out: torch.dtype
) -> dict[str, Any]:
    """Arguments of `matmul_rope_qkv`, outputs of dtype `out` included."""
    weight = random(((heads + 2 * kv_heads) * head_dim, k), dtype, 1, scale=k**-0.5)
    arguments: dict[str, Any] = {"x": random((rows, k), dtype), "weight": weight}
    arguments |= {"table": random((rows, head_dim)), "head_dim": head_dim}
    arguments |= {"heads": heads, "kv_heads": kv_heads}
    widths = {"q_out": heads, "k_out": kv_heads, "v_out": kv_heads}
    return arguments | {
        name: torch.empty((rows, count * head_dim), dtype=out, device="cuda") if count else None
        for name, count in widths.items()
    }


@path
@pytest.mark.parametrize("out", DTYPES, ids=str)
@pytest.mark.parametrize("size", [*ODD, *SIGLIP, *GEMMA, *EXPERT, *TOKEN], ids=str)
def test_product(path: str, out: torch.dtype, size: tuple[int, int, int]) -> None:
    """Any number of rows, outputs and inputs, also where no tile ends."""
    check(matmul, options={"matmul": path}, out_dtype=out, **operands(*size))


@path
@pytest.mark.parametrize(
    ("residual", "bias", "gate", "activation"),
    list(product((None, FP32, BF16), (False, True), (False, True), ("none", "gelu_tanh")))
    + [(None, True, False, name) for name in ("gelu_erf", "silu", "relu")]
    + [(FP32, True, True, "relu")],
)
@pytest.mark.parametrize("size", [(50, 136, 264), (131, 97, 520)], ids=str)
def test_epilogue(
    path: str,
    residual: torch.dtype | None,
    bias: bool,
    gate: bool,
    activation: str,
    size: tuple[int, int, int],
) -> None:
    """Bias, activation, gate and residual in this order, each where it is given."""
    arguments = operands(*size) | extras(size[0], size[1], residual, bias, gate)
    check(matmul, options={"matmul": path}, out_dtype=FP32, activation=activation, **arguments)


@path
@pytest.mark.parametrize(("x", "weight", "out"), list(product(DTYPES, repeat=3)), ids=str)
@pytest.mark.parametrize(
    "size", [(50, 1024, 32), (50, 32, 1024), (7, 13, 5), (200, 136, 588), (1, 1, 1)], ids=str
)
def test_any_types_and_sizes(
    path: str, x: torch.dtype, weight: torch.dtype, out: torch.dtype, size: tuple[int, int, int]
) -> None:
    """The first and the last layer of the actions, and a policy in fp32."""
    arguments = operands(*size, x, weight) | extras(size[0], size[1], FP32, bias=True, gate=True)
    check(matmul, options={"matmul": path}, out_dtype=out, **arguments)


@path
@gated
@pytest.mark.parametrize("out", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "size",
    [
        (1, 8, 8),
        (50, 4096, 1024),
        (10, 4096, 1024),
        (131, 136, 72),
        (968, 2048, 512),
        (300, 6144, 2048),
        (33, 24, 100),
    ],
    ids=str,
)
def test_gated(
    path: str, gated: str, out: torch.dtype, dtype: torch.dtype, size: tuple[int, int, int]
) -> None:
    """Each gate meets its own up: a shifted pair would still look like numbers."""
    rows, f, k = size
    gate, up = (random((f, k), dtype, seed, scale=k**-0.5) for seed in (1, 2))
    weight = interleave(gate, up).contiguous()
    arguments: dict[str, Any] = {"x": random((rows, k), dtype), "weight": weight, "out_dtype": out}
    check(GATED[gated], options={"matmul": path}, **arguments)


@path
@gated
@pytest.mark.parametrize("rows", [5, 200])
def test_gates_far_from_zero(path: str, gated: str, rows: int) -> None:
    """Gates of ±40 close or open completely: no overflow on the way, and no NaN."""
    x = torch.ones((rows, 64), dtype=BF16, device="cuda")
    gate = torch.linspace(-40, 40, 64, device="cuda")[:, None].expand(64, 64) / 64
    weight = interleave(gate.to(BF16), random((64, 64), BF16, scale=1 / 8)).contiguous()
    check(GATED[gated], options={"matmul": path}, x=x, weight=weight)


@path
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("rows", "k", "heads", "kv_heads", "head_dim"),
    [
        (50, 1024, 8, 1, 256),
        (10, 1024, 8, 1, 256),
        (968, 2048, 8, 1, 256),
        (300, 2048, 0, 1, 256),
        (17, 64, 3, 1, 16),
        (131, 72, 4, 2, 48),
        (1, 8, 2, 0, 32),
    ],
)
def test_rope_qkv(
    path: str, dtype: torch.dtype, rows: int, k: int, heads: int, kv_heads: int, head_dim: int
) -> None:
    """Queries, keys and values land in their own places, turned by their row's angles."""
    arguments = rope_operands(rows, k, heads, kv_heads, head_dim, dtype, dtype)
    check(matmul_rope_qkv, options={"matmul": path}, **arguments)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("tile", range(7))
@pytest.mark.parametrize("size", [(1, 8, 8), (50, 97, 1000), (131, 257, 264)], ids=str)
def test_every_tile_of_the_portable_kernel(
    monkeypatch: pytest.MonkeyPatch, tile: int, parts: int, size: tuple[int, int, int]
) -> None:
    """On a GPU with more or fewer multiprocessors others of them are chosen."""
    from flashrt_kernels.cuda.families import matmul_portable as portable

    choice = portable.Choice(portable.TILES[tile], parts)
    monkeypatch.setattr(portable, "choose", lambda *_: choice)
    arguments = operands(*size) | extras(size[0], size[1], BF16, bias=True, gate=True)
    check(matmul, options={"matmul": "portable"}, **arguments)
    gate_up = random((size[1], 2, 8, size[2]), BF16, scale=size[2] ** -0.5)
    for kernel in GATED.values():
        check(kernel, options={"matmul": "portable"}, x=arguments["x"], weight=gate_up)


@pytest.mark.parametrize("size", [(65, 16, 8), (131, 272, 264), (300, 464, 1000)], ids=str)
@pytest.mark.parametrize("kind", ["plain", "gelu_mul", "silu_mul", "rope_qkv"])
def test_every_tile_of_the_hopper_kernel(
    monkeypatch: pytest.MonkeyPatch, kind: str, size: tuple[int, int, int]
) -> None:
    """The models' sizes choose some of them, and end in the middle of none."""
    from flashrt_kernels.cuda.families import matmul_hopper as hopper

    if not gpu().hopper:
        pytest.skip("Hopper's kernels run on no other GPU")
    rows, n, k = size
    for tile, out in product(hopper.TILES[kind], DTYPES):
        if tile.split > -(-k // hopper.STEP):
            continue  # a part of k would be empty
        monkeypatch.setattr(hopper, "tile_for", lambda *_, tile=tile: tile)
        if kind == "plain":
            arguments = operands(*size) | extras(
                rows, n, FP32 if out == FP32 else None, bias=True, gate=False
            )
            check(matmul, out_dtype=out, **arguments)
        elif kind in GATED:
            weight = random((n // 16, 2, 8, k), BF16, scale=k**-0.5)
            result = torch.empty((rows, n // 2), dtype=out, device="cuda")
            check(GATED[kind], x=random((rows, k), BF16), weight=weight, out=result)
        else:
            heads = n // 16
            check(
                matmul_rope_qkv, **rope_operands(rows, k, heads - 2 * (heads // 3), heads // 3, 16, BF16, out)
            )


@pytest.mark.parametrize("residual", [FP32, BF16, None], ids=str)
def test_every_epilogue_behind_parts_of_k(
    monkeypatch: pytest.MonkeyPatch, residual: torch.dtype | None
) -> None:
    """The sums come from two thread blocks there, so the epilogue is another."""
    from flashrt_kernels.cuda.families import matmul_hopper as hopper

    if not gpu().hopper:
        pytest.skip("Hopper's kernels run on no other GPU")
    for tile, out, gate in product(hopper.TILES["plain"], DTYPES, (False, True)):
        if tile.split > 1:
            monkeypatch.setattr(hopper, "tile_for", lambda *_, tile=tile: tile)
            arguments = operands(131, 272, 264) | extras(131, 272, residual, bias=True, gate=gate)
            check(matmul, out_dtype=out, activation="gelu_tanh", **arguments)


@path
@pytest.mark.parametrize("size", [(50, 1024, 4096), (968, 2048, 2048), (10, 2560, 1024)], ids=str)
def test_same_bits_every_time(path: str, size: tuple[int, int, int]) -> None:
    """A decision that differs from run to run can't be reproduced from a recording."""
    from flashrt_kernels.cuda.backend import run

    arguments = operands(*size) | extras(size[0], size[1], FP32, bias=False, gate=True)
    results = [run(matmul, gpu(matmul=path), out_dtype=FP32, **arguments) for _ in range(5)]
    assert all(torch.equal(results[0], other) for other in results[1:])
