# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests over DDS: the node as a process, and a robot with cameras, joints and a lifecycle
manager."""

from __future__ import annotations

import array
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
import yaml
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.msg import ActionChunk
from flashrt_ros.policy_node import PolicyNode

ROOT = Path(__file__).resolve().parents[2]
TINY_PI05 = ROOT / "test" / "data" / "tiny_pi05"
TINY_TOKENIZER = ROOT / "test" / "data" / "tokenizer_tiny"
JOINTS = ("pan", "lift", "elbow", "wrist", "gripper")
CAMERAS = ("top", "wrist", "extra")
START_S = 30.0  # a cold start of rclpy and torch on a busy machine
SOON_S = 10.0
RUN_MODULE: Sequence[str] = ("-m",)  # how a process of the node is started; test/guards has another way


def wait_for(what: str, condition: Callable[[], Any], timeout_s: float | None = None) -> Any:
    """Wait until `condition` is true and return its value; fails naming `what` was waited for."""
    timeout_s = SOON_S if timeout_s is None else timeout_s
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s:g} s in vain for {what}")


def parameters(**changes: Any) -> dict[str, Any]:
    """Parameters of a node on the tiny Pi0.5 checkpoint; keys with `__` stand for dots."""
    values: dict[str, Any] = {
        "checkpoint": str(TINY_PI05),
        "tokenizer": str(TINY_TOKENIZER),
        "cpu_threads": 1,
        "cameras": list(CAMERAS),
        "joint_names": list(JOINTS),
        "instruction": "pick up the red block",
        "decision_rate": 10.0,
        "action_rate_hz": 10.0,
        # Opted out of, so that a test shows what it is about; tests of these turn them on.
        "limits": False,
        "require_enable": False,
        "pose_check": False,
    }
    return values | {key.replace("__", "."): value for key, value in changes.items()}


class NodeProcess:
    """A process of the node; its output goes to `log_path`."""

    def __init__(
        self, command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log_path = log_path
        with log_path.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def stop(self, number: int = signal.SIGINT, timeout_s: float = SOON_S) -> int:
        """Send a signal; returns the exit code. subprocess.TimeoutExpired when the process stays."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """End what is still running: first politely, because Fast DDS sometimes crashes in the surviving
        process on the shared memory that a killed one leaves behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def node_process(
    folder: Path,
    values: Mapping[str, Any],
    *,
    namespace: str = "",
    remaps: Mapping[str, str] | None = None,
    module: str = "flashrt_ros.policy_node",
) -> Iterator[NodeProcess]:
    """Start the node as launch would: a parameter file, remaps and a namespace after --ros-args."""
    name = namespace.strip("/") or "node"
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": dict(values)}}))
    command = [sys.executable, *RUN_MODULE, module, "--ros-args", "--params-file", str(file)]
    for source, target in {"__ns": namespace or "/", **(remaps or {})}.items():
        command += ["-r", f"{source}:={target}"]
    node = NodeProcess(command, folder / f"{name}.log")
    try:
        yield node
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- log of the node ---\n{node.log}") from error
    finally:
        node.kill()


class NodeThread:
    """The node in this process, with a policy of the test's choice; its executor turns in a thread."""

    def __init__(
        self, load_policy: Callable[[Any], Any], values: Mapping[str, Any], **arguments: Any
    ) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        self.node = PolicyNode(
            load_policy=load_policy, parameter_overrides=overrides, context=self.context, **arguments
        )
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        while not self._stop.is_set():
            self.executor.spin_once(timeout_sec=0.05)

    def __enter__(self) -> NodeThread:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self.node.stop()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


