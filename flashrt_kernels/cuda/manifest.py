# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a folder of compiled kernels says about itself: of which sources, for which GPUs, by which nvcc.

One `.cu` file is one family and becomes one fatbin. `manifest.json` beside the fatbins binds each of them (by
its SHA-256) to the SHA-256 of the sources and flags it was made of, so that a kernel older than its source is
refused instead of silently run. Imports neither torch nor cupy: the build, CI and packaging read it too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flashrt_kernels.errors import DeviceError, KernelBuildError

SOURCES = Path(__file__).resolve().parent / "src"
FATBINS = Path(__file__).resolve().parent / "fatbin"
COMMAND = "python -m flashrt_kernels.build"

# Compute capabilities that get machine code. The "a" of 9.0a unlocks wgmma and setmaxnreg.
ARCHITECTURES = ("8.0", "8.6", "8.7", "8.9", "9.0a", "10.0", "11.0", "12.0")
PTX = "8.0"  # the virtual architecture that the driver of any other GPU translates
HOPPER_ONLY = ("hopper", "stream")  # a family whose name contains one of these uses wgmma or TMA
# Warnings are errors, but for 177 (unused): a member of a template that this instantiation does not need.
FLAGS = ("-std=c++17", "-O3", "--expt-relaxed-constexpr", "--Werror=all-warnings", "-diag-suppress=177")

# Machine code runs on later GPUs of the same major version, except where it does not: the code of Jetson and
# Thor chips and that of other GPUs do not mix, and "a" code belongs to one capability.
EXACT = ("8.7", "9.0a", "11.0")

MINIMUM_DRIVER = 13000  # what cuDriverGetVersion() of R580, the first driver of CUDA 13.0, returns
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

Capability = tuple[int, int]


@dataclass(frozen=True)
class Family:
    """One source file of kernels, with every header of ours that it includes."""

    name: str
    files: tuple[Path, ...]  # the .cu first
    architectures: tuple[str, ...]

    @property
    def source(self) -> Path:
        return self.files[0]

    @property
    def has_ptx(self) -> bool:
        """Hopper's own instructions exist on no other GPU: there is nothing to translate."""
        return self.architectures == ARCHITECTURES

    def hash(self) -> str:
        """SHA-256 over names and contents of the files, and over the flags they are compiled with."""
        total = hashlib.sha256("\0".join(FLAGS).encode())
        for file in sorted(self.files, key=lambda path: path.name):
            content = file.read_bytes()
            total.update(f"\0{file.name}\0{len(content)}\0".encode() + content)
        return total.hexdigest()


def families(sources: Path = SOURCES) -> dict[str, Family]:
    """Every family by name. Raises KernelBuildError for an include that leads nowhere."""
    return {
        source.stem: Family(source.stem, (source, *headers_of(source)), architectures_of(source.stem))
        for source in sorted(sources.glob("*.cu"))
    }


def architectures_of(name: str) -> tuple[str, ...]:
    return ("9.0a",) if any(word in name for word in HOPPER_ONLY) else ARCHITECTURES


def headers_of(source: Path) -> list[Path]:
    """Headers of ours (`#include "…"`) that a source includes, directly or not; sorted."""
    found: dict[Path, None] = {}
    pending = [source]
    while pending:
        file = pending.pop()
        for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
            header = source.parent / name
            if not header.is_file():
                raise KernelBuildError(f'{file.name} includes "{name}", which is not in {source.parent}')
            if header not in found:
                found[header] = None
                pending.append(header)
    return sorted(found)


@cache
def source_hashes(sources: Path = SOURCES) -> dict[str, str]:
    """{family: hash of its sources and flags}, computed once per process."""
    return {name: family.hash() for name, family in families(sources).items()}


def changed_since(recorded: Mapping[str, str], sources: Path = SOURCES) -> list[str]:
    """Families that differ from the recorded hashes: edited, new, or gone; sorted."""
    now = source_hashes(sources)
    return sorted(name for name in {*now, *recorded} if now.get(name) != recorded.get(name))


def path_of(folder: Path) -> Path:
    return folder / "manifest.json"


def read(folder: Path = FATBINS) -> dict[str, dict[str, Any]]:
    """{family: its entry}; empty when nothing was built. Raises KernelBuildError for another kind of file."""
    path = path_of(folder)
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["families"])
    except (ValueError, KeyError, TypeError) as error:
        raise KernelBuildError(f"{path} cannot be read ({error!r}); remove it and run: {COMMAND}") from error


def entry_of(name: str, fatbin: Path, source_hash: str, images: list[str], nvcc: str) -> dict[str, Any]:
    """What the manifest says of one family; `images`: architectures with machine code, and "ptx"."""
    return {
        "sources": source_hash,
        "fatbin": hashlib.sha256(fatbin.read_bytes()).hexdigest(),
        "images": images,
        "nvcc": nvcc,
    }


def problem(name: str, folder: Path = FATBINS, sources: Path = SOURCES) -> str:
    """Why the fatbin of a family must not be used; empty when it may be."""
    entry, fatbin = read(folder).get(name), folder / f"{name}.fatbin"
    if entry is None or not fatbin.is_file():
        return "are not built"
    if sources.is_dir() and source_hashes(sources).get(name) != entry["sources"]:
        return "are older than their sources"
    if hashlib.sha256(fatbin.read_bytes()).hexdigest() != entry["fatbin"]:
        return f"are not those that were built: the manifest names another {fatbin.name}"
    return ""


def check(name: str, folder: Path = FATBINS, sources: Path = SOURCES) -> Path:
    """The fatbin of a family. Raises KernelBuildError with the command to run when it is missing or stale."""
    if found := problem(name, folder, sources):
        raise KernelBuildError(f"kernels of family {name} {found}; run: {COMMAND}")
    return folder / f"{name}.fatbin"


def runs_on(architecture: str, capability: Capability) -> bool:
    """Whether machine code for `architecture` ("8.6", "9.0a") runs on a GPU of this compute capability."""
    major, minor = (int(part) for part in architecture.rstrip("a").split("."))
    if architecture in EXACT:
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


def architecture_for(capability: Capability) -> str | None:
    """The architecture to compile for a GPU; None for a newer GPU than we know, which gets PTX.

    Raises KernelBuildError for a GPU that is too old.
    """
    if capability < (8, 0):
        raise KernelBuildError(
            f"this GPU has compute capability {capability[0]}.{capability[1]}; 8.0 or newer is needed"
        )
    fitting = [name for name in ARCHITECTURES if runs_on(name, capability)]
    return fitting[-1] if fitting else None


def covers(name: str, capability: Capability, folder: Path = FATBINS) -> bool:
    """Whether a family has machine code for this GPU, so that nothing is translated when it is loaded."""
    images = read(folder).get(name, {}).get("images", [])
    return any(runs_on(image, capability) for image in images if image != "ptx")


def usable(name: str, capability: Capability, folder: Path = FATBINS) -> bool:
    """Whether it can be loaded at all: machine code for this GPU, or PTX that its driver translates once."""
    return covers(name, capability, folder) or "ptx" in read(folder).get(name, {}).get("images", [])


def check_driver(version: int) -> None:
    """Raises DeviceError for a driver that is too old; `version` as cuDriverGetVersion() returns it."""
    if version < MINIMUM_DRIVER:
        came = f"{version // 1000}.{version % 1000 // 10}"
        raise DeviceError(
            f"the NVIDIA driver supports CUDA {came}; 13.0 is needed: driver R580 or newer "
            "(nvidia-smi shows both versions)"
        )
