# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The node with a policy that computes 30 s per decision: `python -m test.ros.busy_policy --ros-args …`."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch

from flashrt_ros.policy_node import main
from test.ros.stub_policy import StubPolicy


class BusyPolicy(StubPolicy):
    """Like a large policy on a small computer: most of the time is spent inside of torch."""

    def decide(self, *arguments: Any, **options: Any) -> SimpleNamespace:
        end_s = time.monotonic() + 30.0
        x = torch.eye(600)
        while time.monotonic() < end_s:
            x = x @ x  # [600, 600]
        return super().decide(*arguments, **options)


if __name__ == "__main__":
    raise SystemExit(main(load_policy=BusyPolicy))
