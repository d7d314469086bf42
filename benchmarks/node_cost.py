# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node costs beside three 1280×720 cameras at 30 Hz and joint states at 500 Hz (R10).

The publishers are another process. This one is the node and nothing else: its processor time (user and
system, all threads: DDS, executor, decisions) in percent of one core, and the time from the start of a
decision to its observation. The policy is a stub that copies every image once, as a policy does, and sleeps.

Usage: python -m benchmarks.node_cost [--seconds 20] [--rate 10]
"""

import argparse
import time
from typing import Any

import numpy as np

from benchmarks import camera_robot
from benchmarks.live_node import LiveNode, live_node
from benchmarks.node_overhead import Probe, SleepingPolicy, StubChunk, call_times
from benchmarks.record import Record, Target
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.processes import Children

WARM_UP = 20  # first decisions, not counted
POLICY_S = 0.04
SLICE_S = 1.0  # of the processor time that makes one value
LIMIT_CPU, LIMIT_INGEST_MS = 35.0, 8.0


class CopyingPolicy(SleepingPolicy):
    """Takes the pixels into memory of its own."""

    cameras = camera_robot.CAMERAS
    state_dim = action_dim = len(camera_robot.JOINTS)

    def __init__(self) -> None:
        super().__init__(POLICY_S, np.full(self.action_dim, 0.1), np.ones(self.action_dim))
        size = camera_robot.WIDTH * camera_robot.HEIGHT * 3
        self._pixels = {name: np.zeros(size, np.uint8) for name in self.cameras}
        self._info = np.zeros(4, np.int32)

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> StubChunk:
        for name, raw in images.items():
            raw.write(self._pixels[name], self._info)
        return super().decide(images, state, instruction, seed=seed, sequence=sequence)


def busy_percent(live: LiveNode, children: Children) -> float:
    """Processor time of this process over the next `SLICE_S`, in percent of one core."""
    wall_s, busy_s = time.monotonic(), time.process_time()
    live.run(lambda: time.monotonic() >= wall_s + SLICE_S, 10 * SLICE_S, children)
    return 100 * (time.process_time() - busy_s) / (time.monotonic() - wall_s)


def measure(seconds: float, rate_hz: float) -> Record:
    """Raises TimeoutError when decisions do not come at about `rate_hz`."""
    settings = {"seconds": seconds, "policy_ms": 1e3 * POLICY_S, "decision_rate_hz": rate_hz}
    cameras = f"{len(camera_robot.CAMERAS)} × {camera_robot.WIDTH}×{camera_robot.HEIGHT} rgb8"
    sent = {"cameras": f"{cameras}, {camera_robot.CAMERA_HZ:g} Hz", "joint_states_hz": camera_robot.JOINT_HZ}
    record = Record("node_cost", settings | sent)
    robot = ("benchmarks.camera_robot", camera_robot.ROBOT)
    pace: dict[str, Any] = {"trigger": "timer", "decision_rate": rate_hz, "checkpoint": "stub"}

    def load(config: NodeConfig) -> CopyingPolicy:
        return CopyingPolicy()

    with live_node(load, robot, **pace) as (live, children):
        probe = Probe(live, messages=False)
        # Processor time is what the clock says where nobody else wants the processor.
        pull_ms = call_times(live.running.decider, "_pull", time.thread_time_ns)
        observe_ms = call_times(live.running.ingest, "observe", time.thread_time_ns)
        live.node.trigger_activate()
        live.run(lambda: len(probe.overhead_ms) >= WARM_UP, 30, children)
        cpu: list[float] = []
        begin_s, end_s = time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < end_s:
            cpu.append(busy_percent(live, children))
        decisions = len(probe.overhead_ms) - WARM_UP
        record.settings["decided_hz"] = round(decisions / (time.monotonic() - begin_s), 2)
        sources = live.running.inputs.sources
        rates = {name: round(source.traffic.rate(time.time_ns()), 1) for name, source in sources.items()}
        record.settings["received_hz"] = rates
        live.node.trigger_deactivate()
    used = record.add("processor time of the node, % of a core", cpu)
    ingest = record.add("ingest of a decision (take + convert, all sources), ms", probe.ingest_ms[WARM_UP:])
    spent = [pull + observe for pull, observe in zip(pull_ms, observe_ms, strict=False)]
    record.add("of it processor time of the deciding thread, ms", spent[WARM_UP:])
    record.add("overhead of a decision, ms", probe.overhead_ms[WARM_UP:])
    record.targets = [
        Target("processor time p50", used["p50"], LIMIT_CPU, "%"),
        Target("ingest p50", ingest["p50"], LIMIT_INGEST_MS, "ms"),
    ]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=10.0, help="decisions per second")
    arguments = parser.parse_args()
    measure(arguments.seconds, arguments.rate).finish()


if __name__ == "__main__":
    main()
