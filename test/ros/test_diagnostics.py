# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From facts to statuses: an operator reads these lines and nothing else."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from flashrt_ros.diagnostics import (
    ERROR,
    OK,
    UNMEASURED,
    WARN,
    DecisionFacts,
    Heartbeat,
    SourceFacts,
    decision_status,
    source_status,
    state_status,
)
from flashrt_ros.ingest import SourceCounts
from flashrt_ros.observation import NotReady
from flashrt_ros.statistics import Summary

FRONT = SourceFacts("front", "/front/image_raw", True, 0.25, 29.97, 0.03, 300, 250, SourceCounts(50, 49))
OPTIONAL = replace(FRONT, required=False)
OLD = NotReady(
    ("camera 'front' too old: 1.20 s", "joint_states: elbow never seen"),
    ("front: too old", "joint_states: missing elbow"),
)
FROZEN = NotReady(("camera 'front' frozen: 10 images with the same content",), ("front: frozen",))
MEASURED = SourceFacts("joint_states", "/joint_states", False, 0.1, 99.0, 0.01, without=UNMEASURED)
JOINTS = SourceFacts("joint_states", "/joint_states", True, 0.1, 99.0, 0.01)
DECISIONS = DecisionFacts(
    rate_hz=4.98,
    wanted_hz=5.0,
    sequence=17,
    epoch=2,
    instruction="wave",
    counts={"decided": 17, "rejected": 0},
    summaries={"policy": Summary(17, 100.0, 110.0, 120.0, 130.0), "overhead": None},
    ages_ms={"front": 12.34},
    skew_ms=3.0,
)


def values(status: object) -> dict[str, str]:
    return {value.key: value.value for value in status.values}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("facts", "not_ready", "active", "level", "words"),
    [
        (FRONT, None, True, OK, "30.0 Hz"),
        (FRONT, OLD, True, ERROR, "too old: 1.20 s"),
        (FRONT, OLD, False, WARN, "too old: 1.20 s"),
        (JOINTS, OLD, True, ERROR, "elbow never seen"),
        (
            replace(FRONT, conflicts=("/cam offers best_effort",)),
            None,
            False,
            ERROR,
            "/cam offers best_effort",
        ),
        (OPTIONAL, None, True, OK, "30.0 Hz"),
        (replace(OPTIONAL, silent_s=None), None, True, WARN, "never seen"),
        (replace(OPTIONAL, silent_s=2.0), None, True, WARN, "stopped 2.0 s ago"),
        (
            replace(OPTIONAL, frozen="frozen: 9 images"),
            None,
            True,
            WARN,
            "frozen: 9 images; its slot is masked",
        ),
        (FRONT, FROZEN, True, ERROR, "frozen: 10 images with the same content"),
        (
            replace(MEASURED, silent_s=None),
            None,
            True,
            WARN,
            "never seen; the joints of the actions are not measured",
        ),
    ],
)
def test_source_level(
    facts: SourceFacts, not_ready: NotReady | None, active: bool, level: bytes, words: str
) -> None:
    """A missing source is an error exactly when it keeps the robot from acting; each line is about its source
    only."""
    status = source_status("arm/policy", facts, not_ready, active=active)
    assert status.name == f"arm/policy: {facts.name}"
    assert (status.level, words in status.message) == (level, True)
    assert ("elbow" in status.message) == (facts is JOINTS)


def test_source_values_are_complete() -> None:
    """Rates and drops are what a user reports when a camera makes trouble."""
    dropped = replace(FRONT, counts=SourceCounts(50, 40, dropped={"malformed": 3, "flushed": 0}))
    shown = values(source_status("policy", dropped, None, active=True))
    assert shown["topic"] == "/front/image_raw"
    assert shown["rate_hz"] == "30.0"
    assert (shown["published"], shown["not_taken"], shown["received"], shown["used"]) == (
        "300",
        "250",
        "50",
        "40",
    )
    assert shown["dropped_malformed"] == "3"
    assert "dropped_flushed" not in shown
    assert (
        values(source_status("p", replace(FRONT, silent_s=None), None, active=True))["last_message_s_ago"]
        == "never"
    )


@pytest.mark.parametrize(
    ("facts", "active", "level", "words"),
    [
        (DECISIONS, True, OK, "5.0 Hz"),
        (DECISIONS, False, OK, "inactive, ready"),
        (replace(DECISIONS, not_ready=OLD), False, WARN, "not ready: camera 'front' too old"),
        (replace(DECISIONS, not_ready=OLD), True, ERROR, "no actions: camera 'front' too old"),
        (replace(DECISIONS, rejected="3 actions are NaN"), True, ERROR, "3 actions are NaN"),
        (replace(DECISIONS, missed_now=2), True, WARN, "2 deadlines missed"),
    ],
)
def test_decision_level(facts: DecisionFacts, active: bool, level: bytes, words: str) -> None:
    """No actions is an error with its reason; a policy that is slower than asked is a warning (R63)."""
    status = decision_status("policy", facts, active=active)
    assert (status.level, words in status.message) == (level, True), status.message


def test_decision_values_have_percentiles_and_ages() -> None:
    """Latency is reported as p50 / p95 / p99, in the node as in the benchmarks."""
    shown = values(decision_status("policy", DECISIONS, active=True))
    assert [shown[f"policy_ms_{key}"] for key in ("p50", "p95", "p99", "max")] == [
        "100.00",
        "110.00",
        "120.00",
        "130.00",
    ]
    assert not [key for key in shown if key.startswith("overhead")]
    assert (shown["age_ms_front"], shown["skew_ms"], shown["count_decided"]) == ("12.3", "3.0", "17")
    free = replace(DECISIONS, wanted_hz=None)
    assert values(decision_status("policy", free, active=True))["wanted_hz"] == "as fast as possible"


def test_state_shows_phase_and_fault() -> None:
    """While a large checkpoint loads this line is all that a user sees."""
    loading = state_status("policy", "configuring", {}, fault=None, phase="configure 2/6: load /x")
    assert (loading.level, loading.message) == (OK, "configuring: configure 2/6: load /x")
    failed = state_status("policy", "unconfigured", {"device": "cpu"}, fault="no file", phase=None)
    assert (failed.level, failed.message) == (ERROR, "unconfigured: no file")


def test_heartbeat_reports_a_failure_and_goes_on() -> None:
    """A monitor takes silence for death: one failing beat must not end the others, nor vanish."""
    beats: list[int] = []
    errors: list[Exception] = []
    enough = threading.Event()

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            enough.set()
        if len(beats) == 1:
            raise KeyError("once")

    heartbeat = Heartbeat(beat, errors.append, period_s=0.01)
    assert enough.wait(5.0)
    heartbeat.close()
    assert [type(error) for error in errors] == [KeyError]
    count = len(beats)
    assert not [thread for thread in threading.enumerate() if thread.name == "diagnostics"]
    assert len(beats) == count
