# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and its plot, from benchmarks/results/device.json and policies.json.

Usage, after `python -m benchmarks.run` or `.policies`: python -m benchmarks.performance_page
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.device import page_text, policies_page
from benchmarks.device.cases import CASES, Case, floors
from benchmarks.device.ceilings import SQUARE
from benchmarks.device.page_text import SUSTAINED_SHAPE
from benchmarks.device.report import PERCENTILES, percentiles
from flashrt_kernels.checkpoint.recipe import SIZES

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "device.json"
POLICIES = ROOT / "benchmarks" / "results" / "policies.json"
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "images" / "performance.png"
OURS = "flashrt_ros bf16"
PLOT_LIMIT_MS = 60.0
STAGES = ("vision", "prefix", "action")

Json = Mapping[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; every column but the first is right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def ms(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def floor_of(result: Json, key: str) -> dict[str, float]:
    """Stage → milliseconds at the rates that this run measured."""
    ceilings = result["ceilings"]
    return floors(
        SIZES["full"].dims, CASES[key], ceilings["tflops"][SUSTAINED_SHAPE], ceilings["tb_s"]["copy"]
    )


def p50(engine: Json, quantity: str) -> float:
    return percentiles(engine["samples"][quantity])["p50"]


# ---- sections ----


def machine(result: Json) -> list[str]:
    hardware, versions, settings = result["hardware"], result["versions"], result["settings"]
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    gpu, host = hardware["gpu"], hardware["cpu"]
    size = f"{hardware['multiprocessors']} multiprocessors, {hardware['memory_gb']} GB"
    return [
        f"{gpu} ({size}), driver {hardware['driver']}, host {host};",
        f"{libraries}; {result['date']}.",
        "",
        page_text.TURNS.format(**settings),
        *clocks(result),
    ]


def clocks(result: Json) -> list[str]:
    """What the GPU ran at, read after every turn."""
    seen = [reading for case in result["cases"].values() for reading in case["sensors"] if len(reading) > 1]
    if not seen:
        return []
    ranges = {
        unit: (min(reading[unit] for reading in seen), max(reading[unit] for reading in seen))
        for unit in ("sm_mhz", "celsius", "watts")
    }
    words = {
        "sm_mhz": "SM clock {:.0f} to {:.0f} MHz",
        "celsius": "{:.0f} to {:.0f} °C",
        "watts": "{:.0f} to {:.0f} W",
    }
    return [
        "After each turn: " + ", ".join(words[unit].format(*ends) for unit, ends in ranges.items()) + ".",
        "",
    ]


def stages(result: Json) -> list[str]:
    """Ours per case and stage, against floor and targets."""
    rows: list[list[str]] = []
    for key, case in result["cases"].items():
        engine = case["engines"].get(OURS)
        if engine is None:
            continue
        floor, gpu = floor_of(result, key), percentiles(engine["samples"]["gpu"])
        mine = {stage: p50(engine, stage) for stage in STAGES}
        parts = [f"{ms(mine[stage])} ({ms(floor[stage])})" for stage in STAGES]
        total = sum(floor.values())
        figures = [ms(gpu[name]) for name in PERCENTILES]
        ratio = f"{gpu['p50'] / total:.2f}"
        rows.append([case["words"], *parts, *figures, ms(total), ratio, *targets(CASES[key], gpu["p50"])])
    header = ("case", *(f"{stage} (floor)" for stage in STAGES), *(f"gpu {name}" for name in PERCENTILES))
    return table((*header, "floor", "× floor", "level A", "level B"), rows) if rows else []


def missing(result: Json) -> list[str]:
    """Cases without figures, and why: silence would read as if there were none."""
    failed = result.get("failed", {})
    lines = [f"Failed: {CASES[key].words}: {reason}." for key, reason in failed.items() if key in CASES]
    absent = [case.words for key, case in CASES.items() if key not in {**result["cases"], **failed}]
    lines += [f"Not in this run: {'; '.join(absent)}."] if absent else []
    return [line for text in lines for line in (text, "")]


def targets(case: Case, measured: float) -> list[str]:
    """`≤ 20: kept` for both levels; a dash where the case has none."""
    return [
        "–" if limit is None else f"≤ {limit:g}: {'kept' if measured <= limit else 'missed'}"
        for limit in (case.level_a, case.level_b)
    ]


def end_to_end(result: Json) -> list[str]:
    """Wall clock of our engine, and what the host adds."""
    rows = []
    for case in result["cases"].values():
        engine = case["engines"].get(OURS)
        if engine is not None:
            wall = percentiles(engine["samples"]["wall"])
            samples = [engine["samples"][name] for name in ("wall", *STAGES)]
            added = percentiles([whole - sum(stages) for whole, *stages in zip(*samples, strict=True)])
            figures = [ms(wall[name]) for name in PERCENTILES]
            rows.append([case["words"], *figures, ms(added["p50"]), ms(added["p99"])])
    header = ("case", *(f"wall {name}" for name in PERCENTILES), "added p50", "p99")
    return table(header, rows) if rows else []


def peers(result: Json) -> list[str]:
    """Every engine that is not a variant of ours, case by case."""
    lines = []
    for case in result["cases"].values():
        mine = case["engines"].get(OURS)
        rows = []
        for name, engine in case["engines"].items():
            if name.startswith(OURS) and name != OURS:
                continue
            gpu = percentiles(engine["samples"]["gpu"])
            ratio = "–" if mine is None else f"{gpu['p50'] / p50(mine, 'gpu'):.2f} ×"
            wall = ms(p50(engine, "wall")) if "wall" in engine["samples"] else "–"
            figures = [ms(gpu[percentile]) for percentile in PERCENTILES]
            count = str(len(engine["samples"]["gpu"]))
            rows.append([name, count, *figures, wall, ratio, f"{100 * engine['error']:.2f} %"])
        header = ("engine", "n", *(f"gpu {name}" for name in PERCENTILES), "wall p50", "gpu of ours", "error")
        lines += [f"**{case['words']}**", "", *table(header, rows)]
        lines += [f"Left out: {name}: {reason}." for name, reason in case["left_out"].items()]
        lines += [""] if case["left_out"] else []
    return lines


def definitions(result: Json) -> list[str]:
    """What each engine's figures include, once per engine."""
    found: dict[str, list[str]] = {}
    for case in result["cases"].values():
        for name, engine in case["engines"].items():
            names = found.setdefault(engine["what"], [])
            if name not in names:
                names.append(name)
    return [*(f"* {', '.join(names)}: {what}." for what, names in found.items()), ""]


def ablations(result: Json) -> list[str]:
    """What each technique is worth: the same decision without it."""
    rows = []
    for case in result["cases"].values():
        mine = case["engines"].get(OURS)
        if mine is None:
            continue
        base = p50(mine, "gpu")
        for name, engine in case["engines"].items():
            if name.startswith(OURS):
                value = p50(engine, "gpu")
                change = "–" if name == OURS else f"{value - base:+.2f}"
                rows.append([f"{case['words']}: {name}", ms(value), change, ms(p50(engine, "wall"))])
    return table(("variant", "gpu p50", "change", "wall p50"), rows) if rows else []


def ceilings(result: Json) -> list[str]:
    found = result["ceilings"]
    rows = [
        ["memory, read only (torch reduction)", f"{found['tb_s']['read']:.2f} TB/s"],
        ["memory, copy (bytes read and written)", f"{found['tb_s']['copy']:.2f} TB/s"],
    ]
    rows += [
        [f"bf16 matmul through cuBLAS, {shape}", f"{value:.0f} TFLOP/s, {found['matmul_us'][shape]:.1f} µs"]
        for shape, value in found["tflops"].items()
    ]
    return table(("what", "measured"), rows)


def kernels(result: Json) -> list[str]:
    """Every kernel of our graph alone, the largest share first."""
    lines = []
    for case in result["cases"].values():
        rows = []
        for row in sorted(case["kernels"], key=lambda row: -row["us"] * row["count"]):
            whole = f"{row['us'] * row['count'] / 1e3:.2f}"
            rates = [f"{row['tflops']:.0f}", f"{row['tb_s']:.2f}", f"{row['of_ceiling']:.0%}"]
            torch_us = f"{row['torch_us']:.1f}" if "torch_us" in row else "–"
            name = f"{row['section']}: {row['kernel']} {row['size']}"
            rows.append([name, str(row["count"]), f"{row['us']:.2f}", whole, *rates, torch_us])
        if rows:
            header = ("kernel", "launches", "µs", "ms in all", "TFLOP/s", "TB/s", "of ceiling", "PyTorch µs")
            lines += [f"**{case['words']}**", "", *table(header, rows)]
    return [page_text.KERNELS, *lines] if lines else []


def correctness(result: Json) -> list[str]:
    rows = []
    for case in result["cases"].values():
        for name, check in case["gate"].items():
            worst = [
                f"{100 * check['worst'][part]:.2f} %" for part in ("keys", "values", "velocities", "actions")
            ]
            moved = ", ".join(f"{what} {100 * value:.1f} %" for what, value in check["moved"].items())
            rows.append(
                [f"{case['words']}: {name}", *worst, moved, "passed" if check["passed"] else "failed"]
            )
    header = ("engine", "keys", "values", "velocities", "actions", "moved by another", "gate")
    return table(header, rows) if rows else []


def steady(result: Json) -> list[str]:
    rows = []
    for case in result["cases"].values():
        found = case["sustained"]
        if found:
            first, last = (percentiles(found[part])["p50"] for part in ("first", "last"))
            sensors = [
                f"{found[at]['sm_mhz']:.0f} MHz, {found[at]['celsius']:.0f} °C" if found[at] else "–"
                for at in ("before", "after")
            ]
            rows.append([case["words"], f"{found['seconds']:g} s", ms(first), ms(last), *sensors])
    if not rows:
        return ["Not measured in this run (`--sustained 60`).", ""]
    return table(("case", "time", "gpu p50, first sixth", "last sixth", "before", "after"), rows)


def page(result: Json, policies: Json | None) -> str:
    """The whole page as Markdown. policies: what `python -m benchmarks.policies` measured, if it did."""
    lines = [
        page_text.HEAD,
        *machine(result),
        page_text.STAGES,
        *stages(result),
        *missing(result),
        page_text.WALL,
        *end_to_end(result),
        *policies_page.section(policies),
        page_text.PEERS,
        *peers(result),
        page_text.PEERS_AFTER,
        *definitions(result),
        page_text.ABLATIONS,
        *ablations(result),
        *kernels(result),
        page_text.GATE,
        *correctness(result),
        page_text.SUSTAINED,
        *steady(result),
        page_text.CEILINGS,
        *ceilings(result),
        f"Short bursts of the {SQUARE} product reach more; sustained work is limited by power.",
    ]
    return "\n".join(lines) + "\n"


def measured_policies() -> Json | None:
    """The committed measurement of all policies; None before there is one."""
    if not POLICIES.is_file():
        return None
    found: Json = json.loads(POLICIES.read_text(encoding="utf-8"))
    return found


def main() -> None:
    from benchmarks.device.plot import draw

    if not RESULT.is_file():
        raise SystemExit(f"{RESULT} is missing; measure first, on an NVIDIA GPU: python -m benchmarks.run")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    PAGE.write_text(page(result, measured_policies()), encoding="utf-8")
    draw(result, {key: floor_of(result, key) for key in result["cases"]}, PLOT, PLOT_LIMIT_MS)
    print(f"wrote {PAGE.relative_to(ROOT)} and {PLOT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
