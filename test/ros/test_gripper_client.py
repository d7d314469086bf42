# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Grippers behind an action. control_msgs cannot be installed with pip: a stub stands for it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_ros.gripper_client import GripperClient
from flashrt_ros.parameter_table import ConfigError
from test.ros.motion_groups import group

HAND: Any = {"name": "hand", "output": "gripper_command", "topic": "hand/gripper_cmd", "names": ("finger",)}
PARALLEL, SINGLE = "control_msgs/action/ParallelGripperCommand", "control_msgs/action/GripperCommand"


class Parallel:
    """As the action of control_msgs: one JointState."""

    class Goal:
        command: Any = None


class Single:
    """As the action of control_msgs: position and effort."""

    class Goal:
        def __init__(self) -> None:
            self.command = SimpleNamespace(position=0.0, max_effort=-1.0)


class Client:
    """Keeps the goals."""

    def __init__(self, node: Any, kind: Any, name: str) -> None:
        self.kind, self.name = kind, name
        self.goals: list[Any] = []
        self.ready, self.destroyed = True, False

    def server_is_ready(self) -> bool:
        return self.ready

    def send_goal_async(self, goal: Any) -> None:
        self.goals.append(goal)

    def destroy(self) -> None:
        self.destroyed = True


@pytest.fixture
def control_msgs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, action = ModuleType("control_msgs"), ModuleType("control_msgs.action")
    action.ParallelGripperCommand, action.GripperCommand = Parallel, Single  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "control_msgs", package)
    monkeypatch.setitem(sys.modules, "control_msgs.action", action)
    return action


class Rig:
    """A client among servers of these types."""

    def __init__(self, *types: str, **more: Any) -> None:
        self.types = list(types)
        self.clients: list[Client] = []
        node: Any = SimpleNamespace(resolve_topic_name=lambda name: f"/robot/{name}")
        self.gripper = GripperClient(
            node, group("gripper", **{**HAND, **more}), 0.01, self._client, lambda node: self._offered()
        )

    def _client(self, node: Any, kind: Any, name: str) -> Client:
        self.clients.append(Client(node, kind, name))
        return self.clients[-1]

    def _offered(self) -> list[tuple[str, list[str]]]:
        return [("/robot/other", [PARALLEL]), ("/robot/hand/gripper_cmd", self.types)]

    def send(self, *positions: float) -> bool:
        return self.gripper.send(np.array(positions))


def test_control_msgs_is_missing() -> None:
    """The node refuses to configure in words, instead of an ImportError while the arm moves."""
    with pytest.raises(ConfigError) as refused:
        Rig(PARALLEL)
    text = str(refused.value)
    assert "'hand'" in text
    assert "ros-$ROS_DISTRO-control-msgs" in text
    assert "action.hand.output: trajectory" in text


@pytest.mark.usefixtures("control_msgs")
def test_goal_of_a_parallel_gripper() -> None:
    """By joint name; preferred where a server offers both."""
    rig = Rig(SINGLE, PARALLEL)
    assert rig.send(0.04)
    (client,) = rig.clients
    assert (client.kind, client.name) == (Parallel, "hand/gripper_cmd")
    (goal,) = client.goals
    assert (list(goal.command.name), list(goal.command.position)) == (["finger"], [0.04])


@pytest.mark.usefixtures("control_msgs")
def test_goal_of_a_gripper_command() -> None:
    """The older action has one number."""
    rig = Rig(SINGLE)
    assert rig.send(0.04)
    (goal,) = rig.clients[0].goals
    assert rig.clients[0].kind is Single
    assert (goal.command.position, goal.command.max_effort) == (0.04, 0.0)


@pytest.mark.usefixtures("control_msgs")
def test_two_fingers_are_not_squeezed_into_one_number() -> None:
    """The second joint would silently never move."""
    assert not Rig(SINGLE, names=("left", "right")).send(0.01, 0.02)
    rig = Rig(PARALLEL, names=("left", "right"))
    assert rig.send(0.01, 0.02)
    assert list(rig.clients[0].goals[0].command.position) == [0.01, 0.02]


@pytest.mark.usefixtures("control_msgs")
def test_only_changes_are_sent() -> None:
    """A goal a hundred times a second would begin the motion anew each time and never end it."""
    rig = Rig(PARALLEL)
    assert [rig.send(p) for p in (0.04, 0.04, 0.045, 0.055, 0.0)] == [True, False, False, True, True]
    rig.gripper.reset()
    assert rig.send(0.0)


@pytest.mark.usefixtures("control_msgs")
def test_a_server_that_comes_late_gets_the_newest_position() -> None:
    """Nothing is waited for, and nothing counts as sent before somebody can take it."""
    rig = Rig()
    assert not rig.send(0.04)
    rig.types.append(PARALLEL)
    assert rig.send(0.04)
    rig.clients[0].ready = False
    assert not rig.send(0.0)
    rig.clients[0].ready = True
    assert rig.send(0.0)
    rig.gripper.close()
    assert rig.clients[0].destroyed
    rig.gripper.close()
