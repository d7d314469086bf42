# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Bringing joints to rest, each in a time of its own, as knots that a cubic controller follows exactly.

Constant deceleration from v to rest within T moves a joint by v·T/2. A motion that keeps its velocity limit V
over steps of dt never slows down harder than 4·V/dt (its velocity's Bézier points are at most 2·V apart), so
braking harder than that is never needed to stay inside and is not done.
"""

from __future__ import annotations

import numpy as np

from flashrt_ros.trajectory import hermite

_SHORTEST_S = 1e-6  # knots closer together are one: times of messages are whole nanoseconds


def brake_times(
    position: np.ndarray,
    velocity: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    max_velocity: np.ndarray,
    step_s: float,
    within_s: float,
    share: float = 0.5,
) -> np.ndarray:
    """Time [J] of the gentlest stop within `within_s` that ends before a limit, all arguments [J].

    A stop of T seconds goes `share`·T·velocity far at most. No stop is harder than steps of `step_s` within
    the velocity limit can be, even where that means to pass a limit.
    """
    speed = np.abs(velocity)
    room = np.maximum(np.where(velocity > 0.0, upper - position, position - lower), 0.0)
    longest = np.full(len(speed), np.inf)
    np.divide(room, share * speed, out=longest, where=speed > 0.0)
    unlimited = np.where(room > 0.0, 0.0, 0.25 * step_s)  # without a velocity limit: only where nothing helps
    hardest = np.where(np.isfinite(max_velocity), 0.25 * step_s * speed / max_velocity, unlimited)
    shortest = np.maximum(hardest, _SHORTEST_S)
    times: np.ndarray = np.minimum(np.maximum(longest, shortest), within_s)
    return times


def rest_curves(
    times_s: np.ndarray, position: np.ndarray, velocity: np.ndarray, end: np.ndarray, durations_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities [m, J] at `times_s` [m] of cubics that come to rest at `end` [J].

    Joint j takes `durations_s[j]` for it and stays there.
    """
    share = np.minimum(times_s[:, None] / durations_s, 1.0)  # [m, J]
    still = np.zeros_like(velocity)
    return hermite(share, durations_s, position, velocity, end, still)


def merged_times(*times_s: np.ndarray) -> np.ndarray:
    """All of `times_s`, sorted, without those that are too close before another: float64 [m]."""
    merged = np.unique(np.concatenate(times_s))
    apart = np.append(np.diff(merged) > _SHORTEST_S, True)
    kept: np.ndarray = merged[apart]
    return kept
