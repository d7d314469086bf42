# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One channel per action group: its columns of the chunk, its motion, how it goes out. No ROS."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from flashrt_ros.cartesian import PoseMotion, RateMotion
from flashrt_ros.groups import ActionGroup, JointConfig
from flashrt_ros.limits import JointLimits, limits_from_urdf
from flashrt_ros.motion import JointMotion, Planned, Refused
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.spaces import absolute, check_limits, columns

POSITIONS: Final = ("joint_position", "joint_delta", "gripper")
"""Spaces whose columns become positions of joints."""


class Motion(Protocol):
    """What JointMotion, PoseMotion and RateMotion have in common; times in ns of the monotonic clock."""

    def plan(
        self, targets: np.ndarray, consumed: int, now_ns: int, measured: np.ndarray | None
    ) -> Any | Refused | None: ...
    def commit(self, planned: Any) -> None: ...
    def stop(
        self, now_ns: int, action: str, stop_time_s: float, measured: np.ndarray | None
    ) -> Any | None: ...
    def reset(self) -> None: ...
    def remaining_steps(self, now_ns: int) -> float: ...


@dataclass(frozen=True)
class Channel:
    """One action group on its way out.

    `streamed`: commands of every moment instead of one trajectory for a whole chunk. `joints` are the names
    whose measured positions the motion starts from; () for what is no joint.
    """

    group: ActionGroup
    columns: slice
    motion: Any
    streamed: bool
    joints: tuple[str, ...]
    stop_sent: list[bool] = field(default_factory=lambda: [False])

    def targets(self, actions: np.ndarray, start: np.ndarray | None) -> np.ndarray | Refused:
        """Columns [H, W] of actions [H, D] as the motion takes them; increments are added to `start` [W]."""
        rows = np.asarray(actions[:, self.columns], dtype=np.float64)
        if self.group.space != "joint_delta":
            return rows
        if start is None:
            return Refused(f"group '{self.group.name}': its increments need the joints' measured positions")
        return absolute(rows, start)


def open_channels(config: NodeConfig) -> tuple[Channel, ...]:
    """The channels of a node.

    Raises ConfigError for limits that are missing (all of them at once) or crossed.
    """
    check_limits(config)
    limits = joint_limits(config)
    streams = config.execute == "stream"
    channels = []
    for group, where in zip(config.action_groups, columns(config.action_groups), strict=True):
        positions = group.space in POSITIONS
        channels.append(
            Channel(
                group=group,
                columns=where,
                motion=_motion(group, config, limits),
                streamed=streams or group.output != "trajectory",
                joints=group.names if positions else (),
            )
        )
    return tuple(channels)


def _motion(group: ActionGroup, config: NodeConfig, limits: dict[str, JointConfig]) -> Any:
    rate_hz = config.action_rate_hz
    if group.space in POSITIONS:
        own = _arrays([limits[name] for name in group.names], config)
        return JointMotion(group.names, own, rate_hz, config.blend_steps, config.end_velocity)
    if group.output == "pose":
        return PoseMotion(group, rate_hz, config.blend_steps, config.limits)
    speeds = [limits[name].max_velocity for name in group.names if name in limits]
    return RateMotion(group, rate_hz, config.limits, np.array([np.inf if s is None else s for s in speeds]))


def joint_limits(config: NodeConfig) -> dict[str, JointConfig]:
    """Limits of every joint of a channel: as given, else those of the robot description.

    Raises ConfigError that lists every joint without limits, unless `limits: false`.
    """
    described = _described(config)
    found: dict[str, JointConfig] = {}
    bare = []
    by_name = {joint.name: joint for joint in config.action_joints}
    for group in config.action_groups:
        if group.space not in (*POSITIONS, "joint_velocity"):
            continue
        for name in group.names:
            joint = _completed(by_name[name], described.get(name))
            found[name] = joint
            needed = (
                (joint.max_velocity,)
                if group.space == "joint_velocity"
                else (
                    joint.min,
                    joint.max,
                    joint.max_velocity,
                )
            )
            if None in needed:
                bare.append(name)
    if bare and config.limits:
        raise ConfigError(
            f"no limits for {', '.join(bare)}: write joint.<name>.min, .max and .max_velocity in the robot's "
            f"units (`joint.{bare[0]}: {{min: -1.5, max: 1.5, max_velocity: 1.0}}`), give a URDF as "
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


def _arrays(joints: list[JointConfig], config: NodeConfig) -> JointLimits:
    names = tuple(joint.name for joint in joints)
    if not config.limits:
        return JointLimits.off(names)
    speed = np.array([joint.max_velocity for joint in joints], dtype=np.float64)  # [J]
    # Without a value of its own: what the joint covers at full speed while the distance is blended out.
    jump = speed * max(1, config.blend_steps) / config.action_rate_hz
    own = np.array([np.nan if joint.max_jump is None else joint.max_jump for joint in joints])
    return JointLimits(
        names=names,
        lower=np.array([joint.min for joint in joints], dtype=np.float64),
        upper=np.array([joint.max for joint in joints], dtype=np.float64),
        max_velocity=speed,
        max_jump=np.where(np.isnan(own), jump, own),
    )


__all__ = ["Channel", "Motion", "Planned", "Refused", "joint_limits", "open_channels"]
