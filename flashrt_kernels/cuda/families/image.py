# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of the image kernels: resize_to_patches, one block per patch; resample, one block per tile."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import image, image_resample
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

TILE = 16  # as in image_resample.cu
FITTINGS = {"stretch": 0, "inside": 1, "shortest": 2}  # Fitting of image_resample.cu


@launches(image.resize_to_patches)
def resize_to_patches(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    out, patch = a["out"], p["patch"]
    if not out.numel():
        return []
    function = f"resize_{p['filter']}"
    threads = min(ceil_div(patch * patch, 32) * 32, THREADS)
    sizes = (p["height"], p["width"], patch, p["merge"], p["place"] == "end")
    arguments = (a["pixels"], a["info"], out, is_bf16(out), *sizes)
    handle = gpu.function("image", function)
    return [Launch(handle, (out.shape[0],), threads, arguments, pdl=gpu.pdl, name=function)]


@launches(image_resample.resample)
def resample(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    function = f"resample_{p['filter']}"
    sizes = (p["height"], p["width"], FITTINGS[p["fitting"]], p["edge"], p["square"])
    crop = (ctypes.c_double(p["crop"]), p["crop_size"] == "round")
    arguments = (a["pixels"], a["info"], a["out"], a["out_info"], *sizes, *crop)
    grid = (ceil_div(p["width"], TILE), ceil_div(p["height"], TILE))
    handle = gpu.function("image_resample", function)
    return [Launch(handle, grid, TILE * TILE, arguments, pdl=gpu.pdl, name=function)]
