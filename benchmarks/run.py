# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A full-size Pi0.5 on one GPU: ceilings, correctness, then this engine, its ablations and its peers.

Usage: python -m benchmarks.run [--quick] [--cases 3v-968-50 …] [--no-ours] [--no-peers] [--lerobot eager]
       [--kernels] [--sustained 60] [--workdir DIR] [--out FILE]

Needs a CUDA build of torch and 9 GB in --workdir; ROS is not needed. Peers take part where `lerobot` (with
transformers) and `pi05_infer` can be imported. Every case runs in a process of its own: a peer that ends it
is left out by name and the case repeated without it; where this engine ends it, the run fails. One JSON holds
every raw sample; `python -m benchmarks.performance_page` makes docs/performance.md from it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.device import ceilings, isolation, machine, one_case
from benchmarks.device.cases import CASES, Case
from benchmarks.device.inputs import write_checkpoints
from benchmarks.device.one_case import LOAD_S, SLOW_PEERS, Job, Options
from benchmarks.device.ours import OURS, is_ours
from benchmarks.device.report import show_case
from benchmarks.device.timing import Sensors
from flashrt_kernels.cuda import manifest
from flashrt_ros.demo_setup import device_refusal

RESULT = Path(__file__).resolve().parent / "results" / "device.json"
TESTED = "device_run.json"  # beside it: which kernel sources ran on a GPU last
# unbuffered, and with a traceback of what killed it: the last words of a process that aborts
CHILD = (sys.executable, "-u", "-X", "faulthandler", "-m", "benchmarks.run")


def measure(
    options: Options,
    cases: list[Case],
    workdir: Path | None,
    out: Path,
    console: Console,
    child: Sequence[str] = CHILD,
) -> None:
    """The whole run; the JSON is written after every case. This process never touches the GPU.

    Raises SystemExit where our own engine died or failed the gate. Cases measured before are in the JSON
    then, and under `failed` what happened.
    """
    with tempfile.TemporaryDirectory(dir=workdir) as name:
        start, folder = time.monotonic(), Path(name).resolve()
        checkpoints = write_checkpoints(folder, cases, options.size)
        console.print(f"checkpoint written in {time.monotonic() - start:.1f} s")
        result: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"),
            "settings": {"rounds": options.rounds, "turn_s": options.turn_s, "load_s": LOAD_S},
            "cases": {},
            "failed": {},
        }
        key = "ceilings"
        try:
            jobs = folder / "jobs"
            result |= isolation.measured((*child, "--ceilings-only"), {}, jobs / key, is_ours, console)
            console.print(f"ceilings ({time.monotonic() - start:.1f} s): {result['ceilings']}")
            for case in cases:
                key = case.key
                job = Job(key, case is cases[0], str(checkpoints[key]), result["ceilings"], options, {})
                measured = result["cases"][key] = isolation.measured(
                    (*child, "--case-only"), asdict(job), jobs / key, is_ours, console
                )
                write(out, result)
                so_far = f"{time.monotonic() - start:.0f} s so far"
                show_case(console, f"{case.words} ({so_far})", measured)
        except isolation.Failure as failure:
            result["failed"][key] = str(failure)
            if result["cases"]:  # else an older measurement would make way for nothing
                write(out, result)
            raise SystemExit(f"the run FAILED in {key}: {failure}") from None
    if all(OURS.name in case["engines"] for case in result["cases"].values()):
        facts = {"date": result["date"], "device": result["hardware"]["gpu"]}
        write(out.with_name(TESTED), {**facts, "kernels": manifest.source_hashes()})
    console.print(f"written to {out}")


def ceilings_only(folder: Path) -> None:
    """In a child: machine and ceilings."""
    found = {
        "hardware": machine.hardware(Sensors()),
        "versions": machine.versions(),
        "ceilings": ceilings.measure(),
    }
    isolation.replace(folder / isolation.RESULT, found)


def write(path: Path, document: dict[str, Any]) -> None:
    """Raw samples one list a line: thousands of lines of one number each would be no easier to read."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([-\d.][^\[\]{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="5 short rounds, without LeRobot")
    made.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    made.add_argument("--no-ours", action="store_true", help="peers and ceilings only")
    made.add_argument("--no-peers", action="store_true")
    made.add_argument("--lerobot", choices=SLOW_PEERS, help="default: compiled, with --quick no")
    made.add_argument("--kernels", action="store_true", help="also every kernel alone")
    made.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS")
    made.add_argument(
        "--workdir", type=Path, help="where the checkpoint is written; default: the temporary folder"
    )
    made.add_argument("--out", type=Path, default=RESULT)
    # what this command calls itself with, see isolation.py
    made.add_argument("--case-only", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--ceilings-only", type=Path, help=argparse.SUPPRESS)
    return made


def main() -> None:
    console, command = Console(width=130), parser()
    a = command.parse_args()
    if a.case_only:
        return one_case.main(a.case_only, console)
    if a.ceilings_only:
        return ceilings_only(a.ceilings_only)
    if not torch.cuda.is_available():
        command.error(device_refusal("cuda"))
    if a.workdir is not None and shutil.disk_usage(a.workdir).free < 9e9:
        command.error(f"--workdir {a.workdir}: less than 9 GB free")
    options = Options(
        rounds=5 if a.quick else 8,
        turn_s=0.25 if a.quick else 0.6,
        ours=not a.no_ours,
        peers=not a.no_peers,
        lerobot=a.lerobot or ("no" if a.quick or a.no_peers else "compiled"),
        kernels=a.kernels,
        sustained_s=a.sustained,
    )
    measure(options, [CASES[key] for key in a.cases], a.workdir, a.out, console)
    return None


if __name__ == "__main__":
    main()
