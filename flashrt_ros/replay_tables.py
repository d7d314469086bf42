# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What replay prints: latencies, sources, warnings in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flashrt_ros.ingest import SourceCounts
from flashrt_ros.report import duration_table
from flashrt_ros.statistics import summarize

if TYPE_CHECKING:
    from flashrt_ros.replay import Outcome

EXPLANATIONS: Final = {
    "malformed": "Such frames are dropped; the last good one serves while it is fresh.",
    "encoding": "Every image of this camera is dropped.",
    "damaged": "Such messages are dropped and counted as malformed.",
    "cut off": "What came before it is reported.",
    "stamp": "With stamp_source: auto its arrival time would be used.",
    "zero stamp": "Ages of this source are counted from arrival.",
    "future stamp": "Ages of this source are counted from arrival.",
    "length": "Which number belongs to which joint is unknown.",
    "repeated": "Which of the numbers is right is unknown.",
    "non_finite": "The numbers before it serve while they are fresh.",
    "rotation": "The pose before it serves while it is fresh.",
    "frame": "Every pose in that frame is dropped.",
    "clock jump": "Decisions continue with what comes now.",
}
"""Kind of a warning of `Ingest` or of the replay itself → what it means for the run."""


def count_rows(counts: SourceCounts, damaged: int = 0) -> dict[str, int]:
    """received = used + skipped + malformed + dropped; what waits at the end of the bag was skipped.

    damaged: messages that could not be decoded and never reached the ingest; they count as malformed.
    """
    dropped = dict(counts.dropped)
    malformed = dropped.pop("malformed", 0)
    return {
        "received": counts.received + damaged,
        "used": counts.used,
        "skipped": counts.skipped + counts.waiting,
        "malformed": malformed + damaged,
        "dropped": sum(dropped.values()),
    }


def print_result(console: Console, outcome: Outcome) -> None:
    """Latency table, sources, and why decisions were not made."""
    log = outcome.log
    _print_latencies(console, outcome)
    columns = next(iter(log.source_counts.values()))
    sources = _table("messages: received = used + skipped + malformed + dropped", [*columns, "Hz"])
    for source, counts in log.source_counts.items():
        sources.add_row(source, *map(str, counts.values()), f"{log.source_rates.get(source, 0.0):.1f}")
    console.print(sources)
    console.print("skipped: a newer message came before the next decision looked", highlight=False)
    if outcome.unused:
        topics = ", ".join(f"{topic} ({count})" for topic, count in outcome.unused.items())
        console.print(f"topics of the bag that the parameters do not use: {topics}", highlight=False)
    if outcome.reasons:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in outcome.reasons.most_common())
        console.print(f"decisions not made, by reason: {reasons}", markup=False, highlight=False)
    told = ", ".join(f"{kind} ({count})" for kind, count in outcome.warnings.items())
    console.print(f"warnings: {told or 'none'}", highlight=False)


def _table(title: str, columns: Iterable[str]) -> Table:
    """Names in the first column, numbers in the others; narrow enough for 80 characters."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _print_latencies(console: Console, outcome: Outcome) -> None:
    decisions = outcome.log.decisions
    rate = len(decisions) / outcome.span_s if outcome.span_s > 0 else 0.0
    console.print(
        f"{len(decisions)} decisions in {outcome.span_s:.1f} s of the bag: {rate:.2f} Hz, "
        f"{outcome.missed} deadlines missed, {outcome.outcomes['not_ready']} times not ready, "
        f"{outcome.outcomes['rejected']} rejected",
        highlight=False,
    )
    if not decisions:
        return
    if outcome.too_late:
        horizon, step_s = len(decisions[0].actions), outcome.log.step_s
        console.print(
            f"{outcome.too_late} of {len(decisions)} chunks came too late: their {horizon} steps cover "
            f"{horizon * step_s:.2f} s and were over before the decision was; no trajectory for them",
            highlight=False,
        )
    table = _table("milliseconds", ("p50", "p95", "p99", "max"))
    for name, values in duration_table(decisions).items():
        summary = summarize(values[np.isfinite(values)])
        if summary is not None:
            numbers = (summary.p50, summary.p95, summary.p99, summary.max)
            table.add_row(name, *(f"{value:.2f}" for value in numbers))
    console.print(table)
