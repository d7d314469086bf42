# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joint states: a value in the wrong column moves the wrong joint."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_ros.joints import JointTracker, MalformedState
from flashrt_ros.parameters import JointConfig

MS = 1_000_000


def tracker(*names: str, max_age: float = 0.5) -> JointTracker:
    return JointTracker([JointConfig(name) for name in names or ("a", "b", "c")], max_age)


def joints(names: str, *positions: float, **more: Any) -> Any:
    return SimpleNamespace(name=list(names), position=np.array(positions), velocity=[], effort=[], **more)


def put(to: JointTracker, message: Any, at_ms: int = 0, number: int = 0) -> bool:
    return to.put(message, at_ms * MS, at_ms * MS, number)


def test_R11_only_positions_are_read() -> None:
    """Drivers leave velocity and effort empty, or give them another length."""
    state = tracker()
    message = joints("abc", 1, 2, 3)
    message.effort = [9.0]
    assert put(state, message)
    assert state.state().tolist() == [1, 2, 3]


def test_R11_messages_without_positions_are_legal_and_ignored() -> None:
    """A velocity-only JointState is no fault."""
    assert not put(tracker(), joints("abc"))


def test_R12_joint_order_changes() -> None:
    """A driver may sort its joints anew in every message."""
    state = tracker()
    put(state, joints("cab", 3, 1, 2))
    assert state.state().tolist() == [1, 2, 3]
    put(state, joints("bxca", 20, 99, 30, 10))
    assert state.state().tolist() == [10, 20, 30]
    put(state, joints("cab", 3, 1, 2))
    assert state.state().tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda values: array("d", values)])
def test_positions_of_every_library(kind: Any) -> None:
    """rclpy gives array.array, rosbags ndarray."""
    state = tracker()
    put(state, SimpleNamespace(name=["a", "b", "c"], position=kind([1.0, 2.0, 3.0])))
    assert state.state().dtype == np.float32
    assert state.state().tolist() == [1, 2, 3]


def test_R13_several_publishers_are_merged_with_an_age_per_joint() -> None:
    """Arm and gripper have drivers of their own; one that stops is noticed while the other goes on."""
    state = tracker(max_age=0.5)
    put(state, joints("ab", 1, 2), at_ms=0)
    assert "c never seen" in str(state.reasons(1 * MS))
    put(state, joints("c", 3), at_ms=100)
    assert state.reasons(100 * MS) == []
    assert state.state().tolist() == [1, 2, 3]
    assert state.oldest_ns == 0
    put(state, joints("ab", 1, 2), at_ms=700)
    ((text, key),) = state.reasons(700 * MS)
    assert "of c stopped" in text
    assert "0.60 s ago, the limit is 0.5 s" in text
    assert key == "joint_states: old of c"


def test_R15_missing_joint_is_named_beside_what_is_there() -> None:
    """Never a zero for a joint that nobody reported: the missing name is told beside those that came."""
    state = tracker()
    assert "none of the 3 joints was ever seen" in state.reasons(0)[0][0]
    put(state, joints("axy", 1, 2, 3))
    texts = [text for text, _ in state.reasons(0)]
    assert texts == ["joint_states: b, c never seen; there are a, x, y"]
    lost = tracker()
    assert not put(lost, joints("xy", 1, 2))
    assert "the messages name x, y" in lost.reasons(0)[0][0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_R16_not_finite_in_a_used_field_drops_the_message(bad: float) -> None:
    """A NaN of a broken encoder must not reach the policy, nor half a message; unused joints are free."""
    state = tracker()
    put(state, joints("abc", 1, 2, 3))
    with pytest.raises(MalformedState, match=rf"joint_states: position of b = {bad}") as caught:
        put(state, joints("abc", 7, bad, 7), at_ms=9)
    assert caught.value.kind == "non_finite"
    assert state.state().tolist() == [1, 2, 3]
    assert state.oldest_ns == 0
    put(state, joints("abcx", 4, 5, 6, bad))
    assert state.state().tolist() == [4, 5, 6]


def test_lengths_that_differ_drop_the_message() -> None:
    """Names and positions that do not pair up cannot be trusted at all."""
    state = tracker()
    with pytest.raises(MalformedState, match="3 names but 2 positions") as caught:
        put(state, joints("abc", 1, 2))
    assert caught.value.kind == "length"
    with pytest.raises(MalformedState, match="names a more than once"):
        put(state, joints("aabc", 1, 1, 2, 3))
    assert state.reasons(0)


def test_R17_scale_and_offset() -> None:
    """Degrees and shifted zeros are converted before the policy sees them."""
    state = JointTracker([JointConfig("a", 2.0, 1.0), JointConfig("b", -0.5, 0.0)], 0.5)
    put(state, joints("ab", 10, 4))
    assert state.state().tolist() == [21, -2]


def test_age_and_clock_faults_read_differently() -> None:
    """A driver that stopped and one whose clock is behind need different repairs."""
    state = tracker("a")
    state.put(joints("a", 1), 0, 1900 * MS, 0)
    ((text, _),) = state.reasons(2000 * MS)
    assert "too old: 2.00 s by its stamp" in text
    assert "came 0.10 s ago" in text


def test_many_layouts_do_not_grow_memory() -> None:
    """A publisher with ever new names must not fill the robot's memory."""
    state = tracker("a")
    for number in range(3000):
        put(state, SimpleNamespace(name=["a", f"n{number}"], position=[float(number), 0.0]))
    assert state.state().tolist() == [2999]
    assert len(state._layouts) <= 16
    assert len(state._others) <= 512
