# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""May the robot move? Whatever is unknown means no."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.observation import NotReady, Rejected
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.safety import Safety, stops_robot

S = 1_000_000_000


def safety(**more: Any) -> Safety:
    flat = {"checkpoint": "x", "action_rate_hz": 30.0, "cameras": ["top"], "joint_names": ["a"]}
    return Safety(NodeConfig.from_dict({**flat, **more}))


def test_R45_nothing_moves_before_somebody_enables_it() -> None:
    """The default: a node that was started by mistake, or before the operator looks, moves nothing."""
    fresh = safety()
    assert "nothing came on ~/enable" in fresh.closed(0)
    fresh.enable(True, 0)
    assert fresh.closed(S // 10) == ""


def test_R40_enable_is_a_deadman() -> None:
    """Letting go, saying no, and a cable that is pulled all stop the robot."""
    deadman = safety(enable_timeout=0.5)
    deadman.enable(True, 0)
    assert deadman.closed(S // 2) == ""
    assert "0.60 s old, enable_timeout is 0.5 s" in deadman.closed(6 * S // 10)
    deadman.enable(True, S)
    assert deadman.closed(S) == ""
    deadman.enable(False, S)
    assert "is false" in deadman.closed(S)


def test_enable_of_before_does_not_count_after_activate() -> None:
    """Whoever enabled the robot before a restart has to say so again."""
    deadman = safety()
    deadman.enable(True, 0)
    deadman.reset()
    assert deadman.closed(1) != ""


def test_require_enable_can_be_opted_out_of() -> None:
    """A simulator has no operator."""
    assert safety(require_enable=False).closed(0) == ""


@pytest.mark.parametrize("mode", ["dry_run", "shadow"])
def test_dry_run_and_shadow_are_silent_whatever_is_enabled(mode: str) -> None:
    """A look at a policy on a live robot must not move it."""
    silent = safety(**{mode: True})
    silent.enable(True, 0)
    assert silent.closed(0) == f"{mode} is set"


def test_R42_refused_chunks_in_a_row_latch() -> None:
    """A policy that is broken does not get better; one that was wrong once may go on."""
    latch = safety(require_enable=False, latch_after=3)
    for _ in range(2):
        latch.refused("a is NaN")
    latch.accepted(limited=False, names="")
    for _ in range(2):
        latch.refused("a is NaN")
    assert latch.closed(0) == ""
    latch.refused("a is NaN")
    assert "3 chunks in a row were refused, the last because a is NaN" in latch.closed(0)
    latch.accepted(limited=False, names="")
    assert latch.closed(0) != "", "a latch does not open by itself"
    latch.reset()
    assert latch.closed(0) == ""


def test_R41_a_storm_of_limits_latches() -> None:
    """A policy that always wants what the robot must not do is the wrong policy, or has the wrong units."""
    latch = safety(require_enable=False, limit_storm_after=2)
    latch.accepted(limited=True, names="a")
    latch.accepted(limited=False, names="")
    latch.accepted(limited=True, names="a")
    assert latch.closed(0) == ""
    latch.accepted(limited=True, names="a")
    assert "limits changed half of 2 chunks in a row (a)" in latch.closed(0)
    never = safety(require_enable=False, limit_storm_after=0)
    for _ in range(100):
        never.accepted(limited=True, names="a")
    assert never.closed(0) == ""


def test_R7_R42_only_the_end_of_an_epoch_does_not_stop_the_robot_again() -> None:
    """A stale camera, a NaN or a refused chunk stop it; a result made void by a new instruction does not."""
    assert stops_robot(NotReady(("front: never seen",), ("front",)))
    assert stops_robot(Rejected("NaN", "non_finite"))
    assert not stops_robot(Rejected("old", "old_epoch"))
