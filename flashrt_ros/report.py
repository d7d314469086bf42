# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What one run was: `RunLog` collects it, `write_report` makes report.html, pictures and run.json of it.

The demo fills a `RunLog` from topics, `replay` fills it from a bag; nothing here knows ROS.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DecisionRecord:
    """One decision as it was published. Times in seconds since the start of the run, durations in ms.

    `t_s` is the moment of publication: the trajectory starts there, so row `steps_consumed + j - 1` of
    `actions` was commanded for `t_s + j * RunLog.step_s` (j = 1, 2, ...). `total_ms` is decision start →
    published.
    """

    t_s: float
    sequence: int
    epoch: int
    instruction: str
    age_ms: float
    ingest_ms: float
    policy_ms: float
    total_ms: float
    stage_ms: Mapping[str, float]
    steps_consumed: int
    actions: np.ndarray  # float32 [horizon, D], robot units
    followed: bool | None = None  # None: nobody measured it (no robot behind a bag)
    commanded: bool | None = None  # whether commands were made of it; None: nobody could send any


@dataclass
class RunLog:
    """Everything a report shows. Joint positions are in the order of `action_names`, NaN where unknown.

    `units` maps a joint to the unit on its axis ("rad" when it is not listed), `limits` to its lowest and
    highest position and its top speed. `command_samples` are the positions that were commanded, as the
    robot's controller interpolates them; empty where no commands were sent. `source_counts` holds one row of
    counters per source (camera name, "joint_states"), `source_rates` its measured rate in Hz.
    """

    title: str
    step_s: float  # time between two rows of a chunk, 1 / action_rate_hz
    action_names: Sequence[str] = ()
    facts: dict[str, str] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    joint_samples: list[tuple[float, np.ndarray]] = field(default_factory=list)  # (t_s, float [D])
    command_samples: list[tuple[float, np.ndarray]] = field(default_factory=list)  # (t_s, float [D])
    frames: list[tuple[float, str, np.ndarray]] = field(
        default_factory=list
    )  # (t_s, camera, uint8 [h, w, 3])
    events: list[tuple[float, str]] = field(default_factory=list)  # (t_s, text)
    source_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    source_rates: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    limits: dict[str, tuple[float, float, float]] = field(default_factory=dict)


def duration_table(decisions: Sequence[DecisionRecord]) -> dict[str, np.ndarray]:
    """Every duration of the decisions by name, in the order of a decision: arrays [decisions], milliseconds.

    A stage that some decisions lack is NaN there.
    """
    stages = {name: None for record in decisions for name in record.stage_ms}
    table = {"age of observation": np.array([record.age_ms for record in decisions])}
    table["ingest"] = np.array([record.ingest_ms for record in decisions])
    table["policy"] = np.array([record.policy_ms for record in decisions])
    for name in stages:
        if name != "total":  # the policy's own total is the row "policy"
            table[f"policy: {name}"] = np.array([record.stage_ms.get(name, np.nan) for record in decisions])
    table["decision total"] = np.array([record.total_ms for record in decisions])
    return table


