# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The node as a process on the tiny Pi0.5 checkpoint, driven over DDS as a lifecycle manager would."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from test.ros.support import (
    CAMERAS,
    JOINTS,
    NodeProcess,
    Robot,
    chunk_array,
    joint_state,
    node_process,
    parameters,
    wait_for,
)

pytestmark = pytest.mark.dds


def test_bad_checkpoint_returns_to_unconfigured_and_good_one_works(tmp_path: Path) -> None:
    """A typing error in a path must cost one log line, not a restart of the robot's launch."""
    with node_process(tmp_path, parameters(checkpoint="/no/such/folder")) as node, Robot() as robot:
        assert robot.state() == "unconfigured"
        assert not robot.change("configure")
        assert robot.state() == "unconfigured"
        assert "/no/such/folder" in node.log
        assert "Traceback" not in node.log
        wait_for("the fault", lambda: robot.status("state").level == b"\x02")
        assert "/no/such/folder" in robot.status("state").message
        good = parameters()["checkpoint"]
        assert robot.set_parameter("checkpoint", good) == (True, "")
        robot.bring_up()
        chunk = robot.new_chunks(3)[-1]
        assert (chunk.horizon, chunk.action_dim) == (6, 5)
        assert tuple(chunk.action_names) == JOINTS
        assert np.isfinite(chunk_array(chunk)).all()
        assert chunk.model == "pi05"
        wait_for("the fault to be over", lambda: robot.status("state").level == b"\x00")
        assert node.stop() == 0


def test_what_a_decision_publishes(tmp_path: Path) -> None:
    """Controllers start a trajectory with stamp 0 at once; a stamp of the observation would make them jump.
    Everything needed to judge a chunk travels in it."""
    with node_process(tmp_path, parameters()), Robot() as robot:
        robot.bring_up()
        chunk = robot.new_chunks(2)[-1]
        assert set(chunk.source_names) == {*CAMERAS, "joint_states"}
        stamps = [stamp.sec * 10**9 + stamp.nanosec for stamp in chunk.source_stamps]
        assert chunk.header.stamp.sec * 10**9 + chunk.header.stamp.nanosec == min(stamps)
        assert abs(min(stamps) - time.time_ns()) < 5_000_000_000
        assert chunk.step.nanosec == 100_000_000
        assert chunk.instruction == "pick up the red block"
        assert (chunk.seed, chunk.epoch) == (0, 1)
        assert 0.0 <= chunk.age_ms < 1000.0
        assert chunk.ingest_ms > 0.0
        assert chunk.policy_ms > 0.0
        assert list(chunk.stage_names) == ["prepare", "vision", "prefix", "action"]
        assert sum(chunk.stage_ms) <= chunk.policy_ms + 0.1
        trajectory = wait_for("a trajectory", lambda: robot.trajectories)[-1]
        assert (trajectory.header.stamp.sec, trajectory.header.stamp.nanosec) == (0, 0)
        assert tuple(trajectory.joint_names) == JOINTS
        times = [p.time_from_start.sec * 10**9 + p.time_from_start.nanosec for p in trajectory.points]
        assert times == [100_000_000 * (j + 1) for j in range(len(times))]
        rows = [list(map(float, row)) for chunk in robot.chunks for row in chunk_array(chunk)]
        assert list(trajectory.points[-1].positions) in rows


def test_R47_restart_and_invalid_transitions(tmp_path: Path) -> None:
    """A node that must be restarted as a process to run again is no lifecycle node; one that publishes after
    deactivate moves a robot that somebody is touching."""
    with node_process(tmp_path, parameters()) as node, Robot() as robot:
        assert not robot.change("activate")
        assert robot.state() == "unconfigured"
        robot.bring_up()
        first = robot.new_chunks(2)[-1]
        assert not robot.change("configure")
        assert robot.state() == "active"
        assert robot.change("deactivate")
        assert robot.is_silent()
        assert robot.change("activate")
        after = wait_for(
            "a new epoch", lambda: [chunk for chunk in robot.chunks if chunk.epoch > first.epoch]
        )
        assert after[0].steps_consumed == 0
        assert robot.change("deactivate")
        assert robot.change("cleanup")
        assert robot.state() == "unconfigured"
        assert robot.is_silent()
        robot.bring_up()
        robot.new_chunks()
        assert robot.change("shutdown")
        assert robot.state() == "finalized"
        assert robot.is_silent()
        assert node.stop() == 0
        assert "Traceback" not in node.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signals_stop_cleanly(tmp_path: Path, number: int) -> None:
    """Ctrl-C and launch's SIGTERM must end in exit code 0 within seconds, or launch kills and reports a
    crash."""
    with node_process(tmp_path, parameters(), module="test.ros.stub_policy") as node, Robot() as robot:
        robot.bring_up()
        robot.new_chunks()
        node.process.send_signal(number)  # launch and the terminal both send Ctrl-C: twice must be clean too
        assert node.stop(number) == 0
        assert "Traceback" not in node.log


