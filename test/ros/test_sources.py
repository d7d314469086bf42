# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The newest message of a topic, by both ways of getting it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String

from flashrt_ros.inputs import InstructionTopic
from flashrt_ros.sources import OnDemandSource, Source, StoredSource, Traffic, can_take, open_source
from test.ros.support import image, instruction_publisher, joint_state, wait_for

pytestmark = pytest.mark.dds
WAYS = pytest.mark.parametrize("on_demand", [True, False], ids=["on demand", "stored"])


class Spun:
    """A context with nodes and an executor that turns while something is waited for."""

    def __init__(self) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.nodes: list[Node] = []

    def node(self, name: str, **arguments: Any) -> Node:
        node = Node(name, context=self.context, **arguments)
        self.executor.add_node(node)
        self.nodes.append(node)
        return node

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        def turn() -> Any:
            self.executor.spin_once(timeout_sec=0.01)
            return condition()

        return wait_for(what, turn)

    def for_a_while(self, seconds: float = 0.2) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.01)

    def close(self) -> None:
        self.executor.shutdown()
        for node in self.nodes:
            node.destroy_node()
        rclpy.try_shutdown(context=self.context)


@pytest.fixture
def spun() -> Iterator[Spun]:
    spun = Spun()
    yield spun
    spun.close()


def connected(spun: Spun, source: Source, publisher: Any) -> None:
    """Wait until messages of the publisher can reach the source."""
    spun.until(f"{source.topic} to be matched", publisher.get_subscription_count)
    spun.for_a_while(0.1)


@WAYS
def test_only_the_newest_image_is_kept(spun: Spun, on_demand: bool) -> None:
    """Without this the robot acts on an old picture, or every picture costs a callback and a conversion
    (R10)."""
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    source = open_source(spun.node("listener"), "front", Image, "front", 1, on_demand=on_demand)
    connected(spun, source, publisher)
    for height in (1, 2, 3):
        publisher.publish(image(height=height))
    spun.for_a_while()
    samples = source.drain()
    assert [sample.message.height for sample in samples] == [3]
    assert abs(samples[0].received_ns - time.time_ns()) < 2_000_000_000
    assert source.drain() == []


@WAYS
def test_every_joint_message_is_delivered_in_order(spun: Spun, on_demand: bool) -> None:
    """Without this a publisher that sends part of the joints is overwritten by another one (R13)."""
    publisher = spun.node("driver").create_publisher(JointState, "joint_states", QoSProfile(depth=60))
    source = open_source(
        spun.node("listener"), "joint_states", JointState, "joint_states", 200, on_demand=on_demand
    )
    connected(spun, source, publisher)
    for index in range(50):
        publisher.publish(joint_state(positions={"pan": float(index)}))
    received: list[float] = []

    def all_there() -> bool:
        received.extend(sample.message.position[0] for sample in source.drain())
        return len(received) >= 50

    spun.until("50 joint states", all_there)
    assert received == [float(index) for index in range(50)]


@WAYS
def test_traffic_counts_what_was_sent(spun: Spun, on_demand: bool) -> None:
    """Without this nobody sees that a camera delivers 5 Hz in place of 30: taken images tell only our own
    rate."""
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    source = open_source(spun.node("listener"), "front", Image, "front", 1, on_demand=on_demand)
    connected(spun, source, publisher)
    for sent in range(1, 7):
        publisher.publish(image())
        spun.for_a_while(0.05)
        if sent in (1, 6):
            source.drain()
    assert (source.traffic.published, source.traffic.taken, source.traffic.skipped) == (6, 2, 4)
    assert source.traffic.rate(time.time_ns()) > 0.0


def test_rate_is_the_publishers_and_not_ours() -> None:
    """A camera at 30 Hz of which every third image is looked at runs at 30 Hz; a silent one at 0."""
    traffic = Traffic()
    for second in range(10):
        for tenth in range(10):
            now_ns = (10 * second + tenth) * 100_000_000
            number = 3 * (10 * second + tenth) + 1
            traffic.note({"publication_sequence_number": number, "publisher_gid": {"data": b"a"}}, now_ns)
    assert traffic.rate(now_ns) == pytest.approx(30.0)
    assert traffic.rate(now_ns + 4_000_000_000) == 0.0


