# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The README's figures, from benchmarks/results.

Usage, after `make bench`: python -m benchmarks.readme
"""

import json
from pathlib import Path
from typing import Any

from numpy import median, percentile

from benchmarks.record import RESULTS

README = RESULTS.parent.parent / "README.md"
BEGIN, END = "<!-- figures: python -m benchmarks.readme -->\n", "<!-- end of figures -->\n"

OURS = "flashrt_ros bf16"  # engine in device.json

# (benchmark, row as it is stored, words of the README)
ROWS = (
    ("decide", "small fp32 decide, ms", "one decision, `--size small`, two VGA cameras, fp32"),
    ("decide", "tiny fp32 decide, ms", "one decision, `--size tiny`"),
    (
        "node_overhead",
        "overhead of a decision, ms",
        "what the node adds to a decision, two VGA cameras at 30 Hz",
    ),
    (
        "camera_trigger",
        "stamp → received minus policy, by a subscriber, ms",
        "stamp of the triggering image → chunk at a subscriber, minus the policy",
    ),
    ("ingest", "rgb8, ms", "ingest of one VGA image, raw (taking it from DDS is in the row above)"),
    ("ingest", "jpeg, ms", "ingest of one VGA image, JPEG"),
)


def figures(results: Path = RESULTS) -> str:
    """Machine, percentiles in ms and memory growth as Markdown."""
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in results.glob("*.json")}
    facts = records["decide"]
    machine, versions = facts["machine"], facts["versions"]
    threads = facts["settings"]["torch_threads"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {versions['python']}, "
        f"torch {versions['torch']} with {threads} threads, rclpy {versions['rclpy']}, {facts['date']}; "
        "milliseconds:",
        "",
        "| | p50 | p95 | p99 | max |",
        "|---|---|---|---|---|",
    ]
    for benchmark, quantity, words in ROWS:
        row = records[benchmark]["rows"][quantity]
        lines.append(
            "| " + " | ".join([words, *(f"{row[name]:.3g}" for name in ("p50", "p95", "p99", "max"))]) + " |"
        )
    growth: dict[str, Any] = {t["name"]: t["measured"] for t in records["memory"]["targets"]}
    decisions = records["memory"]["settings"]["decisions"]
    load_s = records["load"]["rows"]["tiny, s"]["p50"]
    lines += [
        "",
        f"Over {decisions:,} decisions of the node: {growth['tracemalloc slope']:.2g} bytes per decision "
        f"traced, resident set {growth['growth of the resident set']:+.1f} MB.",
        f"Loading `tiny`: {load_s:.2g} s (p50).",
    ]
    lines += ["", *gpu_figures(records["device"])]
    return "\n".join(lines) + "\n"


def gpu_figures(device: dict[str, Any]) -> list[str]:
    """One line for each case that ran on a GPU, beside the fastest other engine of that run."""
    lines = [
        f"{device['hardware']['gpu']}, full-size Pi0.5, bf16, {device['date']} "
        "([docs/performance.md](docs/performance.md)); milliseconds:",
        "",
        "| | GPU p50 | p99 | wall p50 | fastest other engine in the run |",
        "|---|---|---|---|---|",
    ]
    for case in device["cases"].values():
        medians = {name: median(engine["samples"]["gpu"]) for name, engine in case["engines"].items()}
        ours = case["engines"][OURS]["samples"]
        peer = min((name for name in medians if not name.startswith(OURS)), key=medians.__getitem__)
        figures = (medians[OURS], percentile(ours["gpu"], 99), median(ours["wall"]))
        cells = [f"one decision, {case['words']}", *(f"{value:.2f}" for value in figures)]
        lines.append("| " + " | ".join([*cells, f"{medians[peer]:.2f} ({peer})"]) + " |")
    return lines


def main() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + figures() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
