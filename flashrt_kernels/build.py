# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Compile the CUDA kernels, once: one fatbin per family, into flashrt_kernels/cuda/fatbin.

    python -m flashrt_kernels.build                    # for the GPUs of this machine
    python -m flashrt_kernels.build --arch all         # for every supported GPU, to be put into a wheel
    python -m flashrt_kernels.build --family matmul    # only these

Families that are up to date are left alone. Needs nvcc 13.0 or newer: that of the machine, or of the
nvidia-cuda-nvcc wheel and its companions. A GPU is not needed when its architecture is named.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flashrt_kernels.cuda import manifest
from flashrt_kernels.cuda.manifest import ARCHITECTURES, Family
from flashrt_kernels.cuda.toolchain import Image, Nvcc, compile_image, find_nvcc, gpus, join_images
from flashrt_kernels.errors import KernelBuildError

RESOURCES = "resources.json"  # {family: {kernel: {architecture: {"registers", "stack", "spill"}}}}


@dataclass
class Job:
    """One family that has to be compiled, and how far that is."""

    family: Family
    wanted: list[str]  # architectures, and "ptx"
    source_hash: str
    images: list[Image] = field(default_factory=list)
    seconds: float = 0.0  # of the compiler, summed over the images
    error: str = ""

    @property
    def finished(self) -> bool:
        return len(self.images) == len(self.wanted)


def chosen_architectures(names: Sequence[str]) -> list[str]:
    """`--arch` → architectures to compile. Raises KernelBuildError when there is no GPU to ask."""
    if list(names) != ["native"]:
        return list(ARCHITECTURES) if "all" in names else list(dict.fromkeys(names))
    found = gpus()
    if not found:
        raise KernelBuildError(
            "no NVIDIA GPU (or no driver) on this machine, so its architecture is unknown; "
            f"name it with --arch {' | '.join(ARCHITECTURES)}, or take --arch all"
        )
    fitting = [manifest.architecture_for(capability) for capability in found]
    return list(dict.fromkeys(name for name in fitting if name))  # a newer GPU than we know gets PTX alone


def images_of(family: Family, architectures: Sequence[str]) -> list[str]:
    """What the fatbin of a family is to hold. PTX always goes in where it makes sense: it is small."""
    return [name for name in family.architectures if name in architectures] + ["ptx"] * family.has_ptx


def jobs_of(families: Sequence[Family], architectures: Sequence[str], out: Path) -> list[Job]:
    """The families that are missing, stale or lack an architecture."""
    built, jobs = manifest.read(out), []
    for family in families:
        wanted = images_of(family, architectures)
        present = set(built.get(family.name, {}).get("images", []))
        unusable = manifest.problem(family.name, out, family.source.parent)
        if wanted and (unusable or not present.issuperset(wanted)):
            jobs.append(Job(family, wanted, family.hash()))
    return jobs


def compile_all(jobs: list[Job], nvcc: Nvcc, out: Path, workers: int, console: Console) -> None:
    """Compiles every image, `workers` at a time, and stores each family as soon as it is complete."""
    fatbinary = nvcc.fatbinary()
    done = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(workers) as pool,
        progress_of(console) as progress,
    ):
        bar = progress.add_task("compiling", total=sum(len(job.wanted) for job in jobs))
        waiting = start(jobs, nvcc, Path(folder), pool)
        for future in as_completed(waiting):
            job = waiting[future]
            progress.advance(bar)
            try:
                image, seconds = future.result()
                job.images.append(image)
                job.seconds += seconds
                if job.finished:
                    size = store(job, nvcc, fatbinary, out)
                    done += 1
                    console.print(
                        f"  {job.family.name:<18} {job.seconds:6.1f} s {size / 1024:8.0f} KB   "
                        f"{done} of {len(jobs)}"
                    )
            except KernelBuildError as error:
                if not job.error:  # of the other architectures it would mostly be the same
                    console.print(f"[bold]{job.family.name} failed[/bold]")
                    console.print(str(error), markup=False, highlight=False, soft_wrap=True)
                job.error = str(error)


def start(
    jobs: list[Job], nvcc: Nvcc, folder: Path, pool: ThreadPoolExecutor
) -> Mapping[Future[tuple[Image, float]], Job]:
    """Submits all images, those of the largest sources first: a long one must not be the last to start."""
    units = [(job, name) for job in jobs for name in job.wanted]
    units.sort(key=lambda unit: -sum(file.stat().st_size for file in unit[0].family.files))
    return {pool.submit(timed, nvcc, job, name, folder): job for job, name in units}


