# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Did the robot do what a decision commanded? Compares commanded with measured displacement.

A decision's window begins when its chunk arrives and ends when the next chunk replaces it, at the latest with
the chunk's last row. In that window joint j was commanded to move by c_j (from where it was measured at the
begin, along the trajectory of the chunk, to where the trajectory is at the end) and moved by m_j. The
decision was followed when

    |m_j - c_j| <= tolerance of j   for every joint, and
    |c_j| >= motion of j            for at least one joint.

The second line keeps a robot that stands still from passing with commands to stand still; `Unit` demands that
`motion` is above `tolerance`, so an arm that does not move never follows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flashrt_ros.report import DecisionRecord, RunLog


@dataclass(frozen=True)
class Unit:
    """Thresholds of the joints of one unit: `tolerance` and `motion` in that unit, see the module's text."""

    tolerance: float
    motion: float

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance < self.motion:
            raise ValueError(f"0 < tolerance < motion is needed, got {self.tolerance} and {self.motion}")


UNITS: Mapping[str, Unit] = {"rad": Unit(0.03, 0.04), "m": Unit(0.004, 0.006)}


class Follower:
    """Judges the decisions of a growing `RunLog` in order: sets `DecisionRecord.followed`."""

    def __init__(self, log: RunLog, units: Mapping[str, Unit] = UNITS) -> None:
        chosen = [units[log.units.get(name, "rad")] for name in log.action_names]
        self._tolerance = np.array([unit.tolerance for unit in chosen])  # [D]
        self._motion = np.array([unit.motion for unit in chosen])  # [D]
        self._log = log
        self._judged = 0

    def judge(self, finished: bool = False) -> None:
        """Judge every decision whose window is over; with `finished` the last one too, as far as measured."""
        decisions = self._log.decisions
        samples = self._log.joint_samples
        while self._judged < len(decisions) and samples:
            record = decisions[self._judged]
            is_last = self._judged + 1 == len(decisions)
            if is_last and not finished:
                return
            end_s = self._chunk_end(record) if is_last else decisions[self._judged + 1].t_s
            end_s = min(end_s, self._chunk_end(record))
            if samples[-1][0] < end_s and not finished:
                return
            followed = self._followed(record, min(end_s, samples[-1][0]))
            decisions[self._judged] = replace(record, followed=followed)
            self._judged += 1

    def _chunk_end(self, record: DecisionRecord) -> float:
        return record.t_s + self._log.step_s * max(0, len(record.actions) - record.steps_consumed)

    def _followed(self, record: DecisionRecord, end_s: float) -> bool:
        samples = self._log.joint_samples
        begin, end = position_at(samples, record.t_s), position_at(samples, end_s)
        if begin is None or end is None or end_s <= record.t_s:
            return False
        commanded = commanded_position(record, begin, self._log.step_s, end_s) - begin  # [D]
        measured = end - begin  # [D]
        close = (np.abs(measured - commanded) <= self._tolerance).all()
        return bool(close and (np.abs(commanded) >= self._motion).any())


def commanded_position(record: DecisionRecord, begin: np.ndarray, step_s: float, at_s: float) -> np.ndarray:
    """Where the record's trajectory, entered at `begin` [D], is at `at_s`: linear, holds the last row."""
    rows = np.concatenate([begin[None, :], record.actions[record.steps_consumed :]])  # [points, D]
    times = record.t_s + step_s * np.arange(len(rows))  # [points]
    return np.array([np.interp(at_s, times, rows[:, joint]) for joint in range(rows.shape[1])])


def position_at(samples: Sequence[tuple[float, np.ndarray]], at_s: float) -> np.ndarray | None:
    """Measured positions [D] at `at_s`, linear between samples; None outside of what was measured."""
    index = bisect_left(samples, at_s, key=lambda sample: sample[0])
    if index == len(samples) or (index == 0 and samples[0][0] > at_s):
        return None
    if index == 0 or samples[index][0] == at_s:
        return samples[index][1]
    (before_s, before), (after_s, after) = samples[index - 1], samples[index]
    share = (at_s - before_s) / (after_s - before_s)
    return before + share * (after - before)
