# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A thread that looks after the robot once per control period, whatever the other threads are doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from flashrt_ros.commands import Commands
from flashrt_ros.observation import NS_PER_S


class Guardian:
    """Ticks `commands` at `rate_hz` from `start` to `stop`.

    `alarm()` says why the robot must stop now, "" when all is well: the death of the decision thread, a
    signal to the process. `on_stop(reason)` is called on this thread when the robot was stopped, `on_error`
    at the first exception; the thread goes on. `settle_s` bounds how long `stop` waits for the end of a stop
    action.
    """

    def __init__(
        self,
        commands: Commands,
        rate_hz: float,
        settle_s: float,
        alarm: Callable[[], str],
        on_stop: Callable[[str], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._commands, self._alarm = commands, alarm
        self._on_stop, self._on_error = on_stop, on_error
        self._period_ns, self._settle_s = round(NS_PER_S / rate_hz), settle_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin to look. RuntimeError while the thread of before is still there."""
        if self.running:
            raise RuntimeError("the guardian of before is still busy; try again when it has ended")
        self._failed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(self._stop,), name="guardian", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """End, after the stop action was played to its end where this thread plays it."""
        deadline_s = time.monotonic() + self._settle_s
        while not self._commands.is_settled() and time.monotonic() < deadline_s and self.running:
            time.sleep(self._period_ns / NS_PER_S)
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _main(self, stop: threading.Event) -> None:
        due_ns = time.monotonic_ns()
        while not stop.wait(max(0, due_ns - time.monotonic_ns()) / NS_PER_S):
            # Each by itself, and on and on: whatever fails, a stop action is played to its end.
            alarm = self._attempt(self._alarm)
            told = self._attempt(partial(self._stop_robot, alarm)) if alarm else ""
            told = self._attempt(self._tick) or told
            if told:
                self._on_stop(told)
            due_ns = max(due_ns + self._period_ns, time.monotonic_ns())

    def _tick(self) -> str:
        return self._commands.tick(time.monotonic_ns())

    def _stop_robot(self, alarm: str) -> str:
        return alarm if self._commands.stop(alarm, time.monotonic_ns()) else ""

    def _attempt(self, look: Callable[[], str]) -> str:
        """What `look` says; its first exception goes to the node, which reports it and deactivates."""
        try:
            return look()
        except Exception as error:
            if not self._failed:
                self._failed = True
                self._on_error(error)
            return ""
