# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Action groups that move an end effector by poses, as motions (`rates.py` has those that are velocities).

NumPy and SciPy only, no ROS types; times in ns are of the monotonic clock. Poses as in `pose_path.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from flashrt_ros.groups import ActionGroup
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.planned import (
    Motion,
    Planned,
    Refused,
    blend_weights,
    check_finite,
    check_rows,
    is_past,
    step_times_ns,
)
from flashrt_ros.pose_path import (
    PosePlan,
    blended,
    braking,
    clamped,
    composed,
    jump,
    path,
    poses_of,
    slowed,
    turned,
)
from flashrt_ros.rates import RateMotion

__all__ = ["PoseMotion", "RateMotion", "StopAction"]

StopAction = Literal["hold", "decelerate"]

_BRAKING_KNOTS = 25
_NOTICEABLE = 1e-3  # m and rad: what limits changed by less is not counted


class PoseMotion(Motion[PosePlan]):
    """The commanded pose of an end effector, for the spaces eef_pose and eef_delta (with output pose).

    Between the steps it moves along straight lines and turns evenly the short way; after the last it stays.
    """

    def __init__(self, group: ActionGroup, rate_hz: float, blend_steps: int, limits: bool) -> None:
        """blend_steps: as of `JointMotion`. limits: keep to the workspace and the speeds of `group`."""
        super().__init__(rate_hz)
        if blend_steps < 0:
            raise ValueError(f"blend_steps is {blend_steps}; it must not be negative")
        self.group = group
        self._blend_steps, self._limits = blend_steps, limits
        self._sent: PosePlan | None = None  # what the robot was told last; outlives `reset`

    def plan(
        self, targets: np.ndarray, consumed: int, now_ns: int, measured: np.ndarray | None
    ) -> Planned[PosePlan] | Refused | None:
        """From now on through `targets` [H, W]: row consumed + j − 1 is due j steps after `now_ns`.

        Begins at the pose commanded now, or where the end effector was `measured` [7] when nothing is
        commanded. Steps of eef_delta lead on from there, one after another. None when all rows are past.
        """
        rows = check_rows(targets, consumed, self.group.names)
        refused = check_finite(rows, self.group.names)
        if refused is not None:
            return refused
        if is_past(len(rows), consumed):
            return None
        active, version = self._present()
        start = _start(active, now_ns, measured)
        if isinstance(start, Refused):
            return start
        try:
            wanted = _WANTED[self.group.space](self, rows[consumed:], start, active, now_ns)
        except ValueError as error:  # numbers that are no rotation
            return Refused("non_finite", f"group {self.group.name}: {error}; the whole chunk is dropped")
        if isinstance(wanted, Refused):
            return wanted
        poses = self._limit(wanted, start)
        times_ns = step_times_ns(now_ns, len(poses), self.rate_hz)
        clipped = _changed(wanted, poses)
        names = (self.group.name,) if clipped else ()
        return Planned(path(start, poses, times_ns, len(poses)), clipped, names, version)

    def _poses(
        self, rows: np.ndarray, start: np.ndarray, active: PosePlan | None, now_ns: int
    ) -> np.ndarray | Refused:
        """eef_pose: rows [n, W] → poses [n, 7], the seam blended out (R30)."""
        poses = poses_of(rows, self.group.rotation)
        refused = self._check_jump(poses[0], start)
        if refused is not None:
            return refused
        due_ns = now_ns + round(self.dt_s * NS_PER_S)
        continuation = start if active is None else active.values(due_ns)
        return blended(poses, continuation, blend_weights(self._blend_steps, len(poses)))

    def _steps(
        self, rows: np.ndarray, start: np.ndarray, active: PosePlan | None, now_ns: int
    ) -> np.ndarray | Refused:
        """eef_delta: steps [n, 6] → poses [n, 7]. They begin at what is commanded: there is no seam."""
        return composed(rows, self.group.rotation, start)

    def _check_jump(self, first: np.ndarray, start: np.ndarray) -> Refused | None:
        """R41: as far as the speed limits lead in the steps of the blend."""
        if not self._limits:
            return None
        seconds = max(1, self._blend_steps) * self.dt_s
        return jump(first, start, *(speed * seconds for speed in self._speeds))

    @property
    def _speeds(self) -> tuple[float, float]:
        """Highest linear and angular speed, m/s and rad/s; infinite where none is given."""
        return _or_inf(self.group.max_linear_velocity), _or_inf(self.group.max_angular_velocity)

    def _limit(self, poses: np.ndarray, start: np.ndarray) -> np.ndarray:
        """R41: poses [n, 7] within the workspace, and not further apart than the speeds allow.

        A robot that begins outside of the workspace is led into it at no more than those speeds.
        """
        if not self._limits:
            return poses
        inside = clamped(poses, self.group.workspace)
        return slowed(inside, start, *(speed * self.dt_s for speed in self._speeds))

    def _command(self, plan: PosePlan | None) -> None:
        super()._command(plan)
        self._sent = self._sent if plan is None else plan

    def _after_reset(self, plan: PosePlan | None) -> PosePlan | None:
        """Nothing: the next plan begins at the measured pose."""
        return None

    def stop(self, now_ns: int, action: StopAction, stop_time_s: float) -> PosePlan | None:
        """R40: from the commanded motion to rest; what is commanded from now on, and executed at once.

        "hold" stays at the pose commanded now, "decelerate" goes on along the present motion and comes to
        rest within `stop_time_s`, inside of the workspace. After `reset` it still stops a motion that was not
        over. None when there is no motion of ours to stop.
        """
        if not stop_time_s > 0.0:
            raise ValueError(f"stop_time_s is {stop_time_s}; it must be above 0")
        with self._lock:
            current = self._active
            if current is None and self._sent is not None and now_ns < self._sent.end_ns:
                current = self._sent
            if current is None:
                return None
            plan = _POSE_STOPS[action](self, current, now_ns, stop_time_s)
            self._command(plan)
            return plan

    def _hold(self, current: PosePlan, now_ns: int, stop_time_s: float) -> PosePlan:
        return PosePlan(np.array([now_ns], np.int64), 0, current.values(now_ns)[None])

    def _decelerate(self, current: PosePlan, now_ns: int, stop_time_s: float) -> PosePlan:
        start = current.values(now_ns)
        shares = np.linspace(0.0, 1.0, _BRAKING_KNOTS + 1)  # of the stop
        poses = braking(start, current.velocities(now_ns), shares[1:], stop_time_s)
        if self._limits:
            # As the plan does, no faster: of two points the nearest ones in a box are not further apart.
            poses = clamped(poses, _including(self.group.workspace, start))
        times_ns = now_ns + np.rint(shares * stop_time_s * NS_PER_S).astype(np.int64)
        return path(start, poses, times_ns, 0)


def _start(active: PosePlan | None, now_ns: int, measured: np.ndarray | None) -> np.ndarray | Refused:
    """The pose [7] to begin at: what is commanded, and only without it what is measured (R30)."""
    if active is not None:
        return active.values(now_ns)
    pose = np.asarray([np.nan] if measured is None else measured, dtype=np.float64)
    if pose.shape != (7,) or not np.isfinite(pose).all() or not np.linalg.norm(pose[3:]) > 0.0:
        return Refused(
            "no_state",
            "nothing is commanded and no pose is measured to begin from: the node needs a state group with "
            "source pose or tf that gives it",
        )
    return np.concatenate([pose[:3], pose[3:] / np.linalg.norm(pose[3:])])


def _including(workspace: Sequence[float], start: np.ndarray) -> Sequence[float]:
    """The box, grown to the pose [7] that a robot outside of it is at: it must not be pulled in at once."""
    if not workspace:
        return workspace
    low, high = np.minimum(workspace[:3], start[:3]), np.maximum(workspace[3:], start[:3])
    return [*low.tolist(), *high.tolist()]


def _changed(wanted: np.ndarray, limited: np.ndarray) -> int:
    """How many poses [n, 7] were noticeably changed."""
    if wanted is limited:
        return 0
    moved = np.linalg.norm(limited[:, :3] - wanted[:, :3], axis=1)
    angles = np.linalg.norm(turned(wanted, limited), axis=1)
    return int(((moved > _NOTICEABLE) | (angles > _NOTICEABLE)).sum())


def _or_inf(limit: float | None) -> float:
    return np.inf if limit is None else limit


_WANTED: Final[dict[str, Callable[..., np.ndarray | Refused]]] = {
    "eef_pose": PoseMotion._poses,
    "eef_delta": PoseMotion._steps,
}
_POSE_STOPS: Final[dict[str, Callable[[PoseMotion, PosePlan, int, float], PosePlan]]] = {
    "hold": PoseMotion._hold,
    "decelerate": PoseMotion._decelerate,
}
