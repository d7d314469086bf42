# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What this GPU reaches at most, measured in the same run as every claim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.device.timing import median_milliseconds

STREAM_BYTES = 4 << 30
# rows × n × k: the square one, then Gemma's and SigLIP's MLPs and the action expert's
MATMULS = (
    (8192, 8192, 8192),
    (968, 32768, 2048),
    (968, 2048, 16384),
    (768, 4304, 1152),
    (768, 1152, 4304),
    (50, 8192, 1024),
    (50, 1024, 4096),
)
SQUARE = "8192×8192×8192"
ROTATED_BYTES = 256 << 20  # several times any L2


def measure() -> dict[str, dict[str, float]]:
    """{"tb_s": {…}, "tflops": {shape: …}, "matmul_us": {shape: …}}."""
    memory = torch.empty(STREAM_BYTES // 4, device="cuda").uniform_(-1, 1)
    target = torch.empty_like(memory)
    read = min(median_milliseconds([reduce]) for reduce in (partial(torch.sum, memory), memory.amax))
    copy = median_milliseconds([partial(target.copy_, memory)])
    bandwidth = {"read": STREAM_BYTES / read / 1e9, "copy": 2 * STREAM_BYTES / copy / 1e9}
    del memory, target
    times = {f"{rows}×{n}×{k}": matmul_ms(rows, n, k) for rows, n, k in MATMULS}
    return {
        "tb_s": {name: round(value, 3) for name, value in bandwidth.items()},
        "tflops": {
            name: round(2e-9 * rows * n * k / times[name], 1)
            for name, (rows, n, k) in zip(times, MATMULS, strict=True)
        },
        "matmul_us": {name: round(1e3 * value, 2) for name, value in times.items()},
    }


def matmul_ms(rows: int, n: int, k: int) -> float:
    """cuBLAS in bf16, many calls in one CUDA graph, operands in turn from memory."""
    sets = max(1, min(16, ROTATED_BYTES // (2 * (rows * k + n * k + rows * n))))
    operands = [
        (
            torch.randn(rows, k, device="cuda", dtype=torch.bfloat16),
            torch.randn(n, k, device="cuda", dtype=torch.bfloat16),
            torch.empty(rows, n, device="cuda", dtype=torch.bfloat16),
        )
        for _ in range(sets)
    ]
    calls = max(4, min(200, int(2e12 / (rows * n * k))))

    def run() -> None:
        for i in range(calls):
            x, weight, out = operands[i % sets]
            torch.mm(x, weight.t(), out=out)

    return median_milliseconds([captured(run).replay], repeats=7) / calls


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """`run` in a CUDA graph, after a warm-up on a side stream as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph
