# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Poses of an end effector: a jump, a long way round or a forgotten limit throws what the robot holds."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_ros.cartesian import PoseMotion, StopAction
from flashrt_ros.planned import Planned, Refused
from flashrt_ros.rotations import rotation_of, values_of
from test.ros.motion_groups import (
    BOX,
    DT_NS,
    NOW_NS,
    RATE_HZ,
    committed,
    group,
    pose,
    seeds,
    steady,
    told,
    wandering,
)

DENSE = DT_NS // 10
LINEAR, ANGULAR = 0.2, 0.5  # m/s, rad/s: the group's
STEP_M, STEP_RAD = LINEAR / RATE_HZ, ANGULAR / RATE_HZ
FREE: Any = {"max_linear_velocity": None, "max_angular_velocity": None, "workspace": ()}


def motion(space: str = "eef_pose", *, limits: bool = True, blend_steps: int = 5, **more: Any) -> PoseMotion:
    return PoseMotion(group(space, **more), RATE_HZ, blend_steps, limits)


def sampled(moving: PoseMotion, start_ns: int, end_ns: int) -> np.ndarray:
    """Commands [n, 7], ten for each step."""
    poses = [moving.command(now_ns) for now_ns in range(start_ns, end_ns + 1, DENSE)]
    return np.stack([p for p in poses if p is not None])


