# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What every benchmark writes: percentiles, the machine, versions, and whether the promise was kept."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from flashrt_ros import __version__
from flashrt_ros.demo_setup import cpu_name
from flashrt_ros.statistics import summarize

RESULTS = Path(__file__).resolve().parent / "results"
VERSIONS = ("torch", "numpy", "opencv-python-headless", "rclpy", "ros-rmw-fastrtps-cpp")


@dataclass(frozen=True)
class Target:
    """A promise of the project: `measured` must not exceed `limit`, both in `unit`."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def reached(self) -> bool:
        return self.measured <= self.limit


@dataclass
class Record:
    """One benchmark: `rows` are percentiles by quantity, `targets` the promises that it checks."""

    benchmark: str
    settings: dict[str, Any]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def add(self, quantity: str, values: Any) -> dict[str, float]:
        """Percentiles of values [n]; the quantity's name ends in its unit. ValueError without values."""
        summary = summarize(np.asarray(values, dtype=np.float64))
        if summary is None:
            raise ValueError(f"{self.benchmark}: nothing was measured for {quantity}")
        self.rows[quantity] = {name: round(value, 4) for name, value in asdict(summary).items()}
        return self.rows[quantity]

    def write(self) -> Path:
        """benchmarks/results/<benchmark>.json, with the machine and the versions."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.benchmark}.json"
        facts = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "versions": versions()}
        targets = [asdict(target) | {"reached": target.reached} for target in self.targets]
        content = {"benchmark": self.benchmark, **facts, "settings": self.settings, "rows": self.rows}
        path.write_text(
            json.dumps(content | {"targets": targets}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return path

    def show(self) -> None:
        """Print both tables."""
        console = Console()
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        table = Table(title=f"{self.benchmark}: {settings}", title_justify="left")
        for column in ("quantity", "count", "p50", "p95", "p99", "max"):
            table.add_column(column, justify="left" if column == "quantity" else "right")
        for quantity, row in self.rows.items():
            table.add_row(quantity, *(f"{value:.6g}" for value in row.values()))
        if self.rows:
            console.print(table)
        for target in self.targets:
            verdict = "[green]reached[/]" if target.reached else "[red]missed[/]"
            text = f"{target.name}: {target.measured:.3g} {target.unit} (at most {target.limit:g})"
            console.print(f"  {verdict}  {text}")

    def finish(self) -> None:
        self.show()
        Console().print(f"  written to {self.write().relative_to(RESULTS.parent.parent)}\n")


def machine() -> dict[str, Any]:
    """Hardware of this computer, by what matters for these numbers."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return {
        "cpu": cpu_name(),
        "cores": cores,
        "memory_gb": round(memory / 1e9, 1),
        "os": platform.freedesktop_os_release()["PRETTY_NAME"],
    }


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of the libraries that do the work."""
    libraries = {name: metadata.version(name) for name in VERSIONS}
    return {"flashrt_ros": __version__, "python": platform.python_version(), **libraries}
