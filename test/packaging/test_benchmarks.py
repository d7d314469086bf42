# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What `make bench` writes can be trusted and read again; how fast anything is, is not a test's business."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as all_benchmarks
from benchmarks import readme, record
from benchmarks.record import Record, Target

ROOT = Path(__file__).resolve().parents[2]


def test_a_record_holds_percentiles_machine_and_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else numbers without a machine, or a missed promise that nobody sees."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    result = Record("example", {"decisions": 101})
    row = result.add("latency, ms", range(101))
    result.targets = [Target("p50", row["p50"], 50.0, "ms"), Target("p99", row["p99"], 98.0, "ms")]
    stored = json.loads(result.write().read_text(encoding="utf-8"))
    assert stored["rows"]["latency, ms"] == {"count": 101, "p50": 50, "p95": 95, "p99": 99, "max": 100}
    assert [target["reached"] for target in stored["targets"]] == [True, False]
    assert stored["machine"]["cores"] >= 1
    assert stored["versions"]["torch"]


def test_a_quantity_that_was_never_measured_is_an_error() -> None:
    """Else a benchmark whose probe fell off reports that all is well."""
    with pytest.raises(ValueError, match="nothing was measured for latency"):
        Record("example", {}).add("latency, ms", [])


@pytest.mark.parametrize("name", all_benchmarks.BENCHMARKS)
def test_the_committed_results_belong_to_the_benchmarks(name: str) -> None:
    """Else the README's numbers come from a benchmark that no longer exists."""
    assert (ROOT / "benchmarks" / f"{name}.py").is_file()
    stored = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert stored["benchmark"] == name
    assert stored["rows"]


def test_the_readme_shows_the_committed_results() -> None:
    """Else the README claims numbers that nobody measured."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split(readme.BEGIN)[1].split(readme.END)[0]
    assert shown == readme.figures(), "run python -m benchmarks.readme"


def test_a_device_that_does_not_exist_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else `make bench DEVICE=cuda` ends in two tracebacks after some of the benchmarks."""
    monkeypatch.setattr("sys.argv", ["benchmarks", "--device", "abacus"])
    with pytest.raises(SystemExit):
        all_benchmarks.main()
    assert "device 'abacus'" in capsys.readouterr().err
