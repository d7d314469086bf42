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
from flashrt_ros.parameters import NodeConfig


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


def vector_lines(config: NodeConfig) -> tuple[str, str]:
    """Index ↔ joint of the state and of the action vector, for the start log (R14)."""
    joints = [
        joint.name
        + ("" if (joint.scale, joint.offset) == (1.0, 0.0) else f"·{joint.scale:g}{joint.offset:+g}")
        for joint in config.joints
    ]
    return f"state vector: {_numbered(joints)}", f"action vector: {_numbered(config.action_names)}"


def _numbered(names: Iterable[str]) -> str:
    return ", ".join(f"[{index}] {name}" for index, name in enumerate(names))