def test_traffic_of_a_restarted_publisher_never_goes_down() -> None:
    """A driver that restarts counts from 1 again; the rate must not turn negative."""
    traffic = Traffic()
    for number in (10, 12, 1, 2):
        traffic.note({"publication_sequence_number": number, "publisher_gid": {"data": b"a"}}, number)
    assert (traffic.published, traffic.taken) == (5, 4)


def test_on_demand_needs_no_callback(spun: Spun) -> None:
    """Images wait in the middleware: an executor that spins must not touch them."""
    listener = spun.node("listener")
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    source = open_source(listener, "front", Image, "front", 1)
    assert isinstance(source, OnDemandSource)
    connected(spun, source, publisher)
    calls: list[Any] = []
    subscription = next(s for s in listener.subscriptions if s.topic_name == "/front")
    subscription.callback = calls.append
    publisher.publish(image())
    spun.for_a_while()
    assert calls == []
    assert len(source.drain()) == 1


def test_rclpy_without_take_falls_back_to_callbacks(spun: Spun, monkeypatch: pytest.MonkeyPatch) -> None:
    """take_message is not documented API: the day it is gone the node must still see."""
    monkeypatch.setattr("flashrt_ros.sources.can_take", lambda subscription: False)
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    source = open_source(spun.node("listener"), "front", Image, "front", 1)
    assert isinstance(source, StoredSource)
    connected(spun, source, publisher)
    publisher.publish(image())
    spun.for_a_while()
    assert len(source.drain()) == 1


def test_probe_tells_a_take_that_changed() -> None:
    """The probe must see a take call that is missing or answers otherwise, else every decision raises."""

    class Handle:
        def __enter__(self) -> Handle:
            return self

        def __exit__(self, *error: object) -> None: ...

    class WithTake(Handle):
        def __init__(self, answer: Any) -> None:
            self.take_message = lambda message_type, raw: answer

    class OneArgument(Handle):
        def take_message(self, message_type: type) -> None: ...

    class Holder:
        msg_type = Image

        def __init__(self, handle: Handle) -> None:
            self.handle = handle

    assert can_take(Holder(WithTake(None)))
    assert can_take(Holder(WithTake((image(), {}))))
    assert not can_take(Holder(WithTake(image())))
    assert not can_take(Holder(Handle()))
    assert not can_take(Holder(OneArgument()))


def test_trigger_camera_wakes_somebody(spun: Spun) -> None:
    """Without this `trigger: camera` never decides."""
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    woken: list[bool] = []
    source = open_source(
        spun.node("listener"), "front", Image, "front", 1, on_message=lambda: woken.append(True)
    )
    connected(spun, source, publisher)
    publisher.publish(image())
    spun.until("the call", lambda: woken)
    assert len(source.drain()) == 1


def test_unread_message_does_not_wake_the_executor(spun: Spun) -> None:
    """An executor that spins while an image waits takes a whole core, and the GIL, from the policy."""
    listener = spun.node("listener")
    publisher = spun.node("camera").create_publisher(Image, "front", qos_profile_sensor_data)
    source = open_source(listener, "front", Image, "front", 1)
    connected(spun, source, publisher)
    publisher.publish(image())
    spun.for_a_while(0.2)  # the image is there, graph changes are over
    waits = 0
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        spun.executor.spin_once(timeout_sec=0.05)
        waits += 1
    assert len(source.drain()) == 1, "the message was not waiting: the test saw nothing"
    assert waits < 100, f"{waits} waits in 0.5 s"


@WAYS
def test_R61_remaps_that_swap_two_topics_are_applied_once(spun: Spun, on_demand: bool) -> None:
    """Lost otherwise: an operator exchanges two cameras by remaps, the node says so, and still gets the wrong
    ones."""
    swap = ["--ros-args", "-r", "top/image_raw:=wrist/image_raw", "-r", "wrist/image_raw:=top/image_raw"]
    node = spun.node("listener", cli_args=swap)
    publisher = spun.node("camera").create_publisher(Image, "wrist/image_raw", qos_profile_sensor_data)
    source = open_source(node, "top", Image, "top/image_raw", depth=1, on_demand=on_demand)
    assert source.topic == "/wrist/image_raw"
    connected(spun, source, publisher)
    publisher.publish(image("wrist"))
    (sample,) = spun.until("the image", source.drain)
    assert sample.message.header.frame_id == "wrist"


