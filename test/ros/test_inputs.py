# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When a message arrived, on a clock that a simulator drives."""

from __future__ import annotations

import itertools

import pytest

from flashrt_ros.freshness import CLOCK_TOLERANCE_NS
from flashrt_ros.inputs import simulated_arrival_ns
from flashrt_ros.observation import NS_PER_MS, NS_PER_S

START_NS = 1_700_000_000 * NS_PER_S


@pytest.mark.parametrize("speed", [0.0, 0.05, 0.2, 1.0])
def test_R20_a_slow_or_paused_simulator_is_no_clock_that_goes_back(speed: float) -> None:
    """Lost otherwise: beside a simulator at a fifth of real time every decision drops all samples."""
    pulls = [(START_NS + 200 * NS_PER_MS * k, round((10.0 + 0.2 * speed * k) * NS_PER_S)) for k in range(6)]
    newest_ns = 0
    for before, now in itertools.pairwise(pulls):
        for received_ns in range(before[0] + 10 * NS_PER_MS, now[0], 40 * NS_PER_MS):
            arrival_ns = simulated_arrival_ns(received_ns, before, now)
            true_ns = round(10.0 * NS_PER_S + speed * (received_ns - START_NS))
            assert abs(arrival_ns - true_ns) < NS_PER_MS
            assert arrival_ns >= newest_ns
            newest_ns = arrival_ns


def test_arrival_beside_a_fast_simulator_is_never_in_the_future() -> None:
    """Lost otherwise: at three times real time stamps look as if they lay ahead of their arrival."""
    before, now = (START_NS, 10 * NS_PER_S), (START_NS + 200 * NS_PER_MS, 10 * NS_PER_S + 600 * NS_PER_MS)
    true_ns = 10 * NS_PER_S + 300 * NS_PER_MS
    assert true_ns <= simulated_arrival_ns(START_NS + 100 * NS_PER_MS, before, now) <= now[1]


def test_R20_after_a_jump_only_the_newer_reading_counts() -> None:
    """Lost otherwise: messages of a restarted simulation get times of the old one and stop the actions."""
    wall_ns = START_NS + 200 * NS_PER_MS
    received_ns = wall_ns - 30 * NS_PER_MS
    for simulated_ns in (1 * NS_PER_S, 500 * NS_PER_S):  # back, forward
        arrival_ns = simulated_arrival_ns(received_ns, (START_NS, 100 * NS_PER_S), (wall_ns, simulated_ns))
        assert 0 <= simulated_ns - arrival_ns < CLOCK_TOLERANCE_NS
