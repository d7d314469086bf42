# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From a `Decision` to the plain fields of both output messages. Pure functions, no ROS types.

Row k of a chunk is the target to reach one step after `stamp + k·dt`, dt = 1 / `action_rate_hz`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flashrt_ros.groups import ActionGroup
from flashrt_ros.observation import NS_PER_S, Decision

_ROUNDING = 1e-6  # of a step: an age of exactly k steps must count as k, not k − 1


def is_finite(actions: np.ndarray) -> bool:
    """True when all of actions [H, D] is finite; one NaN rejects a whole chunk, its rows belong together."""
    return bool(np.isfinite(actions).all())


def steps_consumed(age_s: float, rate_hz: float, first: bool) -> int:
    """Rows of the chunk that lie in the past: whole steps of 1/rate_hz within `age_s` since the observation.

    0 for the first chunk after a flush: the robot stood still while it was computed, nothing was executed.
    May exceed the horizon: the whole chunk is past then.
    """
    return 0 if first else max(0, math.floor(age_s * rate_hz + _ROUNDING))


def decision_steps_consumed(decision: Decision, rate_hz: float) -> int:
    """Rows of `decision` in the past when it finished: age at its start plus its duration (monotonic)."""
    return steps_consumed((decision.age_ms + decision.total_ms) / 1e3, rate_hz, decision.first)


@dataclass(frozen=True)
class ChunkFields:
    """flashrt_ros/ActionChunk field by field; times in nanoseconds, durations of the timing split in ms.

    `data` is contiguous float32 [H · D], row-major; `source_names` and `source_stamps_ns` go together.
    """

    stamp_ns: int
    source_names: tuple[str, ...]
    source_stamps_ns: tuple[int, ...]
    action_names: tuple[str, ...]
    horizon: int
    action_dim: int
    step_ns: int
    data: np.ndarray  # float32 [H * D]
    steps_consumed: int
    sequence: int
    epoch: int
    seed: int
    instruction: str
    model: str
    age_ms: float
    ingest_ms: float
    policy_ms: float
    stage_names: tuple[str, ...]
    stage_ms: tuple[float, ...]
    group_names: tuple[str, ...]
    group_spaces: tuple[str, ...]
    group_widths: tuple[int, ...]
    commanded: bool
    wait_ms: float
    post_ms: float
    publish_ms: float
    decision_rate_hz: float
    missed_deadlines: int


@dataclass(frozen=True)
class Account:
    """What the node adds to a decision in its chunk message; `publish_ms` is of the chunk before."""

    groups: tuple[ActionGroup, ...]
    commanded: bool = False
    post_ms: float = 0.0
    publish_ms: float = 0.0
    decision_rate_hz: float = 0.0
    missed_deadlines: int = 0


def chunk_fields(decision: Decision, consumed: int, rate_hz: float, account: Account) -> ChunkFields:
    """The ActionChunk of a decision; `consumed` comes from `decision_steps_consumed`."""
    observation = decision.observation
    horizon, action_dim = decision.actions.shape  # [H, D]
    return ChunkFields(
        stamp_ns=observation.oldest_ns,
        source_names=tuple(observation.stamps_ns),
        source_stamps_ns=tuple(observation.stamps_ns.values()),
        action_names=decision.action_names,
        horizon=horizon,
        action_dim=action_dim,
        step_ns=round(NS_PER_S / rate_hz),
        data=np.ascontiguousarray(decision.actions, dtype=np.float32).reshape(-1),
        steps_consumed=consumed,
        sequence=decision.sequence,
        epoch=decision.epoch,
        seed=decision.seed,
        instruction=decision.instruction,
        model=decision.model,
        age_ms=decision.age_ms,
        ingest_ms=decision.ingest_ms,
        policy_ms=decision.policy_ms,
        stage_names=tuple(decision.stage_ms),
        stage_ms=tuple(decision.stage_ms.values()),
        group_names=tuple(group.name for group in account.groups),
        group_spaces=tuple(group.space for group in account.groups),
        group_widths=tuple(len(group.names) for group in account.groups),
        commanded=account.commanded,
        wait_ms=decision.wait_ms,
        post_ms=account.post_ms,
        publish_ms=account.publish_ms,
        decision_rate_hz=account.decision_rate_hz,
        missed_deadlines=account.missed_deadlines,
    )
