# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""docs/performance.md says what was measured, and nothing else."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks import performance_page
from benchmarks.device.cases import CASES, floors
from benchmarks.performance_page import OURS, PAGE, RESULT, measured_policies, page
from flashrt_kernels.checkpoint.recipe import SIZES


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return found


def cells(text: str, first: str) -> list[str]:
    """The row of the first table in which a line starts with `first`."""
    (line, *_) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_is_the_one_of_the_committed_samples(result: dict[str, Any]) -> None:
    """Else the page claims figures that nobody measured."""
    assert PAGE.read_text(encoding="utf-8") == page(result, measured_policies()), (
        "run python -m benchmarks.performance_page"
    )
    assert performance_page.PLOT.is_file()


def test_the_medians_are_those_of_the_raw_samples(result: dict[str, Any]) -> None:
    """Else a mistake in the page's own arithmetic goes unseen: here they are computed another way."""
    text = page(result, measured_policies())
    for case in result["cases"].values():
        row = cells(text, case["words"])
        samples = case["engines"][OURS]["samples"]
        shown = {"median": float(row[4]), "max": float(row[7]), "vision": float(row[1].split()[0])}
        assert shown["median"] == pytest.approx(statistics.median(samples["gpu"]), abs=0.0051)
        assert shown["max"] == pytest.approx(max(samples["gpu"]), abs=0.51)
        assert shown["vision"] == pytest.approx(statistics.median(samples["vision"]), abs=0.0051)


def test_nothing_was_timed_that_failed_the_gate(result: dict[str, Any]) -> None:
    """Else a fast engine that ignores the instruction would be a result."""
    for case in result["cases"].values():
        assert case["gate"][OURS]["passed"]
        failed = {name for name, check in case["gate"].items() if not check["passed"]}
        assert not failed & case["engines"].keys()


def test_engines_took_turns(result: dict[str, Any]) -> None:
    """Else a clock that sank in the meantime favours whoever was measured first."""
    for case in result["cases"].values():
        rounds = {name: len(engine["turns"]) for name, engine in case["engines"].items()}
        assert set(rounds.values()) == {result["settings"]["rounds"]}
        assert result["settings"]["rounds"] >= 5
        for engine in case["engines"].values():
            assert sum(engine["turns"]) == len(engine["samples"]["gpu"])


def test_who_is_not_there_is_named(result: dict[str, Any]) -> None:
    """Else silence about a peer reads like a victory over it."""
    text = page(result, measured_policies())
    for case in result["cases"].values():
        for name in case["left_out"]:
            assert f"Left out: {name}:" in text


@pytest.mark.parametrize(("key", "total"), [("3v-968-50", 7.1), ("2v-532-10", 4.6), ("1v-276-10", 3.1)])
def test_floors_agree_with_those_computed_by_hand(key: str, total: float) -> None:
    """Else `× floor` compares with an arbitrary number."""
    found = floors(SIZES["full"].dims, CASES[key], tflops=790, tb_s=4.3)
    assert sum(found.values()) == pytest.approx(total, rel=0.02)


def test_the_page_is_written_where_it_is_read(tmp_path: Path, result: dict[str, Any]) -> None:
    """Else the plot that the page shows is missing."""
    from benchmarks.device.plot import draw

    floor = {key: performance_page.floor_of(result, key) for key in result["cases"]}
    draw(result, floor, tmp_path / "plot.png", performance_page.PLOT_LIMIT_MS)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert f"images/{performance_page.PLOT.name}" in page(result, measured_policies())


def measured(**changes: Any) -> dict[str, Any]:
    """A run of benchmarks.policies with one policy."""
    gate = {"passed": True, "worst": {"velocities": 0.004, "result": 0.001}, "moved": {"state": 0.2}}
    samples = {"gpu": [5.0, 5.5, 6.0], "wall": [6.0, 6.5, 7.0]}
    found = {"policy": "groot_n17", "views": 1, "ready_s": 4.2, "gate": gate, "samples": samples} | changes
    return {"date": "2026-01-01", "policies": {"groot_n17-1v": found}}


def test_a_policy_has_its_times_targets_and_what_others_published() -> None:
    """The row by which a user decides whether the robot's policy is fast enough."""
    text = page({**json.loads(RESULT.read_text(encoding="utf-8"))}, measured())
    row = cells(text, "groot_n17, 1 view")
    assert row[1:4] == ["5.50", "5.95", "5.99"]
    assert row[6] == "6.50"
    assert row[7:9] == ["≤ 6: kept", "≤ 4: missed"]
    assert row[10] == "0.40 % (velocities)"
    assert "27.9 ms" in row[12]


def test_a_policy_that_failed_the_gate_has_no_times() -> None:
    """A wrong answer is not a fast one."""
    gate = {"passed": False, "worst": {"velocities": 0.2}, "moved": {}}
    text = page({**json.loads(RESULT.read_text(encoding="utf-8"))}, measured(gate=gate, samples={}))
    row = cells(text, "groot_n17, 1 view")
    assert row[1:7] == ["–"] * 6
    assert row[7] == "≤ 6: missed"
    assert row[11] == "failed"


def test_what_was_not_measured_is_said(result: dict[str, Any]) -> None:
    """Else silence about a policy reads as if it were as fast as the others."""
    assert "Not measured yet: `python -m benchmarks.policies`" in page(result, None)
