# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When the log speaks of missing actions."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros import health
from flashrt_ros.health import Health
from flashrt_ros.observation import NotReady, Rejected

OLD = NotReady(("camera 'front' is 0.6 s old",), ("front: too old",))
OLDER = NotReady(("camera 'front' is 0.9 s old",), ("front: too old",))
BOTH = NotReady(("front", "wrist"), ("front: too old", "wrist: too old"))


class FakeNode:
    def get_fully_qualified_name(self) -> str:
        return "/arm/policy"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the monotonic clock, to be set by the test."""
    now = [100.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def told(clock: list[float]) -> Any:
    node: Any = FakeNode()
    return Health(node).reason_to_tell


def test_lasting_reason_is_told_once(told: Any, clock: list[float]) -> None:
    """A line per decision buries everything else in the log; no line at all leaves the user guessing."""
    assert told(OLD) is None
    clock[0] += 0.6
    assert told(OLDER) == "no actions: camera 'front' is 0.9 s old"
    clock[0] += 10.0
    assert told(OLDER) is None


def test_short_gap_is_no_news(told: Any, clock: list[float]) -> None:
    """Right after activate, and at a hiccup of a camera, one decision finds no image: that is no fault."""
    assert told(OLD) is None
    clock[0] += 0.2
    assert told(None) is None
    clock[0] += 0.4
    assert told(OLD) is None


def test_new_reason_and_recovery_start_over(told: Any, clock: list[float]) -> None:
    """A second camera that fails, or the same one again an hour later, is news."""
    told(OLD)
    clock[0] += 0.6
    assert told(OLD) is not None
    assert told(BOTH) is None
    clock[0] += 0.6
    assert told(BOTH) is not None
    assert told(None) == "actions again"
    assert told(None) is None
    assert told(OLD) is None
    clock[0] += 0.6
    assert told(OLD) is not None


def test_rejected_result_is_told_at_once(told: Any) -> None:
    """NaN in the actions is never a hiccup."""
    assert told(Rejected("2 actions are NaN", "non_finite")) == "no actions: 2 actions are NaN"
    assert told(Rejected("3 actions are NaN", "non_finite")) is None


def test_flushed_result_is_no_news(told: Any) -> None:
    """Every new instruction voids one result; an operator who reads of it as a fault stops the robot."""
    assert told(Rejected("its epoch 1 ended", "old_epoch")) is None
