# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every kernel of a full-size Pi0.5 alone, at the sizes of a decision: time, rate, share of what is possible.

Usage: python -m benchmarks.kernels [--cases 3v-968-50 …] [--workdir DIR] [--out FILE] [--library]

Each call runs many times in one CUDA graph of dependent launches, on arrays that take turns and do not fit
into the cache together. Beside it: torch.mm for products and scaled_dot_product_attention, without their
epilogues. --library also measures every product through cuBLASLt with our epilogue as a kernel behind it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from benchmarks.device import ceilings
from benchmarks.device.cases import CASES, Case
from benchmarks.device.ceilings import captured
from benchmarks.device.inputs import CAMERAS, write_checkpoints
from benchmarks.device.kernel_calls import KernelCall, calls_of, random_arrays
from benchmarks.device.page_text import SUSTAINED_SHAPE
from benchmarks.device.timing import load, median_milliseconds
from flashrt_kernels import Policy, load_policy
from flashrt_kernels.cuda import families
from flashrt_kernels.cuda.backend import CudaBackend
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.options import CudaOptions

OUT = Path(__file__).resolve().parent / "results" / "kernels.json"
CACHE_FACTOR = 2  # arrays in turn take this many times the L2 cache
MOST_SETS, LAUNCHES = 64, 128

Run = Callable[[], object]


def graph_us(runs: Sequence[Run]) -> float:
    """Microseconds per call, `runs` in turn in one CUDA graph."""
    repeats = max(1, LAUNCHES // len(runs))

    def every() -> None:
        for _ in range(repeats):
            for run in runs:
                run()

    graph = captured(every)
    return 1e3 * median_milliseconds([graph.replay], repeats=9) / (repeats * len(runs))


def sets_of(call: KernelCall) -> list[dict[str, torch.Tensor | None]]:
    """Arrays of so many calls that none is in the cache when its turn comes."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(MOST_SETS, max(2, -(-CACHE_FACTOR * cache // call.bytes)))
    return [random_arrays(call, "cuda") for _ in range(count)]


def launches(gpu: Gpu, call: KernelCall, arrays: dict[str, torch.Tensor | None]) -> Run:
    """One call of ours, bound."""
    parameters = dict(call.parameters)
    bytes = families.scratch(call.kernel, gpu, arrays, parameters)
    memory = torch.empty(max(bytes, 256), dtype=torch.uint8, device="cuda")
    bound = list(families.maker(call.kernel)(gpu, arrays, parameters, memory))

    def run() -> None:
        for launch in bound:
            launch()

    return run


def library(call: KernelCall, a: dict[str, Any]) -> Run | None:
    """PyTorch's way to the same product or attention, in bf16; None where there is none."""
    if call.product:
        rows, n, k = call.product
        x, weight = a["x"].bfloat16(), a["weight"].bfloat16().view(n, k).t()
        return partial(torch.mm, x, weight, out=torch.empty(rows, n, dtype=torch.bfloat16, device="cuda"))
    if not call.attention:
        return None
    p = dict(call.parameters)
    heads, head_dim = p["heads"], p["head_dim"]
    if call.kernel.name == "self_attention":
        q, k, v = a["qkv"].view(p["sequences"], -1, 3, heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        return partial(F.scaled_dot_product_attention, q, k, v)
    q = a["q"].view(1, -1, heads, head_dim).transpose(1, 2)
    k, v = (a[name].view(1, -1, p["kv_heads"], head_dim).transpose(1, 2) for name in "kv")
    return partial(F.scaled_dot_product_attention, q, k, v, enable_gqa=True)


def measure(
    call: KernelCall, count: int, gpus: dict[str, Gpu], limits: tuple[float, float]
) -> dict[str, Any]:
    """One row. limits: TFLOP/s and TB/s of this GPU."""
    sets = sets_of(call)
    row: dict[str, Any] = {
        "section": call.section,
        "kernel": call.kernel.name,
        "size": call.words,
        "count": count,
        "us": round(graph_us([launches(gpus["own"], call, arrays) for arrays in sets]), 3),
    }
    compared = [library(call, arrays) for arrays in sets]
    if all(compared):
        row["torch_us"] = round(graph_us([run for run in compared if run is not None]), 3)
    floor_us = max(call.flops / limits[0] / 1e6, call.bytes / limits[1] / 1e6)
    row |= {
        "tflops": round(call.flops / row["us"] / 1e6, 1),
        "tb_s": round(call.bytes / row["us"] / 1e6, 3),
        "of_ceiling": round(floor_us / row["us"], 3),
    }
    if call.product and "cublaslt" in gpus:
        row["cublaslt_us"] = round(graph_us([launches(gpus["cublaslt"], call, arrays) for arrays in sets]), 3)
    return row


def calls(policy: Policy, case: Case) -> Counter[KernelCall]:
    """The calls of the graph that a decision of this case replays."""
    return calls_of(policy._opened().holding(case.prompt).graph)


def measure_all(
    counted: Counter[KernelCall], options: Sequence[str], ceilings: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row for every call. options: of `CudaOptions.matmul`, `own` among them."""
    gpus = {name: CudaBackend("cuda", CudaOptions(matmul=name)).gpu for name in options}  # type: ignore[arg-type]
    limits = (ceilings["tflops"][SUSTAINED_SHAPE], ceilings["tb_s"]["read"])
    return [measure(call, count, gpus, limits) for call, count in counted.items()]


def show(console: Console, case: Case, rows: list[dict[str, Any]]) -> None:
    table = Table(title=case.words, title_justify="left")
    columns = (
        "section",
        "kernel",
        "size",
        "count",
        "us",
        "ms in all",
        "TFLOP/s",
        "TB/s",
        "of ceiling",
        "torch us",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    for row in sorted(rows, key=lambda row: -row["us"] * row["count"]):
        whole = row["us"] * row["count"] / 1e3
        figures = [f"{row['us']:.2f}", f"{whole:.3f}", f"{row['tflops']:.0f}", f"{row['tb_s']:.2f}"]
        compared = f"{row['torch_us']:.2f}" if "torch_us" in row else ""
        table.add_row(
            row["section"],
            row["kernel"],
            row["size"],
            str(row["count"]),
            *figures,
            f"{row['of_ceiling']:.0%}",
            compared,
        )
    console.print(table)
    for section in dict.fromkeys(row["section"] for row in rows):
        whole = sum(row["us"] * row["count"] for row in rows if row["section"] == section) / 1e3
        console.print(
            f"  {section}: {whole:.2f} ms when every kernel runs alone and finds nothing in the cache"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["3v-968-50", "2v-532-10"])
    parser.add_argument("--workdir", type=Path, help="where the checkpoint is written")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--library", action="store_true", help="products through cuBLASLt as well")
    a = parser.parse_args()
    cases = [CASES[key] for key in a.cases]
    console = Console(width=150)
    found = ceilings.measure()
    options = ("own", "cublaslt") if a.library else ("own",)
    result: dict[str, Any] = {"ceilings": found, "cases": {}}
    with tempfile.TemporaryDirectory(dir=a.workdir) as folder:
        folders = write_checkpoints(Path(folder), cases, "full")
        counted = {}
        for case in cases:
            policy = load_policy(folders[case.key], device="cuda")
            policy.bind(CAMERAS[: case.views])
            counted[case.key] = calls(policy, case)
            policy.close()
    load(2.0)
    for case in cases:
        rows = measure_all(counted[case.key], options, found)
        result["cases"][case.key] = rows
        show(console, case, rows)
        a.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
