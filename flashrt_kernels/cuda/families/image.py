# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launch of resize_to_patches: one block per patch."""

from __future__ import annotations

import torch

from flashrt_kernels import image
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch


@launches(image.resize_to_patches)
def resize_to_patches(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    out, patch = a["out"], p["patch"]
    if not out.numel():
        return []
    function = f"resize_{p['filter']}"
    threads = min(ceil_div(patch * patch, 32) * 32, THREADS)
    arguments = (a["pixels"], a["info"], out, is_bf16(out), p["height"], p["width"], patch)
    handle = gpu.function("image", function)
    return [Launch(handle, (out.shape[0],), threads, arguments, pdl=gpu.pdl, name=function)]
