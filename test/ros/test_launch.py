# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The launch files, with launch where it is installed, and always with the very commands that launch would
run."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from flashrt_ros.parameters import load_parameter_file
from test.ros.support import ROOT, NodeProcess, Robot, wait_for

pytestmark = pytest.mark.dds
DEMO = ROOT / "config" / "demo.yaml"
JOINTS = load_parameter_file(DEMO)["joint_names"]
LAUNCH_MODULES = (
    *("launch", "launch.actions", "launch.conditions", "launch.events", "launch.launch_context"),
    *("launch.launch_description", "launch.launch_description_entity", "launch.substitutions"),
    *("launch_ros", "launch_ros.actions", "launch_ros.event_handlers", "launch_ros.events"),
    *("launch_ros.events.lifecycle", "ament_index_python.packages"),
)
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


class LaunchFile:
    """policy.launch.py without launch: what it calls is recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modules = {name: MagicMock() for name in LAUNCH_MODULES}
        for name, module in self.modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        self.modules["ament_index_python.packages"].get_package_share_directory.return_value = str(ROOT)
        self.names = runpy.run_path(str(ROOT / "launch" / "policy.launch.py"))

    def start(self, **arguments: str) -> dict[str, Any]:
        """Start with these arguments, defaults for the others; what the node is made with."""
        values = {name: default for name, (default, _) in self.names["ARGUMENTS"].items()} | arguments

        def configuration(name: str) -> MagicMock:
            return MagicMock(perform=lambda context: values[name])

        self.modules["launch.substitutions"].LaunchConfiguration.side_effect = configuration
        self.names["start_policy"](None)
        return dict(self.modules["launch_ros.actions"].LifecycleNode.call_args.kwargs)


@pytest.fixture
def launch_file(monkeypatch: pytest.MonkeyPatch) -> LaunchFile:
    return LaunchFile(monkeypatch)


@contextmanager
def robot_and_node(
    folder: Path, checkpoint: Path, remaps: Sequence[tuple[str, str]]
) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """The two processes of demo.launch.py with the arguments of launch, and `remaps` for both."""
    overrides = folder / "launch_params"
    overrides.write_text(
        yaml.safe_dump({"/**": {"ros__parameters": {"use_sim_time": False, "checkpoint": str(checkpoint)}}})
    )
    node_command = [
        *(sys.executable, str(ROOT / "scripts" / "policy_node"), "--ros-args", "-r", "__node:=policy"),
        *("-r", "__ns:=/arm", "--params-file", str(DEMO), "--params-file", str(overrides)),
    ]
    sim_command = [sys.executable, str(ROOT / "scripts" / "sim_robot"), "--ros-args", "-r", "__ns:=/arm"]
    for source, target in remaps:
        node_command += ["-r", f"{source}:={target}"]
        sim_command += ["-r", f"{source}:={target}"]
    with ExitStack() as stack:
        processes = []
        for name, command in (("node", node_command), ("sim", sim_command)):
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            process = NodeProcess(command, folder / f"{name}.log", environment)
            stack.callback(process.kill)
            processes.append(process)
        yield processes[0], processes[1]


@pytest.mark.parametrize("remaps", ["", "front/image_raw:=/cam/front joint_states:=/measured"])
def test_commands_of_the_demo_launch(
    tmp_path: Path, checkpoint: Path, launch_file: LaunchFile, remaps: str
) -> None:
    """launch itself is not on every machine that runs these tests; what it starts must work on all, also with
    topics of other names."""
    rules = launch_file.start(remaps=remaps)["remappings"]
    with robot_and_node(tmp_path, checkpoint, rules) as (node, sim), Robot("/arm", {}) as robot:
        robot.send_joints = False
        robot.bring_up()
        chunk = robot.new_chunks(3)[-1]
        assert list(chunk.action_names) == JOINTS
        assert {"front", "wrist"} <= set(chunk.source_names)
        for rule in remaps.split():
            assert robot.node.count_publishers(rule.partition(":=")[2]) == 1
            assert robot.node.count_subscribers(rule.partition(":=")[2]) == 1
        wait_for("a trajectory", lambda: robot.trajectories)
        assert node.stop(signal.SIGINT) == 0, node.log
        assert sim.stop(signal.SIGINT) == 0, sim.log


def test_launch_activates_the_node_once(launch_file: LaunchFile) -> None:
    """Lost otherwise: an operator who cleans up and configures by hand gets a robot that moves at once."""
    launch_file.start()
    handler = launch_file.modules["launch_ros.event_handlers"].OnStateTransition
    assert handler.call_args.kwargs["handle_once"] is True
    assert handler.call_args.kwargs["goal_state"] == "inactive"


def test_launch_remaps_any_topic(launch_file: LaunchFile) -> None:
    """Lost otherwise: cameras can be connected only by writing a parameter file."""
    given = launch_file.start(
        remaps="  front/image_raw:=/cam/front\n~/instruction:=/task ", joint_trajectory="/arm/go"
    )
    assert given["remappings"] == [
        ("front/image_raw", "/cam/front"),
        ("~/instruction", "/task"),
        ("joint_states", "joint_states"),
        ("joint_trajectory", "/arm/go"),
    ]


@pytest.mark.parametrize(
    ("remaps", "words"),
    [
        ("front/image_raw=/cam/front", "'front/image_raw=/cam/front' is not FROM:=TO"),
        ("a:=/b :=/c", "':=/c' is not FROM:=TO"),
        ("a:=/b,c:=/d", "'a:=/b,c:=/d' is not FROM:=TO"),
        ("a:= /b", "'a:=' is not FROM:=TO"),
        ("a:=/b a:=/c", "'a' comes twice"),
    ],
)
def test_bad_remaps_are_refused_before_the_node_starts(
    launch_file: LaunchFile, remaps: str, words: str
) -> None:
    """Lost otherwise: the node waits for images on a topic that the user believes to have renamed."""
    with pytest.raises(ValueError, match=r"^remaps: ") as refused:
        launch_file.start(remaps=remaps)
    assert words in str(refused.value)
    launch_file.modules["launch_ros.actions"].LifecycleNode.assert_not_called()


def test_policy_launch_with_remaps(tmp_path: Path, checkpoint: Path) -> None:
    """`remaps:=` must reach the node through launch's own parsing of arguments."""
    pytest.importorskip("launch_ros", reason="launch_ros is not installed (it has no wheel)")
    file = ROOT / "launch" / "policy.launch.py"
    arguments = [f"params:={DEMO}", f"checkpoint:={checkpoint}", "namespace:=arm", "autostart:=false"]
    arguments.append("remaps:=front/image_raw:=/cam/front joint_states:=/measured")
    launch = NodeProcess([sys.executable, "-c", LAUNCH, str(file), *arguments], tmp_path / "log")
    try:
        with Robot("/arm", {}) as robot:
            assert robot.change("configure"), launch.log
            for topic in ("/cam/front", "/measured"):
                assert robot.node.count_subscribers(topic) == 1, launch.log
    finally:
        launch.kill()


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