def test_signal_while_configuring(tmp_path: Path) -> None:
    """A full-size checkpoint loads for a minute; Ctrl-C must not wait for the rest of it."""
    values = parameters(autostart=True)
    with node_process(tmp_path, values, module="test.ros.slow_policy") as node, Robot() as robot:
        wait_for("the slow load", lambda: "configure 4/6: warm up: step 2" in node.log, 30.0)
        wait_for("the step in /diagnostics", lambda: "configure 4/6" in robot.status("state").message)
        assert node.stop(signal.SIGTERM) == 0
        assert "Traceback" not in node.log
        assert "the process is stopping" in node.log


def test_R49_signal_while_a_long_decision_is_in_flight(tmp_path: Path) -> None:
    """A large policy computes for many seconds: Ctrl-C must not end in an abort of the interpreter."""
    values = parameters(cameras=["top"])
    with node_process(tmp_path, values, module="test.ros.busy_policy") as node, Robot() as robot:
        robot.bring_up()
        time.sleep(0.5)
        assert node.stop() == 0, node.log
        assert "still in flight" in node.log
        assert robot.chunks == []


def test_R61_two_robots_in_two_namespaces(tmp_path: Path) -> None:
    """An absolute topic name anywhere lets one robot's cameras drive the other robot's arm."""
    stub = "test.ros.stub_policy"
    left_values = parameters(cameras=["top"])
    with (
        node_process(tmp_path, left_values, namespace="/left", module=stub),
        node_process(
            tmp_path,
            left_values,
            namespace="/right",
            remaps={"top/image_raw": "overhead/color/image_raw"},
            module=stub,
        ) as right_node,
        Robot("/left", {"top": "top/image_raw"}) as left,
        Robot("/right", {"top": "overhead/color/image_raw"}) as right,
    ):
        right.make_joints = lambda: joint_state(positions={"pan": 7.0})
        left.bring_up()
        right.bring_up()
        assert chunk_array(left.new_chunks(3)[-1])[0, 0] == 0.0
        assert chunk_array(right.new_chunks(3)[-1])[0, 0] == 7.0
        assert "camera 'top' on /right/overhead/color/image_raw" in right_node.log
        assert left.change("deactivate")
        assert left.is_silent()
        right.new_chunks(2)
        wait_for(
            "the diagnostics of both",
            lambda: {"left/policy: state", "right/policy: state"} <= set(left.statuses),
        )


def test_autostart_needs_nobody(tmp_path: Path) -> None:
    """`autostart: true` is for robots without a lifecycle manager; it must not be the default."""
    with node_process(tmp_path, parameters(autostart=True)) as node, Robot() as robot:
        robot.new_chunks(2, 30.0)
        assert robot.state() == "active"
        assert node.stop() == 0


@pytest.mark.parametrize("arguments", [["-p", "x"], ["--params-file", "not_there.yaml"]])
def test_process_with_unreadable_arguments_ends_in_words(tmp_path: Path, arguments: list[str]) -> None:
    """A node that hangs on a bad argument leaves launch waiting for ever; a traceback hides which it was."""
    log = tmp_path / "log"
    node = NodeProcess([sys.executable, "-m", "flashrt_ros.policy_node", "--ros-args", *arguments], log)
    assert node.process.wait(30.0) == 2
    assert arguments[-1] in node.log
    assert "Traceback" not in node.log
