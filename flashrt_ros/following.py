# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Did the robot do what a decision commanded? Compares commanded with measured displacement.

A decision's window begins when its chunk arrives and ends when the next chunk arrives, at the latest with the
chunk's last row. In that window the commands that were sent (`RunLog.command_samples`: blended, limited and
interpolated as a controller does it) moved by c_j, and joint j was measured to move by m_j. The decision was
followed when

    |m_j - c_j| <= tolerance of j   for every joint, and
    |c_j| >= motion of j            for at least one joint,

with c_j of the window itself or of one up to 30 ms earlier, the same for all joints: a servo runs behind its
command. The second line keeps a robot that stands still from passing with commands to stand still; `Unit`
demands that `motion` is above `tolerance`, so an arm that does not move never follows.

A chunk that was not commanded (a limit refused it, the node was not enabled) counts as not followed, although
the robot may still move with the chunk before: in the demo nothing may hold commands back, and a node that
refuses its chunks must not pass.
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


LAGS_S = (0.0, 0.01, 0.02, 0.03)
_SLACK = 0.02  # of a limit: the monitor hears commands at other moments than the robot
_SHORTEST_S = 1e-4


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
        measured = displacement(self._log.joint_samples, record.t_s, end_s)  # [D]
        if not record.commanded or measured is None or end_s <= record.t_s:
            return False
        for lag_s in LAGS_S:
            commanded = displacement(self._log.command_samples, record.t_s - lag_s, end_s - lag_s)  # [D]
            if commanded is not None and self._fits(measured, commanded):
                return True
        return False

    def _fits(self, measured: np.ndarray, commanded: np.ndarray) -> bool:
        close = (np.abs(measured - commanded) <= self._tolerance).all()
        return bool(close and (np.abs(commanded) >= self._motion).any())


def displacement(
    samples: Sequence[tuple[float, np.ndarray]], begin_s: float, end_s: float
) -> np.ndarray | None:
    """How far the samples' positions [D] moved; None where one of the moments was not sampled."""
    begin, end = position_at(samples, begin_s), position_at(samples, end_s)
    return None if begin is None or end is None else end - begin


def position_at(samples: Sequence[tuple[float, np.ndarray]], at_s: float) -> np.ndarray | None:
    """Positions [D] at `at_s`, linear between samples; None outside of what was sampled."""
    index = bisect_left(samples, at_s, key=lambda sample: sample[0])
    if index == len(samples) or (index == 0 and samples[0][0] > at_s):
        return None
    if index == 0 or samples[index][0] == at_s:
        return samples[index][1]
    (before_s, before), (after_s, after) = samples[index - 1], samples[index]
    share = (at_s - before_s) / (after_s - before_s)
    return before + share * (after - before)


@dataclass(frozen=True)
class Reach:
    """How far the commands of one joint went: positions, and the highest speed in units per s."""

    name: str
    lowest: float
    highest: float
    fastest: float


def reaches(log: RunLog) -> list[Reach]:
    """One per joint of `action_names`; none when nothing was commanded."""
    if len(log.command_samples) < 2:
        return []
    times = np.array([t_s for t_s, _ in log.command_samples])  # [samples]
    positions = np.array([row for _, row in log.command_samples])  # [samples, D]
    apart = np.diff(times) > _SHORTEST_S  # two samples at the same moment have no speed
    speeds = np.abs(np.diff(positions, axis=0)[apart] / np.diff(times)[apart, None])  # [samples − 1, D]
    fastest = speeds.max(axis=0, initial=0.0)
    lowest, highest = positions.min(axis=0), positions.max(axis=0)
    return [
        Reach(name, float(lowest[j]), float(highest[j]), float(fastest[j]))
        for j, name in enumerate(log.action_names)
    ]


def beyond_limits(log: RunLog) -> list[str]:
    """In words, where the commands left `RunLog.limits`."""
    texts = []
    for reach in reaches(log):
        if reach.name not in log.limits:
            continue
        lower, upper, top_speed = log.limits[reach.name]
        slack = _SLACK * (upper - lower)
        if reach.lowest < lower - slack or reach.highest > upper + slack:
            texts.append(
                f"{reach.name} from {reach.lowest:.3f} to {reach.highest:.3f}, limits {lower:g} to {upper:g}"
            )
        if reach.fastest > (1.0 + _SLACK) * top_speed:
            texts.append(f"{reach.name} at {reach.fastest:.3f} per s, limit {top_speed:g}")
    return texts
