# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What one decision sees, why it could not be made, and what it gave; the same for topics and bags."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flashrt_kernels.pixels import RawImage

JOINT_STATES = "joint_states"
"""Name of the joint source beside the camera names in stamps, ages, counts and rates."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Observation:
    """The newest sample of every source, by name.

    `images` maps the checkpoint's slot to pixels as they came; an optional camera that is late is absent.
    `state` is float32 [D] in the policy's order and units. `stamps_ns` and `now_ns` are nanoseconds on the
    node's clock (ROS time, or the bag's). `required` names the sources that a decision must have; the stamp
    of the chunk is the oldest of them. `positions` are those of the action's joints that were measured, in
    the robot's units.
    """

    images: dict[str, RawImage]
    state: np.ndarray  # float32 [D]
    stamps_ns: dict[str, int]
    required: tuple[str, ...]
    now_ns: int
    positions: dict[str, float] = field(default_factory=dict)

    @property
    def ages_ms(self) -> dict[str, float]:
        """Age of every source used, ms at `now_ns`; a stamp slightly ahead of the clock counts as age 0."""
        return {name: max(0, self.now_ns - stamp) / NS_PER_MS for name, stamp in self.stamps_ns.items()}

    @property
    def oldest_ns(self) -> int:
        """Stamp of the oldest required source, ns."""
        return min(self.stamps_ns[name] for name in self.required)

    @property
    def skew_ms(self) -> float:
        """Time between the oldest and the newest required source, ms."""
        stamps = [self.stamps_ns[name] for name in self.required]
        return (max(stamps) - min(stamps)) / NS_PER_MS


@dataclass(frozen=True)
class NotReady:
    """Why there is no observation: `reasons` are sentences with the numbers of this moment.

    `keys` are the same reasons without numbers ("front: too old"), one for each sentence: a log that should
    speak once per change compares these.
    """

    reasons: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


@dataclass(frozen=True)
class Rejected:
    """A decision whose result must not be published, and why (`kind` is the counter it went to)."""

    reason: str
    kind: str


@dataclass(frozen=True)
class Decision:
    """One action chunk with everything both output messages carry.

    `actions` are robot units, row 0 is the action for `observation.oldest_ns`; columns are `action_names`.
    `started_ns` and `finished_ns` are on the monotonic clock. `first` marks the first chunk after a
    flush: nothing of it counts as consumed. Times ending in `_ms` are milliseconds; `wait_ms` is how long
    after its deadline or trigger it began.
    """

    actions: np.ndarray  # float32 [H, D]
    action_names: tuple[str, ...]
    sequence: int
    epoch: int
    first: bool
    seed: int
    instruction: str
    model: str
    observation: Observation
    age_ms: float
    ingest_ms: float
    policy_ms: float
    stage_ms: dict[str, float] = field(default_factory=dict)
    started_ns: int = 0
    finished_ns: int = 0
    wait_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """Decision start → result checked, ms."""
        return (self.finished_ns - self.started_ns) / NS_PER_MS
