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


def call(node: Node, service_type: Any, name: str, request: Any) -> Any:
    """One service call. Raises TimeoutError."""
    client: Any = node.create_client(service_type, name)
    if not client.wait_for_service(TIMEOUT_S):
        raise TimeoutError(f"the node offers no service {name}")
    future = client.call_async(request)
    rclpy.spin_until_future_complete(node, future, timeout_sec=TIMEOUT_S)
    if not future.done():
        raise TimeoutError(f"{name} did not answer within {TIMEOUT_S:g} s")
    return future.result()


def state_of(node: Node) -> int:
    return call(node, GetState, "/smoke/policy/get_state", GetState.Request()).current_state.id


def change(node: Node, transition: int) -> None:
    request = ChangeState.Request(transition=Transition(id=transition))
    if not call(node, ChangeState, "/smoke/policy/change_state", request).success:
        raise RuntimeError(f"transition {transition} was refused")


def make_checkpoint(prefix: Path, folder: Path) -> None:
    command = [
        prefix / "lib" / "flashrt_ros" / "make_checkpoint",
        "pi05",
        folder,
        "--size",
        "tiny",
        "--seed",
        "1",
    ]
    subprocess.run(
        [*map(str, command), "--action-dim", "2", "--state-dim", "2", "--cameras", "front"], check=True
    )


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
    }
    command = [str(prefix / "lib" / "flashrt_ros" / "policy_node"), "--ros-args", "-r", "__ns:=/smoke"]
    for name, value in parameters.items():
        command += ["-p", f"{name}:={value}"]
    process = subprocess.Popen(command)
    rclpy.init()
    node = Node("smoke")
    try:
        assert state_of(node) == State.PRIMARY_STATE_UNCONFIGURED
        change(node, Transition.TRANSITION_CONFIGURE)
        change(node, Transition.TRANSITION_ACTIVATE)
        assert state_of(node) == State.PRIMARY_STATE_ACTIVE
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
