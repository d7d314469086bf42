# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where the robot is this very moment, for motions that begin at rest. Node's clock in ns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from flashrt_ros.ingest import Ingest


class RobotView(Protocol):
    """What `Commands` asks when nothing is commanded."""

    def positions(self, names: Sequence[str]) -> np.ndarray | None:
        """Measured positions of joints, float64 [J] in the robot's units; None where one is unknown."""

    def missing(self, names: Sequence[str]) -> str:
        """Of which of them there is no position, in words."""

    def state(self) -> np.ndarray | None:
        """The state vector, float32 [D]; None while it is not complete and fresh."""


class LiveRobot:
    """The sources of the node, looked at anew: a slow policy's observation is old."""

    def __init__(self, ingest: Ingest, pull: Callable[[], None], now_ns: Callable[[], int]) -> None:
        self._ingest, self._pull, self._now_ns = ingest, pull, now_ns

    def positions(self, names: Sequence[str]) -> np.ndarray | None:
        """See `RobotView`."""
        self._pull()
        return self._ingest.measured(names, self._now_ns())

    def missing(self, names: Sequence[str]) -> str:
        """See `RobotView`."""
        return self._ingest.missing_measured(names, self._now_ns())

    def state(self) -> np.ndarray | None:
        """See `RobotView`."""
        self._pull()
        return self._ingest.fresh_state(self._now_ns())
