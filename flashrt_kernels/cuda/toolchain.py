# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The compiler and the GPUs of this machine, for flashrt_kernels.build. Nothing of this runs at run time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from flashrt_kernels.cuda.manifest import FLAGS, PTX, Capability, Family
from flashrt_kernels.errors import KernelBuildError

MINIMUM_NVCC = (13, 0)
# Together they are a compiler: nvcc alone lacks cicc, its headers and <nv/target>.
WHEELS = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
USUAL_FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda-13.0/bin", "/opt/cuda/bin", "/usr/lib/cuda/bin")

KERNEL = re.compile(r"Compiling entry function '(\S+)' for")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# ptxas says so when it serialises wgmma, or ignores setmaxnreg (C7508), which such a kernel is built on.
LOSS = re.compile(r".*Potential Performance Loss.*")


@dataclass(frozen=True)
class Nvcc:
    path: Path
    version: tuple[int, int]
    release: str  # "13.0.88"

    def fatbinary(self) -> Path:
        """The tool that joins images; it lies beside the real nvcc, which `path` may only be a wrapper of."""
        command = [str(self.path), "--dryrun", "-cubin", "x.cu"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        here = re.search(r"_HERE_=(.*)", shown)
        tool = Path(here[1] if here else self.path.parent, "fatbinary")
        if not tool.is_file():
            raise KernelBuildError(f"{self.path} comes without fatbinary; expected it in {tool.parent}")
        return tool


@dataclass(frozen=True)
class Image:
    """One compiled architecture of one family; `resources`: {kernel: its registers and bytes of spills}."""

    architecture: str  # "9.0a", or "ptx"
    file: Path
    resources: dict[str, dict[str, int]]


def find_nvcc(explicit: Path | None = None) -> Nvcc:
    """The first nvcc that is new enough: PATH, the usual folders, the wheels of this environment.

    Raises KernelBuildError naming what was found and what is needed.
    """
    too_old = []
    for path in [explicit] if explicit else candidates():
        nvcc = version_of(path)
        if nvcc and nvcc.version >= MINIMUM_NVCC:
            return nvcc
        too_old.append(f"{nvcc.release} at {path}" if nvcc else f"no working nvcc at {path}")
    wheels = " ".join(f"'{name}==13.0.*'" for name in WHEELS)
    raise KernelBuildError(
        f"nvcc 13.0 or newer is needed to compile the kernels; found {', '.join(too_old) or 'none'}.\n"
        f"Install the CUDA toolkit 13.0, or its compiler from wheels:  pip install {wheels}"
    )


def candidates() -> Iterator[Path]:
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    nvidia = find_spec("nvidia")
    wheels = [f"{folder}/cu13/bin" for folder in (nvidia.submodule_search_locations or ())] if nvidia else []
    for folder in (*USUAL_FOLDERS, *wheels):
        if (path := Path(folder, "nvcc")).is_file():
            yield path


def version_of(path: Path) -> Nvcc | None:
    try:
        shown = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    found = re.search(r"V((\d+)\.(\d+)\.\d+)", shown)
    return Nvcc(path, (int(found[2]), int(found[3])), found[1]) if found else None


def gpus() -> list[Capability]:
    """Compute capability of each GPU of this machine; empty without one, or without a driver.

    Other processes ask: a driver that was initialised stays in a process, with its threads and its memory.
    """
    smi = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    ask = [sys.executable, "-I", str(Path(__file__).with_name("ask_driver.py"))]
    for command in (smi, ask):
        try:
            asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found := re.findall(r"^(\d+)\.(\d+)$", asked.stdout, re.MULTILINE):
            return [(int(major), int(minor)) for major, minor in found]
    return []


def compile_image(nvcc: Nvcc, family: Family, architecture: str, folder: Path) -> Image:
    """Compiles a family for one architecture, or to PTX. Raises KernelBuildError with what nvcc printed."""
    number = (PTX if architecture == "ptx" else architecture).replace(".", "")
    if architecture == "ptx":
        file, target = folder / f"{family.name}.ptx", ["-ptx", f"-arch=compute_{number}"]
    else:
        file = folder / f"{family.name}.{number}.cubin"
        target = ["-cubin", f"-gencode=arch=compute_{number},code=sm_{number}", "-Xptxas=-v"]
    printed = run([str(nvcc.path), *target, *FLAGS, str(family.source), "-o", str(file)])
    if warning := LOSS.search(printed):
        raise KernelBuildError(f"{family.name} for {architecture}: {warning[0].strip()}")
    return Image(architecture, file, parse_resources(printed))


def join_images(fatbinary: Path, images: Sequence[Image], out: Path) -> None:
    """Makes one fatbin of all images of a family."""
    command = [str(fatbinary), f"--create={out}", "-64", "--compress-all"]
    for image in images:
        kind = "ptx" if image.architecture == "ptx" else "elf"
        number = (PTX if kind == "ptx" else image.architecture).replace(".", "")
        command.append(f"--image3=kind={kind},sm={number},file={image.file}")
    run(command)


def run(command: Sequence[str]) -> str:
    """Runs a tool and returns what it printed. Raises KernelBuildError with it when the tool fails."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise KernelBuildError(
            f"`{' '.join(command)}` ended with exit code {done.returncode}:\n{done.stdout.rstrip()}"
        )
    return done.stdout


def parse_resources(printed: str) -> dict[str, dict[str, int]]:
    """What `ptxas -v` printed → {kernel: {"registers", "stack", "spill"}}; bytes, spill = stores + loads."""
    found: dict[str, dict[str, int]] = {}
    kernel: dict[str, int] = {}
    for line in printed.splitlines():
        if entry := KERNEL.search(line):
            kernel = found.setdefault(entry[1], {"registers": 0, "stack": 0, "spill": 0})
        elif spills := SPILLS.search(line):
            kernel |= {"stack": int(spills[1]), "spill": int(spills[2]) + int(spills[3])}
        elif registers := REGISTERS.search(line):
            kernel["registers"] = int(registers[1])
    return found
