# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launch of embedding."""

from __future__ import annotations

import torch

from flashrt_kernels import embedding as declared
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

VALUES = 8  # per thread: 16 bytes of a bf16 table


@launches(declared.embedding)
def embedding(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    ids, table, out = a["ids"], a["table"], a["out"]
    tokens, width = out.shape
    if not tokens or not width:
        return []
    whole = width % VALUES == 0 and table.data_ptr() % 16 == 0 and out.data_ptr() % 16 == 0
    function, units = ("embedding", width // VALUES) if whole else ("embedding_any", width)
    threads = min(ceil_div(units, 32) * 32, THREADS)
    arguments = (ids, table, is_bf16(table), out, is_bf16(out), width, float(p["scale"]))
    grid = (tokens, ceil_div(units, threads))
    return [Launch(gpu.function("embedding", function), grid, threads, arguments, pdl=gpu.pdl, name=function)]
