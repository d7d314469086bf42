# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node holds between configure and cleanup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flashrt_ros.decision import Decider, DecisionThread
from flashrt_ros.ingest import Ingest
from flashrt_ros.inputs import Inputs
from flashrt_ros.outputs import Outputs
from flashrt_ros.parameters import NodeConfig


@dataclass
class Running:
    """Built by configure in this order, undone by cleanup in reverse."""

    config: NodeConfig
    policy: Any
    ingest: Ingest
    inputs: Inputs
    outputs: Outputs
    decider: Decider
    thread: DecisionThread


def vector_lines(config: NodeConfig) -> tuple[str, str]:
    """Index ↔ joint of the state and of the action vector, for the start log (R14)."""
    joints = [
        joint.name
        + ("" if (joint.scale, joint.offset) == (1.0, 0.0) else f"·{joint.scale:g}{joint.offset:+g}")
        for joint in config.joints
    ]
    return f"state vector: {_numbered(joints)}", f"action vector: {_numbered(config.action_names)}"


def actions_line(policy: Any) -> str:
    """What the policy's actions are and what the node makes of them, for the start log (R35)."""
    relative = ", ".join(policy.relative_actions)
    given = f"relative to the state of the observation ({relative})" if relative else "absolute"
    return f"actions: {given} in the checkpoint, absolute joint positions on joint_trajectory"


def _numbered(names: Iterable[str]) -> str:
    return ", ".join(f"[{index}] {name}" for index, name in enumerate(names))
