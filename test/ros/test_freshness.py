# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Stamps and ages: the robot must not act on what is old, nor stand still for a driver's wrong clock."""

from __future__ import annotations

import pytest

from flashrt_ros.freshness import EdgeWarnings, StampFault, choose_stamp, too_old, went_back

S = 1_000_000_000
NOW = 1_700_000_000 * S


def test_R19_zero_stamps_fall_back_to_arrival() -> None:
    """A driver that leaves the stamp empty works, with a warning."""
    stamp = choose_stamp(0, NOW, "auto", "camera 'front'")
    assert (stamp.ns, stamp.kind) == (NOW, "zero stamp")
    assert stamp.warning == "camera 'front': its stamp is zero; its arrival time is used"


def test_R21_future_stamps_are_never_fresh_for_ever() -> None:
    """A camera whose clock is ahead counts from its arrival, and the offset is told."""
    stamp = choose_stamp(NOW + 90 * S, NOW, "auto", "camera 'front'")
    assert stamp.ns == NOW
    assert "90.000 s in the future" in stamp.warning


def test_R21_stamps_slightly_ahead_are_no_fault() -> None:
    """Simulated clocks tick coarsely: an image may carry a stamp some milliseconds ahead of /clock."""
    assert choose_stamp(NOW + S // 50, NOW, "auto", "x") == choose_stamp(NOW + S // 50, NOW, "header", "x")
    assert choose_stamp(NOW + S // 50, NOW, "auto", "x").warning == ""


def test_stamp_source_arrival_ignores_headers() -> None:
    """The way out for a driver with a wrong clock, without warnings."""
    for stamped in (0, 1, NOW + 90 * S):
        stamp = choose_stamp(stamped, NOW, "arrival", "x")
        assert (stamp.ns, stamp.warning) == (NOW, "")


def test_stamp_source_header_accepts_no_other_time() -> None:
    """Whoever asks for header stamps gets them or an error, never a silent replacement."""
    assert choose_stamp(5 * S, NOW, "header", "x").ns == 5 * S
    for stamped, words in ((0, "zero"), (NOW + 90 * S, r"90\.000 s in the future")):
        with pytest.raises(StampFault, match=f"x: .*{words}.*stamp_source: header"):
            choose_stamp(stamped, NOW, "header", "x")


def test_age_limit() -> None:
    """Exactly the limit is fresh; past it the reason says whether the source stopped or lags."""
    assert too_old(NOW - S // 2, NOW, NOW, 0.5) is None
    assert "stopped: the last one came 0.60 s ago" in str(
        too_old(NOW - 6 * S // 10, NOW - 6 * S // 10, NOW, 0.5)
    )
    lagging = str(too_old(NOW - 2 * S, NOW, NOW, 0.5))
    assert "too old: 2.00 s by its stamp, the limit is 0.5 s" in lagging
    assert "stamp_source" in lagging


def test_R20_only_a_real_jump_is_a_jump() -> None:
    """A bag that starts again is noticed; jitter between threads is not taken for one."""
    assert went_back(NOW, NOW - S)
    assert not went_back(NOW, NOW - S // 50)
    assert not went_back(NOW, NOW + S)
    assert not went_back(None, NOW)


def test_warnings_speak_when_a_fault_begins() -> None:
    """A log that repeats the same line thirty times a second hides the next fault."""
    said: list[tuple[str, str]] = []
    warnings = EdgeWarnings(lambda kind, text: said.append((kind, text)))
    for frame in range(300):
        warnings.fault("front", "malformed", f"frame {frame}", NOW + frame * S // 30)
    assert said == [("malformed", "frame 0")]
    warnings.fault("wrist", "malformed", "other camera", NOW)
    warnings.fault("front", "encoding", "other kind", NOW)
    assert len(said) == 3
    warnings.fault("front", "malformed", "again", NOW + 60 * S)
    assert said[-1] == ("malformed", "again")
