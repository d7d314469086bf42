# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node adds to a policy: decision start → publish returned, minus the policy's own time.

The node is the real one; only its policy is a stub that sleeps. Two VGA cameras at 30 Hz and joint states at
100 Hz come over DDS from another process. Beside it: how old each source is when a decision starts, and how
long its message travelled.

The default rate is no divisor of the cameras' rate: every phase between them is met.

Usage: python -m benchmarks.node_overhead [--decisions 1000] [--policy-ms 40] [--rate 13]
"""

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from benchmarks.live_node import JOINT_NAMES, LiveNode, live_node
from benchmarks.record import Record, Target
from flashrt_ros.commands import Accepted
from flashrt_ros.demo_setup import CAMERAS
from flashrt_ros.freshness import header_ns
from flashrt_ros.observation import NS_PER_MS, Decision
from flashrt_ros.parameters import NodeConfig

HORIZON = 50
WARM_UP = 20  # first decisions, not counted
LIMIT_P50_MS, LIMIT_P99_MS = 3.0, 8.0


@dataclass
class StubChunk:
    """What a policy returns."""

    actions: np.ndarray  # float32 [horizon, D]
    timings: dict[str, float] = field(default_factory=dict)


class SleepingPolicy:
    """Takes its time without taking the processor, as a policy on a GPU does."""

    name, origin = "stub", "nobody"
    camera_rule, not_positions = "present first", ""
    horizon = HORIZON
    action_names = None
    state_dim = action_dim = len(JOINT_NAMES)
    cameras: tuple[str, ...] = CAMERAS
    state_stats: ClassVar[dict[str, np.ndarray]] = {}
    state_groups: ClassVar[dict[str, int]] = {"state": len(JOINT_NAMES)}
    camera_rule, not_positions, origin, relative_actions = "present first", "", "nobody", ()

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._actions = np.zeros((HORIZON, self.action_dim), np.float32)  # [horizon, D]

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> StubChunk:
        time.sleep(self._seconds)
        return StubChunk(self._actions)

    def slot(self, name: str) -> str:
        """Names of cameras are the names of slots."""
        return name

    def statistics_units(self, state: np.ndarray) -> np.ndarray:
        """The units of the state [D]: there are no statistics."""
        return state

    def model_images(self) -> dict[str, np.ndarray]:
        """Nothing is looked at."""
        return {}

    def bind(self, cameras: Any) -> None:
        """Any camera will do."""

    def warm_up(self, progress: Any = None) -> None:
        """Nothing to warm."""

    def close(self) -> None:
        """Nothing to free."""


class Probe:
    """Records every decision and every message of a node, in the node's own calls."""

    def __init__(self, live: LiveNode, messages: bool = True) -> None:
        """Without `messages` only decisions: at 500 Hz the probe would cost more than what it measures."""
        self.overhead_ms: list[float] = []
        self.ingest_ms: list[float] = []
        self.values: dict[str, list[float]] = defaultdict(list)
        self._publish, live.running.outputs.publish = live.running.outputs.publish, self._on_decision  # type: ignore[method-assign, assignment]
        self._put = live.running.ingest.put
        if messages:
            live.running.ingest.put = self._on_message  # type: ignore[method-assign]

    def _on_decision(self, decision: Decision, *arguments: Any) -> Accepted:
        accepted = self._publish(decision, *arguments)
        total_ms = (time.monotonic_ns() - decision.started_ns) / NS_PER_MS
        self.overhead_ms.append(total_ms - decision.policy_ms)
        self.ingest_ms.append(decision.ingest_ms)
        for source, age_ms in decision.observation.ages_ms.items():
            self.values[f"age of {source} at decision, ms"].append(age_ms)
        return accepted

    def _on_message(self, source: str, message: Any, arrival_ns: int) -> None:
        self._put(source, message, arrival_ns)
        self.values[f"transport of {source}, ms"].append((arrival_ns - header_ns(message)) / NS_PER_MS)


def measure(decisions: int, policy_ms: float, rate_hz: float) -> Record:
    """Raises TimeoutError when decisions do not come at about `rate_hz`."""
    settings = {"decisions": decisions, "policy_ms": policy_ms, "decision_rate_hz": rate_hz}
    record = Record(
        "node_overhead", settings | {"cameras": "2 × 640×480 rgb8, 30 Hz", "joint_states_hz": 100}
    )

    def load(config: NodeConfig) -> SleepingPolicy:
        return SleepingPolicy(policy_ms / 1000)

    with live_node(load, trigger="timer", decision_rate=rate_hz, checkpoint="stub") as (live, children):
        probe = Probe(live)
        live.node.trigger_activate()
        wanted = decisions + WARM_UP
        live.run(lambda: len(probe.overhead_ms) >= wanted, 2 * wanted / rate_hz + 20, children)
        sources = live.running.inputs.sources
        rates = {name: round(source.traffic.rate(time.time_ns()), 1) for name, source in sources.items()}
        record.settings["received_hz"] = rates
        record.settings["missed_deadlines"] = live.running.thread.missed
        live.node.trigger_deactivate()
    overhead = record.add("overhead of a decision, ms", probe.overhead_ms[WARM_UP:wanted])
    record.add("of it ingest (take + convert, all sources), ms", probe.ingest_ms[WARM_UP:wanted])
    for quantity in sorted(probe.values):
        record.add(quantity, probe.values[quantity][WARM_UP:])
    record.targets = [
        Target("overhead p50", overhead["p50"], LIMIT_P50_MS, "ms"),
        Target("overhead p99", overhead["p99"], LIMIT_P99_MS, "ms"),
    ]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--policy-ms", type=float, default=40.0, help="how long the stub sleeps")
    parser.add_argument("--rate", type=float, default=13.0, help="decisions per second")
    arguments = parser.parse_args()
    measure(arguments.decisions, arguments.policy_ms, arguments.rate).finish()


if __name__ == "__main__":
    main()
