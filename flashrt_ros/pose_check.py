# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""R17: is the robot where the policy was trained? Degrees for radians, or a shifted zero, show here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from flashrt_ros.parameters import NodeConfig
from flashrt_ros.source_counts import Reason

PoseCheck = Callable[[np.ndarray], list[str]]
"""State float32 [D] in the policy's units → a line for each number outside; [] when it is inside."""

RANGES: Final = (("q01", "q99"), ("min", "max"))
"""Statistics that bound what was seen in training; the first pair that a checkpoint has is taken."""

SPREAD: Final = 4.0  # standard deviations about the mean, where a checkpoint has nothing better


class TrainedState(Protocol):
    """What `pose_check_of` reads of a policy."""

    @property
    def state_stats(self) -> Mapping[str, np.ndarray]: ...
    def statistics_units(self, state: np.ndarray) -> np.ndarray: ...


def outside_training(state: np.ndarray, names: Sequence[str], stats: Mapping[str, np.ndarray]) -> list[str]:
    """Lines like "shoulder: 3.14, trained from -1.2 to 1.4 (q01–q99)" for state float32 [D] far outside.

    A number may lie half of the range beyond each end. Numbers that never moved in training, and those
    without statistics, are not judged. `stats`: statistic → [D] in the units of `state`.
    """
    low, high, which = trained_range(stats)
    if low.shape != state.shape:
        return []
    margin = (high - low) / 2
    outside = (high > low) & ((state < low - margin) | (state > high + margin))  # False for NaN
    return [
        f"{names[i]}: {state[i]:.4g}, trained from {low[i]:.4g} to {high[i]:.4g} ({which})"
        for i in map(int, np.flatnonzero(outside))
    ]


def trained_range(stats: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, str]:
    """Lowest and highest, both [D] (of length 0 where there are no statistics), and what they are called."""
    for low, high in RANGES:
        if low in stats and high in stats:
            return np.asarray(stats[low]), np.asarray(stats[high]), f"{low}–{high}"
    if "mean" in stats and "std" in stats:
        mean, spread = np.asarray(stats["mean"]), SPREAD * np.asarray(stats["std"])
        return mean - spread, mean + spread, f"mean ± {SPREAD:g} std"
    return np.zeros(0), np.zeros(0), ""


def pose_check_of(policy: TrainedState, config: NodeConfig) -> PoseCheck | None:
    """The check of this policy for `Ingest`; None with `pose_check: false`, and without statistics."""
    stats, names = policy.state_stats, config.joint_names
    if not config.pose_check or not stats:
        return None
    return lambda state: outside_training(policy.statistics_units(state), names, stats)


def outside_reason(lines: Sequence[str]) -> Reason:
    """Why nothing is decided, with the numbers and what to do."""
    return (
        f"the robot's state is outside of what the policy was trained with: {'; '.join(lines)}. Set "
        "joint.<name>.scale and joint.<name>.offset where units differ, move the robot to where the task "
        "begins, or switch this off with pose_check: false",
        "state: outside of training",
    )
