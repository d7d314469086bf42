# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When the policy or a parameter is bad: the node in this process, with policies that misbehave."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flashrt_kernels.errors import CheckpointError
from flashrt_ros.loading import load_policy_of
from flashrt_ros.messages import time_message
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.running import vector_lines
from test.ros.stub_policy import HORIZON, StubPolicy
from test.ros.support import CAMERAS, NodeThread, Robot, parameters, wait_for

pytestmark = pytest.mark.dds


class Loader:
    """Loads stub policies and keeps them; `fault` is raised in their place."""

    def __init__(self, **policy: Any) -> None:
        self.policies: list[StubPolicy] = []
        self.fault: Exception | None = None
        self._policy = policy

    def __call__(self, config: NodeConfig) -> StubPolicy:
        if self.fault is not None:
            raise self.fault
        self.policies.append(StubPolicy(config, **self._policy))
        return self.policies[-1]


def entities(node: Any) -> tuple[int, int, int, int]:
    """How many publishers, subscriptions, timers and events the node holds."""
    counts = (node.publishers, node.subscriptions, node.timers, node.waitables)
    publishers, subscriptions, timers, waitables = (len(list(kind)) for kind in counts)
    return publishers, subscriptions, timers, waitables


def test_R42_non_finite_actions_are_never_published() -> None:
    """NaN in a trajectory makes controllers jump or fault: the whole chunk is dropped and the operator is
    told."""
    poison = threading.Event()

    def think(state: np.ndarray, **rest: Any) -> np.ndarray:
        actions = np.zeros((HORIZON, 5), np.float32)  # [HORIZON, D]
        if poison.is_set():
            actions[2, 3] = np.nan
        return actions

    with NodeThread(Loader(think=think), parameters()), Robot() as robot:
        robot.bring_up()
        robot.new_chunks(2)
        poison.set()
        time.sleep(0.2)
        assert robot.is_silent()
        # Not the level: right after activation a node without images is at ERROR too.
        wait_for("the joint", lambda: "infinite (joints wrist)" in robot.status("decisions").message)
        assert robot.status("decisions").level == b"\x02"
        poison.clear()
        robot.new_chunks(2)
        assert all(np.isfinite(chunk.data).all() for chunk in robot.chunks)
        assert all(np.isfinite(p.positions).all() for t in robot.trajectories for p in t.points)


def test_R36_trajectory_that_is_entirely_past_is_not_published(capfd: pytest.CaptureFixture[str]) -> None:
    """A policy slower than its horizon must not send the robot to where it should have been; the operator
    sees it as expired chunks and missed deadlines, and reads it once in the log."""
    old = {f"camera.{name}.max_age": 5.0 for name in CAMERAS}
    slow = parameters(action_rate_hz=100.0, joint_max_age=5.0, **old)
    with NodeThread(Loader(sleep_s=0.15), slow), Robot() as robot:
        # The observation is older than the chunk that the robot follows: all of that counts as consumed.
        robot.make_stamp = lambda source: time_message(robot.node.get_clock().now().nanoseconds - 600_000_000)
        robot.bring_up()
        chunks = robot.new_chunks(4)
        late = [chunk.steps_consumed >= HORIZON for chunk in chunks]
        assert sum(late) >= 2, late
        assert [chunk.commanded for chunk in chunks] == [not expired for expired in late]
        # The robot may not have been listening yet when the first one went out.
        assert len(robot.trajectories) <= len(late) - sum(late)

        def values() -> dict[str, str]:
            return {value.key: value.value for value in robot.status("decisions").values}

        # Not the level: "inactive, and not ready" is a warning too, of a beat before these chunks.
        wait_for("the count of expired chunks", lambda: int(values()["expired_chunks"]) > 0)
        wait_for("the count of missed deadlines", lambda: int(values()["missed_deadlines"]) > 0)
        wait_for("the latency outside of the policy", lambda: "overhead_ms_p99" in values())
        wait_for("the warning", lambda: "slower than decision_rate" in robot.status("decisions").message)
        assert robot.status("decisions").level == b"\x01"
    assert capfd.readouterr().err.count(f"nothing sent: all {HORIZON} steps of a chunk") == 1


