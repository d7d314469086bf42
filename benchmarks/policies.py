# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""All policies at full size on one GPU: correctness first, then the time of a decision.

Usage: python -m benchmarks.policies [--cases pi0-3v …] [--seconds 10] [--workdir DIR] [--out FILE]

Writes seeded random checkpoints (up to 9 GB in --workdir, one at a time), checks every policy in bf16 against
its own graphs in fp32 through the kernels' references, and times it after 5 s of load. A policy that fails
the gate is not timed and the command fails. docs/performance.md shows the result
(`python -m benchmarks.performance_page`).
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.device import machine
from benchmarks.device.policies import POLICIES, Gate, PolicyCase, backend_of, observations, recipe_of, timed
from benchmarks.device.report import percentiles
from benchmarks.device.timing import Sensors, load
from benchmarks.run import write
from flashrt_kernels import load_policy
from flashrt_kernels.make_checkpoint import make_checkpoint

RESULT = Path(__file__).resolve().parent / "results" / "policies.json"
LOAD_S, LEAST = 5.0, 20


def measure(
    case: PolicyCase, size: str, workdir: Path, seconds: float, device: torch.device
) -> dict[str, Any]:
    """One policy: its checkpoint, gate and samples."""
    folder = make_checkpoint(workdir / case.key, recipe_of(case, size))
    start = time.perf_counter()
    policy = load_policy(folder, device=backend_of(device), precision="bf16")
    ready_s = time.perf_counter() - start
    try:
        found = observations(policy, 8)
        gate = Gate(case, policy, folder, device)
        checked = gate.check(found)
        gate.close()
        result = {"policy": case.policy, "views": case.views, "ready_s": round(ready_s, 2), "gate": checked}
        if not checked["passed"]:
            return result
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            load(LOAD_S)
        return {**result, "samples": timed(policy, found, seconds, LEAST)}
    finally:
        policy.close()


def show(console: Console, case: PolicyCase, result: dict[str, Any]) -> None:
    gate = result["gate"]
    verdict = "passed" if gate["passed"] else "FAILED"
    console.print(f"{case.key}: gate {verdict}, worst {gate['worst']}, moved {gate['moved']}")
    for name, values in result.get("samples", {}).items():
        figures = ", ".join(f"{p} {value:.2f}" for p, value in percentiles(values).items())
        console.print(f"  {name}: {figures} ms")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cases", nargs="+", choices=POLICIES, default=list(POLICIES))
    made.add_argument("--size", default="full", help="tiny: only to try this command")
    made.add_argument("--seconds", type=float, default=10.0, help="of decisions of each policy")
    made.add_argument("--device", default="cuda")
    made.add_argument("--workdir", type=Path, help="where checkpoints are written; default: temporary folder")
    made.add_argument("--out", type=Path, default=RESULT)
    return made


def main() -> int:
    console, a = Console(width=130), parser().parse_args()
    device = torch.device(a.device)
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "size": a.size, "policies": {}}
    if device.type == "cuda":
        result |= {"hardware": machine.hardware(Sensors()), "versions": machine.versions()}
    for key in a.cases:
        with tempfile.TemporaryDirectory(dir=a.workdir) as name:
            measured = measure(POLICIES[key], a.size, Path(name), a.seconds, device)
        result["policies"][key] = measured
        show(console, POLICIES[key], measured)
        write(a.out, result)
    failed = [key for key, measured in result["policies"].items() if not measured["gate"]["passed"]]
    if failed:
        console.print(f"not correct, so not timed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
