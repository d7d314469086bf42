# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Token embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, INT32, In, Out, kernel


@kernel(
    ids=In("tokens", INT32), table=In("vocabulary width", FLOAT), out=Out("tokens width", FLOAT, like="table")
)
def embedding(ids: torch.Tensor, table: torch.Tensor, out: torch.Tensor, *, scale: float = 1.0) -> None:
    """scale · table[ids]; Gemma scales by √width. Ids must lie in the vocabulary."""
    out.copy_(F.embedding(ids, table).float().mul_(scale))
