# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The pictures of a report, drawn with matplotlib without a display.

Every `draw_*` writes one PNG and returns "", or returns why there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from flashrt_ros.report import DecisionRecord, RunLog, duration_table

_MEASURED, _COMMANDED, _OPEN = "#1f2d3d", "#e8590c", "#f4b183"
_GOOD, _BAD, _UNKNOWN = "#2b8a3e", "#c92a2a", "#4a6fa5"
_PERCENTILES = {50: "#2b8a3e", 95: "#e67700", 99: "#c92a2a"}
_FOLLOWED = {True: (_GOOD, "followed"), False: (_BAD, "not followed"), None: (_UNKNOWN, "decision")}
_MAX_FRAME_COLUMNS = 6
_LEAD_S = 0.5  # shown before the first command
_TIME_LABEL = "time since the start of the run (s)"


@dataclass(frozen=True)
class Picture:
    """One picture of the report; `draw` returns why it could not be drawn ("" = drawn)."""

    file: str
    title: str
    caption: str
    draw: Callable[[RunLog, Path], str]


def draw_frames(log: RunLog, path: Path) -> str:
    """Frames as the model saw them: a row per camera, time to the right."""
    cameras = list(dict.fromkeys(camera for _, camera, _ in log.frames))
    if not cameras:
        return "No frame was recorded."
    rows = [_evenly([frame for frame in log.frames if frame[1] == camera]) for camera in cameras]
    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(2.0 * columns + 0.4, 2.2 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), columns, squeeze=False)
    for camera, row, axes in zip(cameras, rows, panels, strict=True):
        for axis in axes:
            axis.set_axis_off()
        for (t_s, _, image), axis in zip(row, axes, strict=False):
            axis.imshow(image, interpolation="nearest")
            axis.set_title(f"{camera}, {t_s:.1f} s, {image.shape[1]}×{image.shape[0]}", fontsize=8)
    return _save(figure, path, dpi=110)


def _evenly(frames: list[tuple[float, str, np.ndarray]]) -> list[tuple[float, str, np.ndarray]]:
    count = min(_MAX_FRAME_COLUMNS, len(frames))
    return [frames[round(index)] for index in np.linspace(0, len(frames) - 1, count)]


