# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Small recordings, and a policy that replays them without a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import yaml
from rich.console import Console
from rich.progress import Progress
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from flashrt_ros.bag import Bag
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.replay import Outcome, Replay
from test.ros.stub_policy import slot_among

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "test" / "data" / "tiny_pi05"
TOKENIZER = ROOT / "test" / "data" / "tokenizer_tiny"
STORAGES = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}
JOINTS = ["j0", "j1", "j2", "j3", "j4"]
S = 1_000_000_000
MS = 1_000_000
T0 = 1_760_000_000 * S

STORE = get_typestore(Stores.ROS2_KILTED)
TYPES = STORE.types
Written = tuple[int, str, Any]  # ms since the start, topic, message


def header(at_ms: int) -> Any:
    stamp = TYPES["builtin_interfaces/msg/Time"](*divmod(T0 + at_ms * MS, S))
    return TYPES["std_msgs/msg/Header"](stamp, "")


def raw(at_ms: int, step: int = 64 * 3) -> Any:
    pixels = np.full(40 * 64 * 3, at_ms % 251, np.uint8)
    return TYPES["sensor_msgs/msg/Image"](header(at_ms), 40, 64, "bgr8", 0, step, pixels)


def jpeg(at_ms: int) -> Any:
    data = cv2.imencode(".jpg", np.full((48, 64, 3), at_ms % 251, np.uint8))[1]
    return TYPES["sensor_msgs/msg/CompressedImage"](header(at_ms), "bgr8; jpeg compressed bgr8", data)


def joints(at_ms: int, names: Iterable[str] = JOINTS) -> Any:
    listed, nothing = list(names), np.zeros(0)
    position = np.linspace(-0.5, 0.5, len(listed)) + at_ms / 1e4
    return TYPES["sensor_msgs/msg/JointState"](header(at_ms), listed, position, nothing, nothing)


def recording(length_ms: int = 1000) -> list[Written]:
    """Two cameras at 20 Hz and joints at 50 Hz, out of step; one frame of `top` is malformed."""
    frames = range(0, length_ms, 50)
    messages: list[Written] = [(at, "/top/image_raw", raw(at, step=5 if at == 500 else 192)) for at in frames]
    messages += [(at + 7, "/wrist/image_raw/compressed", jpeg(at + 7)) for at in frames]
    messages += [(at + 3, "/joint_states", joints(at + 3)) for at in range(0, length_ms, 20)]
    messages += [(at + 4, "/joint_commands", joints(at + 4)) for at in range(0, length_ms, 100)]
    return sorted(messages, key=lambda written: written[0])


def write_bag(folder: Path, messages: list[Written], storage: str = "mcap") -> Path:
    path = folder / f"bag_{storage}"
    with Writer(path, version=9, storage_plugin=STORAGES[storage]) as writer:
        connections: dict[str, Any] = {}
        for at_ms, topic, message in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, message.__msgtype__, typestore=STORE)
            raw_message = STORE.serialize_cdr(message, message.__msgtype__)
            writer.write(connections[topic], T0 + at_ms * MS, bytes(raw_message))
    return path


def parameters(**more: Any) -> dict[str, Any]:
    return {
        "instruction": "pick up the cube",
        "decision_rate": 10.0,
        "action_rate_hz": 30.0,
        "cameras": ["top", "wrist"],
        "camera.wrist.transport": "compressed",
        "joint_names": JOINTS,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def write_parameters(folder: Path, **more: Any) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters(**more)}}), encoding="utf-8")
    return path


class StubPolicy:
    """A policy that takes `seconds` for a decision."""

    name, origin, camera_rule, not_positions = "stub", "nobody", "present first", ""
    cameras = ("observation.images.top", "observation.images.wrist")
    state_dim = action_dim = 5
    horizon = 6
    action_names = None

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.states: list[np.ndarray] = []
        self.instructions: set[str] = set()
        self.warm_ups = 0

    def warm_up(self) -> None:
        self.warm_ups += 1

    def close(self) -> None:
        pass

    def slot(self, name: str) -> str:
        return slot_among(self.cameras, name)

    def bind(self, cameras: Any) -> None:
        self.bound = tuple(cameras)

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> Any:
        self.states.append(state)
        self.instructions.add(instruction)
        time.sleep(self.seconds)
        return SimpleNamespace(actions=np.zeros((6, 5), np.float32), timings={"prefix": 1.0})

    def model_images(self) -> dict[str, np.ndarray]:
        return {self.cameras[0]: np.zeros((4, 4, 3), np.uint8)}


def replay(
    bag: Path, policy: StubPolicy, limit_s: float | None = None, remaps: Any = None, **more: Any
) -> Outcome:
    config = NodeConfig.from_dict({"checkpoint": "stub", **parameters(**more)})
    console = Console(file=StringIO())
    with Bag(bag) as opened, Progress(console=console) as progress:
        return Replay(config, policy, console).run(opened, "", remaps or {}, limit_s, progress)


def arguments(folder: Path, bag: Path) -> list[str]:
    options = {"--params": write_parameters(folder), "--checkpoint": CHECKPOINT, "--tokenizer": TOKENIZER}
    options["--report"] = folder / f"report_{bag.name}"
    return [str(bag), *(str(part) for pair in options.items() for part in pair)]