def write_report(log: RunLog, folder: str | Path) -> Path:
    """Write report.html, its pictures and run.json into `folder` (created if needed); returns report.html.

    A run without decisions, joints or frames still gives a report: what cannot be drawn is said in words.
    """
    # matplotlib takes a second to import: whoever only needs the dataclasses does not pay for it.
    from flashrt_ros.report_pictures import PICTURES

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for picture in PICTURES:
        path = folder / picture.file
        path.unlink(missing_ok=True)  # an older run's picture must not pass for this one's
        missing = picture.draw(log, path)
        body = f"<p>{html.escape(missing)}</p>" if missing else _image(picture.file, picture.title)
        sections.append(
            f"<h2>{html.escape(picture.title)}</h2>\n<p>{html.escape(picture.caption)}</p>\n{body}"
        )
    (folder / "run.json").write_text(json.dumps(_raw_numbers(log)), encoding="utf-8")
    page = folder / "report.html"
    page.write_text(_page(log, sections), encoding="utf-8")
    return page


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; }
body { max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0.2em; } h2 { margin-top: 1.8em; }
table { border-collapse: collapse; margin: 0.6em 0; }
th, td { border-bottom: 1px solid #d8dee4; padding: 0.25em 0.9em 0.25em 0; }
th, td { text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; border: 1px solid #d8dee4; }
"""


def _page(log: RunLog, sections: Sequence[str]) -> str:
    title = html.escape(log.title)
    parts = [f"<h1>{title}</h1>", _table(["", ""], log.facts.items())]
    if log.decisions:
        parts += ["<h2>Durations (ms)</h2>", _durations(log.decisions)]
    if log.source_counts or log.source_rates:
        parts += ["<h2>Sources</h2>", _sources(log)]
    parts += sections
    if log.events:
        rows = ((f"{t_s:.2f} s", text) for t_s, text in log.events)
        parts += ["<h2>Events</h2>", _table(["time", "what happened"], rows)]
    parts.append("<p>Raw numbers: <a href='run.json'>run.json</a></p>")
    head = f"<meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>"
    body = "\n".join(parts)
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n{body}\n</body></html>\n"


def _durations(decisions: Sequence[DecisionRecord]) -> str:
    rows = []
    for name, values in duration_table(decisions).items():
        known = values[np.isfinite(values)]
        numbers = [*np.percentile(known, (50, 95, 99)), known.max()] if known.size else [np.nan] * 4
        rows.append((name, known.size, *(f"{value:.1f}" for value in numbers)))
    return _table(["", "count", "p50", "p95", "p99", "max"], rows)


def _sources(log: RunLog) -> str:
    columns = list(dict.fromkeys(name for counts in log.source_counts.values() for name in counts))
    rows = []
    for source in dict.fromkeys([*log.source_rates, *log.source_counts]):
        counts = log.source_counts.get(source, {})
        rate = log.source_rates.get(source)
        rows.append(
            (source, "" if rate is None else f"{rate:.1f}", *(counts.get(name, "") for name in columns))
        )
    return _table(["source", "rate (Hz)", *columns], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells that are numbers, or read as one, are set to the right."""
    lines = []
    if any(header):
        lines.append("".join(f"<th>{html.escape(text)}</th>" for text in header))
    for row in rows:
        lines.append("".join(_cell(str(value)) for value in row))
    return "<table>" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table>"


def _cell(text: str) -> str:
    number = text.replace(".", "", 1).replace("-", "", 1).isdigit()
    return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"


def _image(file: str, title: str) -> str:
    return f"<a href='{file}'><img src='{file}' alt='{html.escape(title)}'></a>"


def _raw_numbers(log: RunLog) -> dict[str, Any]:
    """The log as JSON values; positions and actions keep 6 significant digits, NaN becomes null."""
    return {
        "title": log.title,
        "facts": log.facts,
        "step_s": log.step_s,
        "action_names": list(log.action_names),
        "units": log.units,
        "decisions": [_decision_numbers(record) for record in log.decisions],
        "limits": log.limits,
        "joint_samples": [[round(t_s, 4), _numbers(positions)] for t_s, positions in log.joint_samples],
        "command_samples": [[round(t_s, 4), _numbers(positions)] for t_s, positions in log.command_samples],
        "frames": [[round(t_s, 4), camera, list(image.shape)] for t_s, camera, image in log.frames],
        "events": [[round(t_s, 4), text] for t_s, text in log.events],
        "source_counts": log.source_counts,
        "source_rates": {name: round(rate, 3) for name, rate in log.source_rates.items()},
    }


def _decision_numbers(record: DecisionRecord) -> dict[str, Any]:
    values = {**record.__dict__, "stage_ms": dict(record.stage_ms)}
    values["actions"] = [_numbers(row) for row in record.actions]
    return values


def _numbers(row: np.ndarray) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in row]
