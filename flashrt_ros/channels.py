# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One channel per action group: its columns of the chunk, its motion, how it goes out. No ROS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flashrt_ros.cartesian import PoseMotion, RateMotion
from flashrt_ros.groups import ActionGroup, JointConfig, StateGroup
from flashrt_ros.limits import JointLimits
from flashrt_ros.motion import JointMotion, Planned
from flashrt_ros.observation import NS_PER_S, Observation
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.planned import Refused
from flashrt_ros.robot_view import RobotView
from flashrt_ros.spaces import absolute, check_limits, check_poses, columns, measured_pose
from flashrt_ros.trajectory import EndVelocity, Trajectory
from flashrt_ros.urdf import limits_from_urdf

POSITIONS: Final = ("joint_position", "joint_delta", "gripper")
"""Spaces whose columns become positions of joints."""


@dataclass(frozen=True)
class Proposal:
    """A plan of one channel that may be committed. Limits changed `clipped` of its `points`, of `names`."""

    planned: Any
    points: int
    clipped: int
    names: tuple[str, ...]
    trajectory: Trajectory | None = None


@dataclass(frozen=True)
class Channel:
    """One action group on its way out.

    `streamed`: commands of every moment instead of one trajectory for a whole chunk. `joints` are the names
    whose measured positions the motion starts from; () for what is no position of a joint.
    """

    group: ActionGroup
    columns: slice
    motion: JointMotion | PoseMotion | RateMotion
    streamed: bool
    joints: tuple[str, ...]

    def plan(
        self,
        actions: np.ndarray,
        consumed: int,
        now_ns: int,
        observed: np.ndarray | None,
        measured: np.ndarray | None,
    ) -> Proposal | Refused | None:
        """Columns of actions [H, D] from now on; None when all of its rows are past (R36).

        `observed` and `measured`: positions [J] of the joints, or the pose [7], where they are known, at the
        observation (row 0 of increments) and now (where a robot at rest begins).
        """
        rows = np.asarray(actions[:, self.columns], dtype=np.float64)  # [H, W]
        if self.group.space == "joint_delta":
            if observed is None:
                return Refused("no_state", "increments need the measured positions of their joints")
            rows = absolute(rows, observed)
        planned = self.motion.plan(rows, consumed, now_ns, measured)
        if planned is None or isinstance(planned, Refused):
            return planned
        if isinstance(planned, Planned):
            points = planned.trajectory.positions[1:].size
            return Proposal(planned, points, planned.clipped, planned.clipped_names, planned.trajectory)
        return Proposal(planned, planned.points, planned.clipped, planned.clipped_names)

    def commit(self, proposal: Proposal) -> bool:
        """It is what is commanded from now on; False when a stop or a reset came in between."""
        planned: Any = proposal.planned
        return self.motion.commit(planned)

    def observed(self, states: Sequence[StateGroup], observation: Observation) -> np.ndarray | None:
        """Where the robot was at an observation: positions [J] of joints, or the pose [7] in its state."""
        if self.joints:
            known = observation.positions
            return np.array([known[name] for name in self.joints]) if set(self.joints) <= set(known) else None
        return measured_pose(self.group, states, observation.state) if self.group.output == "pose" else None

    def measured(self, states: Sequence[StateGroup], robot: RobotView) -> np.ndarray | None:
        """Where the robot is now, as `observed`."""
        if self.joints:
            return robot.positions(self.joints)
        if self.group.output != "pose":
            return None
        state = robot.state()
        return None if state is None else measured_pose(self.group, states, state)

    def is_moving_nothing(self, now_ns: int) -> bool:
        """Whether nothing is commanded, so that a motion begins where the robot is measured."""
        return self.motion.commanded(now_ns) is None

    def left_s(self, now_ns: int) -> float:
        """Seconds until what is commanded is over, a stop included."""
        return max(0.0, self.over_ns(now_ns) / NS_PER_S)

    def over_ns(self, now_ns: int) -> int:
        """ns until what is commanded is over; negative: since when it is; 0 when there is nothing."""
        end_ns = self.motion.end_ns
        return 0 if end_ns is None else end_ns - now_ns

    def lag(self, measured: np.ndarray | None, now_ns: int) -> dict[str, float]:
        """R39: joint → commanded minus measured; {} for what is no position of a joint."""
        if measured is None or not isinstance(self.motion, JointMotion):
            return {}
        values = self.motion.lag(measured, now_ns)
        return {} if values is None else dict(zip(self.joints, values.tolist(), strict=True))


