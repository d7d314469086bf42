# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of motions: a planner beside the controller model that executes what it sends."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, settings

from flashrt_ros.limits import JointLimits
from flashrt_ros.motion import JointMotion, Planned, Refused
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.sim.controller import JointTrajectoryController
from flashrt_ros.trajectory import EndVelocity, Trajectory

NAMES = ("shoulder", "elbow", "gripper")
RATE_HZ = 20.0
DT = 1.0 / RATE_HZ
LIMITS = JointLimits(
    NAMES,
    np.array([-2.0, -1.0, 0.0]),
    np.array([2.0, 1.0, 0.08]),
    np.array([3.0, 2.0, 0.2]),
    np.full(3, np.inf),
)
OFF = JointLimits.off(NAMES)
# Examples are seeds: nothing becomes simpler by shrinking them, and it would take a minute.
SEEDED = settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))


def ns(time_s: float) -> int:
    return round(time_s * NS_PER_S)


def motion(
    limits: JointLimits = OFF, blend_steps: int = 0, end_velocity: EndVelocity = "zero"
) -> JointMotion:
    return JointMotion(NAMES, limits, RATE_HZ, blend_steps, end_velocity)


def planned(plan: Planned | Refused | None) -> Planned:
    assert isinstance(plan, Planned), plan
    return plan


def waves(begin_s: float, steps: int, size: float = 0.3) -> np.ndarray:
    """Smooth targets [steps, 3] for one step after `begin_s` and so on."""
    times = begin_s + DT * np.arange(1, steps + 1)[:, None]
    targets: np.ndarray = size * np.sin(2.0 * times + np.arange(3)) * np.array([1.0, 1.0, 0.05])
    return targets


class Robot:
    """A motion and the controller that executes it from `start` [J] on, on one clock that begins at 0 s.

    `free_end` is the controller's allow_nonzero_velocity_at_trajectory_end.
    """

    def __init__(self, planner: JointMotion, start: np.ndarray | None = None, free_end: bool = False) -> None:
        self.start = np.zeros(len(NAMES)) if start is None else start
        self.motion = planner
        self.controller = JointTrajectoryController(NAMES, self.start, free_end)

    def step(self, targets: np.ndarray, now_s: float, consumed: int = 0) -> Planned:
        """Plan, commit and send."""
        plan = planned(self.motion.plan(targets, consumed, ns(now_s), self.start))
        assert self.motion.commit(plan)
        self.send(plan.trajectory, now_s)
        return plan

    def send(self, trajectory: Trajectory, now_s: float) -> None:
        """What the node sends: all knots but the one the controller is at."""
        times = trajectory.times_ns / NS_PER_S  # messages carry whole nanoseconds
        positions, velocities = trajectory.positions[1:], trajectory.velocities[1:]
        self.controller.accept(NAMES, times, positions, velocities, None, now_s)

    def path(self, begin_s: float, end_s: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
        """Commanded positions and velocities [count, J] as the controller has them."""
        samples = [self.controller.sample(float(t)) for t in np.linspace(begin_s, end_s, count)]
        return np.array([q for q, _ in samples]), np.array([v for _, v in samples])


def moving(limits: JointLimits = OFF, blend_steps: int = 0) -> Robot:
    """A robot in the middle of a chunk of 16 steps that was sent at 0 s; 0.12 s are between two knots."""
    robot = Robot(motion(limits, blend_steps), start=np.array([0.0, 0.25, 0.01]))
    robot.step(waves(0.0, 16) + np.array([0.0, 0.0, 0.02]), 0.0)
    return robot
