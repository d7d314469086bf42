# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The benchmark of all policies, in the small and on the CPU: what it judges, and that it can fail."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import policies
from benchmarks.device.policies import POLICIES
from flashrt_kernels.matmul import matmul


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *cases: str) -> tuple[int, dict[str, dict[str, dict]]]:
    arguments = ["--size", "tiny", "--device", "cpu", "--seconds", "0", "--out", str(out), "--cases", *cases]
    monkeypatch.setattr(sys, "argv", ["policies", *arguments])
    monkeypatch.setattr(policies, "LEAST", 2)
    status = policies.main()
    return status, json.loads(out.read_text(encoding="utf-8"))["policies"]


def test_every_policy_is_judged_by_something() -> None:
    """A policy without a limit of error would pass with any."""
    assert {case.policy for case in POLICIES.values()} == {
        "pi0",
        "pi05",
        "pi0_fast",
        "groot_n16",
        "groot_n17",
    }
    assert all(case.compared for case in POLICIES.values())


def test_a_policy_that_is_right_is_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """bf16 beside fp32, and raw samples of every part of a decision."""
    status, found = run(monkeypatch, tmp_path / "out.json", "pi05-3v")
    assert status == 0
    assert found["pi05-3v"]["gate"]["passed"]
    assert {len(values) for values in found["pi05-3v"]["samples"].values()} == {2}
    assert {"vision", "prefix", "action", "wall"} <= found["pi05-3v"]["samples"].keys()


def test_random_weights_of_every_policy_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Weights that drown the state, or carry rounding on, would leave a policy without a figure."""
    status, found = run(monkeypatch, tmp_path / "out.json", *POLICIES)
    assert status == 0
    assert {key for key, result in found.items() if result["gate"]["passed"]} == set(POLICIES)


def test_a_policy_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fast engine that computes something else must not get a row."""
    right = matmul.reference

    def wrong(x, weight, bias, gate, residual, out, **parameters):  # type: ignore[no-untyped-def]
        right(x, weight, bias, gate, residual, out, **parameters)
        if out.dtype != x.dtype:
            out.mul_(1.03)  # the residual stream of a policy in bf16

    monkeypatch.setattr(matmul, "reference", wrong)
    status, found = run(monkeypatch, tmp_path / "out.json", "pi05-3v")
    assert status == 1
    assert not found["pi05-3v"]["gate"]["passed"]
    assert "samples" not in found["pi05-3v"]