def test_silence_names_what_is_published_instead(spun: Spun) -> None:
    """A forgotten remap or the wrong transport is the commonest mistake: "never seen" alone leaves the user
    searching."""
    listener, camera = spun.node("listener"), spun.node("camera")
    source = open_source(listener, "front", Image, "front/image_raw", 1)
    assert source.silence() == "nobody publishes /front/image_raw"

    def says(words: str) -> None:
        spun.until(words, lambda: words in str(source.silence()))

    camera.create_publisher(CompressedImage, "front/image_raw/compressed", qos_profile_sensor_data)
    says("there is /front/image_raw/compressed")
    camera.create_publisher(Image, "cam/front", qos_profile_sensor_data)
    says("/cam/front")
    other = Spun()  # one DDS participant cannot give a topic two types
    try:
        other.node("other").create_publisher(CompressedImage, "front/image_raw", qos_profile_sensor_data)
        says("is published as sensor_msgs/msg/CompressedImage")
    finally:
        other.close()
    publisher = camera.create_publisher(Image, "front/image_raw", qos_profile_sensor_data)
    connected(spun, source, publisher)
    spun.until("the right publisher", lambda: source.silence() is None)


def test_closed_source_is_silent(spun: Spun) -> None:
    """After cleanup nothing may touch a subscription that is gone."""
    listener = spun.node("listener")
    source = open_source(listener, "front", Image, "front", 1)
    source.close()
    assert source.drain() == []
    assert not [s for s in listener.subscriptions if s.topic_name == "/front"]


def test_R25_incompatible_qos_names_both_sides(spun: Spun) -> None:
    """A best-effort camera under a reliable override delivers nothing: the user must be told who and why."""
    spun.node("camera", namespace="/head").create_publisher(Image, "/front", qos_profile_sensor_data)
    listener = spun.node(
        "listener",
        parameter_overrides=[Parameter("qos_overrides./front.subscription.reliability", value="reliable")],
    )
    source = open_source(listener, "front", Image, "/front", 1)
    spun.until("the conflict", source.conflicts)
    conflicts = source.conflicts()
    assert len(conflicts) == 1
    assert "/head/camera offers best_effort" in conflicts[0]
    assert "asks reliable" in conflicts[0]
    spun.nodes[0].destroy_node()
    spun.until("the conflict to end", lambda: not source.conflicts())


def test_R26_latched_and_volatile_instructions_arrive_once(spun: Spun) -> None:
    """A transient-local subscription alone never hears `ros2 topic pub`; a volatile one alone misses what was
    said before the node came."""
    talker = spun.node("talker")
    latched = instruction_publisher(talker, DurabilityPolicy.TRANSIENT_LOCAL)
    latched.publish(String(data="latched"))
    heard: list[str] = []
    topic = InstructionTopic(spun.node("policy"), heard.append)
    spun.until("the latched instruction", lambda: heard)
    volatile = instruction_publisher(talker, DurabilityPolicy.VOLATILE)
    spun.until("the volatile publisher to be matched", volatile.get_subscription_count)
    spun.for_a_while(0.2)
    volatile.publish(String(data="volatile"))
    spun.until("the volatile instruction", lambda: "volatile" in heard)
    latched.publish(String(data="again"))
    latched.publish(String(data="again"))
    spun.until("the last one", lambda: heard.count("again") == 2)
    spun.for_a_while()
    assert heard == ["latched", "volatile", "again", "again"]
    topic.close()


def test_sensor_qos_matches_reliable_and_best_effort_publishers(spun: Spun) -> None:
    """Drivers publish either way; a camera that never connects is the most reported problem of ROS users."""
    source = open_source(spun.node("listener"), "front", Image, "front", 1)
    for index, reliability in enumerate((ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT)):
        driver = spun.node(f"driver{index}")
        publisher = driver.create_publisher(Image, "front", QoSProfile(depth=1, reliability=reliability))
        connected(spun, source, publisher)
        publisher.publish(image(height=10 + index))
        spun.for_a_while()
        assert [sample.message.height for sample in source.drain()] == [10 + index]
