# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The node with a policy that warms up for 20 s: `python -m test.ros.slow_policy --ros-args …`."""

from __future__ import annotations

import time
from collections.abc import Callable

from flashrt_ros.policy_node import main
from test.ros.stub_policy import StubPolicy


class SlowPolicy(StubPolicy):
    """Reports a step of its warm-up every 0.1 s."""

    def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
        for step in range(200):
            time.sleep(0.1)
            if progress is not None:
                progress(f"step {step}")


if __name__ == "__main__":
    raise SystemExit(main(load_policy=SlowPolicy))
