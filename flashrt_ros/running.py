# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node holds between configure and cleanup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flashrt_ros.commands import Commands
from flashrt_ros.decision import Decider, DecisionThread
from flashrt_ros.guardian import Guardian
from flashrt_ros.ingest import Ingest
from flashrt_ros.inputs import Inputs
from flashrt_ros.outputs import Outputs
from flashrt_ros.parameters import JointConfig, NodeConfig, StateGroup


@dataclass
class Running:
    """Built by configure in this order, undone by cleanup in reverse."""

    config: NodeConfig
    policy: Any
    ingest: Ingest
    inputs: Inputs
    outputs: Outputs
    commands: Commands
    decider: Decider
    thread: DecisionThread
    guardian: Guardian


def vector_lines(config: NodeConfig) -> tuple[str, ...]:
    """For the start log: index ↔ joint of state and action vector (R14), where the state's groups come
    from, and which way grippers move."""
    return (
        f"state vector: {_numbered(map(_with_units, config.joints))}",
        f"action vector: {_numbered(map(_with_units, config.action_joints))}",
        *(_state_line(group) for group in config.state_groups),
        *gripper_lines(config),
    )


def gripper_lines(config: NodeConfig) -> tuple[str, ...]:
    """R18: polarity and range of each gripper in words."""
    return tuple(gripper.words for gripper in config.grippers)


def _with_units(joint: JointConfig) -> str:
    plain = (joint.scale, joint.offset) == (1.0, 0.0)
    return joint.name if plain else f"{joint.name}·{joint.scale:g}{joint.offset:+g}"


def _state_line(group: StateGroup) -> str:
    what = {
        "joint_state": f"joint_state, {group.field}, on {group.topic}",
        "array": f"array on {group.topic}",
        "pose": f"pose on {group.topic}, rotation as {group.rotation}",
        "tf": f"tf {group.frame} → {group.child_frame}, rotation as {group.rotation}",
    }[group.source]
    return f"state group {group.name}: {what}: {', '.join(group.elements)}"


def actions_line(policy: Any) -> str:
    """What the checkpoint's actions are, for the start log (R35); `spaces.describe` says how they go out."""
    relative = ", ".join(policy.relative_actions)
    given = f"relative to the state of the observation ({relative})" if relative else "absolute"
    return f"actions: {given} in the checkpoint, absolute where they leave the policy"


def _numbered(names: Iterable[str]) -> str:
    return ", ".join(f"[{index}] {name}" for index, name in enumerate(names))