def open_channels(config: NodeConfig) -> tuple[Channel, ...]:
    """The channels of a node.

    Raises ConfigError for limits that are missing (all of them at once) or crossed, and for poses that nobody
    measures.
    """
    described = _described(config)
    check_limits(config, described)
    check_poses(config)
    limits = joint_limits(config, described)
    streams = config.execute == "stream"
    return tuple(
        Channel(
            group=group,
            columns=where,
            motion=_motion(group, config, limits),
            streamed=streams or group.output != "trajectory",
            joints=group.names if group.space in POSITIONS else (),
        )
        for group, where in zip(config.action_groups, columns(config.action_groups), strict=True)
    )


def _motion(
    group: ActionGroup, config: NodeConfig, limits: Mapping[str, JointConfig]
) -> JointMotion | PoseMotion | RateMotion:
    rate_hz = config.action_rate_hz
    if group.space in POSITIONS:
        own = _arrays([limits[name] for name in group.names], config)
        end: EndVelocity = "free" if config.end_velocity == "free" else "zero"
        return JointMotion(group.names, own, rate_hz, config.blend_steps, end)
    if group.output == "pose":
        return PoseMotion(group, rate_hz, config.blend_steps, config.limits)
    if group.space == "joint_velocity":
        return RateMotion(group, rate_hz, config.limits, _speeds([limits[name] for name in group.names]))
    return RateMotion(group, rate_hz, config.limits)


def joint_limits(
    config: NodeConfig, described: Mapping[str, tuple[float, float, float]]
) -> dict[str, JointConfig]:
    """Limits of every joint that is commanded: as given, else those of the robot description.

    Raises ConfigError that lists every joint without limits, unless `limits: false`.
    """
    by_name = {joint.name: joint for joint in config.action_joints}
    found: dict[str, JointConfig] = {}
    bare = []
    for group in config.action_groups:
        if group.space not in (*POSITIONS, "joint_velocity"):
            continue
        for name in group.names:
            joint = found[name] = _completed(by_name[name], described.get(name))
            if group.space in POSITIONS and None in (joint.min, joint.max, joint.max_velocity):
                bare.append(name)
            if config.limits and joint.max_velocity is not None and not joint.max_velocity > 0.0:
                raise ConfigError(
                    f"the highest velocity of joint '{name}' is {joint.max_velocity:g} (robot_description); "
                    f"it must be above 0: write `joint.{name}.max_velocity`"
                )
    if bare and config.limits:
        raise ConfigError(
            f"no limits for {', '.join(bare)}: write joint.<name>.min, .max and .max_velocity in the robot's "
            f"units (`joint: {{{bare[0]}: {{min: -1.5, max: 1.5, max_velocity: 1.0}}}}`), give a URDF as "
            "`robot_description`, or opt out with `limits: false`"
        )
    return found


def _described(config: NodeConfig) -> dict[str, tuple[float, float, float]]:
    text = config.robot_description.strip()
    if not text:
        return {}
    try:
        if not text.startswith("<"):
            text = Path(text).read_text(encoding="utf-8")
        return limits_from_urdf(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"parameter 'robot_description' cannot be used: {error}") from error


def _completed(joint: JointConfig, described: tuple[float, float, float] | None) -> JointConfig:
    """What is given wins over what the description says."""
    if described is None:
        return joint
    lower, upper, velocity = described
    return JointConfig(
        joint.name,
        joint.scale,
        joint.offset,
        lower if joint.min is None else joint.min,
        upper if joint.max is None else joint.max,
        velocity if joint.max_velocity is None else joint.max_velocity,
        joint.max_jump,
    )


def _speeds(joints: Sequence[JointConfig]) -> np.ndarray:
    return np.array([np.inf if joint.max_velocity is None else joint.max_velocity for joint in joints])


def _arrays(joints: Sequence[JointConfig], config: NodeConfig) -> JointLimits:
    names = tuple(joint.name for joint in joints)
    if not config.limits:
        return JointLimits.off(names)
    speed = _speeds(joints)  # [J]
    # Without a value of its own: what the joint covers at full speed while the distance is blended out.
    jump = speed * max(1, config.blend_steps) / config.action_rate_hz
    own = np.array([np.nan if joint.max_jump is None else joint.max_jump for joint in joints])
    try:
        return JointLimits(
            names=names,
            lower=np.array([joint.min for joint in joints], dtype=np.float64),
            upper=np.array([joint.max for joint in joints], dtype=np.float64),
            max_velocity=speed,
            max_jump=np.where(np.isnan(own), jump, own),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
