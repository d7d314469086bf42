# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rows of robot-behaviour over DDS that need a node of their own: its parameters, its clock, its start."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from flashrt_ros import encodings
from flashrt_ros.loading import load_policy_of
from test.ros.cell import Cell, NotingPolicy, SimulatedTime, cell_of, shifted
from test.ros.support import (
    CAMERAS,
    JOINTS,
    NodeThread,
    Robot,
    chunk_array,
    image,
    joint_state,
    parameters,
    wait_for,
)

pytestmark = pytest.mark.dds


def test_R8_R10_slow_camera_does_not_slow_the_decisions_and_frames_are_not_touched_in_vain() -> None:
    """An overview camera at 2 Hz must not make a 10 Hz policy a 2 Hz one; which camera it is, is measured.
    Fifty images a second are not converted for ten decisions a second."""
    converted: list[int] = []
    with pytest.MonkeyPatch.context() as patched, cell_of(camera__extra__max_age=3.0) as cell:
        as_bytes = encodings._as_bytes
        patched.setattr(encodings, "_as_bytes", lambda data: (converted.append(1), as_bytes(data))[1])
        robot, slow = cell.robot, time.monotonic()
        robot.new_chunks()
        robot.alive.remove("extra")
        stop = threading.Event()

        def send() -> None:
            while not stop.wait(0.5):
                message = image("extra")
                message.header.stamp = robot.node.get_clock().now().to_msg()
                robot.cameras["extra"].publish(message)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            before, calls, slow = len(robot.chunks), len(converted), time.monotonic()
            time.sleep(2.0)
            spent = time.monotonic() - slow
            decided, calls = len(robot.chunks) - before, len(converted) - calls
            assert decided >= 6 * spent, f"{decided} decisions in {spent:.1f} s at 10 Hz"
            assert calls <= (2 * 10 + 3) * spent + 5, f"{calls} conversions for {decided} decisions"
            wait_for("the rate of the slow one", lambda: 1.0 < float(cell.value("extra", "rate_hz")) < 4.0)
            assert float(cell.value("top", "rate_hz")) > 12.0
        finally:
            stop.set()
            sender.join()


def test_R14_start_log_and_outputs_name_the_joints(capfd: pytest.CaptureFixture[str]) -> None:
    """A state vector in the wrong order is found by reading one line; a consumer must not assume an order."""
    names = ["a", "b", "c", "d", "e"]
    with cell_of(action_names=names) as cell:
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
        assert thread.node.running.policy.given["state"][4] == np.float32(0.4)


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
        wait_for("the skew", lambda: 0.0 < float(cell.value("decisions", "skew_ms")) <= 150.0)
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
    with NodeThread(load_policy_of, parameters(seed=3)) as thread, Robot() as robot:
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
        cell.thread.node.running.inputs.pull()
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
        line = next(line for line in capfd.readouterr().err.splitlines() if " actions: " in line)
        assert words in line
        assert "absolute joint positions on joint_trajectory" in line
