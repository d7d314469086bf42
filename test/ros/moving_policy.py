# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The node with a policy whose robot always moves: `python -m test.ros.moving_policy --ros-args …`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from flashrt_ros.parameters import NodeConfig
from flashrt_ros.policy_node import main
from test.ros.stub_policy import StubPolicy


class MovingPolicy(StubPolicy):
    """Targets that go on for ever at 0.2 per second."""

    horizon = 20

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config, think=self._go)
        self._start_s = time.monotonic()

    def _go(self, state: np.ndarray, **given: Any) -> np.ndarray:
        seconds = time.monotonic() - self._start_s + 0.1 * np.arange(self.horizon)
        return (state[None, :] + 0.2 * seconds[:, None]).astype(np.float32)  # [H, D]


if __name__ == "__main__":
    raise SystemExit(main(load_policy=MovingPolicy))
