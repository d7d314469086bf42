# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rows of robot-behaviour over DDS that need a node of their own: its parameters, its clock, its start."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from flashrt_ros import encodings
from flashrt_ros.loading import load_policy_of
from test.ros.cell import Cell, NotingPolicy, SimulatedTime, cell_of, picture, shifted, slow
from test.ros.support import (
    CAMERAS,
    JOINTS,
    NodeThread,
    Robot,
    chunk_array,
    joint_state,
    parameters,
    wait_for,
)

pytestmark = pytest.mark.dds


def test_R8_R10_slow_camera_does_not_slow_the_node_and_its_images_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An overview camera at 2 Hz must not make a 10 Hz policy a 2 Hz one, and which camera is slow must be
    seen; images are large, so those that no decision looks at are not read, and none is read twice."""
    read, as_bytes = [0], encodings._as_bytes

    def counted(data: Any) -> np.ndarray:
        read[0] += 1
        return as_bytes(data)

    monkeypatch.setattr(encodings, "_as_bytes", counted)
    with cell_of(camera__extra__max_age=3.0) as cell, slow(cell.robot, "extra", 2.0):
        robot = cell.robot
        robot.new_chunks()
        decided, converted, start = len(robot.chunks), read[0], time.monotonic()
        time.sleep(2.0)
        decided, converted = len(robot.chunks) - decided, read[0] - converted
        assert decided >= 5 * (time.monotonic() - start), "the rate of decisions is 10 Hz"
        assert converted <= 2 * (decided + 2) + 2 * 3, f"{converted} conversions for {decided} decisions"
        wait_for("the rate of the slow one", lambda: 1.0 < cell.number("extra", "rate_hz") < 4.0)
        assert cell.number("top", "rate_hz") > 10.0


def test_R14_start_log_and_outputs_name_the_joints(capfd: pytest.CaptureFixture[str]) -> None:
    """A state vector in the wrong order is found by reading one line; a consumer must not assume an order."""
    names = ["a", "b", "c", "d", "e"]
    with cell_of(action_names=names) as cell:
        cell.robot.make_joints = lambda: joint_state((*JOINTS, *names), dict.fromkeys(names, 0.5))
        assert list(cell.robot.new_chunks()[0].action_names) == names
        assert list(wait_for("one", lambda: cell.robot.trajectories)[0].joint_names) == names
    log = capfd.readouterr().err
    assert "state vector: [0] pan, [1] lift, [2] elbow, [3] wrist, [4] gripper" in log
    assert "action vector: [0] a, [1] b, [2] c, [3] d, [4] e" in log


def test_R15_missing_joint_is_named_beside_what_is_there() -> None:
    """A zero in the place of a joint that nobody reports is a position, and the policy believes it."""
    with NodeThread(NotingPolicy, parameters()) as thread, Robot() as robot:
        robot.make_joints = lambda: joint_state(("spare", *JOINTS[:4]), {"spare": 1.0})
        robot.bring_up()
        missing = "gripper never seen; there are pan, lift, elbow, wrist, spare"
        wait_for("the reason", lambda: missing in robot.status("joint_states").message)
        assert robot.status("joint_states").level == b"\x02"
        assert robot.chunks == []
        robot.make_joints = joint_state
        robot.new_chunks()
        assert Cell(thread, robot).given["state"][4] == np.float32(0.4)


def test_R17_units_of_the_robot_both_ways() -> None:
    """Degrees that the policy takes for radians turn the arm round."""
    with cell_of(joint__pan__scale=2, joint__pan__offset=1.0) as cell:
        cell.robot.make_joints = lambda: joint_state(positions={"pan": 3.0})
        wait_for("policy = 2 · 3 + 1", lambda: cell.given["state"][0] == 7.0)
        assert chunk_array(cell.robot.new_chunks(2)[-1])[0, 0] == 3.0


def test_R24_sources_of_different_moments_are_no_observation() -> None:
    """An arm seen in one moment and felt in another is two arms; which source lags must be told."""
    with cell_of(max_skew=0.15) as cell:
        robot = cell.robot
        robot.new_chunks(2)
        wait_for("the skew", lambda: 0.0 < cell.number("decisions", "skew_ms") <= 150.0)
        shifted(cell, "wrist", -0.3)
        reason = "max_skew is 0.15 s"
        wait_for("the reason", lambda: reason in robot.status("decisions").message)
        assert "wrist is 0." in robot.status("decisions").message
        assert robot.is_silent(0.3)
        shifted(cell, "wrist", 0.0)
        robot.new_chunks()


def test_R20_simulator_that_restarts_voids_what_was() -> None:
    """A simulator reset or a bag that loops: what was seen and decided before belongs to another world, and
    the node must go on in the new one."""
    values = parameters(use_sim_time=True)
    with NodeThread(NotingPolicy, values) as thread, Robot() as robot:
        clock = SimulatedTime(robot)
        robot.bring_up()
        old = robot.new_chunks(3)[-1]
        assert old.header.stamp.sec >= 100
        clock.now_s = 10.0
        new = wait_for("a new epoch", lambda: [c for c in robot.chunks if c.epoch > old.epoch])[0]
        assert new.header.stamp.sec < 20
        assert new.steps_consumed == 0
        robot.new_chunks(2)
        wait_for("the count", lambda: Cell(thread, robot).value("state", "clock_jumps") == "1")


def test_R31_a_run_can_be_repeated_bit_by_bit() -> None:
    """A motion that went wrong cannot be examined where the same observation gives another one."""
    runs = []
    still = {f"camera.{name}.frozen_after": 0 for name in CAMERAS}
    with NodeThread(load_policy_of, parameters(seed=3, **still)) as thread, Robot() as robot:
        robot.make_image = lambda name: picture(np.full((40, 64, 3), 90, np.uint8), "rgb8")
        for _ in range(2):
            robot.chunks.clear()
            robot.bring_up()
            wait_for("chunks", lambda: len(robot.chunks) >= 3)
            runs.append({chunk.sequence: bytes(chunk.data) for chunk in robot.chunks})
            assert robot.change("deactivate")
            assert robot.change("cleanup")
        assert thread.node.state_label == "unconfigured"
    both = sorted(set(runs[0]) & set(runs[1]))
    assert len(both) >= 2
    assert [runs[0][sequence] for sequence in both] == [runs[1][sequence] for sequence in both]
    assert runs[0][both[0]] != runs[0][both[1]], "noise differs from decision to decision"


def test_R33_nothing_of_the_time_before_a_stop_is_used_after_it() -> None:
    """Somebody moved the arm while the node was inactive: what was seen before would move it back."""
    patient = {f"camera.{name}.max_age": 60.0 for name in CAMERAS}
    with cell_of(joint_max_age=60.0, **patient) as cell:
        robot = cell.robot
        old = robot.new_chunks(2)[-1]
        assert robot.change("deactivate")
        robot.alive, robot.send_joints = set(), False
        time.sleep(0.2)
        cell.running.inputs.pull()
        assert robot.is_silent(0.2)
        assert robot.change("activate")
        assert robot.is_silent(0.5)
        robot.alive, robot.send_joints = set(CAMERAS), True
        assert robot.new_chunks()[0].epoch > old.epoch


def test_R35_start_log_says_what_the_actions_are(capfd: pytest.CaptureFixture[str]) -> None:
    """Offsets that go out as positions fold an arm; the operator must read which of them this checkpoint
    has."""

    class Relative(NotingPolicy):
        relative_actions = ("pan", "lift")

    for policy, words in ((NotingPolicy, "absolute in"), (Relative, "observation (pan, lift) in")):
        with NodeThread(policy, parameters()) as thread:
            thread.node.trigger_configure()
        log = capfd.readouterr().err
        line = next(line for line in log.splitlines() if " actions: " in line)
        assert words in line
        assert "group joints: joint_position, 5 columns from 0 on, absolute joint targets" in log
