# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Hardware and versions behind the figures."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.device.timing import Sensors

LIBRARIES = ("torch", "triton", "numpy", "cupy-cuda13x", "cuda-bindings", "transformers", "lerobot")


def hardware(sensors: Sensors) -> dict[str, Any]:
    """GPU, driver, CPU."""
    gpu = torch.cuda.get_device_properties(0)
    return {
        "gpu": gpu.name,
        "multiprocessors": gpu.multi_processor_count,
        "l2_mb": round(gpu.L2_cache_size / 2**20),
        "memory_gb": round(gpu.total_memory / 1e9, 1),
        "driver": sensors.driver(),
        "cpu": cpu(),
    }


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of Python, CUDA and every library that is there."""
    found = {"python": platform.python_version(), "cuda": str(torch.version.cuda)}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
