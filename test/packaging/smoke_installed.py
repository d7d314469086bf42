# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Use an installed flashrt_ros as a robot would: its executables and its lifecycle services.

Usage: python smoke_installed.py --prefix PREFIX
Run it outside the source tree. Exits non-zero with a sentence about what does not work.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rclpy
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node

TIMEOUT_S = 60.0


class PolicyClient:
    """The node's lifecycle services. An answer may be lost while the two processes discover each other, so
    states are asked for until they are known, and transitions are judged by the state that they lead to."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._get: Any = node.create_client(GetState, "/smoke/policy/get_state")
        self._change: Any = node.create_client(ChangeState, "/smoke/policy/change_state")

    def wait_for(self, goal: int) -> None:
        """Raises TimeoutError naming the state that the node is in."""
        deadline, state = time.monotonic() + TIMEOUT_S, "unknown"
        while time.monotonic() < deadline:
            future = self._get.call_async(GetState.Request())
            rclpy.spin_until_future_complete(self._node, future, timeout_sec=1.0)
            if future.done():
                state = future.result().current_state.label
                if future.result().current_state.id == goal:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"state {goal} was not reached within {TIMEOUT_S:g} s; state is {state}")

    def change(self, transition: int, goal: int) -> None:
        if not self._change.wait_for_service(TIMEOUT_S):
            raise TimeoutError("the node offers no service change_state")
        self._change.call_async(ChangeState.Request(transition=Transition(id=transition)))
        self.wait_for(goal)


def make_checkpoint(prefix: Path, folder: Path) -> None:
    executable = str(prefix / "lib" / "flashrt_ros" / "make_checkpoint")
    options = ["--size", "tiny", "--seed", "1", "--action-dim", "2", "--state-dim", "2", "--cameras", "front"]
    subprocess.run([executable, "pi05", str(folder), *options], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prefix", type=Path, required=True, help="where flashrt_ros is installed")
    arguments = parser.parse_args()
    prefix = arguments.prefix.resolve()
    os.environ.setdefault("ROS_DOMAIN_ID", "39")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")

    import flashrt_ros.policy_node

    origin = Path(flashrt_ros.policy_node.__file__)
    if not origin.is_relative_to(prefix) and not origin.resolve().is_relative_to(prefix):
        sys.exit(f"flashrt_ros was imported from {origin}, not from {prefix}")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "checkpoint")
        make_checkpoint(prefix, checkpoint)
        run_node(prefix, checkpoint)
    print(f"installed flashrt_ros in {prefix}: works")


def run_node(prefix: Path, checkpoint: Path) -> None:
    """Starts the very executable that launch would start, and stops it as launch would."""
    parameters = {
        "checkpoint": str(checkpoint),
        "cameras": "[front]",
        "joint_names": "[shoulder, elbow]",
        "action_rate_hz": "10.0",
        "instruction": "wave",
        "require_enable": "false",
        **{f"joint.{name}.min": "-1.5" for name in ("shoulder", "elbow")},
        **{f"joint.{name}.max": "1.5" for name in ("shoulder", "elbow")},
        **{f"joint.{name}.max_velocity": "1.0" for name in ("shoulder", "elbow")},
    }
    command = [str(prefix / "lib" / "flashrt_ros" / "policy_node"), "--ros-args", "-r", "__ns:=/smoke"]
    for name, value in parameters.items():
        command += ["-p", f"{name}:={value}"]
    process = subprocess.Popen(command)
    rclpy.init()
    node = Node("smoke")
    try:
        policy = PolicyClient(node)
        policy.wait_for(State.PRIMARY_STATE_UNCONFIGURED)
        policy.change(Transition.TRANSITION_CONFIGURE, State.PRIMARY_STATE_INACTIVE)
        policy.change(Transition.TRANSITION_ACTIVATE, State.PRIMARY_STATE_ACTIVE)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(TIMEOUT_S)
        if code != 0:
            sys.exit(f"policy_node ended with exit code {code} after SIGINT; 0 would be right")
        print(f"policy_node stopped cleanly {time.monotonic() - started:.1f} s after SIGINT")
    finally:
        process.kill()
        process.wait()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
