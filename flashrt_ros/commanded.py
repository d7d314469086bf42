# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a robot is commanded at each moment, from the trajectories that were sent to it. No ROS.

The robot does not tell its set point, so the same trajectories run through a controller of our own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from flashrt_ros.sim.controller import JointTrajectoryController, Rows, TrajectoryError

Times: TypeAlias = Sequence[float] | np.ndarray


class CommandModel:
    """Hears trajectories, and says what was commanded whenever a position was measured.

    Times are seconds of one clock. Nothing is commanded before the first trajectory; that one begins where
    the robot was measured last before it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._heard: deque[tuple[float, list[str], Times, Rows, Rows | None, float | None]] = deque()
        self._controller: JointTrajectoryController | None = None
        self._measured = np.full(len(self._names), np.nan)  # [D]
        self.refused = ""
        """Why a controller refuses the newest trajectory that it refuses."""

    def hear(
        self,
        t_s: float,
        names: list[str],
        times_s: Times,
        positions: Rows,
        velocities: Rows | None,
        start_s: float | None = None,
    ) -> None:
        """A trajectory that arrived at `t_s`, in the order of arrival; see `JointTrajectoryController`."""
        self._heard.append((t_s, names, times_s, positions, velocities, start_s))

    def measure(self, t_s: float, measured: np.ndarray) -> list[tuple[float, np.ndarray]]:
        """Samples (t_s, commanded [D]) up to the moment `t_s`, at which `measured` [D] was measured.

        One of `t_s`, before it one of the moment at which the first trajectory came; none before that.
        """
        samples = []
        while self._heard and self._heard[0][0] <= t_s:
            begins = self._controller is None
            arrived_s = self._heard[0][0]
            self._accept(*self._heard.popleft())
            if begins and self._controller is not None:
                samples.append((arrived_s, self._controller.sample(arrived_s)[0]))
        self._measured = measured
        if self._controller is not None:
            samples.append((t_s, self._controller.sample(t_s)[0]))
        return samples

    def _accept(
        self,
        t_s: float,
        names: list[str],
        times_s: Times,
        positions: Rows,
        velocities: Rows | None,
        start_s: float | None,
    ) -> None:
        controller = self._controller
        if controller is None:
            if not np.isfinite(self._measured).all():
                self.refused = "a trajectory came before all joints were measured"
                return
            controller = JointTrajectoryController(self._names, self._measured, skip_past_points=True)
        try:
            controller.accept(names, times_s, positions, velocities, None, t_s, start_s)
        except TrajectoryError as error:
            self.refused = str(error)
        else:
            self._controller = controller
