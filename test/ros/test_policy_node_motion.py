# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the real node sends to a robot over DDS, and when it stops it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import Twist
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.sim.controller import JointTrajectoryController, TrajectoryError
from test.ros.cell import Cell
from test.ros.stub_policy import StubPolicy
from test.ros.support import (
    JOINTS,
    NodeThread,
    Robot,
    instruction_publisher,
    joint_state,
    node_process,
    parameters,
    wait_for,
)

pytestmark = pytest.mark.dds

HERE = np.array([0.1 * index for index in range(len(JOINTS))])  # where the test's robot stands
HORIZON = 20  # steps of 0.1 s
LIMITS: dict[str, Any] = {
    "limits": True,
    **{f"joint.{name}.min": -1.0 for name in JOINTS},
    **{f"joint.{name}.max": 1.0 for name in JOINTS},
    **{f"joint.{name}.max_velocity": 1.0 for name in JOINTS},
    **{f"joint.{name}.max_jump": 10.0 for name in JOINTS},
}


class Mover(StubPolicy):
    """Wants the joints at `target` [D]; `offset` is added to the first of them."""

    horizon = HORIZON

    def __init__(self, config: Any) -> None:
        super().__init__(config, think=self._go)
        self.target = HERE + 0.5
        self.fault: Callable[[np.ndarray], object] = lambda actions: None

    def _go(self, **given: Any) -> np.ndarray:
        width = self.action_dim
        actions = np.resize(self.target, (HORIZON, width)).astype(np.float32)  # [H, D]
        self.fault(actions)
        return actions


