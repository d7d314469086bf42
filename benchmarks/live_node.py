# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The real node in this process, fed over DDS by the simulated robot in another one."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.demo_setup import CAMERAS, set_environment
from flashrt_ros.policy_node import PolicyNode
from flashrt_ros.processes import Children
from flashrt_ros.running import Running
from flashrt_ros.sim.arm import JOINTS

DOMAIN = 38
ACTION_HZ = 10.0
JOINT_NAMES = [joint.name for joint in JOINTS]
ROBOT: dict[str, Any] = {
    "cameras": list(CAMERAS),
    "joint_names": JOINT_NAMES,
    "action_rate_hz": ACTION_HZ,
    "instruction": "pick up the red cube",
    "require_enable": False,
    "pose_check": False,
    "limit_storm_after": 0,
    **{f"camera.{name}.frozen_after": 0 for name in CAMERAS},  # drawn: no noise
    **{f"joint.{joint.name}.min": joint.lower for joint in JOINTS},
    **{f"joint.{joint.name}.max": joint.upper for joint in JOINTS},
    **{f"joint.{joint.name}.max_velocity": joint.max_velocity for joint in JOINTS},
    **{f"joint.{joint.name}.max_jump": 10.0 for joint in JOINTS},
}


class LiveNode:
    """An active node; `run` turns its executor."""

    def __init__(self, node: PolicyNode) -> None:
        if node.running is None:
            raise RuntimeError("the node did not configure; see its log above")
        self.node = node
        self.running: Running = node.running
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)

    def run(self, enough: Callable[[], bool], timeout_s: float, children: Children) -> None:
        """Serve the node until `enough()`. TimeoutError when it takes long; ChildDied with the robot."""
        deadline = time.monotonic() + timeout_s
        while not enough():
            self._executor.spin_once(timeout_sec=0.1)
            children.check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not enough decisions after {timeout_s:g} s: {self.running.decider.counts}"
                )


@contextmanager
def live_node(
    load_policy: Callable[[Any], Any],
    robot: tuple[str, Mapping[str, Any]] = ("flashrt_ros.sim.robot", ROBOT),
    **parameters: Any,
) -> Iterator[tuple[LiveNode, Children]]:
    """Process of a robot (module, parameters of the node for it) and configured node; not active yet, so that
    measurements can be attached first."""
    module, values = robot
    set_environment(DOMAIN)
    sys.setswitchinterval(0.0005)  # as policy_node.main does
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    overrides = [Parameter(name, value=value) for name, value in {**values, **parameters}.items()]
    with tempfile.TemporaryDirectory() as folder, Children(Path(folder)) as children:
        children.start("robot", ["-m", module])
        node = PolicyNode(load_policy=load_policy, parameter_overrides=overrides)
        try:
            if node.trigger_configure() != TransitionCallbackReturn.SUCCESS:
                raise RuntimeError("the node did not configure; see its log above")
            yield LiveNode(node), children
        finally:
            node.stop()
            node.destroy_node()
            rclpy.try_shutdown()
