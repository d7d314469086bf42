# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node adds to a policy: decision start → publish returned, minus the policy's own time.

The node is the real one, limits, motion and guardian included; only its policy is a stub that sleeps and
whose arm sways. Two VGA cameras at 30 Hz and joint states at 100 Hz come over DDS from another process, which
follows the commands. Beside it: where the time goes, how old each source is when a decision starts, and how
long its message travelled.

The default rate is no divisor of the cameras' rate: every phase between them is met.

Usage: python -m benchmarks.node_overhead [--decisions 1000] [--policy-ms 40] [--rate 13]
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from benchmarks.live_node import ACTION_HZ, JOINT_NAMES, LiveNode, live_node
from benchmarks.record import Record, Target
from flashrt_ros.commands import Accepted
from flashrt_ros.demo_setup import CAMERAS
from flashrt_ros.freshness import header_ns
from flashrt_ros.observation import NS_PER_MS, Decision
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.sim.arm import JOINTS

HORIZON = 50
WARM_UP = 20  # first decisions, not counted
LIMIT_P50_MS, LIMIT_P99_MS = 3.0, 8.0
SWAY_HZ = 0.2
SWAY = 0.1  # of what a joint has between its limits, to both sides
NOISE = 0.1  # of the sway: how far one decision lies beside the one before
HOME = np.array([joint.home for joint in JOINTS])  # [D]
RANGE = np.array([joint.upper - joint.lower for joint in JOINTS])  # [D]


@dataclass
class StubChunk:
    """What a policy returns."""

    actions: np.ndarray  # float32 [horizon, D]
    timings: dict[str, float] = field(default_factory=dict)


class SleepingPolicy:
    """Takes its time without taking the processor, as a policy on a GPU does.

    Its arm sways, and each decision is a little beside the one before: there is a seam to be blended.
    """

    name, origin = "stub", "nobody"
    horizon = HORIZON
    action_names = None
    state_dim = action_dim = len(JOINT_NAMES)
    cameras: tuple[str, ...] = CAMERAS
    state_stats: ClassVar[dict[str, np.ndarray]] = {}
    state_groups: ClassVar[dict[str, int]] = {"state": len(JOINT_NAMES)}
    camera_rule, not_positions, origin, relative_actions = "present first", "", "nobody", ()

    def __init__(self, seconds: float, centre: np.ndarray = HOME, ranges: np.ndarray = RANGE) -> None:
        """The arm sways about `centre` [D]; `ranges` [D] of its joints."""
        self._seconds = seconds
        self._centre, self._sway = centre, SWAY * ranges
        self._random = np.random.default_rng(0)

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> StubChunk:
        started_s = time.monotonic()
        actions = self._actions(started_s)
        time.sleep(max(0.0, started_s + self._seconds - time.monotonic()))
        return StubChunk(actions)

    def _actions(self, now_s: float) -> np.ndarray:
        """float32 [horizon, D] from now on."""
        times_s = now_s + np.arange(HORIZON) / ACTION_HZ
        noise = self._random.uniform(-NOISE, NOISE, self._centre.size)  # [D]
        path = np.sin(2 * np.pi * SWAY_HZ * times_s)[:, None] + noise  # [horizon, D]
        return (self._centre + self._sway * path).astype(np.float32)

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


def call_times(owner: Any, method: str, clock_ns: Callable[[], int] = time.perf_counter_ns) -> list[float]:
    """From now on, the time of each call of a method, ms."""
    times, original = [], getattr(owner, method)

    def timed(*arguments: Any, **named: Any) -> Any:
        started_ns = clock_ns()
        result = original(*arguments, **named)
        times.append((clock_ns() - started_ns) / NS_PER_MS)
        return result

    setattr(owner, method, timed)
    return times


class Probe:
    """Records every decision and every message of a node, in the node's own calls."""

    def __init__(self, live: LiveNode, messages: bool = True) -> None:
        """Without `messages` only decisions: at 500 Hz the probe would cost more than what it measures."""
        self.overhead_ms: list[float] = []
        self.ingest_ms: list[float] = []
        self.parts: dict[str, list[float]] = defaultdict(list)
        self.values: dict[str, list[float]] = defaultdict(list)
        self.sent = 0
        """Decisions whose commands went out."""
        running = live.running
        self._accept_ms = call_times(running.commands, "accept")
        self._send_ms = call_times(running.commands._send, "trajectory")
        self._publish, running.outputs.publish = running.outputs.publish, self._on_decision  # type: ignore[method-assign, assignment]
        self._put = running.ingest.put
        if messages:
            running.ingest.put = self._on_message  # type: ignore[method-assign]

    def _on_decision(self, decision: Decision, *arguments: Any) -> Accepted:
        self._accept_ms.clear()
        self._send_ms.clear()
        begun_ns = time.monotonic_ns()
        accepted = self._publish(decision, *arguments)
        done_ns = time.monotonic_ns()
        self.overhead_ms.append((done_ns - decision.started_ns) / NS_PER_MS - decision.policy_ms)
        self.ingest_ms.append(decision.ingest_ms)
        self.sent += accepted.sent
        accept_ms, send_ms = sum(self._accept_ms), sum(self._send_ms)
        before_ms = (begun_ns - decision.started_ns) / NS_PER_MS - decision.ingest_ms - decision.policy_ms
        for part, part_ms in (
            ("check the result", before_ms),
            ("plan: seam, limits, spline", accept_ms - send_ms),
            ("send commands", send_ms),
            ("chunk message", (done_ns - begun_ns) / NS_PER_MS - accept_ms),
        ):
            self.parts[f"of it {part}, ms"].append(part_ms)
        for source, age_ms in decision.observation.ages_ms.items():
            self.values[f"age of {source} at decision, ms"].append(age_ms)
        return accepted

    def _on_message(self, source: str, message: Any, arrival_ns: int) -> None:
        self._put(source, message, arrival_ns)
        self.values[f"transport of {source}, ms"].append((arrival_ns - header_ns(message)) / NS_PER_MS)


def motion_settings(live: LiveNode, probe: Probe) -> dict[str, Any]:
    """What the commands went through. RuntimeError where some did not go out: then nothing was measured."""
    config, commands = live.running.config, live.running.commands
    if probe.sent < len(probe.overhead_ms):
        raise RuntimeError(
            f"commands of {probe.sent} of {len(probe.overhead_ms)} decisions went out: {commands.refused} "
            f"were refused, {commands.expired} late; {commands.last_stop}"
        )
    return {
        "horizon": HORIZON,
        "limits": config.limits,
        "limited_points": commands.clipped,
        "guardian_hz": config.stream_rate_hz,
    }


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
        record.settings |= motion_settings(live, probe)
        live.node.trigger_deactivate()
    overhead = record.add("overhead of a decision, ms", probe.overhead_ms[WARM_UP:wanted])
    record.add("of it ingest (take + convert, all sources), ms", probe.ingest_ms[WARM_UP:wanted])
    for part, values in probe.parts.items():
        record.add(part, values[WARM_UP:wanted])
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
