# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The report of a run. When these fail, demo and replay end without (or with a misleading) report."""

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from flashrt_ros.report import DecisionRecord, RunLog, duration_table, write_report
from flashrt_ros.report_pictures import draw_joints

PICTURES = ("frames.png", "joints.png", "latency.png", "timeline.png")


def decision(
    index: int, width: int, followed: bool | None = True, stage_ms: dict[str, float] | None = None
) -> DecisionRecord:
    return DecisionRecord(
        t_s=1.0 + 0.2 * index,
        sequence=index,
        epoch=1,
        instruction="pick <b>up</b>",
        age_ms=30.0,
        ingest_ms=1.0,
        policy_ms=80.0,
        total_ms=85.0 + index,
        stage_ms=stage_ms or {"vision": 30.0, "total": 80.0},
        steps_consumed=1,
        actions=np.full((8, width), 0.1 * index, np.float32),
        followed=followed,
    )


def run_log(width: int = 3, decisions: int = 12) -> RunLog:
    log = RunLog(
        "A <run>", step_s=0.5, action_names=[f"joint_{j}" for j in range(width)], facts={"seed": "0"}
    )
    log.decisions = [decision(index, width, followed=index % 4 != 0) for index in range(decisions)]
    log.joint_samples = [(t_s, np.full(width, 0.1 * t_s)) for t_s in np.arange(0.0, 4.0, 0.05)]
    log.frames = [
        (float(t_s), camera, np.zeros((56, 56, 3), np.uint8)) for t_s in (1, 2) for camera in ("a", "b")
    ]
    log.events = [(0.5, "active"), (3.9, "instruction: <other>")]
    log.source_counts = {"a": {"received": 120, "used": 12}, "joint_states": {"received": 400}}
    log.source_rates = {"a": 29.97}
    return log


def referenced_files(page: Path) -> set[str]:
    return set(re.findall(r"(?:src|href)='([^']+)'", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("width", [3, 26])
def test_pictures_and_page_for_few_and_many_joints(tmp_path: Path, width: int) -> None:
    """Lost otherwise: no picture, an empty one, or one that the page does not show."""
    page = write_report(run_log(width), tmp_path / "new" / "report")
    assert page == tmp_path / "new" / "report" / "report.html"
    assert referenced_files(page) == {*PICTURES, "run.json"}
    for name in PICTURES:
        picture = cv2.imread(str(page.parent / name))
        assert picture is not None
        assert picture.shape[1] > 400
        assert picture.std() > 5


def test_joints_show_the_commands_that_were_sent(tmp_path: Path) -> None:
    """Lost otherwise: the picture shows chunks as if the robot had been told to jump from one to the next."""
    log = run_log()
    assert draw_joints(log, tmp_path / "chunks.png") == ""
    log.command_samples = [(t_s, np.full(3, np.sin(t_s))) for t_s in np.arange(1.0, 4.0, 0.05)]
    assert draw_joints(log, tmp_path / "commands.png") == ""
    chunks, commands = (cv2.imread(str(tmp_path / f"{name}.png")) for name in ("chunks", "commands"))
    assert chunks is not None
    assert commands is not None
    assert chunks.shape == commands.shape
    assert (chunks != commands).any(axis=2).mean() > 0.01


def test_page_shows_counts_and_percentiles_and_escapes_text(tmp_path: Path) -> None:
    """Lost otherwise: the reader sees wrong numbers, or an instruction breaks the page."""
    text = write_report(run_log(), tmp_path).read_text(encoding="utf-8")
    assert "A &lt;run&gt;" in text
    assert "instruction: &lt;other&gt;" in text
    assert (
        "<td>decision total</td><td class=number>12</td><td class=number>90.5</td>" in text
    )  # p50 of 85 … 96
    assert "<td>a</td><td class=number>30.0</td><td class=number>120</td><td class=number>12</td>" in text


def test_json_holds_the_raw_numbers(tmp_path: Path) -> None:
    """Lost otherwise: nobody can recompute the report's numbers, or the file is no valid JSON (NaN)."""
    log = run_log()
    log.joint_samples[0] = (0.0, np.array([np.nan, 0.25, 1.0]))
    log.command_samples = [(1.00004, np.array([0.1, 0.2, 1 / 3]))]
    log.limits = {"joint_0": (-1.0, 1.0, 2.0)}
    write_report(log, tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    raw = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert [record["sequence"] for record in raw["decisions"]] == list(range(12))
    assert raw["decisions"][3]["actions"][0] == pytest.approx([0.3, 0.3, 0.3])
    assert raw["joint_samples"][0] == [0.0, [None, 0.25, 1.0]]
    assert raw["command_samples"] == [[1.0, [0.1, 0.2, 0.333333]]]
    assert raw["limits"] == {"joint_0": [-1.0, 1.0, 2.0]}
    assert raw["decisions"][0]["commanded"] is None
    assert raw["source_counts"]["a"]["received"] == 120


def test_a_run_without_decisions_says_so(tmp_path: Path) -> None:
    """Lost otherwise: the report of a failed run fails too, or shows the pictures of the run before."""
    write_report(run_log(), tmp_path)
    page = write_report(RunLog("failed", step_s=0.5, facts={"why": "no camera"}), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "No decision was made." in text
    assert "no camera" in text
    assert not [name for name in PICTURES if (tmp_path / name).exists()]


def test_stages_that_only_some_decisions_have() -> None:
    """Lost otherwise: one odd decision removes a stage from the table, or counts as 0 ms."""
    records = [
        decision(0, 2, stage_ms={"vision": 30.0}),
        decision(1, 2, stage_ms={"action": 20.0, "total": 60.0}),
    ]
    table = duration_table(records)
    assert list(table) == [
        "age of observation", "ingest", "policy", "policy: vision", "policy: action", "decision total",
    ]  # fmt: skip
    assert table["policy: vision"] == pytest.approx([30.0, np.nan], nan_ok=True)
    assert table["decision total"] == pytest.approx([85.0, 86.0])


def test_numbers_do_not_depend_on_the_measured_joints_being_known(tmp_path: Path) -> None:
    """Lost otherwise: a bag without joint states gives no report at all."""
    log = run_log()
    log.joint_samples = []
    log.decisions = [decision(0, 3, followed=None)]
    write_report(log, tmp_path)
    assert (tmp_path / "joints.png").exists()
    assert (tmp_path / "timeline.png").exists()
