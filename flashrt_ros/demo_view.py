# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the demo prints: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from flashrt_ros.following import reaches
from flashrt_ros.report import DecisionRecord, RunLog

_TABLE_PERIOD_S = 0.25
_LINE_PERIOD_S = 2.0


class View:
    """A context manager: `say` prints a line that stays, `show` refreshes the table (or prints a line)."""

    def __init__(self, start_s: float, console: Console | None = None) -> None:
        """`start_s`: the monotonic clock (s) at the start of the demo; printed times count from there."""
        self._console = console or Console()
        self._start_s = start_s
        self._next_s = 0.0
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one line with the time since the start."""
        elapsed = time.monotonic() - self._start_s
        self._console.print(f"{elapsed:5.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    def show(self, log: RunLog, rates: Mapping[str, float], now_s: float) -> None:
        """Show the run at `now_s` (time of the log); cheap when it is not yet time to refresh."""
        if time.monotonic() < self._next_s or not log.decisions:
            return
        if self._live is None:
            self._next_s = time.monotonic() + _LINE_PERIOD_S
            self.say(_line(log, rates))
        else:
            self._next_s = time.monotonic() + _TABLE_PERIOD_S
            self._live.update(_tables(log, rates, now_s), refresh=True)


def summary(log: RunLog, rates: Mapping[str, float]) -> dict[str, str]:
    """The run in a few words each; `log` holds at least one decision."""
    recent = log.decisions[-100:]
    judged = [record.followed for record in log.decisions if record.followed is not None]
    return {
        "decisions": f"{len(log.decisions)} ({decision_rate(log.decisions):.1f} Hz)",
        "followed": f"{sum(judged)} of {len(judged)}",
        "fastest command": _fastest(log) or "none",
        "latency p50/p95/p99": f"{percentiles([record.total_ms for record in recent])} ms",
        "age p50/p95/p99": f"{percentiles([record.age_ms for record in recent])} ms",
        "rates": " ".join(f"{name} {rate:.1f}" for name, rate in rates.items()) + " Hz",
        "instruction": f'"{log.decisions[-1].instruction}"',
    }


def _fastest(log: RunLog) -> str:
    """Highest commanded speed of each joint beside its limit."""
    words = []
    for reach in reaches(log):
        unit = log.units.get(reach.name, "rad")
        limit = f" of {log.limits[reach.name][2]:g}" if reach.name in log.limits else ""
        words.append(f"{reach.name} {reach.fastest:.2f}{limit} {unit}/s")
    return ", ".join(words)


def _line(log: RunLog, rates: Mapping[str, float]) -> str:
    facts = summary(log, rates)
    latency, age = facts["latency p50/p95/p99"], facts["age p50/p95/p99"]
    made, followed = facts["decisions"], facts["followed"]
    return (
        f"decisions {made}, followed {followed}, latency p50/p95/p99 {latency}, age {age}, {facts['rates']}"
    )


def decision_rate(decisions: Sequence[DecisionRecord]) -> float:
    """Mean rate in Hz, 0 with fewer than two decisions."""
    if len(decisions) < 2:
        return 0.0
    return (len(decisions) - 1) / (decisions[-1].t_s - decisions[0].t_s)


def percentiles(values: Sequence[float]) -> str:
    """p50 / p95 / p99 in one line."""
    return " / ".join(f"{value:.0f}" for value in np.percentile(values, (50, 95, 99)))


def _tables(log: RunLog, rates: Mapping[str, float], now_s: float) -> RenderableType:
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("time", f"{now_s:.1f} s")
    for name, value in summary(log, rates).items():
        if name != "fastest command":  # a column of the joints
            facts.add_row(name, value)
    joints = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("joint", "measured", "commanded", "difference", "fastest", "limit", "unit"):
        joints.add_column(column, justify="left" if column in ("joint", "unit") else "right")
    unknown = np.full(len(log.action_names), np.nan)  # [D]
    fastest = {reach.name: reach.fastest for reach in reaches(log)}
    # Both are of the same moment.
    measured = log.joint_samples[-1][1] if log.joint_samples else unknown
    commanded = log.command_samples[-1][1] if log.command_samples else unknown
    for name, is_, should in zip(log.action_names, measured, commanded, strict=True):
        unit = log.units.get(name, "rad")
        top = f"{log.limits[name][2]:g}" if name in log.limits else ""
        speeds = (f"{fastest.get(name, np.nan):.2f}", top, f"{unit}, {unit}/s")
        joints.add_row(name, f"{is_:+.3f}", f"{should:+.3f}", f"{should - is_:+.3f}", *speeds)
    return Group("", facts, "", joints)
