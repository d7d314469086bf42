# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""All benchmarks, each in a process of its own; tables on the screen, JSON in benchmarks/results/.

Usage: python -m benchmarks [--device cpu] [--only NAME …] [--check]
"""

import argparse
import json
import subprocess
import sys

from benchmarks.record import RESULTS
from flashrt_ros.demo_setup import device_refusal

# name → whether it takes --device
BENCHMARKS = {
    "ingest": False,
    "load": True,
    "decide": True,
    "node_overhead": False,
    "camera_trigger": False,
    "node_cost": False,
    "memory": False,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--check", action="store_true", help="exit 1 when a promise was not kept")
    arguments = parser.parse_args()
    refusal = device_refusal(arguments.device)
    if refusal:
        parser.error(refusal)
    missed = []
    for name in arguments.only:
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        command += ["--device", arguments.device] if BENCHMARKS[name] else []
        subprocess.run(command, check=True)
        record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        missed += [f"{name}: {target['name']}" for target in record["targets"] if not target["reached"]]
    print(f"missed: {', '.join(missed)}" if missed else "every promise was kept")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
