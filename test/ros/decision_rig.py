# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A Decider over a policy that remembers its calls, for tests of decisions and of their thread."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from flashrt_ros.decision import Decider
from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import Decision
from flashrt_ros.parameters import NodeConfig

S = 1_000_000_000
T0 = 1_700_000_000 * S


class StubPolicy:
    """Remembers its calls; `during` runs inside decide(), as if something happened meanwhile."""

    name = "stub"

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.actions = np.ones((4, 2), np.float32)  # [H, D]
        self.during: Callable[[], object] = lambda: None

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> Any:
        self.calls.append(
            {"images": images, "state": state, "instruction": instruction, "seed": seed, "sequence": sequence}
        )
        self.during()
        return SimpleNamespace(actions=self.actions, timings={"vision": 1.0, "action": 2.0, "total": 3.0})


def joints(stamp_ns: int = T0) -> Any:
    stamp = SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=stamp), name=["a", "b"], position=np.array([1.0, 2.0])
    )


def image(stamp_ns: int = T0) -> Any:
    fields = {"encoding": "rgb8", "height": 1, "width": 1, "step": 3, "data": np.zeros(3, np.uint8)}
    return SimpleNamespace(header=joints(stamp_ns).header, is_bigendian=0, **fields)


class Rig:
    """A Decider with one camera and two joints over a stub policy."""

    def __init__(self, pull: Callable[[], None] | None = None, parameters: Any = None) -> None:
        flat = {
            "checkpoint": "/x",
            "action_rate_hz": 30.0,
            "cameras": ["front"],
            "camera.front.frozen_after": 0,  # its picture never changes
            "joint_names": ["a", "b"],
            "instruction": "wait",
            "seed": 5,
            **(parameters or {}),
        }
        config = NodeConfig.from_dict(flat)
        self.policy = StubPolicy()
        self.ingest = Ingest(config, lambda kind, text: None)
        self.decider = Decider(self.policy, self.ingest, config, pull=pull)

    def fill(self, at_ns: int = T0) -> None:
        self.ingest.put("front", image(at_ns), at_ns)
        self.ingest.put("joint_states", joints(at_ns), at_ns)

    def decided(self, now_ns: int = T0) -> Decision:
        outcome = self.decider.decide(now_ns)
        assert isinstance(outcome, Decision), str(outcome)
        return outcome
