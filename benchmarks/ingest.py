# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Message → what the policy is given, for one VGA camera: `Ingest.put` and `Ingest.observe`, without DDS.

The messages are rclpy's; every one is new to the ingest. Taking an image from the middleware is measured by
node_overhead.

Usage: python -m benchmarks.ingest [--frames 500]
"""

import argparse
import array
import time
from typing import Any

import cv2
import numpy as np
from sensor_msgs.msg import CompressedImage, Image, JointState

from benchmarks.record import Record, Target
from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import JOINT_STATES, NotReady
from flashrt_ros.parameters import NodeConfig

WIDTH, HEIGHT = 640, 480
CHANNELS = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "mono8": 1}
PERIOD_NS = 33_000_000
LIMIT_P50_MS = 1.0


def raw_image(encoding: str) -> Image:
    channels = CHANNELS[encoding]
    message = Image(height=HEIGHT, width=WIDTH, encoding=encoding, step=WIDTH * channels)
    message.data = array.array("B", np.random.default_rng(0).bytes(HEIGHT * WIDTH * channels))
    return message


def jpeg_image() -> CompressedImage:
    """A picture with structure: random noise would be an unfair JPEG."""
    picture = np.random.default_rng(0).integers(0, 255, (HEIGHT // 16, WIDTH // 16, 3), np.uint8)
    picture = cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    message = CompressedImage(format="rgb8; jpeg compressed bgr8")
    message.data = array.array("B", cv2.imencode(".jpg", picture)[1].tobytes())
    return message


def stamp(message: Any, now_ns: int) -> None:
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(now_ns, 1_000_000_000)


def measure_camera(message: Any, transport: str, frames: int) -> list[float]:
    """Milliseconds per frame: stored, converted, observed."""
    # The look for a frozen camera takes longest for equal images: it is in the figures, at its worst.
    still = {"camera.front.frozen_after": 100_000}
    camera = {"cameras": ["front"], "camera.front.transport": transport, **still}
    joints = {"joint_names": ["shoulder"], "checkpoint": "none", "action_rate_hz": 10.0}
    ingest = Ingest(NodeConfig.from_dict(camera | joints), warn=lambda kind, text: print(text))
    state = JointState(name=["shoulder"], position=[0.5])
    now_ns, times_ms = time.time_ns(), []
    # The ingest ignores a message object that it was given last: two take turns.
    names = message.get_fields_and_field_types()
    copies = [type(message)(**{name: getattr(message, name) for name in names}) for _ in range(2)]
    for frame in range(frames):
        now_ns += PERIOD_NS
        image = copies[frame % 2]
        stamp(image, now_ns)
        stamp(state, now_ns)
        state = JointState(header=state.header, name=state.name, position=state.position)
        ingest.put(JOINT_STATES, state, now_ns)
        started = time.perf_counter_ns()
        ingest.put("front", image, now_ns)
        observation = ingest.observe(now_ns)
        times_ms.append((time.perf_counter_ns() - started) / 1e6)
        if isinstance(observation, NotReady):
            raise RuntimeError(f"the ingest gave no observation: {observation}")
    return times_ms


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=500)
    frames = parser.parse_args().frames
    record = Record("ingest", {"frames": frames, "image": f"{WIDTH}×{HEIGHT}"})
    for encoding in CHANNELS:
        row = record.add(f"{encoding}, ms", measure_camera(raw_image(encoding), "raw", frames))
        record.targets.append(Target(f"{encoding} p50", row["p50"], LIMIT_P50_MS, "ms"))
    record.add("jpeg, ms", measure_camera(jpeg_image(), "compressed", frames))
    record.finish()


if __name__ == "__main__":
    main()