def draw_joints(log: RunLog, path: Path) -> str:
    """Measured joint positions against the commands that were sent and the chunks, a panel per joint.

    Without commands (a replay) the part of each chunk until the next one stands in for them.
    """
    if not log.action_names or not (log.joint_samples or log.decisions):
        return "No joint position and no chunk was recorded."
    count = len(log.action_names)
    columns = 1 if count <= 4 else 2 if count <= 8 else 4
    rows = math.ceil(count / columns)
    height = {1: 2.1, 2: 1.9, 4: 1.5}[columns]
    figure = Figure(figsize=(11, height * rows + 0.7), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
    times, positions = _curves(log.joint_samples, count)
    command_times, commands = _curves(log.command_samples, count)
    sent = len(command_times) > 0
    current, replaced = _chunk_lines(log)
    for joint, (name, axis) in enumerate(zip(log.action_names, panels.flat, strict=False)):
        _joint_panel(log, axis, joint, name, compact=columns == 4)
        thin = current[joint] + replaced[joint] if sent else replaced[joint]
        axis.add_collection(LineCollection(thin, colors=_OPEN, linewidths=0.6, alpha=0.35))
        # A wide band below the thin measured line: both stay visible when the robot follows well.
        thick = [np.stack([command_times, commands[:, joint]], axis=1)] if sent else current[joint]
        width = 4.0 if columns == 1 else 2.0
        axis.add_collection(LineCollection(thick, colors=_COMMANDED, linewidths=width, alpha=0.6))
        if len(times):
            axis.plot(times, positions[:, joint], color=_MEASURED, linewidth=1.0)
        axis.autoscale_view()
        axis.set_xlim(right=_end_s(log))
        if sent:  # loading and warming up are no motion
            axis.set_xlim(left=max(axis.get_xlim()[0], command_times[0] - _LEAD_S))
        if joint + columns >= count:
            axis.set_xlabel(_TIME_LABEL, fontsize=7 if columns == 4 else 10)
            axis.tick_params(labelbottom=True)
    for axis in panels.flat[count:]:
        axis.set_axis_off()
    figure.align_ylabels(panels)
    _joint_legend(figure, sent)
    return _save(figure, path)


def _joint_panel(log: RunLog, axis: Axes, joint: int, name: str, compact: bool) -> None:
    unit = log.units.get(name, "rad")
    axis.set_title(f"{name} ({unit})" if compact else name, fontsize=8 if compact else 10, loc="left")
    if not compact:
        axis.set_ylabel(f"position ({unit})")
    axis.tick_params(labelsize=7 if compact else 9)
    axis.grid(alpha=0.25)
    axis.margins(x=0.01)
    for t_s, _ in log.events:
        axis.axvline(t_s, color="0.6", linewidth=0.7, linestyle=":")


def _curves(samples: Sequence[tuple[float, np.ndarray]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Times [samples] and positions [samples, D]."""
    rows = np.array([row for _, row in samples]).reshape(len(samples), width)
    return np.array([t_s for t_s, _ in samples]), rows


def _chunk_lines(log: RunLog) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """Per joint the polylines [points, 2] through the rows of each chunk: until it was replaced, the rest."""
    current: list[list[np.ndarray]] = [[] for _ in log.action_names]
    replaced: list[list[np.ndarray]] = [[] for _ in log.action_names]
    for record, replaced_s in _with_replacement(log):
        rows = record.actions[record.steps_consumed :]  # [points, D]
        if not len(rows):
            continue
        times = record.t_s + log.step_s * np.arange(1, len(rows) + 1)  # [points]
        start = _position_at(log, record.t_s)
        if start is not None:
            times, rows = np.concatenate([[record.t_s], times]), np.concatenate([start[None, :], rows])
        cut = min(max(replaced_s, times[0]), times[-1])
        for joint in range(len(log.action_names)):
            at_cut = [cut, np.interp(cut, times, rows[:, joint])]
            line = np.stack([times, rows[:, joint]], axis=1)
            current[joint].append(np.concatenate([line[times < cut], [at_cut]]))
            replaced[joint].append(np.concatenate([[at_cut], line[times > cut]]))
    return current, replaced


def _with_replacement(log: RunLog) -> Iterator[tuple[DecisionRecord, float]]:
    """Each decision with the time at which the next one replaced its trajectory (inf for the last)."""
    ends = [record.t_s for record in log.decisions[1:]] + [math.inf]
    return zip(log.decisions, ends, strict=False)


def _position_at(log: RunLog, t_s: float) -> np.ndarray | None:
    """The measured positions [D] nearest before `t_s`, None without any."""
    index = int(np.searchsorted([sample[0] for sample in log.joint_samples], t_s, side="right")) - 1
    return log.joint_samples[index][1] if index >= 0 else None


def _end_s(log: RunLog) -> float:
    """Right border of a time axis: nothing was measured later (chunks reach far beyond it)."""
    ends = [log.decisions[-1].t_s + log.step_s] if log.decisions else []
    return max([*ends, *(t_s for t_s, _ in log.joint_samples[-1:]), *(t_s for t_s, _ in log.events)]) + 0.2


def _joint_legend(figure: Figure, sent: bool) -> None:
    axis = figure.axes[0]
    handles = [
        axis.plot([], [], color=_MEASURED, linewidth=1.2, label="measured")[0],
        axis.plot(
            [],
            [],
            color=_COMMANDED,
            linewidth=4.0,
            alpha=0.6,
            label="commands sent" if sent else "chunk, until the next one replaced it",
        )[0],
        axis.plot(
            [], [], color=_OPEN, linewidth=1.0, label="chunks as decided" if sent else "rest of the chunk"
        )[0],
        axis.plot([], [], color="0.6", linewidth=0.8, linestyle=":", label="event")[0],
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=9, frameon=False)


def draw_latency(log: RunLog, path: Path) -> str:
    """Histogram of the decision's duration with its percentiles, and where the time went."""
    if not log.decisions:
        return "No decision was made."
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    histogram, parts = figure.subplots(1, 2, width_ratios=(3, 2))
    totals = np.array([record.total_ms for record in log.decisions])
    histogram.hist(totals, bins=min(60, max(10, len(totals) // 3)), color="#9db4d0", edgecolor="white")
    for percent, colour in _PERCENTILES.items():
        value = float(np.percentile(totals, percent))
        histogram.axvline(value, color=colour, linewidth=1.8, label=f"p{percent}  {value:.1f} ms")
    histogram.set_xlabel("decision total (ms)")
    histogram.set_ylabel("decisions")
    histogram.set_title(f"{len(totals)} decisions, max {totals.max():.1f} ms", fontsize=10)
    histogram.legend(fontsize=9)
    _parts_panel(log, parts)
    return _save(figure, path)


def _parts_panel(log: RunLog, axis: Axes) -> None:
    table = duration_table(log.decisions)
    names = [name for name, values in table.items() if np.isfinite(values).any()]
    middle = np.array([np.nanpercentile(table[name], 50) for name in names])
    high = np.array([np.nanpercentile(table[name], 99) for name in names])
    colours = ["#c3cfdd" if name.startswith("policy: ") else "#7f9cc0" for name in names]
    axis.barh(names, middle, color=colours)
    axis.hlines(names, middle, high, color=_PERCENTILES[99], linewidth=1.5)
    for row, (low, top) in enumerate(zip(middle, high, strict=True)):
        axis.text(top + high.max() * 0.02, row, f"{low:.1f}", va="center", fontsize=8)
    axis.set_xlim(0, high.max() * 1.15)
    axis.invert_yaxis()
    axis.set_xlabel("milliseconds: bar and number p50, red line to p99")
    axis.tick_params(axis="y", labelsize=8)


def draw_timeline(log: RunLog, path: Path) -> str:
    """Lanes of observations, decisions, trajectories and kept frames, with the events; latencies below."""
    if not log.decisions:
        return "No decision was made."
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    lanes, ages = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _lanes_panel(log, lanes)
    times = [record.t_s for record in log.decisions]
    ages.plot(times, [record.total_ms for record in log.decisions], ".-", markersize=3, linewidth=0.8,
              color=_UNKNOWN, label="decision total")  # fmt: skip
    ages.plot(times, [record.age_ms for record in log.decisions], ".-", markersize=3, linewidth=0.8,
              color=_OPEN, label="age of the observation at its start")  # fmt: skip
    ages.set_ylim(0, 1.3 * max(record.total_ms for record in log.decisions))  # room for the legend
    ages.set_ylabel("ms")
    ages.set_xlabel(_TIME_LABEL)
    ages.set_xlim(right=_end_s(log))
    ages.legend(fontsize=8, loc="upper right", ncols=2)
    ages.grid(alpha=0.25)
    return _save(figure, path)


def _lanes_panel(log: RunLog, axis: Axes) -> None:
    cameras = list(dict.fromkeys(camera for _, camera, _ in log.frames))
    lanes = [
        *(f"frames kept: {camera}" for camera in cameras),
        "oldest observation",
        "decision",
        "trajectory",
    ]
    place = {name: row for row, name in enumerate(reversed(lanes))}
    for t_s, camera, _ in log.frames:
        axis.plot(t_s, place[f"frames kept: {camera}"], marker="s", color="#7f9cc0", markersize=4)
    begins = np.array([record.t_s - record.total_ms / 1e3 for record in log.decisions])
    observed = begins - np.array([record.age_ms / 1e3 for record in log.decisions])
    axis.plot(observed, [place["oldest observation"]] * len(observed), "|", color=_OPEN, markersize=9)
    for outcome, (colour, label) in _FOLLOWED.items():
        chosen = [i for i, record in enumerate(log.decisions) if record.followed is outcome]
        if chosen:
            bars = [(begins[i], log.decisions[i].total_ms / 1e3) for i in chosen]
            axis.broken_barh(
                bars, (place["decision"] - 0.3, 0.6), color=colour, label=f"{label}: {len(chosen)}"
            )
    axis.broken_barh(_trajectory_bars(log), (place["trajectory"] - 0.2, 0.4), color=("#f7c9a0", "#f0a868"))
    axis.set_yticks(list(place.values()), list(place), fontsize=8)
    axis.set_ylim(-0.6, len(lanes) + 1.3)
    _event_labels(log, axis, len(lanes) - 0.4)
    axis.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False)


def _trajectory_bars(log: RunLog) -> list[tuple[float, float]]:
    """(begin, length) of each trajectory, until the next one replaced it or it ended."""
    bars = []
    for record, replaced_s in _with_replacement(log):
        length = log.step_s * max(0, len(record.actions) - record.steps_consumed)
        bars.append((record.t_s, max(0.0, min(length, replaced_s - record.t_s))))
    return bars


def _event_labels(log: RunLog, axis: Axes, top: float) -> None:
    for index, (t_s, text) in enumerate(log.events):
        axis.axvline(t_s, color="0.5", linewidth=0.8, linestyle=":")
        # Neighbours on three heights, so that close events stay readable.
        side = "right" if t_s > 0.85 * _end_s(log) else "left"
        axis.text(t_s, top + 0.55 * (index % 3), f" {text} ", fontsize=7, va="bottom", ha=side, clip_on=True)


def _save(figure: Figure, path: Path, dpi: int = 100) -> str:
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=dpi)
    return ""


PICTURES = (
    Picture(
        "frames.png", "What the model saw", "Frames after resizing, as they entered the policy.", draw_frames
    ),
    Picture(
        "joints.png",
        "Commanded and measured joint positions",
        "Thick: the commands that were sent, as a controller interpolates them; pale: the rows of the chunks "
        "they were made of. Where nothing was sent (a replay), thick is each chunk until the next one came.",
        draw_joints,
    ),
    Picture("latency.png", "Latency", "Duration of the decisions and of their parts.", draw_latency),
    Picture(
        "timeline.png", "Timeline", "Observations, decisions and trajectories of the run.", draw_timeline
    ),
)
