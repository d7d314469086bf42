# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One picture of a device run: our stages on the floor that they stand on, beside every other engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"vision": "#4477aa", "prefix": "#228833", "action": "#ee6677", "whole": "#bbbbbb"}


def bars(case: Mapping[str, Any], floor: Mapping[str, float]) -> list[tuple[str, dict[str, float]]]:
    """(label, milliseconds by stage) from top to bottom; engines without known stages have one `whole`."""
    rows: list[tuple[str, dict[str, float]]] = [("floor at this run's ceilings", dict(floor))]
    for name, engine in case["engines"].items():
        samples = engine["samples"]
        stages = {stage: float(np.median(samples[stage])) for stage in floor if stage in samples}
        rows.append((name, stages or {"whole": float(np.median(samples["gpu"]))}))
    return rows


def draw(
    result: Mapping[str, Any], floors: Mapping[str, Mapping[str, float]], path: Path, limit: float
) -> None:
    """Horizontal stacked bars, one panel per case. Bars beyond `limit` milliseconds are cut."""
    cases = result["cases"]
    counts = [1 + len(case["engines"]) for case in cases.values()]
    figure, axes = plt.subplots(
        len(cases),
        1,
        figsize=(9, 1.2 + 0.36 * sum(counts)),
        gridspec_kw={"height_ratios": counts},
        squeeze=False,
    )
    for axis, (key, case) in zip(axes[:, 0], cases.items(), strict=True):
        panel(axis, bars(case, floors[key]), limit)
        axis.set_title(case["words"], loc="left", fontsize=10)
    names = {"whole": "stages not measured"}
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    axes[-1, 0].set_xlabel("GPU milliseconds of one decision, p50")
    figure.legend(
        handles, [names.get(name, name) for name in COLOURS], loc="upper right", ncols=4, fontsize=8
    )
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def panel(axis: Any, rows: list[tuple[str, dict[str, float]]], limit: float) -> None:
    totals = [sum(stages.values()) for _, stages in rows]
    edge = 1.1 * max((total for total in totals if total <= limit), default=limit)
    for y, ((_, stages), total) in enumerate(zip(rows, totals, strict=True)):
        left = 0.0
        for stage, value in stages.items():
            axis.barh(y, value, left=left, color=COLOURS[stage], height=0.7)
            left += value
        axis.text(
            min(total, edge * 0.93), y, f" {total:.1f}{' →' if total > edge else ''}", va="center", fontsize=8
        )
    axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axis.set_xlim(0, edge)
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
