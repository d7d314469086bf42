# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Attention on the GPU: when these fail, a policy there looks at the wrong tokens, or at padding."""

from random import Random
from typing import Any

import pytest
import torch

from flashrt_kernels.attention import attention, self_attention
from test.cuda.support import check, gpu, random, requires_cuda

pytestmark = requires_cuda

BF16, FP32 = torch.bfloat16, torch.float32
path = pytest.mark.parametrize("path", ["own", "portable"])  # CudaOptions.attention
dtype = pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)


def heads_of(
    queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> dict[str, Any]:
    """Random q, k, v and the parameters that say how they are split."""
    return {
        "q": random((queries, heads * head_dim), dtype, 1),
        "k": random((keys, kv_heads * head_dim), dtype, 2),
        "v": random((keys, kv_heads * head_dim), dtype, 3),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
    }


def some(shape: tuple[int, ...], share: float, seed: int = 0) -> torch.Tensor:
    """Random bools, True for `share` of them."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.rand(shape, generator=generator, device="cuda") < share


SIZES = [
    (968, 968, 8, 1, 256),  # the prefix
    (50, 1018, 8, 1, 256),  # the expert
    (10, 554, 8, 1, 256),
    (1, 1, 1, 1, 8),
    (131, 97, 6, 3, 72),
    (64, 64, 2, 2, 128),
    (300, 33, 3, 1, 64),
    (7, 331, 4, 2, 200),
    (65, 65, 2, 1, 256),
    (300, 300, 16, 8, 128),  # Qwen3
    (51, 400, 32, 32, 48),  # actions to all tokens of GR00T
    (1, 1300, 8, 1, 256),  # one token that is decoded
]


@path
@dtype
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention(path: str, dtype: torch.dtype, size: tuple[int, int, int, int, int]) -> None:
    """Every key seen, of any number."""
    check(attention, options={"attention": path}, **heads_of(*size, dtype))


@path
@dtype
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_keys_that_may_not_be_seen(
    path: str, dtype: torch.dtype, share: float, size: tuple[int, int, int, int, int]
) -> None:
    """Padding has no influence, whole tiles of it give no NaN, and nothing seen gives 0."""
    check(attention, options={"attention": path}, key_valid=some((size[1],), share), **heads_of(*size, dtype))


@path
@dtype
def test_the_tail_of_the_prompt_is_padding(path: str, dtype: torch.dtype) -> None:
    """As in a policy: all images, some words, then nothing."""
    valid = torch.arange(968, device="cuda") < 800
    check(attention, options={"attention": path}, key_valid=valid, **heads_of(968, 968, 8, 1, 256, dtype))
    valid = torch.arange(1018, device="cuda")
    valid = (valid < 768) | (valid >= 968)
    check(attention, options={"attention": path}, key_valid=valid, **heads_of(50, 1018, 8, 1, 256, dtype))


@path
@dtype
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_mask_for_each_query(
    path: str, dtype: torch.dtype, both: bool, size: tuple[int, int, int, int, int]
) -> None:
    """Each query sees its own keys; one of them sees none."""
    queries, keys = size[:2]
    mask = some((queries, keys), 0.5)
    mask[queries // 2] = False
    valid = some((keys,), 0.7, seed=1) if both else None
    check(attention, options={"attention": path}, mask=mask, key_valid=valid, **heads_of(*size, dtype))


@path
@dtype
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 100, 257, 400])
@pytest.mark.parametrize("padding", [0, 3, 70])
def test_a_token_sees_those_before_it(path: str, dtype: torch.dtype, rows: int, padding: int) -> None:
    """As in Qwen3, behind padding on the left: the first rows see nothing, and give 0."""
    mask = torch.ones((rows, rows), dtype=torch.bool, device="cuda").tril()
    valid = torch.arange(rows, device="cuda") >= min(padding, rows - 1)
    arguments = heads_of(rows, rows, 16, 8, 128, dtype)
    check(attention, options={"attention": path}, mask=mask, key_valid=valid, **arguments)


@path
@dtype
@pytest.mark.parametrize("written", [1, 63, 64, 1100, 1299, 1300])
@pytest.mark.parametrize("settled", [0, 1056])
def test_one_token_sees_what_was_written(path: str, dtype: torch.dtype, written: int, settled: int) -> None:
    """As in decoding: a cache that is filled row by row; what is behind must not show."""
    arguments = heads_of(1, 1300, 8, 1, 256, dtype)
    valid = torch.arange(1300, device="cuda") < written
    check(attention, options={"attention": path}, key_valid=valid, settled=settled, **arguments)


@path
@dtype
@pytest.mark.parametrize("head_dim", [1, 5, 16, 40, 96, 250])
def test_any_head_size(path: str, dtype: torch.dtype, head_dim: int) -> None:
    """Small and odd ones, as tests and other models have."""
    check(attention, options={"attention": path}, **heads_of(37, 150, 4, 2, head_dim, dtype))


@path
@dtype
def test_large_scores(path: str, dtype: torch.dtype) -> None:
    """Scores of hundreds overflow a softmax that doesn't subtract the largest; they cost some digits."""
    arguments = heads_of(70, 300, 4, 1, 64, dtype)
    arguments["q"] = arguments["q"] * 40
    check(attention, (5e-3, 2e-2), {"attention": path}, **arguments)


@path
@dtype
@pytest.mark.parametrize(
    ("sequences", "length", "heads", "head_dim"),
    [
        (3, 256, 16, 72),
        (2, 256, 16, 72),
        (1, 1, 1, 8),
        (4, 37, 3, 64),
        (2, 100, 2, 256),
        (1, 65, 2, 40),
        (1, 41, 32, 48),
        (1, 51, 32, 48),
        (2, 256, 16, 64),
        (1, 331, 32, 64),
    ],
)
def test_self_attention(
    path: str, dtype: torch.dtype, sequences: int, length: int, heads: int, head_dim: int
) -> None:
    """A camera's tokens see only those of the same camera."""
    qkv = random((sequences * length, 3 * heads * head_dim), dtype)
    options = {"attention": path}
    check(self_attention, options=options, qkv=qkv, heads=heads, head_dim=head_dim, sequences=sequences)


@pytest.mark.parametrize("seed", range(40))
def test_few_queries(seed: int) -> None:
    """Any number of keys and of heads, in groups of any size; some keys settled, some unseen."""
    r = Random(seed)
    kv_heads, group, queries = r.choice([1, 1, 2]), r.choice([1, 2, 4, 8, 16]), r.randint(1, 64)
    keys = r.choice([r.randint(1, 300), r.randint(1, 1100), r.randint(1000, 4096)])
    valid = r.choice([None, some((keys,), r.choice([0.0, 0.02, 0.5, 0.9]), seed)])
    arguments = heads_of(queries, keys, kv_heads * group, kv_heads, 256, BF16)
    check(attention, key_valid=valid, settled=r.randint(0, keys), **arguments)


@pytest.mark.parametrize(
    "size", [(50, 1018, 8, 1, 256), (10, 554, 8, 1, 256), (50, 1500, 8, 1, 256)], ids=str
)
def test_settled_keys_change_no_bit(size: tuple[int, int, int, int, int]) -> None:
    """Keys are read earlier, not otherwise; in a graph where each launch starts beside the one in front."""
    from flashrt_kernels.cuda import families

    families.load()
    arguments = {"key_valid": None, "mask": None} | heads_of(*size, BF16)
    parameters = {name: arguments.pop(name) for name in ("heads", "kv_heads", "head_dim")}
    queries, keys = size[:2]
    settled = [0, keys - queries, keys] * 30
    outs = [torch.full_like(arguments["q"], float("nan")) for _ in settled]
    launches = [
        families.maker(attention)(gpu(), arguments | {"out": out}, parameters | {"settled": rows}, None)[0]
        for rows, out in zip(settled, outs, strict=True)
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    torch.cuda.synchronize()
    assert not outs[0].isnan().any()
    assert all(torch.equal(outs[0], other) for other in outs[1:])


@path
@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_same_bits_every_time(path: str, size: tuple[int, int, int, int, int]) -> None:
    """A decision that differs from run to run can't be reproduced from a recording."""
    from flashrt_kernels.cuda.backend import run

    arguments = heads_of(*size, BF16)
    results = [run(attention, gpu(attention=path), **arguments) for _ in range(5)]
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_heads_that_are_too_large_are_refused() -> None:
    """A head of 257 has no kernel: the error names the limit instead of a wrong result."""
    from flashrt_kernels.cuda.backend import run
    from flashrt_kernels.errors import GraphError

    with pytest.raises(GraphError, match="head_dim is 257; expected at most 256"):
        run(attention, gpu(), **heads_of(2, 2, 1, 1, 257, FP32))
