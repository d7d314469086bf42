# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Token embedding: the scale is part of Gemma; without it the prompt hardly counts."""

import numpy as np
import pytest
import torch

from flashrt_kernels.embedding import embedding
from test.kernels.support import check, random, wide


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding_is_scaled_rows(dtype: torch.dtype) -> None:
    """Repeated and unordered ids, an odd width."""
    table = random(np.random.default_rng(0), (11, 7), dtype)
    ids = torch.tensor([3, 0, 3, 10], dtype=torch.int32)
    check(embedding, wide(table)[[3, 0, 3, 10]] * 7**0.5, dtype, ids=ids, table=table, scale=7**0.5)
