# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What can be said of compiled kernels without a GPU: machine code of the Hopper path, spills, changes.

Usage: python -m tools.check_kernels FOLDER [--cuobjdump PATH]
FOLDER is what python -m flashrt_kernels.build --arch all --out FOLDER wrote. Exits 1 when a Hopper family has
no wgmma instruction, or when a kernel of a matmul or attention family spills more than KNOWN_SPILLS says.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from flashrt_kernels.build import RESOURCES
from flashrt_kernels.cuda import manifest

DEVICE_RUN = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "device_run.json"
WITHOUT_SPILLS = ("matmul", "attention")
# {kernel: bytes on the worst architecture}; everything else spills nothing. Entries may only go. What is here
# runs for odd shapes, or spills only on architectures that no figure is claimed for.
KNOWN_SPILLS = {
    "attention_generic": 64,
    "attention_256x64": 48,
    "attention_64x64": 16,
    "matmul_generic_128x128": 84,
    "matmul_reduce": 32,
}
INSTRUCTIONS = ("HGMMA", "UTMALDG", "HMMA")  # wgmma, a load by the copy engine, mma.sync

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\w+)")  # address, predicate, name

Resources = Mapping[str, Mapping[str, Mapping[str, int]]]  # {kernel: {architecture: {"registers", …}}}


def count_instructions(sass: str) -> dict[str, dict[str, int]]:
    """{kernel: {instruction: how often}} of what `cuobjdump --dump-sass` prints."""
    found: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in sass.splitlines():
        if entry := re.search(r"Function : (\S+)", line):
            counts = found.setdefault(entry[1], dict.fromkeys(INSTRUCTIONS, 0))
        elif (instruction := INSTRUCTION.search(line)) and instruction[1] in counts:
            counts[instruction[1]] += 1
    return found


def dump(fatbin: Path, architecture: str, cuobjdump: Path) -> str:
    """The machine code of one architecture. Raises CalledProcessError."""
    # cuobjdump calls nvdisasm, which the other wheel puts beside it
    env = dict(os.environ, PATH=f"{cuobjdump.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    number = architecture.replace(".", "")
    command = [str(cuobjdump), "--dump-sass", "--gpu-architecture", f"sm_{number}", str(fatbin)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def check_hopper(folder: Path, cuobjdump: Path, console: Console) -> list[str]:
    """Prints what the families for Hopper alone are made of; returns the complaints."""
    columns = ("kernels", *INSTRUCTIONS, "kernels without HGMMA")
    table = Table("family", *columns, title="instructions in the code for 9.0a", box=box.SIMPLE)
    complaints = []
    for name, family in manifest.families().items():
        if family.has_ptx:
            continue
        counts = count_instructions(dump(folder / f"{name}.fatbin", "9.0a", cuobjdump))
        sums = [sum(found[instruction] for found in counts.values()) for instruction in INSTRUCTIONS]
        without = [kernel for kernel, found in sorted(counts.items()) if not found["HGMMA"]]
        table.add_row(name, str(len(counts)), *map(str, sums), ", ".join(without))
        if len(without) == len(counts):
            complaints.append(f"{name}: no HGMMA in its machine code: it does not use wgmma")
    console.print(table)
    return complaints


def check_spills(resources: Mapping[str, Resources], console: Console) -> list[str]:
    """Prints registers and spills of each family; returns the complaints."""
    table = Table("family", "kernels", "most registers", "spilled bytes", title="registers", box=box.SIMPLE)
    complaints = []
    for family, kernels in resources.items():
        uses = [(kernel, arch, use) for kernel, by in kernels.items() for arch, use in by.items()]
        spills = [(kernel, arch, use["spill"]) for kernel, arch, use in uses if use["spill"]]
        most = max((use["registers"] for _, _, use in uses), default=0)
        table.add_row(family, str(len(kernels)), str(most), str(sum(size for _, _, size in spills)))
        if any(word in family for word in WITHOUT_SPILLS):
            complaints += [
                f"{kernel} for {arch} spills {size} bytes; {KNOWN_SPILLS.get(kernel, 0)} are known"
                for kernel, arch, size in spills
                if size > KNOWN_SPILLS.get(kernel, 0)
            ]
    console.print(table)
    return complaints


def changes(device_run: Path = DEVICE_RUN) -> str:
    """Which families were edited since they last ran on a GPU, in words."""
    if not device_run.is_file():
        return "no run on a GPU is recorded"
    run = json.loads(device_run.read_text(encoding="utf-8"))
    changed = ", ".join(manifest.changed_since(run["kernels"])) or "none"
    return f"kernel families changed since the run of {run['date']} on {run['device']}: {changed}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cuobjdump", type=Path, help="without it, machine code is not looked at")
    arguments = parser.parse_args()
    console = Console(width=110, highlight=False)
    path = arguments.folder / RESOURCES
    if not path.is_file():
        parser.error(
            f"{path} is not there; run: python -m flashrt_kernels.build --arch all --out {path.parent}"
        )
    resources = json.loads(path.read_text(encoding="utf-8"))["families"]
    complaints = check_spills(resources, console)
    if arguments.cuobjdump:
        complaints += check_hopper(arguments.folder, arguments.cuobjdump, console)
    else:
        console.print("machine code was not looked at: no cuobjdump")
    console.print(changes())
    for complaint in complaints:
        console.print(f"WRONG: {complaint}", markup=False)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
