# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The simulated arm. When these fail, the demo's robot moves in a way that no real controller would."""

import math

import numpy as np
import pytest

from flashrt_ros.sim.arm import FOREARM, JOINTS, SHOULDER_HEIGHT, UPPER_ARM, Arm, TrajectoryError, arm_pose

NAMES = [joint.name for joint in JOINTS]
HOME = np.array([joint.home for joint in JOINTS])  # [D]


def from_home(pan: float = 0.0, lift: float = 0.0, elbow: float = 0.0, gripper: float = 0.0) -> np.ndarray:
    return HOME + np.array([pan, lift, elbow, gripper])


def run(arm: Arm, begin_s: float, end_s: float, dt: float = 0.01) -> np.ndarray:
    """Step the arm and return its positions [steps, D]."""
    path = []
    for now_s in np.arange(begin_s + dt, end_s + dt / 2, dt):
        arm.step(float(now_s))
        path.append(arm.positions.copy())
    return np.array(path)


def test_holds_home_until_a_trajectory_comes() -> None:
    """Lost otherwise: an arm that drifts although nobody commands it."""
    arm = Arm()
    assert np.allclose(run(arm, 0.0, 1.0), HOME)


def test_moves_linearly_between_points_and_holds_the_last() -> None:
    """Lost otherwise: commanded and measured curves of the report do not match."""
    arm = Arm(lag_s=1e-4)
    first, second = from_home(0.2, 0.1, -0.2, 0.02), from_home(-0.2, 0.0, 0.2, 0.01)
    arm.follow(NAMES, [1.0, 3.0], [first, second], now_s=0.0)
    path = run(arm, 0.0, 5.0)
    assert np.allclose(path[49], HOME + 0.5 * (first - HOME), atol=1e-3)
    assert np.allclose(path[199], (first + second) / 2, atol=1e-3)
    assert np.allclose(path[-1], second, atol=1e-6)


def test_R37_velocities_of_the_points_are_followed() -> None:
    """Lost otherwise: the demo shows the motion of a robot that ignores what it is sent."""
    arm = Arm()
    points = [from_home(0.2), from_home(0.4)]
    rest, slow = np.zeros(4), np.array([0.1, 0.0, 0.0, 0.0])
    arm.follow(NAMES, [1.0, 2.0], points, now_s=0.0, velocities=[slow, rest])
    speeds = np.diff([arm.set_point(t)[0] for t in (0.0, 1e-4, 0.9999, 1.0, 1.0001)]) / 1e-4
    assert speeds[[0, 2, 3]] == pytest.approx([0.0, 0.1, 0.1], abs=1e-3)


def test_new_trajectory_replaces_the_old_one_from_where_the_set_point_is() -> None:
    """Lost otherwise: old and new chunks mix, or the arm jumps when a new chunk arrives."""
    arm = Arm(lag_s=1e-4)
    arm.follow(NAMES, [1.0], [from_home(0.4)], now_s=0.0)
    run(arm, 0.0, 0.5)
    arm.follow(NAMES, [1.0], [from_home(-0.4)], now_s=0.5)
    path = run(arm, 0.5, 2.0)
    assert np.abs(np.diff(path[:, 0])).max() < 0.007  # 0.6 rad/s: no jump to the start of the new one
    assert path[0, 0] == pytest.approx(0.2 - 0.006, abs=1e-3)
    assert path[-1, 0] == pytest.approx(-0.4)


def test_joints_are_matched_by_name() -> None:
    """Lost otherwise: a trajectory in another joint order moves the wrong joints."""
    arm = Arm()
    target = dict(zip(NAMES, from_home(0.3, 0.1, -0.1, 0.03), strict=True))
    order = NAMES[::-1]
    arm.follow(order, [0.5], [[target[name] for name in order]], now_s=0.0)
    run(arm, 0.0, 2.0)
    assert arm.positions == pytest.approx([target[name] for name in NAMES], abs=1e-3)


def test_velocity_and_position_limits() -> None:
    """Lost otherwise: the simulated arm teleports, and a chunk no robot could follow counts as followed."""
    arm = Arm()
    arm.follow(NAMES, [0.01], [[5.0, 5.0, 5.0, 5.0]], now_s=0.0)
    path = run(arm, 0.0, 4.0)
    speed = np.abs(np.diff(path, axis=0)).max(axis=0) / 0.01
    assert (speed <= np.array([joint.max_velocity for joint in JOINTS]) + 1e-9).all()
    assert path[-1] == pytest.approx([joint.upper for joint in JOINTS], abs=1e-6)


def test_a_stamped_trajectory_is_entered_where_it_is_now() -> None:
    """Lost otherwise: trajectories with a start time play at the wrong time."""
    arm = Arm()
    arm.follow(NAMES, [1.0, 2.0], [from_home(0.5), from_home(0.1)], now_s=10.0, start_s=8.5)
    assert arm.set_point(10.25)[0] == pytest.approx(0.05)  # the first point is past, half way to the second
    assert arm.set_point(10.5)[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("names", "times", "points", "words"),
    [
        (["shoulder_pan"], [1.0], [[0.0]], "joint_names are .*shoulder_pan.* needs exactly"),
        ([*NAMES[:3], "wrist"], [1.0], [[0.0] * 4], "wrist"),
        (NAMES, [], [], "no points"),
        (NAMES, [1.0], [[0.0] * 3], "point 0 has 3 positions for 4"),
        (NAMES, [1.0, 2.0], [[0.0] * 4, [0.0, math.nan, 0.0, 0.0]], "point 1 .*not finite"),
        (NAMES, [2.0, 1.0], [[0.0] * 4] * 2, "grow from point to point"),
        (NAMES, [-1.0], [[0.0] * 4], "at or above 0"),
    ],
)
def test_malformed_trajectories_are_refused_and_change_nothing(
    names: list[str], times: list[float], points: list[list[float]], words: str
) -> None:
    """Lost otherwise: a broken trajectory crashes the simulated robot or moves it somewhere."""
    arm = Arm()
    arm.follow(NAMES, [1.0], [HOME + 0.01], now_s=0.0)
    with pytest.raises(TrajectoryError, match=words):
        arm.follow(names, times, points, now_s=0.0)
    run(arm, 0.0, 2.0)
    assert arm.positions == pytest.approx(HOME + 0.01, abs=1e-3)


def test_a_trajectory_that_is_over_is_refused() -> None:
    """Lost otherwise: a late trajectory makes the arm jump to its end."""
    with pytest.raises(TrajectoryError, match=r"ended 0\.500 s ago"):
        Arm().follow(NAMES, [1.0], [HOME], now_s=10.0, start_s=8.5)


def test_kinematics_reach_straight_ahead() -> None:
    """Lost otherwise: the cameras show an arm that is not where the joints say."""
    pose = arm_pose(np.array([0.0, 0.0, 0.0, 0.05]))
    assert pose.wrist == pytest.approx([UPPER_ARM + FOREARM, 0.0, SHOULDER_HEIGHT])
    turned = arm_pose(np.array([math.pi / 2, math.pi / 2, -math.pi / 2, 0.05]))
    assert turned.elbow == pytest.approx([0.0, 0.0, SHOULDER_HEIGHT + UPPER_ARM])
    assert turned.wrist == pytest.approx([0.0, FOREARM, SHOULDER_HEIGHT + UPPER_ARM])
