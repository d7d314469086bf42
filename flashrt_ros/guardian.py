# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A thread that looks after the robot once per control period, whatever the other threads are doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from flashrt_ros.commands import Commands
from flashrt_ros.observation import NS_PER_S


class Guardian:
    """Ticks `commands` at `rate_hz` from `start` to `stop`.

    `alarm()` says why the robot must stop now, "" when all is well: the death of the decision thread, a
    signal to the process. `on_stop(reason)` is called on this thread when a tick stopped the robot. After an
    exception, which is handed to `on_error`, the thread ends. `settle_s` bounds how long `stop` waits for the
    end of a stop action.
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

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin to look; does nothing while it already does."""
        if self.running:
            return
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
            try:
                self._tick()
            except Exception as error:  # the node reports it and deactivates
                self._on_error(error)
                return
            due_ns = max(due_ns + self._period_ns, time.monotonic_ns())

    def _tick(self) -> None:
        now_ns = time.monotonic_ns()
        alarm = self._alarm()
        told = ""
        if alarm and self._commands.stop(alarm, now_ns):
            told = alarm
        told = self._commands.tick(now_ns) or told
        if told:
            self._on_stop(told)