class Robot:
    """What surrounds the node: cameras, joint states, a lifecycle manager, and somebody who keeps what it
    says."""

    def __init__(self, namespace: str = "/", camera_topics: Mapping[str, str] | None = None) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = Node("robot", namespace=namespace, context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.chunks: list[ActionChunk] = []
        self.trajectories: list[JointTrajectory] = []
        self.statuses: dict[str, DiagnosticStatus] = {}
        reliable = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE)
        self.node.create_subscription(ActionChunk, "policy/action_chunk", self.chunks.append, reliable)
        self.node.create_subscription(JointTrajectory, "joint_trajectory", self.trajectories.append, reliable)
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, reliable)
        topics = (
            camera_topics if camera_topics is not None else {name: f"{name}/image_raw" for name in CAMERAS}
        )
        self.cameras = {
            name: self.node.create_publisher(Image, topic, qos_profile_sensor_data)
            for name, topic in topics.items()
        }
        self.joints = self.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
        self.send_joints = True
        self.alive = set(topics)  # cameras that send
        self.make_image: Callable[[str], Image] = image
        self.make_joints: Callable[[], JointState] = joint_state
        self.make_stamp: Callable[[str], Any] = lambda source: self.node.get_clock().now().to_msg()
        self._answered: set[Any] = set()
        self._change: Any = self.node.create_client(ChangeState, "policy/change_state")
        self._get: Any = self.node.create_client(GetState, "policy/get_state")
        self._set: Any = self.node.create_client(SetParameters, "policy/set_parameters")
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._spin, daemon=True),
            threading.Thread(target=self._send, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Robot:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def _spin(self) -> None:
        while not self._stop.is_set():
            self.executor.spin_once(timeout_sec=0.05)

    def _send(self) -> None:
        """Every source at 20 Hz."""
        while not self._stop.wait(0.05):
            for name in sorted(self.alive):
                message = self.make_image(name)
                message.header.stamp = self.make_stamp(name)
                self.cameras[name].publish(message)
            if not self.send_joints:
                continue
            joints = self.make_joints()
            joints.header.stamp = self.make_stamp("joint_states")
            self.joints.publish(joints)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.statuses |= {status.name: status for status in message.status}

    def call(self, client: Any, request: Any, harmless: Any, timeout_s: float = START_S) -> Any:
        """Call a service of the node.

        On a busy machine the node may not have discovered where the first answer goes and drop it; `harmless`
        is a request that is repeated until it was answered once.
        """
        if client not in self._answered:
            wait_for(f"service {client.srv_name}", lambda: self._ask(client, harmless, 1.0), timeout_s)
            self._answered.add(client)
        answer = self._ask(client, request, timeout_s)
        assert answer is not None, f"no answer of {client.srv_name} within {timeout_s:g} s"
        return answer

    def _ask(self, client: Any, request: Any, timeout_s: float) -> Any:
        if not client.wait_for_service(timeout_s):
            return None
        future, answered = client.call_async(request), threading.Event()
        future.add_done_callback(lambda done: answered.set())
        return future.result() if answered.wait(timeout_s) else None

    def change(self, label: str) -> bool:
        """Ask for a transition by its label; True when it succeeded."""
        request, unknown = ChangeState.Request(), ChangeState.Request()
        request.transition.label = label
        unknown.transition.label = "no transition"
        return bool(self.call(self._change, request, unknown).success)

    def state(self) -> str:
        """Label of the node's lifecycle state."""
        return str(self.call(self._get, GetState.Request(), GetState.Request()).current_state.label)

    def set_parameter(self, name: str, value: Any) -> tuple[bool, str]:
        """Set one parameter of the node; (accepted, reason)."""
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = self.call(self._set, request, SetParameters.Request()).results[0]
        return bool(result.successful), str(result.reason)

    def bring_up(self) -> None:
        """Configure and activate; fails when one of them is refused."""
        assert self.change("configure"), "configure was refused"
        assert self.change("activate"), "activate was refused"

    def new_chunks(self, count: int = 1, timeout_s: float | None = None) -> list[ActionChunk]:
        """The next `count` chunks from now on."""
        start = len(self.chunks)
        wait_for(f"{count} chunks", lambda: len(self.chunks) >= start + count, timeout_s)
        return self.chunks[start : start + count]

    def is_silent(self, seconds: float = 0.6) -> bool:
        """Whether neither chunks nor trajectories arrive for so long (the rate of decisions is 10 Hz)."""
        before = (len(self.chunks), len(self.trajectories))
        time.sleep(seconds)
        return before == (len(self.chunks), len(self.trajectories))

    def status(self, concern: str) -> DiagnosticStatus:
        """The newest status whose name ends with this concern, waited for."""
        return wait_for(
            f"a status of {concern}",
            lambda: next((s for name, s in self.statuses.items() if name.endswith(f": {concern}")), None),
        )


_frames = itertools.count()


def image(name: str = "", *, height: int = 40, width: int = 64, encoding: str = "rgb8") -> Image:
    """A grey image that differs from camera to camera, with noise in its first pixel as a sensor has it."""
    message = Image(height=height, width=width, encoding=encoding, step=3 * width)
    message.header.frame_id = name
    message.data = array.array("B", bytes([40 + 20 * len(name)]) * (3 * height * width))
    message.data[0] = next(_frames) % 251
    return message


def joint_state(order: Sequence[str] = JOINTS, positions: Mapping[str, float] | None = None) -> JointState:
    """Joint states in the given order; joint k of JOINTS is at 0.1 · k unless told otherwise."""
    values = {name: 0.1 * index for index, name in enumerate(JOINTS)} | dict(positions or {})
    return JointState(name=list(order), position=[values[name] for name in order])


def instruction_publisher(node: Node, durability: Any) -> Any:
    """Publisher of ~/instruction of the node named policy."""
    qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
    return node.create_publisher(String, "policy/instruction", qos)


def chunk_array(chunk: ActionChunk) -> np.ndarray:
    """Data of a chunk as float32 [horizon, action_dim]."""
    return np.frombuffer(chunk.data, np.float32).reshape(chunk.horizon, chunk.action_dim)
