# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Grippers that are commanded by an action of control_msgs, ParallelGripperCommand or GripperCommand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np
from rclpy.action import ActionClient, get_action_names_and_types
from rclpy.node import Node
from sensor_msgs.msg import JointState

from flashrt_ros.groups import ActionGroup
from flashrt_ros.messages import _array
from flashrt_ros.parameter_table import ConfigError


@dataclass(frozen=True)
class GripperAction:
    """One of the two actions: its name in control_msgs.action, for how many joints, what makes its goal."""

    name: str
    most: int
    goal: Callable[[Any, Sequence[str], np.ndarray], Any]

    @property
    def full_name(self) -> str:
        return f"control_msgs/action/{self.name}"


def _parallel_goal(action: Any, names: Sequence[str], positions: np.ndarray) -> Any:
    """All joints of the group by name."""
    goal = action.Goal()
    goal.command = JointState(name=list(names), position=_array("d", positions))
    return goal


def _single_goal(action: Any, names: Sequence[str], positions: np.ndarray) -> Any:
    """One number without a name; max_effort 0, as MoveIt sends: drivers of positions do not look at it."""
    goal = action.Goal()
    goal.command.position = float(positions[0])
    goal.command.max_effort = 0.0
    return goal


ACTIONS: Final = (
    GripperAction("ParallelGripperCommand", 64, _parallel_goal),
    GripperAction("GripperCommand", 1, _single_goal),
)
"""The first that a server offers is used."""


def load_actions(group: ActionGroup) -> ModuleType:
    """control_msgs.action. Raises ConfigError that names the group and what to install."""
    try:
        return importlib.import_module("control_msgs.action")
    except ImportError as error:
        raise ConfigError(
            f"action group '{group.name}' has output gripper_command, which needs control_msgs: install it "
            "(`sudo apt install ros-$ROS_DISTRO-control-msgs`, or add it to the workspace), or write "
            f"`action.{group.name}.output: trajectory`"
        ) from error


class GripperClient:
    """Sends a gripper's positions as goals, one for each change.

    Each goal replaces the one before, and most drivers begin their motion anew with it: so what moves by
    less than `resolution` (in the robot's units) is not sent.
    """

    def __init__(
        self,
        node: Node,
        group: ActionGroup,
        resolution: float,
        make_client: Callable[[Node, Any, str], Any] = ActionClient,
        offered: Callable[[Node], Sequence[tuple[str, Sequence[str]]]] = get_action_names_and_types,
    ) -> None:
        """At configure. Raises ConfigError where control_msgs is missing."""
        self._module = load_actions(group)
        self._node, self._group, self._resolution = node, group, resolution
        self._make_client, self._offered = make_client, offered
        self._client: Any = None
        self._action: GripperAction | None = None
        self._last: np.ndarray | None = None  # [J] of the newest goal

    def send(self, positions: np.ndarray) -> bool:
        """Positions [J] in the robot's units; False when they are no news, or no server is there yet."""
        if not self._is_news(positions) or not self._is_open():
            return False
        assert self._action is not None
        action = getattr(self._module, self._action.name)
        self._client.send_goal_async(self._action.goal(action, self._group.names, positions))
        self._last = np.array(positions, dtype=np.float64)
        return True

    def _is_news(self, positions: np.ndarray) -> bool:
        return self._last is None or bool((np.abs(positions - self._last) > self._resolution).any())

    def _is_open(self) -> bool:
        """Whether a server can take a goal. Which of the actions it has is seen only when it is there."""
        if self._client is None:
            self._action = self._served()
            if self._action is None:
                return False
            kind = getattr(self._module, self._action.name)
            self._client = self._make_client(self._node, kind, self._group.topic)
        return bool(self._client.server_is_ready())

    def _served(self) -> GripperAction | None:
        name = self._node.resolve_topic_name(self._group.topic)
        types = {kind for topic, kinds in self._offered(self._node) if topic == name for kind in kinds}
        for action in ACTIONS:
            fits = len(self._group.names) <= action.most
            if fits and action.full_name in types and hasattr(self._module, action.name):
                return action
        return None

    def reset(self) -> None:
        """The next position is sent whatever it is: somebody else may have moved the gripper."""
        self._last = None

    def close(self) -> None:
        """Destroy the client."""
        if self._client is not None:
            self._client.destroy()
        self._client = None
