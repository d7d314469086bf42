# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Measuring in a child process: an engine that kills its process takes nothing else with it.

An illegal memory access breaks a CUDA context for good; from then on any call of the process may abort it.
The child therefore notes on disk what it is about to do with which engine, and writes its result there; the
parent reads both, whatever has become of the child, and repeats the work without the engine that was at it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console

JOB, JOURNAL, RESULT = "job.json", "journal.json", "result.json"
BROKEN = 70  # exit status of a child whose CUDA context is of no more use
INTERRUPTED = {-signal.SIGINT, -signal.SIGTERM}  # somebody else's doing, not an engine's
# what a CUDA error says → what the engine did
DEEDS = {
    "illegal memory access": "made an illegal memory access",
    "misaligned address": "accessed a misaligned address",
    "launch failure": "had a kernel that failed",
    "device-side assert": "ran into an assertion on the device",
}


class Failure(RuntimeError):
    """Our own engine died, or something that no other engine can be blamed for: the run is not valid."""


def context_error() -> str | None:
    """What is wrong with this process's CUDA context; None where it works, or where there is none.

    Errors come late and stay: after a wait for everything enqueued, none is left to be found by the next one.
    """
    if not torch.cuda.is_initialized():
        return None
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def replace(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all: the writer may die at any time."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    fresh.replace(path)


# ---- in the child ----


class Journal:
    """Which engine is at work, and at what, on disk."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.path = folder / JOURNAL
        self.console = console

    @contextmanager
    def doing(self, engine: str, when: str) -> Iterator[None]:
        """Note `engine` and `when` ("while it was built") until the block has ended and the GPU is done.

        Ends the process at once where the context is broken afterwards. Any other exception goes on, and the
        engine stays noted until the next block: whatever the exception still holds is freed in its name.
        """
        replace(self.path, {"engine": engine, "when": when})
        try:
            yield
        except Exception as error:
            # first of all on disk: freeing a single tensor of a broken context aborts the process
            replace(self.path, {"engine": engine, "when": when, "error": described(error)})
            broken = context_error()
            if broken is not None:
                self.console.print_exception()
                self.end(engine, when, broken)
            raise
        broken = context_error()
        if broken is not None:
            self.end(engine, when, broken)
        self.nobody()

    def free_memory(self, engine: str) -> None:
        """Of what `engine` has let go of."""
        with self.doing(engine, "while its memory was freed"):
            gc.collect()
            torch.cuda.empty_cache()

    def nobody(self) -> None:
        """No engine is at work."""
        replace(self.path, {})

    def end(self, engine: str, when: str, broken: str) -> NoReturn:
        """Leave without freeing anything: nothing that uses the context works any more."""
        replace(self.path, {"engine": engine, "when": when, "error": broken})
        self.console.print(f"  {engine}: {broken} {when}; this process ends")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(BROKEN)


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


# ---- in the parent ----


@dataclass(frozen=True)
class Ending:
    """How a child ended, and what it left on disk."""

    code: int
    result: dict[str, Any] | None
    engine: str | None
    when: str
    error: str

    @property
    def deed(self) -> str:
        """`made an illegal memory access while it was built`."""
        known = next((words for text, words in DEEDS.items() if text in self.error), None)
        return f"{known or self._unknown()} {self.when}".strip()

    def _unknown(self) -> str:
        if self.code < 0:
            told = f" after {self.error}" if self.error else ""
            return f"killed the process ({signal.Signals(-self.code).name}){told}"
        if self.code == BROKEN:
            return f"broke the CUDA context ({self.error})"
        return f"raised {self.error}" if self.error else f"ended the process (exit status {self.code})"


def child(command: Sequence[str], job: Mapping[str, Any], folder: Path) -> Ending:
    """Run `command FOLDER` with `job` in the new `folder`. Raises Failure where it was interrupted."""
    folder.mkdir(parents=True)
    replace(folder / JOB, job)
    code = subprocess.run([*command, str(folder)], check=False).returncode
    if code in INTERRUPTED:
        raise Failure(f"interrupted by {signal.Signals(-code).name}")
    noted = read(folder / JOURNAL) or {}
    return Ending(
        code, read(folder / RESULT), noted.get("engine"), noted.get("when", ""), noted.get("error", "")
    )


def read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def measured(
    command: Sequence[str],
    job: Mapping[str, Any],
    folder: Path,
    ours: Callable[[str], bool],
    console: Console,
) -> dict[str, Any]:
    """The child's result. Repeated once without each engine, not `ours`, that ended the child before it.

    Such engines are handed to the next child as `without`: name → reason. Raises Failure for `ours`, and
    where no engine was at work.
    """
    without: dict[str, str] = {}
    while True:
        ending = child(command, {**job, "without": without}, folder / f"attempt{len(without)}")
        name = ending.engine
        told = f"{name or 'no engine at work'}: {ending.deed}"
        if ending.code != 0 and name is not None and ours(name):
            raise Failure(told)
        if ending.result is not None:
            if ending.code != 0:
                console.print(f"  {told}; that was after the measurement, nothing is lost")
            return ending.result
        if name is None or name in without:
            raise Failure(told)
        console.print(f"  {told}; the case is repeated without it")
        without[name] = f"{ending.deed}; the case was repeated without it"