def test_R46_exception_in_configure_leaves_a_node_that_can_be_configured(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A defect while loading must show its traceback and cost one transition, not the process."""
    loader = Loader()
    with NodeThread(loader, parameters()) as thread, Robot() as robot:
        before = entities(thread.node)
        loader.fault = RuntimeError("out of luck")
        assert not robot.change("configure")
        assert robot.state() == "unconfigured"
        wait_for("the fault", lambda: "RuntimeError: out of luck" in robot.status("state").message)
        assert entities(thread.node) == before
        assert "Traceback" in capfd.readouterr().err, (
            "rclpy swallows it: without our log nobody finds the line"
        )
        loader.fault = None
        robot.bring_up()
        robot.new_chunks()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"cameras": ["top", "side"], "camera.side.slot": "nowhere"},
            ("side", "nowhere", "observation.images.wrist"),
        ),
        ({"joint_names": ["pan", "lift"]}, ("joint_names", "5")),
        ({"action_rate_hz": -1.0}, ("action_rate_hz", "-1")),
        ({"decision_rat": 3.0}, ("decision_rat", "did you mean 'decision_rate'")),
        ({"camera.topp.max_age": 1.0}, ("camera.topp.max_age", "top, wrist, extra")),
        ({"trigger": "camera"}, ("trigger_camera",)),
        ({"camera.top.topic": "front image"}, ("camera.top.topic", "'front image'", "characters")),
        ({"tokenizer": "/no/tokenizer"}, ("/no/tokenizer",)),
        ({"device": "cuda:7"}, ("cuda:7",)),
        ({"adapt_to_pi": "true"}, ("adapt_to_pi is True", "LeRobot")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_R57_bad_configuration_is_refused_in_one_line(
    change: dict[str, Any], words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """What does not fit the checkpoint is said by name, both sides, and nothing half-loaded stays."""
    with NodeThread(load_policy_of, parameters() | change) as thread:
        before = entities(thread.node)
        thread.node.trigger_configure()
        assert thread.node.state_label == "unconfigured"
        assert entities(thread.node) == before
        fault = str(thread.node.health.fault)
        assert all(word in fault for word in words), fault
        assert "Traceback" not in capfd.readouterr().err


def test_unknown_parameters_of_other_nodes_are_ignored() -> None:
    """One `/**` file serves all nodes of a robot."""
    with NodeThread(Loader(), parameters(fps=30, driver__gain=1.5)) as thread:
        thread.node.trigger_configure()
        assert thread.node.state_label == "inactive"


def test_loading_errors_name_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a checkpoint is a refusal in one line and not a crash with a traceback."""

    def refuse(folder: str, **options: Any) -> None:
        raise CheckpointError("model.safetensors: tensor x is missing")

    monkeypatch.setattr("flashrt_kernels.loading.load_policy", refuse)
    config = NodeConfig.from_dict(parameters())
    with pytest.raises(ConfigError, match=r"tiny_pi05.*model\.safetensors: tensor x is missing"):
        load_policy_of(config)


def test_R48_fatal_error_deactivates_the_node() -> None:
    """After a device fault the robot gets no actions, the node says so and stays for a new activation."""
    broken = threading.Event()

    def think(state: np.ndarray, **rest: Any) -> np.ndarray:
        if broken.is_set():
            raise RuntimeError("device lost")
        return np.zeros((HORIZON, 5), np.float32)  # [HORIZON, D]

    with NodeThread(Loader(think=think), parameters()), Robot() as robot:
        robot.bring_up()
        robot.new_chunks()
        broken.set()
        wait_for("deactivation", lambda: robot.state() == "inactive")
        wait_for("the fault", lambda: "device lost" in robot.status("state").message)
        assert robot.status("state").level == b"\x02"
        assert robot.is_silent()
        broken.clear()
        assert robot.change("activate")
        robot.new_chunks()
        wait_for("the fault to be over", lambda: robot.status("state").level == b"\x00")


def test_R49_decision_in_flight_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deactivate waits a bounded time; the chunk being computed must not move the robot afterwards."""
    monkeypatch.setattr("flashrt_ros.policy_node.STOP_TIMEOUT_S", 0.1)
    entered, go_on = threading.Event(), threading.Event()

    def think(state: np.ndarray, **rest: Any) -> np.ndarray:
        entered.set()
        go_on.wait(20.0)
        return np.zeros((HORIZON, 5), np.float32)  # [HORIZON, D]

    loader = Loader(think=think)
    with NodeThread(loader, parameters()), Robot() as robot:
        robot.bring_up()
        assert entered.wait(10.0)
        started = time.monotonic()
        assert robot.change("deactivate")
        assert time.monotonic() - started < 10.0, "the decision takes 20 s"
        assert not robot.change("activate"), "two decisions at a time would share the policy's buffers"
        assert not robot.change("cleanup"), "the policy would be freed under the decision"
        assert not loader.policies[0].closed
        go_on.set()
        assert robot.is_silent()
        wait_for("cleanup", lambda: robot.change("cleanup"))
        assert loader.policies[0].closed


def test_R51_configure_and_cleanup_leave_nothing() -> None:
    """Entities that pile up over a day of restarts end in a node that is slow or out of memory."""
    loader = Loader()
    with NodeThread(loader, parameters(debug_images=1.0)) as thread:
        node = thread.node
        before, threads = entities(node), threading.active_count()
        for _ in range(20):
            for change in (
                node.trigger_configure,
                node.trigger_activate,
                node.trigger_deactivate,
                node.trigger_cleanup,
            ):
                change()
            assert node.state_label == "unconfigured"
        assert entities(node) == before
        assert threading.active_count() == threads
        assert len(loader.policies) == 20
        assert all(policy.closed for policy in loader.policies)


def test_a_destroyed_node_leaves_the_graph_at_once() -> None:
    """Half a node that stays on the graph until the garbage is collected makes the services of the next one
    unavailable to everybody."""
    with Robot() as robot:
        gc.disable()
        try:
            with NodeThread(Loader(), parameters()):
                robot.bring_up()
            wait_for("the node to be gone", lambda: "policy" not in robot.node.get_node_names())
        finally:
            gc.enable()


def test_structural_parameters_are_frozen_while_configured() -> None:
    """A parameter that is accepted and has no effect is worse than a refusal."""
    with NodeThread(Loader(), parameters()), Robot() as robot:
        assert robot.set_parameter("action_rate_hz", 20.0) == (True, "")
        assert not robot.set_parameter("trigger", "never")[0]
        assert robot.change("configure")
        accepted, reason = robot.set_parameter("action_rate_hz", 30.0)
        assert not accepted
        assert "unconfigured" in reason
        accepted, reason = robot.set_parameter("debug_images", -1.0)
        assert not accepted
        assert robot.set_parameter("instruction", "wave")[0]
        assert robot.change("cleanup")
        assert robot.set_parameter("action_rate_hz", 30.0)[0]


@pytest.mark.parametrize("name", ["instruction", "debug_images", "checkpoint"])
def test_deleted_parameters_are_refused(name: str) -> None:
    """`ros2 param delete /policy debug_images` must not end the process in the middle of a motion."""
    with NodeThread(Loader(), parameters()), Robot() as robot:
        robot.bring_up()
        accepted, reason = robot.set_parameter(name, None)
        assert not accepted
        assert name in reason
        assert robot.new_chunks(2)[-1].instruction == "pick up the red block"


def test_cameras_can_be_changed_between_configures() -> None:
    """`camera.<name>.*` must exist as soon as the camera is named, or its topic can be set only at start."""
    loader = Loader()
    with NodeThread(loader, parameters(cameras=["top"])), Robot() as robot:
        robot.bring_up()
        assert robot.change("deactivate")
        assert robot.change("cleanup")
        assert robot.set_parameter("cameras", ["side"])[0]
        assert robot.set_parameter("camera.side.topic", "wrist/image_raw")[0]
        robot.bring_up()
        assert "side" in robot.new_chunks()[0].source_names
        assert loader.policies[-1].bound == ["side"]


@pytest.mark.parametrize("on_demand", [True, False], ids=["on demand", "stored"])
def test_both_ways_of_receiving_decide_alike(on_demand: bool) -> None:
    """The fallback must be as good as the undocumented call it replaces."""
    with NodeThread(Loader(), parameters(), on_demand=on_demand), Robot() as robot:
        robot.bring_up()
        chunk = robot.new_chunks(5)[-1]
        assert len(chunk.source_names) == 4
        assert chunk.age_ms < 500.0
        assert list(chunk.data[:5]) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_diagnostics_survive_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad status must not end the heartbeat that monitoring relies on."""
    with NodeThread(Loader(), parameters()) as thread, Robot() as robot:
        report: Callable[..., Any] = thread.node.health.report
        failures: list[int] = []

        def fail_once(*args: Any, **options: Any) -> Any:
            if not failures:
                failures.append(1)
                raise KeyError("defect")
            return report(*args, **options)

        monkeypatch.setattr(thread.node.health, "report", fail_once)
        wait_for("a beat after the failure", lambda: failures and robot.statuses)


def test_a_defect_of_the_diagnostics_is_logged_once(capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback every second buries what else the node has to say."""
    with NodeThread(Loader(), parameters()) as thread:
        for _ in range(3):
            thread.node._on_beat_error(KeyError("defect"))
    assert capfd.readouterr().err.count("diagnostics failed") == 1


def test_R25_incompatible_publisher_is_an_error_before_anything_moves() -> None:
    """A camera that is matched by name and delivers nothing looks like a broken driver; it is one line of
    QoS."""
    strict = {"qos_overrides./top/image_raw.subscription.reliability": "reliable"}
    with NodeThread(Loader(), parameters() | strict), Robot() as robot:
        assert robot.change("configure")
        wait_for("the error", lambda: robot.status("top").level == b"\x02")
        message = robot.status("top").message
        assert "/robot offers best_effort" in message
        assert "asks reliable" in message
        wait_for("the other camera's images", lambda: robot.status("wrist").level == b"\x00")


def test_R14_start_log_maps_indices_to_joints() -> None:
    """A state vector in the wrong order is found by reading this line and by nothing else."""
    values = parameters(joint__lift__scale=2, joint__lift__offset=-0.5, action_names=list("abcde"))
    assert vector_lines(NodeConfig.from_dict(values))[:2] == (
        "state vector: [0] pan, [1] lift·2-0.5, [2] elbow, [3] wrist, [4] gripper",
        "action vector: [0] a, [1] b, [2] c, [3] d, [4] e",
    )
