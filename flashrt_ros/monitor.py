# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Watches a robot and its policy node from outside, over the same topics that any other program would use.

Everything is taken on demand in `poll` (no callbacks), so that watching two cameras costs little beside the
policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.commanded import CommandModel
from flashrt_ros.following import Follower
from flashrt_ros.msg import ActionChunk
from flashrt_ros.report import DecisionRecord, RunLog
from flashrt_ros.sim.messages import trajectory_fields
from flashrt_ros.sources import JOINT_DEPTH, Sample, Source, open_source

TRANSITIONS: Final[Mapping[str, int]] = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}

HANDSHAKE_S = 1.0


class MonitorError(RuntimeError):
    """The node did not answer, or refused what it was asked to do."""


class Monitor:
    """Fills `log` from topics while `poll` is called; drives the node's lifecycle on request.

    Times of the log are seconds since `start_ns` (wall clock, as the stamps of joint states are).
    Trajectories begin when the middleware received them, as for the robot.
    """

    def __init__(self, log: RunLog, cameras: Sequence[str], policy: str, start_ns: int) -> None:
        self.log = log
        self.node = Node("monitor", enable_rosout=False)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._start_ns = start_ns
        self._policy = policy
        self._follower = Follower(log)
        self.statuses: dict[str, str] = {}  # newest message of every diagnostic status
        self._cameras = {name: _Counted(self._open(name, Image, f"{name}/image_raw", 1)) for name in cameras}
        self._joints = _Counted(self._open("joint_states", JointState, "joint_states", JOINT_DEPTH))
        self._trajectories = self._open("joint_trajectory", JointTrajectory, "joint_trajectory", 50)
        self._commands = CommandModel(log.action_names)
        self._refused = ""
        self._chunks = self._open("chunks", ActionChunk, f"{policy}/action_chunk", 50)
        self._diagnostics = self._open("diagnostics", DiagnosticArray, "/diagnostics", 20)
        self._seen = {
            name: self._open(f"seen by the model: {name}", Image, f"{policy}/model_image/{name}", 2)
            for name in cameras
        }
        self._change_state: Any = self.node.create_client(ChangeState, f"{policy}/change_state")
        self._get_state: Any = self.node.create_client(GetState, f"{policy}/get_state")
        self._heard = False
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._instruction = self.node.create_publisher(String, f"{policy}/instruction", latched)

    def _open(self, name: str, message_type: type, topic: str, depth: int) -> Source:
        return open_source(self.node, name, message_type, topic, depth)

    def now_s(self) -> float:
        """Seconds since the start of the run."""
        return (time.time_ns() - self._start_ns) / 1e9

    def poll(self, finished: bool = False) -> None:
        """Take everything that arrived; with `finished`, judge the last decision too."""
        for counted in self._cameras.values():
            counted.drain()
        # In this order: what was commanded at the newest joint state is then known.
        joints = self._joints.drain()
        for sample in self._trajectories.drain():
            self._on_trajectory(sample)
        for sample in joints:
            self._on_joints(sample)
        for sample in self._chunks.drain():
            self._on_chunk(sample)
        for name, source in self._seen.items():
            for sample in source.drain():
                self.log.frames.append((self._at(sample.received_ns), name, _pixels(sample.message)))
        for sample in self._diagnostics.drain():
            self.statuses.update((status.name, status.message) for status in sample.message.status)
        self._follower.judge(finished)

    def event(self, text: str) -> None:
        """Note what happens now."""
        self.log.events.append((self.now_s(), text))

    def say(self, instruction: str) -> None:
        """Publish a new instruction (latched)."""
        self._instruction.publish(String(data=instruction))
        self.event(f"instruction: {instruction}")

    def transition(self, name: str, timeout_s: float, alive: Callable[[], None]) -> None:
        """Ask the policy node for a lifecycle transition and wait until it is done.

        `alive` may raise to give up early (a process died). Raises MonitorError when the node does
        not answer in time or refuses.
        """
        deadline = time.monotonic() + timeout_s

        def wait(done: Callable[[], bool], what: str, until_s: float = deadline) -> None:
            while not done():
                alive()
                if time.monotonic() > deadline:
                    raise MonitorError(f"{self._policy}: {what} within {timeout_s:g} s")
                if time.monotonic() > until_s:
                    return
                self._executor.spin_once(timeout_sec=0.1)
                self.poll()

        wait(self._change_state.service_is_ready, "the node did not appear")
        # A node that has not discovered this client drops its answer: ask something harmless until one comes.
        while not self._heard:
            state = self._get_state.call_async(GetState.Request())
            wait(state.done, "no answer to get_state", time.monotonic() + HANDSHAKE_S)
            self._heard = state.done()
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[name]))
        answer = self._change_state.call_async(request)
        wait(answer.done, f"no answer to {name}")
        response: Any = answer.result()
        if not response.success:
            raise MonitorError(f"{self._policy}: {name} failed")
        self.event(name)

    def start_rates(self) -> None:
        """Measure the sources' rates from now on."""
        for counted in (*self._cameras.values(), self._joints):
            counted.start()

    def finish_rates(self) -> None:
        """Write rates, counts and ages since `start_rates` into the log."""
        for name, counted in (*self._cameras.items(), ("joint_states", self._joints)):
            self.log.source_rates[name] = counted.rate_hz()
            self.log.source_counts[name] = {"published": counted.published, "looked at": counted.taken}

    def rates(self) -> dict[str, float]:
        """Present rate of every source in Hz, by name."""
        sources = {**self._cameras, "joint_states": self._joints}
        return {name: counted.source.traffic.rate(time.time_ns()) for name, counted in sources.items()}

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown()
        self.node.destroy_node()

    def _at(self, wall_ns: int) -> float:
        return (wall_ns - self._start_ns) / 1e9

    def _on_joints(self, sample: Sample) -> None:
        message = sample.message
        place = {name: index for index, name in enumerate(message.name)}
        row = [message.position[place[name]] if name in place else np.nan for name in self.log.action_names]
        t_s, positions = self._at(_stamp_ns(message)), np.array(row)
        self.log.joint_samples.append((t_s, positions))
        self.log.command_samples.extend(self._commands.measure(t_s, positions))
        if self._commands.refused != self._refused:
            self._refused = self._commands.refused
            self.event(f"no controller would take this trajectory: {self._refused}")

    def _on_trajectory(self, sample: Sample) -> None:
        heard = trajectory_fields(sample.message)
        start_s = None if heard.stamp_ns == 0 else self._at(heard.stamp_ns)
        t_s = self._at(sample.received_ns)
        self._commands.hear(t_s, heard.names, heard.times_s, heard.positions, heard.velocities, start_s)

    def _on_chunk(self, sample: Sample) -> None:
        message = sample.message
        if not self.log.decisions:
            self.event("first decision")
        columns = [list(message.action_names).index(name) for name in self.log.action_names]
        actions = np.array(message.data, np.float32).reshape(message.horizon, message.action_dim)
        begun_ns = _stamp_ns(message) + round(message.age_ms * 1e6)
        self.log.decisions.append(
            DecisionRecord(
                t_s=self._at(sample.received_ns),
                sequence=message.sequence,
                epoch=message.epoch,
                instruction=message.instruction,
                age_ms=message.age_ms,
                ingest_ms=message.ingest_ms,
                policy_ms=message.policy_ms,
                total_ms=(sample.received_ns - begun_ns) / 1e6,
                stage_ms=dict(zip(message.stage_names, message.stage_ms, strict=True)),
                steps_consumed=message.steps_consumed,
                actions=actions[:, columns],
                commanded=message.commanded,
            )
        )


class _Counted:
    """A source with the number of messages that were published since `start`, from their sequence numbers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._begin: tuple[int, int, int] | None = None  # published, taken, ns

    def drain(self) -> list[Sample]:
        return self.source.drain()

    def start(self) -> None:
        traffic = self.source.traffic
        self._begin = (traffic.published, traffic.taken, traffic.newest_ns)

    @property
    def published(self) -> int:
        return self.source.traffic.published - (self._begin or (0, 0, 0))[0]

    @property
    def taken(self) -> int:
        return self.source.traffic.taken - (self._begin or (0, 0, 0))[1]

    def rate_hz(self) -> float:
        """Published messages per second since `start`; 0 when it was not called or nothing came."""
        if self._begin is None:
            return 0.0
        seconds = (self.source.traffic.newest_ns - self._begin[2]) / 1e9
        return self.published / seconds if seconds > 0 else 0.0


def _stamp_ns(message: Any) -> int:
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


def _pixels(message: Image) -> np.ndarray:
    """Pixels [h, w, 3] of an rgb8 image, as a copy that outlives the message."""
    return np.array(message.data, np.uint8).reshape(message.height, message.width, 3)
