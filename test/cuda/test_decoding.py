# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decoding on the GPU: when these fail, a policy there says other tokens than on a CPU, or loses some."""

import pytest
import torch

from flashrt_kernels.decoding import advance_text, argmax, begin_text, clear, write_rows
from test.cuda.support import check, gpu, random, requires_cuda

pytestmark = requires_cuda
DTYPES = (torch.float32, torch.bfloat16)
# rows, vocabulary: beside the edges of a thread's, a warp's and a block's share
SIZES = [(1, 257152), (1, 1), (3, 31), (2, 2048), (2, 2049), (5, 4097), (300, 777), (1, 300_001)]


def first_of_largest(logits: torch.Tensor) -> torch.Tensor:
    """argmax as it is declared; which of equals torch takes on a GPU is not said."""
    places = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
    is_best = logits == logits.amax(dim=1, keepdim=True)
    return places.masked_fill(~is_best, logits.shape[1]).amin(dim=1).int()


def largest(logits: torch.Tensor) -> torch.Tensor:
    """What the kernel says, over a poisoned result."""
    from flashrt_kernels.cuda.backend import run

    out = torch.full((len(logits),), -1, dtype=torch.int32, device="cuda")
    run(argmax, gpu(), logits=logits, out=out)
    torch.cuda.synchronize()
    return out


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_argmax(size: tuple[int, int], levels: int) -> None:
    """The largest wherever it is, the first of equals; levels: values that there are, 0: any."""
    logits = random(size, seed=size[1])
    logits = (logits.abs() * 10 % levels).floor() if levels else logits
    assert torch.equal(largest(logits), first_of_largest(logits))


@pytest.mark.parametrize("place", [0, 1, 31, 255, 256, 2047, 2048, 131071, 257151])
def test_argmax_at_every_edge(place: int) -> None:
    """The first and the last value of a thread block's share, all others equal."""
    logits = torch.full((1, 257152), -7.0, device="cuda")
    logits[0, place] = -6.5
    assert largest(logits).tolist() == [place]


def test_argmax_of_what_is_no_number() -> None:
    """Infinity is a value like any other, and NaN shows, as on a CPU."""
    logits = random((4, 5000))
    logits[0, 4000] = torch.inf
    logits[1] = -torch.inf
    logits[2, [4321, 17, 3000]] = torch.nan
    logits[3, 2500] = -torch.inf
    assert torch.equal(largest(logits).cpu(), argmax(logits=logits.cpu()))


def test_argmax_gives_the_same_every_time() -> None:
    """A decision that differs from run to run can't be reproduced from a recording."""
    logits = random((1, 257152)).bfloat16().float()
    results = [largest(logits) for _ in range(20)]
    assert all(torch.equal(results[0], other) for other in results)


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize(("count", "width"), [(1, 256), (1, 2048), (5, 7), (3, 1), (200, 1028), (2, 6)])
@pytest.mark.parametrize("at", [0, 1, 9])
def test_write_rows(source: torch.dtype, target: torch.dtype, count: int, width: int, at: int) -> None:
    """The rows land in their place, every other row of the cache keeps its bits."""
    place = torch.tensor([at], dtype=torch.int32, device="cuda")
    cache = random((count + 9, width), target, seed=1)
    check(write_rows, (0.0, 0.0), rows=random((count, width), source), at=place, cache=cache)


@pytest.mark.parametrize("at", [-3, -1, 5, 6, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("width", [8, 3])
def test_rows_that_do_not_fit_are_left_out(at: int, width: int) -> None:
    """A CPU refuses them; a GPU must not write over what lies beside the cache."""
    from flashrt_kernels.cuda.backend import run

    memory = random((30, width), seed=2)
    cache, rows = memory[10:16], random((2, width), seed=3)
    want = memory.clone()
    for i, row in enumerate(rows):
        if 0 <= at + i < 6:
            want[10 + at + i] = row
    run(write_rows, gpu(), rows=rows, at=torch.tensor([at], dtype=torch.int32, device="cuda"), cache=cache)
    torch.cuda.synchronize()
    assert torch.equal(memory, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1300, 256), (1, 1), (3, 7), (5, 2)], ids=str)
@pytest.mark.parametrize("offset", [0, 1])
def test_clear(dtype: torch.dtype, shape: tuple[int, int], offset: int) -> None:
    """All of it, from any address, and nothing beside it."""
    from flashrt_kernels.cuda.backend import run

    count = shape[0] * shape[1]
    memory = torch.full((count + offset + 8,), torch.nan, dtype=dtype, device="cuda")
    run(clear, gpu(), out=memory[offset : offset + count].view(shape))
    torch.cuda.synchronize()
    assert not memory[offset : offset + count].any()
    assert int(memory.isnan().sum()) == offset + 8


@pytest.mark.parametrize(("rows", "limit"), [(5, 3), (3, 300), (1, 1), (1000, 256)])
def test_a_text_begins_and_goes_on(rows: int, limit: int) -> None:
    """Else the GPU looks at other tokens than the CPU, or loses its place."""
    from flashrt_kernels.cuda.backend import run

    prompt = torch.rand(rows, generator=torch.Generator().manual_seed(rows)) < 0.5
    found = []
    for device in ("cpu", "cuda"):
        numbers = [torch.tensor([value], dtype=torch.int32, device=device) for value in (11, 40, 12)]
        text = torch.full((limit,), -1, dtype=torch.int32, device=device)
        visible = torch.ones(rows + limit, dtype=torch.bool, device=device)
        place = torch.full((2,), -1, dtype=torch.int32, device=device)
        begin = {"next": numbers[0], "position": numbers[1], "prompt": prompt.to(device)}
        state = {"text": text, "visible": visible, "place": place}
        go_on = {"next": numbers[2], "text": text, "visible": visible[rows:], "place": place}
        for kernel, given in ((begin_text, begin | state), *[(advance_text, go_on)] * 4):
            kernel(**given) if device == "cpu" else run(kernel, gpu(), **given)
        found.append([tensor.cpu().tolist() for tensor in (text, visible, place)])
    assert found[0] == found[1]
