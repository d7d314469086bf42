# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which of several correct ways a policy takes on a GPU: for measurements, never needed to use it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CudaOptions:
    """Ways to launch; the default is the fastest that was measured.

    matmul: `own` our kernels, by the GPU's capability; `portable` those that run on every GPU; `cublaslt` the
    library for every bf16 product, with an epilogue kernel behind it.
    attention: `own` by the GPU's capability, `portable` the kernels that run on every GPU.
    pdl: programmatic dependent launch, where the GPU has it. graph: replay one captured CUDA graph.
    """

    matmul: Literal["own", "portable", "cublaslt"] = "own"
    attention: Literal["own", "portable"] = "own"
    pdl: bool = True
    graph: bool = True
