# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Token embedding on the GPU: when this fails, the instruction is another one."""

import pytest
import torch

from flashrt_kernels.embedding import embedding
from test.cuda.support import check, random, requires_cuda

pytestmark = requires_cuda
DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("tokens", "width"), [(200, 2048), (1, 1), (13, 7), (3, 4104), (5, 8)])
@pytest.mark.parametrize("table", DTYPES, ids=str)
@pytest.mark.parametrize("out", DTYPES, ids=str)
def test_embedding(tokens: int, width: int, table: torch.dtype, out: torch.dtype) -> None:
    """Rows of the table times Gemma's scale, the last row included."""
    ids = torch.randint(0, 517, (tokens,), dtype=torch.int32, device="cuda")
    ids[-1] = 516
    check(embedding, ids=ids, table=random((517, width), table), scale=width**0.5, out_dtype=out)


def test_the_table_may_start_anywhere() -> None:
    """Slices of a larger array are not on 16 bytes."""
    table = random((9 * 16 + 1,))[1:].view(9, 16)
    check(embedding, ids=torch.tensor([8, 0, 3], dtype=torch.int32, device="cuda"), table=table)