class Listener:
    """The robot's controller: follows every trajectory as joint_trajectory_controller does."""

    def __init__(self, robot: Robot) -> None:
        self.controller = JointTrajectoryController(JOINTS, HERE)
        self._lock = threading.Lock()
        self.messages: list[tuple[float, JointTrajectory]] = []
        self.refused: list[TrajectoryError] = []
        robot.node.create_subscription(
            JointTrajectory, "joint_trajectory", self._on_trajectory, QoSProfile(depth=50)
        )

    def _on_trajectory(self, message: JointTrajectory) -> None:
        times = [p.time_from_start.sec + p.time_from_start.nanosec / 1e9 for p in message.points]
        positions = [list(p.positions) for p in message.points]
        velocities = [list(p.velocities) for p in message.points] if message.points[0].velocities else None
        with self._lock:
            now_s = time.monotonic()
            try:
                self.controller.accept(message.joint_names, times, positions, velocities, None, now_s)
            except TrajectoryError as error:
                self.refused.append(error)
            self.messages.append((now_s, message))

    def commanded(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity [J] now."""
        with self._lock:
            return self.controller.sample(time.monotonic())

    def newest(self) -> JointTrajectory:
        return self.messages[-1][1]

    def was_told_to_stop(self) -> bool:
        """Whether the newest message is a stop action: a chunk has more points."""
        return len(self.newest().points) < 5 and not np.any(self.newest().points[-1].velocities)

    def settled(self, seconds: float = 0.3) -> int:
        """The number of messages, once none came for so long."""

        def is_silent() -> bool:
            count = len(self.messages)
            time.sleep(seconds)
            return len(self.messages) == count

        wait_for("silence", is_silent)
        return len(self.messages)


class Scene(Cell):
    """A node with a Mover, its robot, and the controller."""

    def __init__(self, thread: NodeThread, robot: Robot) -> None:
        super().__init__(thread, robot)
        self.listener = Listener(robot)

    @property
    def mover(self) -> Mover:
        policy = self.running.policy
        assert isinstance(policy, Mover)
        return policy

    def is_moving(self) -> bool:
        return bool(np.abs(self.listener.commanded()[1]).max() > 0.01)

    def stops(self) -> None:
        """Waits until the robot was told to stop and stands where it was told so."""
        wait_for("a stop", lambda: self.running.commands.stops > 0)
        wait_for("the stop action", self.listener.was_told_to_stop)
        wait_for("the end of the motion", lambda: not self.listener.commanded()[1].any())
        first, _ = self.listener.commanded()
        time.sleep(0.2)
        second, speed = self.listener.commanded()
        assert first == pytest.approx(second, abs=1e-6), "it still moves"
        assert speed.tolist() == [0.0] * len(JOINTS)

    def hang(self, seconds: float) -> None:
        """Waits until a decision has begun that takes so long."""
        busy = threading.Event()

        def wait(actions: np.ndarray) -> None:
            busy.set()
            time.sleep(seconds)

        self.mover.fault = wait
        assert busy.wait(10.0)

    def reason(self) -> str:
        return self.running.commands.last_stop


@contextmanager
def scene_of(**changes: Any) -> Iterator[Scene]:
    """A node that is active and moves its robot slowly towards a far target."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    values = parameters(blend_steps=3) | LIMITS | given
    with NodeThread(Mover, values) as thread, Robot() as robot:
        scene = Scene(thread, robot)
        assert robot.change("configure")
        sender: Any = scene.running.commands._send
        for publisher in sender._publishers.values():  # the first chunk must not be lost
            wait_for("a match", publisher.get_subscription_count)
        assert robot.change("activate")
        yield scene


@contextmanager
def moving(**changes: Any) -> Iterator[Scene]:
    """As `scene_of`, with a robot that is on its way for five seconds."""
    slow = {f"joint.{name}.max_velocity": 0.1 for name in JOINTS}
    with scene_of(limit_storm_after=0, **slow, **changes) as scene:
        wait_for("motion", lambda: scene.listener.messages and scene.is_moving())
        yield scene


def test_R30_R37_R38_R41_chunks_that_contradict_each_other_become_one_motion() -> None:
    """A policy that changes its mind at every decision must not make the arm jerk, leave its limits or be
    refused by its controller."""
    with scene_of(limit_storm_after=0) as scene:
        signs = iter([1.0, -1.0] * 1000)

        def to_and_fro(actions: np.ndarray) -> None:
            actions[:] = np.clip(HERE + 2.0 * next(signs), -3.0, 3.0)

        scene.mover.fault = to_and_fro
        listener = scene.listener
        speeds: list[np.ndarray] = []
        positions: list[np.ndarray] = []

        def sample() -> bool:
            position, speed = listener.commanded()
            positions.append(position)
            speeds.append(np.abs(speed))
            return len(listener.messages) >= 20

        wait_for("20 trajectories", sample)
        assert listener.refused == []
        for _, message in listener.messages:
            assert np.abs([point.positions for point in message.points]).max() <= 1.0 + 1e-6
            assert np.abs([point.velocities for point in message.points]).max() <= 1.0 + 1e-6
            assert list(message.points[-1].velocities) == [0.0] * len(JOINTS)
        # The controller begins where it is when a message arrives, not when it was made: a little slack.
        assert np.abs(positions).max() <= 1.05, "limits are -1 and 1"
        assert np.max(speeds) <= 2.0, "at most 1 is allowed"


def test_R37_R38_a_long_way_is_one_smooth_motion_to_a_rest() -> None:
    """An arm that slows down at every point shakes; a chunk must end at rest, in case that no other follows,
    and controllers refuse one that does not."""
    with moving() as scene:
        listener = scene.listener
        wait_for("full speed", lambda: listener.commanded()[1][0] > 0.08)
        start = len(listener.messages)
        wait_for("ten chunks", lambda: len(listener.messages) >= start + 10)
        assert listener.refused == []
        for _, message in listener.messages[start : start + 10]:
            velocities = np.array([point.velocities for point in message.points])  # [points, J]
            assert velocities[:5].min() > 0.08, "the limit is 0.1"
            assert velocities[-1].tolist() == [0.0] * len(JOINTS)


def test_R30_seam_is_blended_out() -> None:
    """A new chunk that begins elsewhere is approached over `blend_steps`, not at once."""
    fast = {f"joint.{name}.max_velocity": 100.0 for name in JOINTS}
    with scene_of(blend_steps=10, decision_rate=0.5, trigger="timer", **fast) as scene:
        wait_for("a trajectory", lambda: scene.listener.messages)
        message = scene.listener.messages[0][1]
        first, tenth = message.points[0].positions[0], message.points[9].positions[0]
        assert first < HERE[0] + 0.1, "the first step already goes most of the way"
        assert tenth == pytest.approx(HERE[0] + 0.5, abs=1e-3)


def test_R39_servo_lag_is_in_the_diagnostics() -> None:
    """An arm that does not get where it is commanded is found by one look."""
    with scene_of() as scene:
        robot = scene.robot
        far = HERE + 0.5
        wait_for("arrival", lambda: np.allclose(scene.listener.commanded()[0], far, atol=0.02))
        wait_for("the lag", lambda: abs(scene.number("motion", "lag_pan") - 0.5) < 0.05)
        robot.make_joints = lambda: joint_state(positions=dict(zip(JOINTS, far.tolist(), strict=True)))
        wait_for("no lag", lambda: abs(scene.number("motion", "lag_pan")) < 0.05)


def test_R40_deactivate_stops_a_moving_robot_first() -> None:
    """Cancel means now: the trajectory that the controller still has must not be executed to its end."""
    with moving() as scene:
        scene.hang(1.5)
        assert scene.robot.change("deactivate")
        answered_s = time.monotonic()
        scene.stops()
        stopped_s, message = scene.listener.messages[-1]
        assert stopped_s < answered_s - 0.5, "only after the decision that was in flight"
        assert list(message.points[-1].velocities) == [0.0] * len(JOINTS)
        assert scene.reason() == "deactivated"
        assert not np.allclose(scene.listener.commanded()[0], HERE + 0.5, atol=0.05), "it was on its way"
        assert scene.robot.is_silent(0.3)


def test_R40_deadman_that_is_released_stops_the_robot() -> None:
    """`~/enable`: nothing moves before it, and letting go stops, although chunks go on."""
    with scene_of(require_enable=True, enable_timeout=0.3) as scene:
        robot = scene.robot
        chunk = robot.new_chunks(3)[-1]
        assert not chunk.commanded
        assert scene.listener.messages == []
        wait_for("the words", lambda: "nothing came on ~/enable" in robot.status("motion").message)
        enable = robot.node.create_publisher(Bool, "policy/enable", 1)

        def press() -> bool:
            enable.publish(Bool(data=True))
            return bool(scene.listener.messages)

        wait_for("commands", press)
        wait_for("a stop", lambda: "~/enable is" in scene.reason())
        wait_for("the stop action", scene.listener.was_told_to_stop)
        count = scene.listener.settled()
        robot.new_chunks(3)
        assert len(scene.listener.messages) == count


@pytest.mark.parametrize("lost", ["camera", "joints"])
def test_R7_R40_stale_input_stops_the_robot(lost: str) -> None:
    """An arm that goes on by what it saw half a second ago grasps where nothing is any more."""
    with moving(joint_max_age=0.3, camera__top__max_age=0.3) as scene:
        if lost == "camera":
            scene.robot.alive = {"wrist", "extra"}
        else:
            scene.robot.send_joints = False
        scene.stops()
        assert {"camera": "camera 'top'", "joints": "joint_states"}[lost] in scene.reason()
        scene.robot.alive, scene.robot.send_joints = {"top", "wrist", "extra"}, True
        scene.robot.new_chunks(2)
        wait_for("motion again", scene.is_moving)


def test_R42_bad_chunks_stop_the_robot_and_latch() -> None:
    """NaN once: the arm stands until a good chunk comes. NaN again and again: it stands until somebody
    looked."""
    with moving(latch_after=4) as scene:
        robot = scene.robot

        def poison(actions: np.ndarray) -> None:
            actions[3, 2] = np.nan

        scene.mover.fault = poison
        scene.stops()
        assert "NaN" in scene.reason()
        assert "in a row" not in scene.reason(), "only the latch stopped it"
        wait_for("the latch", lambda: "4 chunks in a row" in robot.status("motion").message)
        assert robot.status("motion").level == b"\x02"
        scene.mover.fault = lambda actions: None
        robot.new_chunks(3)
        assert not robot.chunks[-1].commanded
        assert robot.change("deactivate")
        assert robot.change("activate")
        wait_for("commands", lambda: robot.chunks[-1].commanded)


def test_R41_a_jump_is_refused() -> None:
    """A chunk that begins far from where the arm is commanded is an error of somebody, and not executed."""
    with scene_of() as scene:
        wait_for("a trajectory", lambda: scene.listener.messages)
        limits = scene.running.commands.channels[0].motion.limits  # type: ignore[union-attr]
        limits.max_jump.setflags(write=True)
        limits.max_jump[:] = 0.3
        scene.mover.target = HERE - 0.9
        wait_for("the refusal", lambda: "would jump by" in scene.robot.status("motion").message)
        assert not scene.robot.new_chunks(2)[-1].commanded


def test_R41_limits_are_on_by_default() -> None:
    """Whoever forgot to write limits must be told at configure, not by a broken table."""
    values = parameters()
    del values["limits"]
    with NodeThread(Mover, values), Robot() as robot:
        assert not robot.change("configure")
        wait_for("the words", lambda: "no limits for pan, lift, elbow" in robot.status("state").message)


@pytest.mark.parametrize("policy", ["flush", "finish_chunk"])
def test_R33_R43_new_instruction(policy: str) -> None:
    """flush: the arm stops what it was told before. finish_chunk: it ends the motion under way first."""
    with moving(instruction_policy=policy) as scene:
        publisher = instruction_publisher(scene.robot.node, DurabilityPolicy.VOLATILE)
        wait_for("a match", lambda: publisher.get_subscription_count() >= 1)
        count, epoch = len(scene.robot.chunks), scene.robot.chunks[-1].epoch
        publisher.publish(String(data="another"))
        if policy == "flush":
            wait_for("a stop", lambda: scene.reason() == "a new instruction")
            wait_for("the new one", lambda: scene.robot.chunks[-1].instruction == "another")
            assert scene.robot.chunks[-1].epoch > epoch
            return
        wait_for("it was heard", lambda: scene.running.decider.holding)
        heard_s, left_s = time.monotonic(), scene.running.commands.remaining_s(time.monotonic_ns())
        assert left_s > 1.0, "the chunk under way lasts 2 s"
        held = len(scene.robot.chunks)
        assert held - count <= 3
        chunk = wait_for(
            "the new one", lambda: [c for c in scene.robot.chunks if c.instruction == "another"]
        )[0]
        assert time.monotonic() - heard_s >= left_s - 0.1, "it waits for the end of the motion"
        assert chunk.sequence <= scene.robot.chunks[held - 1].sequence + 2, "nothing was decided in between"
        assert scene.running.commands.stops == 0


def test_R44_R33_nothing_is_sent_after_a_stop() -> None:
    """A decision that was under way when somebody cancelled must not start the arm again."""
    with moving() as scene:
        scene.hang(0.5)
        assert scene.robot.change("deactivate")
        scene.stops()
        count = scene.listener.settled()
        time.sleep(0.6)
        assert len(scene.listener.messages) == count


def test_R45_every_motion_goes_through_the_checked_path() -> None:
    """Start, stop, instruction, restart: with the one gate closed not a single command leaves the node."""
    with scene_of(require_enable=True) as scene:
        robot = scene.robot
        robot.new_chunks(2)
        scene.thread.node.running.decider.set_instruction("another")  # type: ignore[union-attr]
        robot.new_chunks(2)
        for change in ("deactivate", "activate", "deactivate", "cleanup", "configure", "activate"):
            assert robot.change(change)
        robot.new_chunks(2)
        assert robot.change("deactivate")
        assert robot.change("shutdown")
        assert scene.listener.messages == []


def test_R48_exception_of_the_policy_stops_the_robot() -> None:
    """A policy that crashes must not leave the arm on its last chunk."""
    with moving() as scene:

        def crash(actions: np.ndarray) -> None:
            raise RuntimeError("out of luck")

        scene.mover.fault = crash
        scene.stops()
        assert "out of luck" in scene.reason()
        wait_for("inactive", lambda: scene.thread.node.state_label == "inactive")


def test_R48_death_of_the_decision_thread_stops_the_robot() -> None:
    """Nobody decides any more, for whatever reason: the guardian notices within a period."""
    with moving() as scene:
        scene.running.thread._stop.set()
        scene.running.thread._on_error = lambda error: None
        scene.stops()
        assert scene.reason() == "the decision thread has died"
        wait_for("inactive", lambda: scene.thread.node.state_label == "inactive")
        wait_for("the fault", lambda: "has died" in scene.robot.status("state").message)


def test_R7_input_is_watched_while_a_slow_policy_thinks() -> None:
    """A decision of two seconds must not leave the arm moving for two seconds after its camera went dark."""
    with moving(joint_max_age=0.3, camera__top__max_age=0.3) as scene:
        started = threading.Event()

        def think(actions: np.ndarray) -> None:
            started.set()
            time.sleep(2.5)

        scene.mover.fault = think
        assert started.wait(5.0)
        scene.robot.alive = {"wrist", "extra"}
        wait_for("a stop", lambda: "camera 'top'" in scene.reason(), 1.5)


def test_stream_plays_the_motion_at_100_hz() -> None:
    """`execute: stream`: robots without a trajectory controller get a position in every control period."""
    with scene_of(execute="stream", stop_action="decelerate") as scene:
        wait_for("commands", lambda: len(scene.listener.messages) > 120)
        messages = list(scene.listener.messages)
        # The median: a busy machine delivers late now and then, and then several at once.
        assert 0.008 < np.median(np.diff([time_s for time_s, _ in messages[20:]])) < 0.02
        assert all(len(message.points) == 1 for _, message in messages)
        assert scene.robot.change("deactivate")
        count = scene.listener.settled()
        time.sleep(0.3)
        assert len(scene.listener.messages) == count, "silent when inactive"


def test_groups_go_out_on_their_own_topics() -> None:
    """An arm, a gripper behind a forward controller and a mobile base under one policy."""
    groups = {
        "action_groups": ["arm", "hand", "base"],
        "action.arm.names": list(JOINTS[:4]),
        "action.hand.names": ["gripper"],
        "action.hand.space": "gripper",
        "action.hand.output": "array",
        "action.base.space": "base",
        "action.base.topic": "cmd_vel",
        "action.base.max_linear_velocity": 0.2,
        "action.base.max_angular_velocity": 0.2,
    }
    values = parameters(**groups) | LIMITS
    heard: dict[str, Any] = {}
    with NodeThread(Mover, values) as thread, Robot() as robot:
        for kind, topic in ((JointTrajectory, "arm/joint_trajectory"), (Float64MultiArray, "hand/commands")):
            robot.node.create_subscription(kind, topic, lambda m, t=topic: heard.__setitem__(t, m), 10)
        robot.node.create_subscription(Twist, "cmd_vel", lambda m: heard.setdefault("cmd_vel", m), 10)
        robot.bring_up()
        wait_for("all three", lambda: len(heard) == 3)
        assert list(heard["arm/joint_trajectory"].joint_names) == list(JOINTS[:4])
        assert 0.0 < np.hypot(heard["cmd_vel"].linear.x, heard["cmd_vel"].linear.y) <= 0.2 + 1e-6
        wait_for("the gripper arrives", lambda: abs(heard["hand/commands"].data[0] - 0.5) < 0.5)
        chunk = robot.new_chunks()[0]
        assert list(chunk.group_names) == ["arm", "hand", "base"]
        assert list(chunk.group_widths) == [4, 1, 3]
        assert thread.node.state_label == "active"


def test_dry_run_and_shadow() -> None:
    """Chunks to look at, no commands; in shadow the distance between the policy and whoever drives."""
    with scene_of(shadow=True) as scene:
        divergences: list[JointState] = []
        scene.robot.node.create_subscription(JointState, "policy/divergence", divergences.append, 10)
        chunk = scene.robot.new_chunks(2)[-1]
        assert not chunk.commanded
        wait_for("divergence", lambda: divergences)
        assert list(divergences[-1].name) == list(JOINTS)
        assert scene.listener.messages == []
        assert scene.robot.status("motion").message == "no commands: shadow is set"


def test_R40_SIGTERM_stops_a_moving_robot_and_ends_cleanly(tmp_path: Path) -> None:
    """A launch file that is stopped, a container that goes away: the arm stands before the process ends."""
    values = parameters(autostart=True, blend_steps=0, require_enable=False)
    with Robot() as robot:
        listener = Listener(robot)
        with node_process(tmp_path, values, module="test.ros.moving_policy") as node:
            wait_for(
                "motion", lambda: listener.messages and np.abs(listener.commanded()[1]).max() > 0.01, 40.0
            )
            assert node.stop(signal.SIGTERM) == 0, node.log
            wait_for("the stop", lambda: list(listener.newest().points[-1].velocities) == [0.0] * 5)
            assert len(listener.newest().points) < 5, "a stop, not a chunk"
            assert "robot stopped: " in node.log


def test_consumed_decides_as_the_robot_moves_on() -> None:
    """`trigger: consumed`: a decision for every `replan_after` steps of motion, not more."""
    with scene_of(trigger="consumed", replan_after=5, decision_rate=50.0) as scene:
        start_s, chunks = time.monotonic(), scene.robot.new_chunks(5)
        seconds = time.monotonic() - start_s
        assert seconds >= 4 * 0.5 - 0.2, "five steps of 0.1 s between two decisions"
        assert [chunk.sequence for chunk in chunks] == list(range(chunks[0].sequence, chunks[0].sequence + 5))


def test_split_of_a_decision_is_in_the_message_and_in_the_diagnostics() -> None:
    """Where the time of a decision goes must be seen on the robot, without tools."""
    with scene_of() as scene:
        scene.mover._sleep_s = 0.02
        chunk = scene.robot.new_chunks(12)[-1]
        assert 20.0 <= chunk.policy_ms < 100.0
        for part in ("wait_ms", "ingest_ms", "post_ms", "publish_ms"):
            assert 0.0 <= getattr(chunk, part) < 100.0, part
        assert chunk.post_ms > 0.0
        assert chunk.publish_ms > 0.0
        assert 5.0 < chunk.decision_rate_hz < 12.0
        assert chunk.missed_deadlines == scene.running.thread.missed
        for part in ("wait", "ingest", "policy", "post", "publish", "overhead", "total"):
            wait_for(part, partial(scene.value, "decisions", f"{part}_ms_p50"))


def test_R45_dry_run_sends_chunks_and_no_commands() -> None:
    """`dry_run: true`, the first start on a robot: everything to look at, nothing that moves."""
    with scene_of(dry_run=True) as scene:
        assert not scene.robot.new_chunks(3)[-1].commanded
        assert scene.robot.status("motion").message == "no commands: dry_run is set"
        assert scene.robot.change("deactivate")
        assert scene.listener.messages == []


def test_R41_a_storm_of_limits_stops_the_robot() -> None:
    """A policy that always wants beyond the limits has other units than the robot: it is stopped for good."""
    with scene_of(limit_storm_after=4) as scene:
        scene.mover.target = HERE + 5.0
        words = "limits changed half of 4 chunks in a row"
        wait_for("the latch", lambda: words in scene.robot.status("motion").message)
        assert scene.robot.status("motion").level == b"\x02"
        assert not scene.robot.new_chunks(2)[-1].commanded


def test_R40_shutdown_stops_a_moving_robot() -> None:
    """A lifecycle manager that shuts down from active must leave an arm that stands."""
    with moving() as scene:
        commands = scene.running.commands
        assert scene.robot.change("shutdown")
        assert (commands.stops, commands.last_stop) == (1, "deactivated")
        wait_for("rest", lambda: not scene.is_moving())
        assert not np.allclose(scene.listener.commanded()[0], HERE + 0.5, atol=0.05), "it was on its way"


def test_R40_enable_that_says_no_stops_at_once() -> None:
    """Not the timeout: who says false means now."""
    slow = {f"joint.{name}.max_velocity": 0.1 for name in JOINTS}
    with scene_of(require_enable=True, enable_timeout=30.0, limit_storm_after=0, **slow) as scene:
        enable = scene.robot.node.create_publisher(Bool, "policy/enable", 1)
        wait_for("a match", lambda: enable.get_subscription_count() > 0)

        def is_moving_now() -> bool:
            enable.publish(Bool(data=True))
            return bool(scene.listener.messages) and scene.is_moving()

        wait_for("motion", is_moving_now)
        enable.publish(Bool(data=False))
        wait_for("the stop", lambda: scene.reason() == "not enabled: ~/enable is false", 1.0)
        scene.stops()
