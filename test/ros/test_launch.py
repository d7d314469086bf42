# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The launch files, with launch where it is installed, and always with the very commands that launch would
run."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml

from flashrt_ros.parameters import load_parameter_file
from test.ros.support import ROOT, NodeProcess, Robot, wait_for

pytestmark = pytest.mark.dds
DEMO = ROOT / "config" / "demo.yaml"
JOINTS = load_parameter_file(DEMO)["joint_names"]
# `ros2 launch` without ros2cli.
LAUNCH = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
path, *arguments = sys.argv[1:]
arguments = [tuple(argument.split(":=", 1)) for argument in arguments]
source = PythonLaunchDescriptionSource(path)
service = LaunchService()
service.include_launch_description(
    LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
)
sys.exit(service.run())
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint that fits the simulated arm."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    width = str(len(JOINTS))
    command = [sys.executable, "-m", "flashrt_kernels.make_checkpoint", "pi05", str(folder), "--size", "tiny"]
    options = ["--cameras", "front,wrist", "--state-dim", width, "--action-dim", width]
    subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True)
    return folder


@contextmanager
def robot_and_node(folder: Path, checkpoint: Path) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """The two processes of demo.launch.py with the arguments that launch gives them."""
    overrides = folder / "launch_params"
    overrides.write_text(
        yaml.safe_dump({"/**": {"ros__parameters": {"use_sim_time": False, "checkpoint": str(checkpoint)}}})
    )
    node_command = [
        *(sys.executable, str(ROOT / "scripts" / "policy_node"), "--ros-args", "-r", "__node:=policy"),
        *("-r", "__ns:=/arm", "--params-file", str(DEMO), "--params-file", str(overrides)),
        *("-r", "joint_states:=joint_states", "-r", "joint_trajectory:=joint_trajectory"),
    ]
    sim_command = [sys.executable, str(ROOT / "scripts" / "sim_robot"), "--ros-args", "-r", "__ns:=/arm"]
    with ExitStack() as stack:
        processes = []
        for name, command in (("node", node_command), ("sim", sim_command)):
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            process = NodeProcess(command, folder / f"{name}.log", environment)
            stack.callback(process.kill)
            processes.append(process)
        yield processes[0], processes[1]


def test_commands_of_the_demo_launch(tmp_path: Path, checkpoint: Path) -> None:
    """launch itself is not on every machine that runs these tests; what it starts must work on all."""
    with robot_and_node(tmp_path, checkpoint) as (node, sim), Robot("/arm", {}) as robot:
        robot.send_joints = False
        robot.bring_up()
        chunk = robot.new_chunks(3)[-1]
        assert list(chunk.action_names) == JOINTS
        assert {"front", "wrist"} <= set(chunk.source_names)
        wait_for("a trajectory", lambda: robot.trajectories)
        assert node.stop(signal.SIGINT) == 0, node.log
        assert sim.stop(signal.SIGINT) == 0, sim.log


def test_launch_activates_the_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: an operator who cleans up and configures by hand gets a robot that moves at once."""
    names = [
        *("launch", "launch.actions", "launch.conditions", "launch.events", "launch.launch_context"),
        *("launch.launch_description", "launch.launch_description_entity", "launch.substitutions"),
        *("launch_ros", "launch_ros.actions", "launch_ros.event_handlers", "launch_ros.events"),
        *("launch_ros.events.lifecycle", "ament_index_python.packages"),
    ]
    modules = {name: MagicMock() for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["ament_index_python.packages"].get_package_share_directory.return_value = str(ROOT)
    modules["launch.substitutions"].LaunchConfiguration.return_value.perform.return_value = "true"
    runpy.run_path(str(ROOT / "launch" / "policy.launch.py"))["start_policy"](None)
    handler = modules["launch_ros.event_handlers"].OnStateTransition
    assert handler.call_args.kwargs["handle_once"] is True
    assert handler.call_args.kwargs["goal_state"] == "inactive"


@pytest.mark.parametrize("autostart", ["true", "false"])
def test_demo_launch(tmp_path: Path, checkpoint: Path, autostart: str) -> None:
    """`ros2 launch flashrt_ros demo.launch.py checkpoint:=…` must end in an arm that gets actions."""
    pytest.importorskip("launch_ros", reason="launch_ros is not installed (it has no wheel)")
    file = ROOT / "launch" / "demo.launch.py"
    arguments = ["namespace:=arm", f"checkpoint:={checkpoint}", f"autostart:={autostart}"]
    launch = NodeProcess([sys.executable, "-c", LAUNCH, str(file), *arguments], tmp_path / "log")
    try:
        with Robot("/arm", {}) as robot:
            robot.send_joints = False
            if autostart == "false":
                assert robot.state() == "unconfigured"
                robot.bring_up()
            assert list(robot.new_chunks(3, 30.0)[-1].action_names) == JOINTS
        launch.stop(signal.SIGINT)
        assert launch.log.count("process has finished cleanly") == 2
    except AssertionError as error:
        raise AssertionError(f"{error}\n{launch.log}") from error
    finally:
        launch.kill()