def timed(nvcc: Nvcc, job: Job, architecture: str, folder: Path) -> tuple[Image, float]:
    started = time.monotonic()
    if job.error:
        raise KernelBuildError(job.error)
    image = compile_image(nvcc, job.family, architecture, folder)
    return image, time.monotonic() - started


def progress_of(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def store(job: Job, nvcc: Nvcc, fatbinary: Path, out: Path) -> int:
    """Joins the images and puts fatbin and manifest in place, each in one go; returns the size in bytes."""
    name = job.family.name
    if job.family.hash() != job.source_hash:
        raise KernelBuildError(f"the sources of {name} changed while they were compiled; run it again")
    images = sorted(job.images, key=lambda image: job.wanted.index(image.architecture))
    new = out / f".{name}.fatbin.{os.getpid()}"
    join_images(fatbinary, images, new)
    entry = manifest.entry_of(name, new, job.source_hash, job.wanted, nvcc.release)
    resources: dict[str, dict[str, dict[str, int]]] = {}
    for image in images:
        for kernel, used in image.resources.items():
            resources.setdefault(kernel, {})[image.architecture] = used
    with locked(out):
        os.replace(new, out / f"{name}.fatbin")
        known = set(manifest.families(job.family.source.parent))
        for path, key, value in (
            (manifest.path_of(out), "families", entry),
            (out / RESOURCES, "families", resources),
        ):
            content = json.loads(path.read_text(encoding="utf-8"))[key] if path.is_file() else {}
            kept = {other: content[other] for other in content if other in known}
            replace_json(path, {key: dict(sorted((kept | {name: value}).items()))})
    return (out / f"{name}.fatbin").stat().st_size


def replace_json(path: Path, content: Any) -> None:
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two builds at once each read, change and write the manifest: one after the other."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(
    families: Sequence[Family],
    architectures: Sequence[str],
    out: Path,
    nvcc_path: Path | None = None,
    workers: int = 0,
    console: Console | None = None,
) -> None:
    """Brings the fatbins of these families up to date. Raises KernelBuildError naming those that failed."""
    console = console or Console(highlight=False)
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    jobs = jobs_of(families, architectures, out)
    if not jobs:
        if any(images_of(family, architectures) for family in families):
            console.print(f"the kernels in {out} are up to date", soft_wrap=True)
        else:
            names = ", ".join(
                f"{family.name} ({', '.join(family.architectures)} alone)" for family in families
            )
            console.print(f"nothing to compile for these GPUs: {names}", soft_wrap=True)
        return
    nvcc, workers = find_nvcc(nvcc_path), workers or os.cpu_count() or 1
    console.print(
        f"compiling {len(jobs)} of {len(families)} kernel families for {', '.join(architectures) or 'PTX'} "
        f"with nvcc {nvcc.release}, {workers} at a time",
        soft_wrap=True,
    )
    compile_all(jobs, nvcc, out, workers, console)
    if failed := [job.family.name for job in jobs if job.error]:
        raise KernelBuildError(f"not built: {', '.join(failed)}; see above")
    console.print(f"built in {time.monotonic() - started:.0f} s: {out}", soft_wrap=True)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = manifest.families()
    parser = argparse.ArgumentParser(
        prog="python -m flashrt_kernels.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--arch", nargs="+", default=["native"], choices=("native", "all", *ARCHITECTURES), metavar="ARCH",
        help=f"native (this machine's GPUs), all, or some of {' '.join(ARCHITECTURES)}",
    )  # fmt: skip
    parser.add_argument(
        "--family", nargs="+", default=list(known), choices=known, metavar="NAME", help=" ".join(known)
    )
    parser.add_argument("--jobs", type=int, default=0, help="compilers at a time; default: one per core")
    parser.add_argument(
        "--out", type=Path, default=manifest.FATBINS, help="default: where they are looked for"
    )
    parser.add_argument("--nvcc", type=Path, help="the compiler to use")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = parse_arguments(arguments)
        known = manifest.families()
        chosen = [known[name] for name in options.family]
        build(chosen, chosen_architectures(options.arch), options.out, options.nvcc, options.jobs)
    except KernelBuildError as error:
        print(f"flashrt_kernels.build: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # no permission, a read-only or full disk, a file where the folder should be
        print(f"flashrt_kernels.build: {error}; choose another folder with --out", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
