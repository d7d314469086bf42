# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Time to load a checkpoint: read, check, plan every graph; the import of torch is shown beside it.

Usage: python -m benchmarks.load [--repeats 10] [--device cpu]
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.record import Record, Target

LIMIT_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    started = time.perf_counter()
    from flashrt_kernels import load_policy

    import_s = time.perf_counter() - started
    from flashrt_kernels.make_checkpoint import Recipe, make_checkpoint

    record = Record("load", {"device": arguments.device, "import_s": round(import_s, 2)})
    with tempfile.TemporaryDirectory() as folder:
        for size in ("tiny", "small"):
            recipe = Recipe(size=size, seed=1, action_dim=7, state_dim=7, cameras=("front", "wrist"))
            path = make_checkpoint(Path(folder, size), recipe)
            seconds = []
            for _ in range(arguments.repeats):
                started = time.perf_counter()
                policy = load_policy(path, device=arguments.device)
                seconds.append(time.perf_counter() - started)
                policy.close()
            row = record.add(f"{size}, s", seconds)
            if size == "tiny":
                record.targets.append(Target("tiny, slowest", row["max"], LIMIT_S, "s"))
    record.finish()


if __name__ == "__main__":
    main()
