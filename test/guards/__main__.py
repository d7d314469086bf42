# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Whether the test of each row of robot-behaviour notices that its guard is off.

    python -m test.guards [R12 …] [-j N] [--control]

runs, for each guard of the rows (of all by default), its test with that guard switched off, and demands that
the test fails by what it asserts. `--control` switches nothing off: then every test must pass.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from test.guards.table import GUARDS, UNGUARDED

ROOT = Path(__file__).resolve().parents[2]


def unguarded_rows() -> list[str]:
    """Rows that have a test and no guard."""
    rows = {guard.row for guard in GUARDS} | set(UNGUARDED)
    found: set[str] = set()
    for file in (ROOT / "test").rglob("test_*.py"):
        for name in re.findall(r"def test_((?:R\d+_)+)", file.read_text(encoding="utf-8")):
            found |= set(name.strip("_").split("_"))
    return sorted(found - rows, key=lambda row: int(row[1:]))


def main() -> int:
    parser = argparse.ArgumentParser("python -m test.guards", description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="R12", help="rows; default: all")
    parser.add_argument("-j", type=int, default=4, metavar="N", help="test processes at a time")
    parser.add_argument("--control", action="store_true", help="switch nothing off: every test must pass")
    options = parser.parse_args()
    chosen = [index for index, guard in enumerate(GUARDS) if not options.rows or guard.row in options.rows]
    unknown = set(options.rows) - {guard.row for guard in GUARDS}
    if unknown:
        parser.error(f"no guards of {', '.join(sorted(unknown))}")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "test.guards.plugin", "-n", str(options.j)]
    command += ["--guards", ",".join(map(str, chosen))] + ["--control"] * options.control
    command += sorted({GUARDS[index].test.partition("::")[0] for index in chosen})
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    missing = [] if options.rows else unguarded_rows()
    if missing:
        print(f"rows with a test and without a guard in test/guards: {', '.join(missing)}")
    return code or bool(missing)


if __name__ == "__main__":
    raise SystemExit(main())
