# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From a decision to both messages: a shifted row makes the robot late or lets it jump."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashrt_ros.chunk import Account, chunk_fields, decision_steps_consumed, is_finite, steps_consumed
from flashrt_ros.groups import all_positions
from flashrt_ros.observation import Decision, Observation

S = 1_000_000_000
ACTIONS = np.arange(12, dtype=np.float32).reshape(4, 3)  # [H, D]


def decision(**more: Any) -> Decision:
    observation = Observation(
        images={},
        state=np.zeros(3, np.float32),
        stamps_ns={"front": 7 * S, "spare": 5 * S, "joint_states": 8 * S},
        required=("front", "joint_states"),
        now_ns=9 * S,
    )
    fields: dict[str, Any] = {
        "actions": ACTIONS,
        "action_names": ("a", "b", "c"),
        "sequence": 4,
        "epoch": 2,
        "first": False,
        "seed": 11,
        "instruction": "pick",
        "model": "pi05",
        "observation": observation,
        "age_ms": 40.0,
        "ingest_ms": 1.0,
        "policy_ms": 60.0,
        "stage_ms": {"vision": 20.0, "action": 40.0},
        "started_ns": 0,
        "finished_ns": 70_000_000,
    }
    return Decision(**{**fields, **more})


@pytest.mark.parametrize(
    ("age_s", "rate", "steps"),
    [
        (0.0, 30, 0),
        (0.033, 30, 0),
        (1 / 30, 30, 1),
        (0.1, 30, 3),
        (0.0999, 30, 2),
        (3 / 30, 30, 3),
        (0.29, 100, 29),
        (1.0, 50, 50),
    ],
)
def test_R29_consumed_steps_are_whole_steps_of_the_age(age_s: float, rate: float, steps: int) -> None:
    """The row of a step that is under way is still commanded; an age of exactly k steps is k."""
    assert steps_consumed(age_s, rate, first=False) == steps


def test_R29_first_chunk_skips_nothing() -> None:
    """Before the first chunk the robot stood still: warm-up must not cost it the begin of the motion."""
    assert steps_consumed(5.0, 30, first=True) == 0
    assert decision_steps_consumed(decision(first=True), 30) == 0


def test_R29_age_and_own_duration_both_count() -> None:
    """40 ms old when it began and 70 ms to compute: three steps of 30 Hz are over when it is published."""
    assert decision_steps_consumed(decision(), 30) == 3


def test_R42_one_bad_value_rejects_the_chunk() -> None:
    """NaN and infinities are caught before anything is published."""
    assert is_finite(ACTIONS)
    for bad in (np.nan, np.inf, -np.inf):
        broken = ACTIONS.copy()
        broken[3, 2] = bad
        assert not is_finite(broken)


def test_R14_chunk_message_carries_names_stamps_and_timing() -> None:
    """Whoever records the topic can tell which row is for when and which column is which joint."""
    groups = (all_positions(("a", "b")), replace(all_positions(("c",)), name="hand", space="gripper"))
    account = Account(groups, True, post_ms=1.5, publish_ms=0.5, decision_rate_hz=9.5, missed_deadlines=2)
    fields = chunk_fields(decision(), 3, 30, account)
    assert fields.stamp_ns == 7 * S, "the oldest required source; an optional one does not count"
    assert fields.source_names == ("front", "spare", "joint_states")
    assert fields.source_stamps_ns == (7 * S, 5 * S, 8 * S)
    assert fields.action_names == ("a", "b", "c")
    assert (fields.horizon, fields.action_dim, fields.steps_consumed) == (4, 3, 3)
    assert fields.step_ns == 33_333_333
    assert fields.data.tolist() == list(range(12))
    assert fields.data.dtype == np.float32
    assert (fields.sequence, fields.epoch, fields.seed) == (4, 2, 11)
    assert (fields.instruction, fields.model) == ("pick", "pi05")
    assert (fields.age_ms, fields.ingest_ms, fields.policy_ms) == (40.0, 1.0, 60.0)
    assert dict(zip(fields.stage_names, fields.stage_ms, strict=True)) == {"vision": 20.0, "action": 40.0}
    assert fields.group_names == ("joints", "hand")
    assert fields.group_spaces == ("joint_position", "gripper")
    assert fields.group_widths == (2, 1)
    assert (fields.commanded, fields.post_ms, fields.publish_ms) == (True, 1.5, 0.5)
    assert (fields.decision_rate_hz, fields.missed_deadlines) == (9.5, 2)


def test_R43_R24_ages_and_skew_of_an_observation() -> None:
    """Diagnostics show per-source ages and the skew of the required ones."""
    observation = decision().observation
    assert observation.ages_ms == {"front": 2000.0, "spare": 4000.0, "joint_states": 1000.0}
    assert observation.skew_ms == 1000.0
