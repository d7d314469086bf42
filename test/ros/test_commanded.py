# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the monitor takes for commanded. When these fail, the demo judges the arm by commands it never got."""

import numpy as np
import pytest

from flashrt_ros.commanded import CommandModel

NAMES = ["a", "b"]
HERE = np.array([1.0, 2.0])  # [D]


def model(measured: np.ndarray = HERE) -> CommandModel:
    """Measured once, at 0 s."""
    model = CommandModel(NAMES)
    assert model.measure(0.0, measured) == []
    return model


def at_rest(there: list[float]) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """A second's way to `there`, and rest."""
    return [1.0], [there], [[0.0] * len(there)]


def test_the_first_trajectory_begins_where_the_robot_was_measured() -> None:
    """Lost otherwise: the picture shows commands before there were any, or the first chunk is not judged."""
    commanded = model()
    commanded.hear(0.05, NAMES, *at_rest([2.0, 2.0]))
    (begin_s, begin), (t_s, half) = commanded.measure(0.55, HERE + 9.0)
    assert (begin_s, t_s) == (0.05, 0.55)
    assert begin == pytest.approx(HERE)
    assert half == pytest.approx([1.5, 2.0])
    assert commanded.measure(2.0, HERE)[0][1] == pytest.approx([2.0, 2.0])


def test_columns_go_by_name() -> None:
    """Lost otherwise: one joint is judged by the commands of another."""
    commanded = model()
    commanded.hear(0.0, ["b", "a"], *at_rest([5.0, 6.0]))
    assert commanded.measure(1.0, HERE)[-1][1] == pytest.approx([6.0, 5.0])


def test_a_trajectory_counts_from_its_arrival_or_its_stamp() -> None:
    """Lost otherwise: commands are drawn before they were sent, where a joint state came late."""
    commanded = model()
    commanded.hear(0.0, NAMES, *at_rest([2.0, 2.0]))
    commanded.hear(0.5, NAMES, *at_rest([0.0, 2.0]))
    assert commanded.measure(0.4, HERE)[-1][1] == pytest.approx([1.0 + 0.4**2 * 2.2, 2.0])
    turned = commanded.measure(1.5, HERE)
    assert [t_s for t_s, _ in turned] == [1.5]
    assert turned[0][1] == pytest.approx([0.0, 2.0])
    commanded.hear(2.0, NAMES, *at_rest([1.0, 2.0]), start_s=3.0)
    assert commanded.measure(3.9, HERE)[-1][1][0] < 1.0
    assert commanded.measure(4.0, HERE)[-1][1] == pytest.approx([1.0, 2.0])


def test_what_a_controller_refuses_is_not_commanded() -> None:
    """Lost otherwise: the arm is blamed for a trajectory that no controller would take."""
    commanded = model()
    commanded.hear(0.0, NAMES, [1.0], [[2.0, 2.0]], [[0.1, 0.0]])
    assert commanded.measure(0.1, HERE) == []
    assert "the last velocity of a is 0.1; it must be 0" in commanded.refused
    commanded.hear(0.2, NAMES, *at_rest([2.0, 2.0]))
    commanded.hear(0.3, ["a"], *at_rest([9.0]))
    assert commanded.measure(1.2, HERE)[-1][1] == pytest.approx([2.0, 2.0])
    assert "joint_names are ['a']" in commanded.refused


def test_nobody_knows_where_an_unmeasured_robot_begins() -> None:
    """Lost otherwise: a joint that is not in joint_states makes the whole picture NaN, without a word."""
    commanded = model(np.array([1.0, np.nan]))
    commanded.hear(0.0, NAMES, *at_rest([2.0, 2.0]))
    assert commanded.measure(0.1, HERE) == []
    assert "before all joints were measured" in commanded.refused
