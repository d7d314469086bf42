# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Percentiles and rates: the numbers by which a user judges whether the policy keeps up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.statistics import Rate, Window

S = 1_000_000_000


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 20))
def test_window_gives_numpy_percentiles_of_the_newest(values: list[float], size: int) -> None:
    """Old values must not hide a latency that has just become worse."""
    window = Window(size)
    for value in values:
        window.add(value)
    newest = values[-size:]
    summary = window.summary()
    assert summary is not None
    assert summary.count == len(newest)
    assert window.total == len(values)
    assert window.last == values[-1]
    got = (summary.p50, summary.p95, summary.p99, summary.max)
    np.testing.assert_allclose(got, [*np.percentile(newest, (50, 95, 99)), max(newest)])


def test_empty_window_has_no_percentiles() -> None:
    """Before the first decision nothing is shown, not a zero."""
    window = Window(3)
    assert window.summary() is None
    assert window.last is None
    window.add(1.0)
    window.clear()
    assert window.summary() is None


def test_impossible_sizes_are_refused() -> None:
    """A window without room would divide by zero later."""
    with pytest.raises(ValueError, match="size 0"):
        Window(0)
    with pytest.raises(ValueError, match="size 1"):
        Rate(1)


@pytest.mark.parametrize("events", [2, 5, 60, 200])
def test_rate_of_a_steady_source(events: int) -> None:
    """30 Hz is shown as 30 Hz, before and after the window has filled."""
    rate = Rate(60)
    for index in range(events):
        rate.add(index * S // 30)
    assert rate.hz((events - 1) * S // 30) == pytest.approx(30, rel=1e-3)


def test_R8_rate_of_a_source_that_stopped_falls() -> None:
    """A frozen camera must not be displayed at 30 Hz for ever."""
    rate = Rate(60)
    assert rate.hz(0) == 0.0
    for index in range(60):
        rate.add(index * S // 30)
    assert rate.hz(62 * S) < 1.0
    rate.clear()
    assert rate.hz(62 * S) == 0.0
