# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The model of joint_trajectory_controller. When it is wrong, tests of motions prove nothing about robots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashrt_ros.sim.controller import JointTrajectoryController, TrajectoryError

NAMES = ("a", "b")


def controller(**more: Any) -> JointTrajectoryController:
    return JointTrajectoryController(NAMES, np.array([1.0, 2.0]), **more)


def test_holds_its_start() -> None:
    """Lost otherwise: a robot that moves before it is told to."""
    position, velocity = controller().sample(77.0)
    assert position.tolist() == [1.0, 2.0]
    assert velocity.tolist() == [0.0, 0.0]


def test_positions_alone_are_straight_lines() -> None:
    """R37's fault is only seen when the model shows it: the velocity jumps at every point."""
    model = controller()
    model.accept(NAMES, [1.0, 2.0], [[2.0, 2.0], [2.0, 4.0]], None, None, 10.0)
    assert model.sample(10.25)[0] == pytest.approx([1.25, 2.0])
    assert model.sample(10.999)[1] == pytest.approx([1.0, 0.0])
    assert model.sample(11.001)[1] == pytest.approx([0.0, 2.0])
    assert model.sample(12.5)[0] == pytest.approx([2.0, 4.0])
    assert model.sample(12.5)[1].tolist() == [0.0, 0.0]


def test_velocities_make_cubics_from_the_state_of_now() -> None:
    """Lost otherwise: the seam of two trajectories is tested against a robot that forgets its speed."""
    model = controller()
    model.accept(NAMES, [1.0, 2.0], [[2.0, 2.0], [3.0, 2.0]], [[1.0, 0.0], [0.0, 0.0]], None, 0.0)
    before = model.sample(1.5)
    assert before[0][0] == pytest.approx(2.625)  # straight would be 2.5
    model.accept(NAMES, [1.0], [[0.0, 0.0]], [[0.0, 0.0]], None, 1.5)
    after = model.sample(1.5)
    assert after[0] == pytest.approx(before[0])
    assert after[1] == pytest.approx(before[1])
    assert model.sample(1.5 + 1e-7)[1] == pytest.approx(before[1], abs=1e-5)


def test_accelerations_make_quintics_from_the_state_of_now() -> None:
    """Lost otherwise: robots that are sent accelerations are not covered."""
    model = controller(allow_nonzero_end_velocity=True)
    model.accept(NAMES, [1.0], [[2.0, 3.0]], [[0.5, 0.0]], [[3.0, -1.0]], 0.0)
    step = 1e-4
    ends = [model.sample(t) for t in (1.0 - 2 * step, 1.0 - step)]
    assert ends[1][1] == pytest.approx([0.5, 0.0], abs=1e-3)
    assert (ends[1][1] - ends[0][1]) / step == pytest.approx([3.0, -1.0], abs=0.05)
    assert (model.sample(step)[1] - model.sample(0.0)[1]) / step == pytest.approx([0.0, 0.0], abs=0.05)


def test_points_without_velocities_after_points_with_them_are_reached_straight() -> None:
    """The degree is what both ends of a segment determine."""
    model = controller()
    model.accept(NAMES, [1.0, 2.0], [[2.0, 3.0], [4.0, 3.0]], None, [[0.0, 0.0]] * 2, 0.0)
    assert model.sample(0.5)[0] == pytest.approx([1.5, 2.5])


def test_joints_are_matched_by_name() -> None:
    """Lost otherwise: velocities of one joint are executed by another."""
    model = controller()
    model.accept(("b", "a"), [1.0], [[5.0, 6.0]], [[0.0, 0.0]], None, 0.0)
    assert model.sample(2.0)[0].tolist() == [6.0, 5.0]


def test_a_stamp_in_the_past_jumps_to_where_it_would_be() -> None:
    """As the original; `skip_past_points`, for the simulated arm, goes to the next point instead."""
    for skip, expected in ((False, [3.0, 3.0]), (True, [1.0, 2.0])):
        model = controller(skip_past_points=skip)
        model.accept(NAMES, [1.0, 3.0], [[2.0, 2.0], [4.0, 4.0]], None, None, 12.0, start_s=10.0)
        assert model.sample(12.0)[0] == pytest.approx(expected)
        assert model.sample(13.0)[0] == pytest.approx([4.0, 4.0])


def test_a_stamp_in_the_future_moves_there_already() -> None:
    """The way to the first point begins on arrival."""
    model = controller()
    model.accept(NAMES, [1.0], [[2.0, 2.0]], None, None, 10.0, start_s=11.0)
    assert model.sample(11.0)[0] == pytest.approx([1.5, 2.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"names": ("a",)}, "joint_names"),
        ({"names": ("a", "c")}, "joint_names"),
        ({"times": [1.0, 1.0]}, "grow"),
        ({"times": [-0.5, 1.0]}, "at or above 0"),
        ({"times": [1.0]}, "1 times for 2 points"),
        ({"positions": []}, "no points"),
        ({"positions": [[0.0, 0.0], [0.0, np.inf]]}, "point 1 .*positions .*not finite"),
        ({"velocities": [[0.0, 0.0]]}, "1 velocities for 2 points"),
        ({"velocities": [[0.0], [0.0]]}, "point 0 has 1 velocities"),
        ({"accelerations": [[0.0, 0.0], [0.0, np.nan]]}, "accelerations .*not finite"),
        ({"start_s": -3.0}, r"ended 1\.000 s ago"),
        ({"velocities": [[0.0, 0.0], [0.0, 0.1]]}, "last velocity of b is 0.1"),
    ],
)
def test_refused_trajectories_change_nothing(changes: dict[str, Any], words: str) -> None:
    """Lost otherwise: the tests of the node accept messages that a robot rejects."""
    model = controller()
    model.accept(NAMES, [1.0], [[3.0, 3.0]], None, None, 0.0)
    good: dict[str, Any] = {
        "names": NAMES,
        "times": [1.0, 2.0],
        "positions": [[0.0, 0.0]] * 2,
        "velocities": None,
        "accelerations": None,
        "now_s": 0.0,
    }
    with pytest.raises(TrajectoryError, match=words):
        model.accept(**{**good, **changes})
    assert model.sample(1.0)[0].tolist() == [3.0, 3.0]


def test_R38_non_zero_end_velocities_can_be_allowed() -> None:
    """As allow_nonzero_velocity_at_trajectory_end; after the end the position is held all the same."""
    model = controller(allow_nonzero_end_velocity=True)
    model.accept(NAMES, [1.0], [[2.0, 2.0]], [[1.0, 0.0]], None, 0.0)
    assert model.sample(1.0 - 1e-9)[1] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert model.sample(1.5)[0].tolist() == [2.0, 2.0]
    assert model.sample(1.5)[1].tolist() == [0.0, 0.0]
