# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From the stamp of the image that triggers a decision to its chunk on the wire, minus the policy's own time.

The node is the one of node_overhead with `trigger: camera`. It is measured twice: by the node, from the times
in its chunk messages, and by a subscriber in a process of its own, from the arrival of the message and the
stamp of the image in it. Both clocks are this computer's.

The policy must be faster than the camera: an image that comes while it computes waits for it, and that wait
would be counted.

Usage: python -m benchmarks.camera_trigger [--decisions 1000] [--policy-ms 20]
"""

import argparse
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions

from benchmarks.live_node import live_node
from benchmarks.node_overhead import WARM_UP, Probe, SleepingPolicy, motion_settings
from benchmarks.record import Record, Target
from flashrt_ros.demo_setup import CAMERAS
from flashrt_ros.freshness import header_ns
from flashrt_ros.msg import ActionChunk
from flashrt_ros.observation import NS_PER_MS, NS_PER_S
from flashrt_ros.parameters import NodeConfig

TOPIC = "/policy/action_chunk"
TRIGGER = CAMERAS[0]
CAMERA_HZ = 30.0  # of the simulated robot
LIMIT_P50_MS = 8.0
PARTS = ("age_ms", "wait_ms", "ingest_ms", "policy_ms", "post_ms", "publish_ms")


def listen(out: Path) -> None:
    """Subscriber: note every chunk until SIGINT, then write them all to `out`."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda received, _frame: stopping.append(received))
    node = rclpy.create_node("listener")
    chunks: list[tuple[int, ActionChunk]] = []
    node.create_subscription(
        ActionChunk, TOPIC, lambda chunk: chunks.append((time.time_ns(), chunk)), QoSProfile(depth=100)
    )
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not stopping:
        executor.spin_once(timeout_sec=0.1)
    out.write_text(json.dumps([facts_of(chunk, received) for received, chunk in chunks]), encoding="utf-8")
    node.destroy_node()
    rclpy.try_shutdown()


def facts_of(chunk: ActionChunk, received_ns: int) -> dict[str, float]:
    """What is needed of a chunk; `trigger_age_ms` is the age of the triggering image when the decision began,
    `received_ms` the time from its stamp to the arrival of the chunk."""
    stamp = chunk.source_stamps[list(chunk.source_names).index(TRIGGER)]
    stamp_ns = stamp.sec * NS_PER_S + stamp.nanosec
    begun_ms = chunk.age_ms - (stamp_ns - header_ns(chunk)) / NS_PER_MS
    facts = {"trigger_age_ms": begun_ms, "received_ms": (received_ns - stamp_ns) / NS_PER_MS}
    return {"sequence": chunk.sequence, **facts, **{part: getattr(chunk, part) for part in PARTS}}


def collect(
    decisions: int, policy_ms: float, settings: dict[str, Any]
) -> tuple[list[dict[str, float]], list[float]]:
    """`facts_of` of every chunk of `decisions` decisions, and how long each triggering image took, ms.

    Raises TimeoutError when decisions do not come.
    """

    def load(config: NodeConfig) -> SleepingPolicy:
        return SleepingPolicy(policy_ms / 1000)

    pace: dict[str, Any] = {"trigger": "camera", "trigger_camera": TRIGGER, "checkpoint": "stub"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "chunks.json")
        with live_node(load, **pace) as (live, children):
            children.start("listener", ["-m", "benchmarks.camera_trigger", "--listen", str(out)])
            live.run(lambda: live.node.count_subscribers(TOPIC) > 0, 20, children)
            probe = Probe(live)
            live.node.trigger_activate()
            # One more, for the message that tells how long the last one took to publish.
            wanted = decisions + WARM_UP + 1
            live.run(lambda: len(probe.overhead_ms) >= wanted, 2 * wanted / CAMERA_HZ + 20, children)
            settings["decided_hz"] = round(live.running.decider.rate.hz(time.monotonic_ns()), 1)
            live.node.trigger_deactivate()
            settings |= motion_settings(live, probe)
        return json.loads(out.read_text(encoding="utf-8")), probe.values[f"transport of {TRIGGER}, ms"]


def measure(decisions: int, policy_ms: float) -> Record:
    """Raises TimeoutError when decisions do not come."""
    settings = {"decisions": decisions, "policy_ms": policy_ms, "trigger_camera": TRIGGER}
    record = Record("camera_trigger", settings | {"cameras": f"2 × 640×480 rgb8, {CAMERA_HZ:g} Hz"})
    listened, transport_ms = collect(decisions, policy_ms, record.settings)
    chunks = {chunk["sequence"]: chunk for chunk in listened}
    rows = []
    for sequence in range(WARM_UP, WARM_UP + decisions):
        if sequence in chunks and sequence + 1 in chunks:
            # The time to publish a chunk is in the chunk after it.
            rows.append(chunks[sequence] | {"publish_ms": chunks[sequence + 1]["publish_ms"]})
    record.settings["chunks_lost"] = decisions - len(rows)
    by_node = [row["trigger_age_ms"] + row["ingest_ms"] + row["post_ms"] + row["publish_ms"] for row in rows]
    by_subscriber = [row["received_ms"] - row["policy_ms"] for row in rows]
    node = record.add("stamp → published minus policy, by the node, ms", by_node)
    subscriber = record.add("stamp → received minus policy, by a subscriber, ms", by_subscriber)
    record.add("of it the robot draws and sends the image, ms", transport_ms[WARM_UP:])
    for part, words in (
        ("trigger_age_ms", "of it stamp → decision"),
        ("wait_ms", "of that image in the node → decision"),
        ("ingest_ms", "of it ingest"),
        ("post_ms", "of it post: check, plan, send commands"),
        ("publish_ms", "of it publish: chunk message"),
    ):
        record.add(f"{words}, ms", [row[part] for row in rows])
    record.add("subscriber minus node, ms", [b - a for a, b in zip(by_node, by_subscriber, strict=True)])
    record.targets = [
        Target("stamp → published minus policy p50, by the node", node["p50"], LIMIT_P50_MS, "ms"),
        Target("the same p50, by a subscriber", subscriber["p50"], LIMIT_P50_MS, "ms"),
    ]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--policy-ms", type=float, default=20.0, help="how long the stub sleeps")
    parser.add_argument("--listen", type=Path, metavar="OUT", help="be the subscriber")
    arguments = parser.parse_args()
    if arguments.listen is None:
        measure(arguments.decisions, arguments.policy_ms).finish()
    else:
        listen(arguments.listen)


if __name__ == "__main__":
    main()
