# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What one run was: `RunLog` collects it, `write_report` makes report.html, pictures and run.json of it.

The demo fills a `RunLog` from topics, `replay` fills it from a bag; nothing here knows ROS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class DecisionRecord:
    """One decision as it was published. Times in seconds since the start of the run, durations in ms.

    `t_s` is the moment of publication: the trajectory starts there, so row `steps_consumed + j - 1` of
    `actions` was commanded for `t_s + j * RunLog.step_s` (j = 1, 2, ...). `total_ms` is decision start →
    published.
    """

    t_s: float
    sequence: int
    epoch: int
    instruction: str
    age_ms: float
    ingest_ms: float
    policy_ms: float
    total_ms: float
    stage_ms: Mapping[str, float]
    steps_consumed: int
    actions: np.ndarray  # float32 [horizon, D], robot units
    followed: bool | None = None  # None: nobody measured it (no robot behind a bag)


@dataclass
class RunLog:
    """Everything a report shows. Joint positions are in the order of `action_names`, NaN where unknown.

    `units` maps a joint to the unit on its axis ("rad" when it is not listed). `source_counts` holds one row
    of counters per source (camera name, "joint_states"), `source_rates` its measured rate in Hz.
    """

    title: str
    step_s: float  # time between two rows of a chunk, 1 / action_rate_hz
    action_names: Sequence[str] = ()
    facts: dict[str, str] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    joint_samples: list[tuple[float, np.ndarray]] = field(default_factory=list)  # (t_s, float [D])
    frames: list[tuple[float, str, np.ndarray]] = field(
        default_factory=list
    )  # (t_s, camera, uint8 [h, w, 3])
    events: list[tuple[float, str]] = field(default_factory=list)  # (t_s, text)
    source_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    source_rates: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)


def write_report(log: RunLog, folder: str | Path) -> Path:
    """Write report.html, its pictures and run.json into `folder` (created if needed); returns report.html.

    A run without decisions still gives a report: it says so in place of the pictures it cannot draw.
    """
    raise NotImplementedError
