# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Percentiles of raw samples, and tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

PERCENTILES = ("p50", "p95", "p99", "max")


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99, max in the unit of the values."""
    p50, p95, p99 = np.percentile(np.asarray(values), (50, 95, 99))
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "max": float(np.max(values))}


def show_case(console: Console, title: str, case: Mapping[str, Any]) -> None:
    """GPU and wall milliseconds of every engine, its error, and what was left out."""
    table = Table(title=title, title_justify="left")
    for column in ("engine", "n", *(f"gpu {name}" for name in PERCENTILES), "wall p50", "error"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for name, engine in case["engines"].items():
        samples = engine["samples"]
        gpu = percentiles(samples["gpu"])
        wall = f"{percentiles(samples['wall'])['p50']:.2f}" if "wall" in samples else "–"
        figures = [f"{gpu[p]:.2f}" for p in PERCENTILES]
        table.add_row(name, str(len(samples["gpu"])), *figures, wall, f"{100 * engine['error']:.2f} %")
    console.print(table)
    for name, reason in case["left_out"].items():
        console.print(f"  left out: {name}: {reason}")
