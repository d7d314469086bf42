# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Latency of `Policy.decide` with two VGA cameras, by model size and precision, and of its stages.

Usage: python -m benchmarks.decide [--decisions 100] [--device cpu] [--sizes tiny small]
"""

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import Record
from flashrt_kernels import load_policy
from flashrt_kernels.make_checkpoint import Recipe, make_checkpoint

CAMERAS = ("front", "wrist")
STATE_DIM = 7
WARM_UP = 3


def measure(record: Record, folder: Path, size: str, device: str, precision: str, decisions: int) -> None:
    policy = load_policy(folder, device=device, precision=precision)
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (480, 640, 3), np.uint8) for name in CAMERAS}
    times: dict[str, list[float]] = defaultdict(list)
    for sequence in range(decisions + WARM_UP):
        state = rng.uniform(-1, 1, STATE_DIM).astype(np.float32)  # [D]
        started = time.perf_counter()
        chunk = policy.decide(images, state, "pick up the red cube", seed=0, sequence=sequence)
        times["decide"].append((time.perf_counter() - started) * 1e3)
        for stage in chunk.timings.keys() - {"total"}:
            times[f"  {stage}"].append(chunk.timings[stage])
    for quantity, values in times.items():
        record.add(f"{size} {precision} {quantity}, ms", values[WARM_UP:])
    policy.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small"], choices=["tiny", "small", "full"])
    arguments = parser.parse_args()
    settings = {"device": arguments.device, "decisions": arguments.decisions, "cameras": "2 × 640×480"}
    record = Record("decide", settings | {"torch_threads": torch.get_num_threads()})
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            recipe = Recipe(size=size, seed=1, action_dim=STATE_DIM, state_dim=STATE_DIM, cameras=CAMERAS)
            path = make_checkpoint(Path(folder, size), recipe)
            for precision in ("fp32", "bf16"):
                measure(record, path, size, arguments.device, precision, arguments.decisions)
    record.finish()


if __name__ == "__main__":
    main()
