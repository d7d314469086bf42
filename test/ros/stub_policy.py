# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A policy with the interface of flashrt_kernels.Policy and no model, for tests of the node.

Run as a module it is the node with that policy: `python -m test.ros.stub_policy --ros-args …`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from flashrt_kernels.errors import ObservationError
from flashrt_kernels.names import slots_by_name
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.policy_node import main

HORIZON = 4


def slot_among(cameras: Sequence[str], name: str) -> str:
    """As Policy.slot."""
    names = slots_by_name(cameras, {})
    if name not in names:
        raise ObservationError(f"unknown camera {name!r}")
    return names[name]


class StubPolicy:
    """Answers with the state it was given, repeated over the horizon; `think` replaces that answer."""

    name, origin = "stub", "nobody"
    camera_rule, not_positions = "present first", ""
    horizon = HORIZON
    action_names = None
    relative_actions: tuple[str, ...] = ()

    def __init__(
        self, config: NodeConfig, think: Callable[..., Any] | None = None, sleep_s: float = 0.0
    ) -> None:
        self.cameras = tuple(f"observation.images.{camera.slot}" for camera in config.cameras)
        self.state_dim = len(config.joints)
        self.action_dim = len(config.action_names)
        self.state_groups = {"state": self.state_dim}
        self.state_stats: dict[str, Any] = {}
        self.bound: list[str] = []
        self.closed = False
        self._think, self._sleep_s = think, sleep_s

    def slot(self, name: str) -> str:
        return slot_among(self.cameras, name)

    def statistics_units(self, state: np.ndarray) -> np.ndarray:
        return state  # [D]

    def bind(self, cameras: list[str]) -> None:
        self.bound = list(cameras)

    def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
        if progress is not None:
            progress("1/1")

    def decide(
        self, images: Any, state: np.ndarray, instruction: str, *, seed: int, sequence: int
    ) -> SimpleNamespace:
        given = {"images": images, "state": state, "instruction": instruction, "sequence": sequence}
        time.sleep(self._sleep_s)
        if self._think is not None:
            actions = self._think(**given)
        else:
            actions = np.tile(np.asarray(state, np.float32)[: self.action_dim], (HORIZON, 1))
        return SimpleNamespace(actions=actions, timings={"total": 1e3 * self._sleep_s})  # [HORIZON, D]

    def model_images(self) -> dict[str, np.ndarray]:
        return {slot: np.full((8, 8, 3), 7, np.uint8) for slot in self.cameras}  # [8, 8, 3]

    def close(self) -> None:
        self.closed = True


if __name__ == "__main__":
    raise SystemExit(main(load_policy=StubPolicy))
