# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Child processes of the demo: a log file each, stopped with SIGINT, reported with the log's tail."""

from __future__ import annotations

import ctypes
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

STOP_TIMEOUT_S = 6.0
TAIL_LINES = 15


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _end_with_parent() -> None:
    """In the child: SIGINT when the parent ends in a way that leaves it no time to stop its children."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


class ChildDied(RuntimeError):
    """A process ended that should be running; the text holds the end of its log."""


class Children:
    """Python modules that run as processes beside this one; leaving the context ends them all."""

    def __init__(self, log_folder: Path) -> None:
        self._folder = log_folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.exit_codes: dict[str, int] = {}

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Run `python -u arguments…`; output goes to `<log folder>/<name>.log`."""
        with self.log_path(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-u", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for the demo alone, which then stops its children in order.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def log_path(self, name: str) -> Path:
        """Where the output of `name` goes."""
        return self._folder / f"{name}.log"

    def tail(self, name: str) -> str:
        """The last lines that `name` wrote."""
        lines = self.log_path(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])

    def complaint(self, name: str) -> str:
        """The last error that `name` logged, else the end of its log; for the end of a sentence."""
        path = self.log_path(name)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith(("[ERROR]", "[FATAL]"))]  # of rcutils
        if starts:
            more = itertools.takewhile(lambda line: not line.startswith("["), lines[starts[-1] + 1 :])
            error = "\n  | ".join([lines[starts[-1]], *itertools.islice(more, TAIL_LINES)])
            return f"{name} says (all of it in {path}):\n  | {error}"
        return f"{name} logged no error; the end of {path}:\n{self.tail(name)}"

    def check(self) -> None:
        """Raises ChildDied when one of the processes is not running any more."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise ChildDied(self._epitaph(name, process.returncode))

    def wait(self, name: str, timeout_s: float) -> None:
        """Wait for `name` to end with exit code 0; raises ChildDied otherwise."""
        process = self._running[name]
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is None:
            raise ChildDied(
                f"{name} did not end within {timeout_s:g} s; the end of {self.log_path(name)}:\n"
                f"{self.tail(name)}"
            )
        del self._running[name]
        if process.returncode != 0:
            raise ChildDied(self._epitaph(name, process.returncode))

    def stop(self) -> None:
        """SIGINT to every process, the newest first; kill what has not ended in time. Fills `exit_codes`."""
        for name, process in reversed(self._running.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                self.exit_codes[name] = process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                self.exit_codes[name] = process.wait()
        self._running.clear()

    def _epitaph(self, name: str, code: int) -> str:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{name} {how}; the end of {self.log_path(name)}:\n{self.tail(name)}"
