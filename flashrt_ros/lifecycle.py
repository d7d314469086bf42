# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""How transitions fail in words, and how signals end the process."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from flashrt_ros.parameters import ConfigError

if TYPE_CHECKING:
    from flashrt_ros.policy_node import PolicyNode


GRACE_S = 2.0


class Refused(Exception):
    """A transition cannot be done now; the text says why and what to do."""


def transition(
    callback: Callable[[PolicyNode, LifecycleState], TransitionCallbackReturn],
) -> Callable[[PolicyNode, LifecycleState], TransitionCallbackReturn]:
    """A transition that says what went wrong: rclpy itself drops the exception of a callback without a word.

    Bad configuration → one line, FAILURE (the state before); anything else → traceback, ERROR (on_error).
    """

    @functools.wraps(callback)
    def run(node: PolicyNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return callback(node, state)
        except (ConfigError, Refused) as error:
            node.health.fault = f"{callback.__name__} failed: {error}"
            node.get_logger().error(node.health.fault)
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            node.health.fault = f"{callback.__name__} failed: {type(error).__name__}: {error}"
            node.get_logger().error(f"{node.health.fault}\n{traceback.format_exc()}")
            return TransitionCallbackReturn.ERROR

    return run


class StopSignals:
    """SIGINT and SIGTERM ask the node to stop; rclpy's own handler would shut the context under it.

    Ctrl-C often reaches a process twice, from the terminal and from launch. A signal that comes after
    `GRACE_S` means that somebody has lost patience, and ends the process as it would without this handler.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._requested_s = 0.0
        for number in self.NUMBERS:
            signal.signal(number, self._on_signal)
        # Python runs a handler when the main thread is back from waiting for messages, 0.1 s later; the robot
        # must stop within a control period.
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def _listen(self) -> None:
        while not self.requested:
            if any(number in self.NUMBERS for number in os.read(self._read, 16)):
                self.requested, self._requested_s = True, time.monotonic()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested, self._requested_s = True, time.monotonic()
        elif time.monotonic() - self._requested_s > GRACE_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