def speeds(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m/s [n − 1] and rad/s [n − 1] between poses that are `DENSE` apart."""
    turns = rotation_of(poses[:, 3:], "quaternion")
    seconds = DENSE / 1e9
    linear = np.linalg.norm(np.diff(poses[:, :3], axis=0), axis=1)
    return linear / seconds, (turns[1:] * turns[:-1].inv()).magnitude() / seconds


def test_poses_are_reached_when_their_rows_are_due() -> None:
    """Row consumed + j − 1 is due j steps after now: a shift would make the robot late or early."""
    rows = wandering(1, 6, 0.005, 0.01)
    moving = motion(blend_steps=0)
    assert moving.command(NOW_NS) is None
    committed(moving, rows, consumed=2, measured=rows[1])
    for j, row in enumerate(rows[2:], start=1):
        command = told(moving, NOW_NS + j * DT_NS)
        np.testing.assert_allclose(command[:3], row[:3], atol=1e-12)
        np.testing.assert_allclose(np.abs(command[3:] @ row[3:]), 1.0, atol=1e-12)
    assert moving.end_ns == NOW_NS + 4 * DT_NS
    assert moving.remaining_steps(NOW_NS) == 4
    assert moving.remaining_steps(NOW_NS + 3 * DT_NS) == pytest.approx(1)
    assert moving.consumed_steps(NOW_NS + 3 * DT_NS) == pytest.approx(3)
    np.testing.assert_allclose(told(moving, NOW_NS + 99 * DT_NS), told(moving, NOW_NS + 4 * DT_NS))


@pytest.mark.parametrize("rotation", ["rpy", "rotvec", "rot6d", "rot6d_rows"])
def test_rows_are_read_in_the_form_of_the_group(rotation: str) -> None:
    """The end effector turns as the policy meant it, whatever form it writes."""
    rows = wandering(2, 4, 0.005, 0.01)
    turns = values_of(rotation_of(rows[:, 3:], "quaternion"), rotation)
    moving = motion(rotation=rotation, blend_steps=0)
    planned = committed(moving, np.concatenate([rows[:, :3], turns], axis=1), measured=pose())
    alignment = np.abs((planned.plan.poses[1:, 3:] * rows[:, 3:]).sum(axis=1))
    np.testing.assert_allclose(alignment, 1.0, atol=1e-9)


@steady
@given(seed=seeds, blend_steps=st.integers(0, 8), elapsed=st.integers(0, 9 * DT_NS))
def test_R30_seam_of_poses_is_continuous_and_bounded(seed: int, blend_steps: int, elapsed: int) -> None:
    """A new chunk begins where the old one is, and leaves it no faster than the distance is blended out."""
    moving = motion(limits=False, blend_steps=blend_steps)
    first = wandering(seed, 8, 0.02, 0.1)
    committed(moving, first, measured=pose())
    now_ns = NOW_NS + elapsed
    before, continuation = told(moving, now_ns), told(moving, now_ns + DT_NS)
    rows = wandering(seed + 1, 8, 0.02, 0.1, start=first[3])
    planned = committed(moving, rows, now_ns)
    np.testing.assert_allclose(told(moving, now_ns), before, atol=1e-9)
    distance = np.linalg.norm(continuation[:3] - rows[0, :3])
    steps = np.linalg.norm(np.diff(planned.plan.poses[:, :3], axis=0), axis=1)
    # Both chunks step 0.02 m at most; the weights fall by at most 1.5 / blend_steps from step to step.
    assert (steps <= 0.02 + 1.5 / max(blend_steps, 1) * distance + 1e-9).all()
    ends = slice(max(blend_steps - 1, 0), None)  # from blend_steps on the chunk is executed as it is
    np.testing.assert_allclose(planned.plan.poses[1:][ends, :3], rows[ends, :3], atol=1e-9)


def test_R30_first_step_of_a_seam_follows_the_commanded_motion() -> None:
    """Chunks that differ by 10 cm: without the blend the end effector would cover them in one step."""
    moving = motion(limits=False)
    committed(moving, np.stack([pose(0.001 * k) for k in range(1, 20)]), measured=pose())
    now_ns = NOW_NS + 5 * DT_NS
    away = pose(0.1, 0.0, turn=(0.0, 0.0, 0.3))
    planned = committed(moving, np.stack([away] * 8), now_ns)
    knots = planned.plan.poses
    distance = np.linalg.norm(np.diff(knots[:, :3], axis=0), axis=1)
    angle = speeds_of_knots(knots)
    assert distance.max() < 0.05
    assert angle.max() < 0.15
    np.testing.assert_allclose(knots[5:, :3], [away[:3]] * 4, atol=1e-12)


def speeds_of_knots(knots: np.ndarray) -> np.ndarray:
    """Angles [n] between poses [n + 1, 7], rad."""
    turns = rotation_of(knots[:, 3:], "quaternion")
    angles: np.ndarray = (turns[1:] * turns[:-1].inv()).magnitude()
    return angles


def test_R30_begins_at_the_commanded_pose_and_not_at_the_measured_one() -> None:
    """A servo lags: to begin where it is measured would pull it back at every chunk."""
    moving = motion(limits=False)
    committed(moving, wandering(3, 8, 0.01, 0.02), measured=pose())
    now_ns = NOW_NS + 3 * DT_NS
    before = told(moving, now_ns)
    committed(moving, wandering(4, 8, 0.01, 0.02), now_ns, measured=pose(0.05))
    np.testing.assert_allclose(told(moving, now_ns), before, atol=1e-9)


@steady
@given(seed=seeds)
def test_quaternion_signs_never_make_it_turn_the_long_way(seed: int) -> None:
    """q and −q are one rotation; a flip in the chunk must not send the wrist through a full turn."""
    moving = motion(limits=False, blend_steps=0)
    rows = wandering(seed, 8, 0.01, 0.3)  # flips signs at random
    committed(moving, rows, measured=pose() * np.array([1, 1, 1, -1, -1, -1, -1.0]))
    commands = sampled(moving, NOW_NS, NOW_NS + 8 * DT_NS)
    assert speeds(commands)[1].max() <= 0.3 * RATE_HZ * 1.001
    assert ((commands[1:, 3:] * commands[:-1, 3:]).sum(axis=1) > 0).all()
    np.testing.assert_allclose(np.linalg.norm(commands[:, 3:], axis=1), 1.0, atol=1e-9)


# ---- eef_delta ----


def test_steps_are_composed_onto_the_commanded_pose() -> None:
    """Translations along the axes of the frame, rotations about them (R ← R_step · R), one after another."""
    moving = motion("eef_delta", limits=False)
    start = pose(0.1, 0.2, 0.3, turn=(0.0, 0.0, np.pi / 2))
    step = np.array([0.01, 0.0, 0.0, 0.1, 0.0, 0.0])
    planned = committed(moving, np.stack([step] * 5), consumed=2, measured=start)
    assert len(planned.plan.poses) == 4  # rows that are past move nothing
    end = told(moving, NOW_NS + 3 * DT_NS)
    np.testing.assert_allclose(end[:3], [0.13, 0.2, 0.3], atol=1e-9)
    turn = rotation_of(np.array([0.3, 0, 0]), "rotvec") * rotation_of(np.array([0, 0, np.pi / 2]), "rotvec")
    np.testing.assert_allclose(rotation_of(end[3:], "quaternion").as_matrix(), turn.as_matrix(), atol=1e-9)
    now_ns = NOW_NS + 2 * DT_NS
    committed(moving, np.stack([step] * 2), now_ns, measured=pose(0.4))  # not from the measured pose
    end = told(moving, now_ns + 2 * DT_NS)
    np.testing.assert_allclose(end[:3], [0.14, 0.2, 0.3], atol=1e-9)


def test_steps_written_as_rpy() -> None:
    """Another form than the rotation vector means another rotation."""
    moving = motion("eef_delta", limits=False, rotation="rpy")
    rpy = np.array([0.4, 0.3, 0.2])
    committed(moving, np.concatenate([[0, 0, 0], rpy])[None], measured=pose())
    end = told(moving, NOW_NS + DT_NS)
    np.testing.assert_allclose(
        rotation_of(end[3:], "quaternion").as_matrix(), rotation_of(rpy, "rpy").as_matrix(), atol=1e-9
    )


# ---- limits ----


@settings(steady, max_examples=60)
@given(
    seed=seeds,
    space=st.sampled_from(["eef_pose", "eef_delta"]),
    length=st.floats(0.001, 0.3),
    angle=st.floats(0.001, 1.0),
)
def test_R41_workspace_and_speeds_hold_at_every_moment(
    seed: int, space: str, length: float, angle: float
) -> None:
    """Also between the steps, over the seam of two chunks and while it stops."""
    moving = motion(space)
    now_ns = NOW_NS
    for k in range(3):
        rows = wandering(seed + k, 8, length, angle, start=moving.command(now_ns))
        if space == "eef_delta":
            turns = rotation_of(rows[:, 3:], "quaternion").as_rotvec()
            rows = np.concatenate([np.diff(rows[:, :3], axis=0, prepend=0), turns], axis=1)
        planned = moving.plan(rows, 0, now_ns, pose(0.45, -0.45, 0.05))
        if isinstance(planned, Planned):
            assert moving.commit(planned)
        now_ns += 5 * DT_NS
    moving.stop(now_ns, "decelerate", 0.3)
    if moving.command(NOW_NS) is None:
        return  # all were jumps
    check_limits_between(moving, now_ns, now_ns + 8 * DT_NS)
    rows = wandering(seed, 8, length, angle, start=moving.command(now_ns))
    planned = moving.plan(rows if space == "eef_pose" else rows[:, :6], 0, now_ns, None)
    if isinstance(planned, Planned):
        moving.commit(planned)
        check_limits_between(moving, now_ns, now_ns + 8 * DT_NS)


def check_limits_between(moving: PoseMotion, start_ns: int, end_ns: int) -> None:
    commands = sampled(moving, start_ns, end_ns)
    assert (commands[:, :3] >= np.array(BOX[:3]) - 1e-9).all()
    assert (commands[:, :3] <= np.array(BOX[3:]) + 1e-9).all()
    linear, angular = speeds(commands)
    assert linear.max() <= LINEAR * (1 + 1e-6)
    assert angular.max() <= ANGULAR * (1 + 1e-5) + 1e-6


def test_R41_workspace_is_never_left() -> None:
    """The table is below the box: a pose under it must end on its surface."""
    moving = motion(blend_steps=0, max_linear_velocity=None, max_angular_velocity=None)
    below = np.stack([pose(0.0, 0.7, 0.5 - 0.1 * k) for k in range(1, 9)])
    planned = committed(moving, below, measured=pose())
    commands = sampled(moving, NOW_NS, NOW_NS + 8 * DT_NS)
    assert commands[:, 2].min() == pytest.approx(0.0)
    assert commands[:, 1].max() == pytest.approx(0.5)
    assert planned.clipped == planned.points == 8
    assert planned.clipped_names == ("arm",)


def test_R41_speeds_bound_each_step() -> None:
    """1 m and 1 rad in a step, at 0.2 m/s and 0.5 rad/s: approached as fast as that, not faster."""
    moving = motion("eef_delta", workspace=())
    committed(moving, np.array([[1.0, 0, 0, 0, 0, 1.0]] * 4), measured=pose())
    linear, angular = speeds(sampled(moving, NOW_NS, NOW_NS + 4 * DT_NS))
    np.testing.assert_allclose(linear, LINEAR, rtol=1e-6)
    np.testing.assert_allclose(angular, ANGULAR, rtol=1e-5)


def test_R41_outside_of_the_workspace_it_comes_back_slowly() -> None:
    """A robot that was left outside must not be pulled into the box in one step."""
    moving = motion()
    committed(moving, np.stack([pose(0.52)] * 20), measured=pose(0.55))
    commands = sampled(moving, NOW_NS, NOW_NS + 20 * DT_NS)
    assert speeds(commands)[0].max() <= LINEAR * (1 + 1e-6)
    assert commands[-1, 0] == pytest.approx(0.5)
    now_ns = NOW_NS + 2 * DT_NS
    moving.stop(now_ns, "decelerate", 0.2)
    assert speeds(sampled(moving, now_ns, now_ns + 8 * DT_NS))[0].max() <= LINEAR * (1 + 1e-6)


@pytest.mark.parametrize("away", [pose(0.2), pose(turn=(0.0, 0.0, 0.3))])
def test_R41_a_chunk_that_begins_far_away_is_refused(away: np.ndarray) -> None:
    """A chunk of another world (a jump of the estimate, a wrong frame) must not be followed at all."""
    refused = motion().plan(np.stack([away] * 5), 0, NOW_NS, pose())
    assert isinstance(refused, Refused)
    assert refused.kind == "jump"
    assert isinstance(motion(limits=False).plan(np.stack([away] * 5), 0, NOW_NS, pose()), Planned)


def test_limits_off_is_off() -> None:
    """`limits: false` leaves the chunk as it is."""
    rows = wandering(5, 8, 0.5, 1.0)
    planned = committed(motion(limits=False, blend_steps=0), rows, measured=pose())
    np.testing.assert_allclose(planned.plan.poses[1:, :3], rows[:, :3])
    assert planned.clipped == 0


# ---- refusals, resets, stops ----


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 5])
def test_R42_non_finite_pose_is_refused_before_anything_clips_it(value: float, row: int) -> None:
    """The whole chunk goes, also for a row that is past; the text names the number."""
    rows = wandering(6, 8, 0.005, 0.01)
    rows[row, 2] = value
    refused = motion().plan(rows, 2, NOW_NS, pose())
    assert isinstance(refused, Refused)
    assert refused.kind == "non_finite"
    assert "arm.z" in refused.reason
    assert str(row) in refused.reason


def test_R42_numbers_that_are_no_rotation_are_refused() -> None:
    """A zero quaternion of a broken head is no pose."""
    rows = wandering(7, 4, 0.005, 0.01)
    rows[1, 3:] = 0.0
    refused = motion().plan(rows, 0, NOW_NS, pose())
    assert isinstance(refused, Refused)
    assert "rotation" in refused.reason


@pytest.mark.parametrize("space", ["eef_pose", "eef_delta"])
@pytest.mark.parametrize("measured", [None, np.full(7, np.nan), np.zeros(7)])
def test_nothing_moves_from_an_unknown_pose(space: str, measured: np.ndarray | None) -> None:
    """Without a commanded and a measured pose no limit could hold."""
    rows = wandering(8, 4, 0.005, 0.01)[:, : 7 if space == "eef_pose" else 6]
    refused = motion(space).plan(rows, 0, NOW_NS, measured)
    assert isinstance(refused, Refused)
    assert refused.kind == "no_state"


@pytest.mark.parametrize("consumed", [4, 9])
def test_R36_a_chunk_that_is_past_gives_no_plan(consumed: int) -> None:
    """Nothing of it may be executed late."""
    assert motion().plan(wandering(9, 4, 0.005, 0.01), consumed, NOW_NS, pose()) is None


def test_R33_reset_forgets_the_chunk_and_voids_plans() -> None:
    """After a reset nothing of the old episode is commanded, even if its plan is committed late."""
    moving = motion()
    rows = wandering(10, 8, 0.005, 0.01)
    committed(moving, rows, measured=pose())
    late = moving.plan(rows, 0, NOW_NS, pose())
    assert isinstance(late, Planned)
    moving.reset()
    assert moving.command(NOW_NS + DT_NS) is None
    assert moving.commanded(NOW_NS) is None
    assert moving.remaining_steps(NOW_NS) == moving.consumed_steps(NOW_NS + DT_NS) == 0
    assert moving.end_ns is None
    assert not moving.commit(late)
    assert moving.command(NOW_NS) is None
    planned = committed(moving, rows, measured=pose(0.002))  # begins where the robot is measured
    np.testing.assert_allclose(planned.plan.poses[0], pose(0.002))


def test_R40_hold_is_the_commanded_pose_at_once() -> None:
    """Within one control period of the stop the target does not move any more."""
    moving = motion(limits=False)
    committed(moving, np.stack([pose(0.01 * k) for k in range(1, 9)]), measured=pose())
    now_ns = NOW_NS + round(2.5 * DT_NS)
    late = moving.plan(wandering(11, 8, 0.01, 0.01), 0, now_ns, None)
    before = told(moving, now_ns)
    assert moving.stop(now_ns, "hold", 0.3) is not None
    commands = sampled(moving, now_ns, now_ns + 8 * DT_NS)
    np.testing.assert_allclose(commands, np.tile(before, (len(commands), 1)), atol=1e-12)
    assert moving.remaining_steps(now_ns) == 0
    assert isinstance(late, Planned)
    assert not moving.commit(late)  # a decision that was in flight must not undo the stop


@steady
@given(seed=seeds, elapsed=st.integers(0, 9 * DT_NS), stop_s=st.floats(0.05, 1.0))
def test_R40_decelerate_is_at_rest_within_stop_time(seed: int, elapsed: int, stop_s: float) -> None:
    """It goes on along its motion, never faster than before, and stands when `stop_time` is over."""
    moving = motion(limits=False)
    committed(moving, wandering(seed, 8, 0.02, 0.1), measured=pose())
    now_ns = NOW_NS + elapsed
    state = moving.commanded(now_ns)
    assert state is not None
    before, velocity = state
    moving.stop(now_ns, "decelerate", stop_s)
    end_ns = now_ns + round(stop_s * 1e9)
    commands = sampled(moving, now_ns, end_ns + DT_NS)
    np.testing.assert_allclose(commands[0], before, atol=1e-9)
    linear, angular = speeds(commands)
    assert linear.max() <= np.linalg.norm(velocity[:3]) + 1e-6
    assert angular.max() <= np.linalg.norm(velocity[3:]) + 1e-5
    assert (np.diff(linear) <= 1e-6).all()
    end = moving.commanded(end_ns)
    assert end is not None
    np.testing.assert_allclose(end[1], 0.0)
    np.testing.assert_allclose(end[0][:3], before[:3] + 0.5 * stop_s * velocity[:3], atol=1e-9)
    np.testing.assert_allclose(told(moving, end_ns + 9 * DT_NS), end[0], atol=1e-12)


def test_R40_decelerate_stays_in_the_workspace() -> None:
    """The way to rest is short of the table too."""
    moving = motion()
    committed(
        moving, np.stack([pose(0, 0, 0.021 - 0.01 * k) for k in range(1, 3)]), measured=pose(0, 0, 0.021)
    )
    now_ns = NOW_NS + round(1.9 * DT_NS)
    moving.stop(now_ns, "decelerate", 1.0)
    assert sampled(moving, now_ns, now_ns + 25 * DT_NS)[:, 2].min() == pytest.approx(0.0)


@pytest.mark.parametrize("action", ["hold", "decelerate"])
def test_R40_stop_after_a_reset_ends_what_was_sent(action: StopAction) -> None:
    """A flush and then a stop: the robot may still be on its way to a pose of the old chunk."""
    moving = motion()
    assert moving.stop(NOW_NS, action, 0.3) is None  # nothing of ours
    committed(moving, wandering(12, 8, 0.005, 0.01), measured=pose())
    moving.reset()
    assert moving.stop(NOW_NS + DT_NS, action, 0.3) is not None
    moving.reset()
    assert moving.stop(NOW_NS + 99 * DT_NS, action, 0.3) is None


def test_a_stream_and_decisions_at_once() -> None:
    """The timer reads while the decision thread commits: every command is a whole pose."""
    moving = motion(limits=False)
    rows = wandering(13, 8, 0.01, 0.02)
    committed(moving, rows, measured=pose())
    done = threading.Event()
    wrong: list[np.ndarray] = []

    def read() -> None:
        while not done.is_set():
            command = moving.command(NOW_NS + DT_NS)
            if command is not None and abs(np.linalg.norm(command[3:]) - 1.0) > 1e-9:
                wrong.append(command)

    reader = threading.Thread(target=read)
    reader.start()
    for k in range(100):
        planned = moving.plan(rows, 0, NOW_NS + k, pose())
        assert isinstance(planned, Planned)
        moving.commit(planned)
        if k % 10 == 0:
            moving.reset()
    done.set()
    reader.join()
    assert not wrong


def test_wrong_shapes_are_an_error_of_the_caller() -> None:
    """A column too few is a bug of the node, not a chunk to drop silently."""
    with pytest.raises(ValueError, match="shape"):
        motion().plan(np.zeros((4, 6)), 0, NOW_NS, pose())
    with pytest.raises(ValueError, match="rate_hz"):
        PoseMotion(group("eef_pose"), 0.0, 5, True)
    with pytest.raises(ValueError, match="blend_steps"):
        PoseMotion(group("eef_pose"), 10.0, -1, True)
    with pytest.raises(ValueError, match="stop_time"):
        motion().stop(NOW_NS, "decelerate", 0.0)
