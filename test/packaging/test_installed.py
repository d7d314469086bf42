# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What pip or colcon installed is complete; runs in the environment of either, source tree present or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rclpy.serialization import deserialize_message, serialize_message

from flashrt_ros.msg import ActionChunk

ROOT = Path(__file__).resolve().parents[2]


def installed_prefix() -> Path:
    """The prefix that flashrt_ros was installed into: colcon's, or the virtual environment."""
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    found = [
        Path(prefix) for prefix in prefixes if Path(prefix, "share", "flashrt_ros", "package.xml").is_file()
    ]
    assert found, f"flashrt_ros is installed in none of {prefixes}"
    return found[0]


def test_messages_survive_the_wire() -> None:
    """Else nothing that the node publishes can be received."""
    chunk = ActionChunk(action_names=["shoulder"], horizon=2, action_dim=1, data=[0.25, -0.5], sequence=7)
    copy = deserialize_message(serialize_message(chunk), ActionChunk)
    assert copy == chunk
    assert list(copy.data) == [0.25, -0.5]


@pytest.mark.parametrize("folder", ["config", "launch"])
def test_shared_files_are_installed(folder: str) -> None:
    """Else the launch files of an installed package do not find their parameter files."""
    expected = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
    assert expected
    assert expected <= {
        path.name for path in (installed_prefix() / "share" / "flashrt_ros" / folder).iterdir()
    }


def test_message_definition_is_installed() -> None:
    """Else `ros2 interface show` and bag tools do not know the message."""
    definition = installed_prefix() / "share" / "flashrt_ros" / "msg" / "ActionChunk.msg"
    assert definition.read_text(encoding="utf-8") == (ROOT / "msg" / "ActionChunk.msg").read_text(
        encoding="utf-8"
    )


def test_executables_are_installed() -> None:
    """Else `ros2 run` and launch find no executable."""
    folder = installed_prefix() / "lib" / "flashrt_ros"
    expected = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file()}
    assert expected <= {path.name for path in folder.iterdir() if os.access(path, os.X_OK)}


def test_kernel_sources_are_installed() -> None:
    """Else `python -m flashrt_kernels.build` has nothing to compile on a robot, and its GPU stays idle."""
    patterns = [f"{lib}/python3*/*-packages/flashrt_kernels/cuda/src/*" for lib in ("lib", "local/lib")]
    installed = {path.name for pattern in patterns for path in installed_prefix().glob(pattern)}
    assert {"norm.cu", "common.cuh"} <= installed


def test_importing_the_package_loads_neither_torch_nor_rclpy() -> None:
    """Else every tool that only wants the messages waits seconds for torch."""
    code = "import sys, flashrt_ros; print(sorted({'torch', 'rclpy', 'cv2'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_starting_the_node_does_not_wait_for_torch() -> None:
    """Else the node's services appear seconds later; only configure needs torch."""
    code = "import sys, flashrt_ros.policy_node; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
