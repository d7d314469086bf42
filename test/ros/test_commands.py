# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one way from a chunk to the robot: what is sent, and above all what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.channels import Channel, open_channels
from flashrt_ros.commands import EXPIRED, OVERTAKEN, Commands
from flashrt_ros.observation import Decision, Observation
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.safety import Safety
from flashrt_ros.trajectory import Trajectory

S = 1_000_000_000
MS = 1_000_000
HORIZON = 10
LIMITS = {
    f"joint.{name}.{key}": value
    for name in ("a", "b")
    for key, value in {"min": -1.0, "max": 1.0, "max_velocity": 2.0, "max_jump": 0.5}.items()
}


class Wire:
    """What went out: (group, trajectory) and (group, values of a moment)."""

    def __init__(self) -> None:
        self.trajectories: list[tuple[str, Trajectory]] = []
        self.moments: list[tuple[str, np.ndarray]] = []

    def trajectory(self, channel: Channel, trajectory: Trajectory) -> None:
        self.trajectories.append((channel.group.name, trajectory))

    def moment(self, channel: Channel, values: np.ndarray, velocities: np.ndarray) -> None:
        self.moments.append((channel.group.name, values))

    def forget(self) -> None:
        """Nothing is remembered."""


class Bench:
    """Commands of a robot with joints a and b at (0, 0), at 10 steps a second."""

    def __init__(self, **parameters: Any) -> None:
        flat = {
            "checkpoint": "x",
            "action_rate_hz": 10.0,
            "cameras": ["top"],
            "joint_names": ["a", "b"],
            "require_enable": False,
            "replan_after": 5,
            **LIMITS,
            **{name.replace("__", "."): value for name, value in parameters.items()},
        }
        self.config = NodeConfig.from_dict(flat)
        self.wire = Wire()
        self.measured: np.ndarray | None = np.zeros(2)
        self.safety = Safety(self.config)
        self.commands = Commands(
            open_channels(self.config),
            self.safety,
            self.config,
            self.wire,
            self,
        )
        self.commands.reset()

    def positions(self, names: Sequence[str]) -> np.ndarray | None:
        """As `RobotView`."""
        return None if self.measured is None else self.measured[: len(names)]

    def missing(self, names: Sequence[str]) -> str:
        """As `RobotView`."""
        return f"{', '.join(names)} never seen"

    def state(self) -> np.ndarray | None:
        """As `RobotView`."""
        return None

    def accept(self, rows: Any, now_ns: int = 0, consumed: int = 0) -> Any:
        return self.commands.accept(self.decision(rows, now_ns), consumed, now_ns)

    def decision(self, rows: Any, now_ns: int = 0) -> Decision:
        actions = np.broadcast_to(np.asarray(rows, np.float32), (HORIZON, len(self.config.action_names)))
        state = np.zeros(len(self.config.joints), np.float32)
        known = {} if self.measured is None else dict(zip("ab", self.measured.tolist(), strict=True))
        observation = Observation({}, state, {"joint_states": 0}, ("joint_states",), 0, known)
        return Decision(
            actions=actions,
            action_names=self.config.action_names,
            sequence=0,
            epoch=0,
            first=True,
            seed=0,
            instruction="",
            model="stub",
            observation=observation,
            age_ms=0.0,
            ingest_ms=0.0,
            policy_ms=0.0,
            started_ns=now_ns,
            finished_ns=now_ns,
        )


def test_a_chunk_goes_out_as_one_trajectory_from_where_the_robot_is() -> None:
    """The first chunk begins at rest where the robot is measured, the next one where it is commanded."""
    bench = Bench()
    assert bench.accept([0.3, 0.0]).sent
    assert bench.accept([0.3, 0.2], 500 * MS).sent
    (_, first), (_, second) = bench.wire.trajectories
    assert first.positions[0].tolist() == [0.0, 0.0]
    assert second.positions[0] == pytest.approx(first.at(500 * MS)[0])
    assert second.velocities[0] == pytest.approx(first.at(500 * MS)[1])


def test_R36_expired_chunks_are_counted_and_not_sent() -> None:
    """A motion whose time is over must not begin."""
    bench = Bench()
    bench.accept([0.3, 0.0])
    slow = replace(bench.decision([0.3, 0.0], 10 * MS), age_ms=20.0)
    outcome = bench.commands.accept(slow, 30, 3 * S)
    assert (outcome.sent, outcome.reason, outcome.consumed) == (False, EXPIRED, HORIZON)
    assert (len(bench.wire.trajectories), bench.commands.expired) == (1, 1)


def test_R29_a_robot_that_stood_has_consumed_nothing() -> None:
    """Steps are skipped for motion, not for time: after a stop a chunk must begin at its beginning."""
    bench = Bench()
    assert bench.accept([0.1, 0.0], consumed=7).consumed == 0
    moving = replace(bench.decision([0.1, 0.0], 100 * MS), age_ms=50.0)
    assert bench.commands.accept(moving, 4, 500 * MS).consumed == 4, "since 50 ms"
    bench.commands.stop("camera 'top' stopped", 600 * MS)
    stood = replace(bench.decision([0.1, 0.0], 700 * MS), age_ms=50.0)
    assert bench.commands.accept(stood, 8, 1500 * MS).consumed == 0
    late = replace(bench.decision([0.1, 0.0], 2 * S), age_ms=0.0)
    outcome = bench.commands.accept(late, 30, 5 * S)
    assert outcome.consumed == 5, "of the 1 s that the chunk lasts, 0.5 s came after the observation"


def test_R44_what_was_decided_before_a_stop_is_not_sent_after_it() -> None:
    """The guardian stops the arm because its camera went dark; the decision that was under way saw it lit."""
    bench = Bench()
    bench.accept([0.3, 0.0])
    decision = bench.decision([0.3, 0.0], 100 * MS)
    bench.commands.stop("camera 'top' stopped", 300 * MS)
    outcome = bench.commands.accept(decision, 0, 900 * MS)
    assert (outcome.sent, outcome.fault, outcome.reason) == (False, False, OVERTAKEN)
    assert bench.accept([0.3, 0.0], S).sent


def test_R40_stop_is_sent_at_once_and_once() -> None:
    """Cancel, deactivate and shutdown end in this call: the arm must stand, and nobody repeats the order."""
    bench = Bench()
    bench.accept([0.3, 0.0])
    now_ns = 300 * MS
    moving = bench.wire.trajectories[0][1].at(now_ns)[0]
    assert bench.commands.stop("deactivated", now_ns)
    assert not bench.commands.stop("shutdown", now_ns + MS)
    assert len(bench.wire.trajectories) == 2
    stop = bench.wire.trajectories[-1][1]
    assert stop.positions[-1] == pytest.approx(moving)
    assert stop.velocities[-1].tolist() == [0.0, 0.0]
    assert (bench.commands.stops, bench.commands.last_stop) == (1, "deactivated")


def test_R40_decelerate_takes_stop_time() -> None:
    """`stop_action: decelerate`: a heavy arm that stops dead shakes what it carries."""
    bench = Bench(stop_action="decelerate", stop_time=0.2)
    bench.accept([0.3, 0.0])
    bench.commands.stop("deactivated", 150 * MS)
    stop = bench.wire.trajectories[-1][1]
    assert stop.end_ns == pytest.approx(350 * MS, abs=MS)
    assert stop.velocities[0][0] > 0.1, "it was moving"
    assert stop.velocities[-1].tolist() == [0.0, 0.0]


def test_stop_action_none_sends_nothing() -> None:
    """For robots whose controller stops by itself."""
    bench = Bench(stop_action="none")
    bench.accept([0.3, 0.0])
    bench.commands.stop("deactivated", 150 * MS)
    assert len(bench.wire.trajectories) == 1


def test_a_robot_that_stands_is_not_stopped() -> None:
    """A hold that is sent to an arm that somebody else moves by now would pull it back."""
    bench = Bench()
    assert not bench.commands.stop("deactivated", 0)
    bench.accept([0.3, 0.0])
    assert not bench.commands.stop("deactivated", 10 * S), "the chunk ended long ago"
    assert len(bench.wire.trajectories) == 1


def test_R40_enable_that_goes_away_stops_within_a_tick() -> None:
    """The deadman: whoever lets go must see the arm stop, not end its chunk."""
    bench = Bench(require_enable=True)
    bench.safety.enable(True, 0)
    assert bench.accept([0.3, 0.0]).sent
    assert bench.commands.tick(100 * MS) == ""
    bench.safety.enable(False, 110 * MS)
    assert "~/enable is false" in bench.commands.tick(120 * MS)
    assert len(bench.wire.trajectories) == 2
    refused = bench.accept([0.3, 0.0], 130 * MS)
    assert (refused.sent, refused.fault) == (False, False)
    assert len(bench.wire.trajectories) == 2
    bench.safety.enable(True, S)
    bench.measured = np.array([-0.2, 0.1])
    assert bench.accept([-0.2, 0.1], S + 700 * MS // 2).sent is True
    assert bench.wire.trajectories[-1][1].positions[0].tolist() == [-0.2, 0.1], "somebody moved it meanwhile"


def test_R40_a_chunk_while_closed_stops_a_robot_that_still_moves() -> None:
    """Between two ticks the deadman may be released: the chunk that comes then must not be what hides it."""
    bench = Bench(require_enable=True)
    bench.safety.enable(True, 0)
    bench.accept([0.3, 0.0])
    bench.safety.enable(False, 100 * MS)
    assert not bench.accept([0.3, 0.0], 110 * MS).sent
    assert (len(bench.wire.trajectories), bench.commands.stops) == (2, 1)


@pytest.mark.parametrize("mode", ["dry_run", "shadow"])
def test_R45_dry_run_and_shadow_send_nothing(mode: str) -> None:
    """Looking at a policy on a robot that somebody else drives."""
    bench = Bench(**{mode: True}, execute="stream")
    assert not bench.accept([0.3, 0.0]).sent
    bench.commands.tick(10 * MS)
    bench.commands.stop("deactivated", 20 * MS)
    bench.commands.tick(30 * MS)
    assert (bench.wire.trajectories, bench.wire.moments) == ([], [])


def test_shadow_compares_the_policy_with_whoever_drives() -> None:
    """The divergence is what the policy would have commanded now, minus where the robot is."""
    bench = Bench(shadow=True)
    bench.accept([0.4, 0.0])
    bench.measured = np.array([0.1, 0.0])
    bench.accept([0.4, 0.0], S)
    assert bench.commands.lag["a"] == pytest.approx(0.3, abs=0.01)
    assert bench.commands.lag["b"] == pytest.approx(0.0, abs=0.01)


def test_R39_servo_lag_is_reported_per_joint() -> None:
    """A servo that stays behind makes every chunk begin in the wrong place: the operator sees which one."""
    bench = Bench()
    bench.accept([0.3, 0.0])
    bench.measured = np.array([0.2, 0.0])
    bench.accept([0.3, 0.0], S)
    assert bench.commands.lag == {"a": pytest.approx(0.1, abs=0.01), "b": pytest.approx(0.0, abs=0.01)}


def test_R41_a_jump_is_refused_and_repeated_jumps_latch() -> None:
    """A chunk that begins far away is refused with the numbers; a policy that does only that is stopped."""
    bench = Bench(latch_after=3)
    bench.accept([0.1, 0.0])
    jump = bench.accept([0.9, 0.0], 100 * MS)
    assert (jump.sent, jump.fault) == (False, True)
    assert "a would jump by" in jump.reason
    bench.accept([0.9, 0.0], 200 * MS)
    assert bench.safety.closed(0) == ""
    bench.accept([0.9, 0.0], 300 * MS)
    assert "3 chunks in a row were refused" in bench.safety.closed(0)
    assert not bench.accept([0.1, 0.0], 400 * MS).sent


def test_R41_a_storm_of_limits_stops_the_robot() -> None:
    """A policy that always wants beyond the limits has other units than the robot."""
    bench = Bench(limit_storm_after=2, **{"joint.a.max_jump": 10.0, "joint.b.max_jump": 10.0})
    bench.accept([3.0, 3.0])
    bench.accept([3.0, 3.0], 100 * MS)
    assert "limits changed half of 2 chunks" in bench.safety.closed(0)
    assert "limits changed half" in bench.commands.tick(110 * MS)
    assert bench.commands.clipped > 0


def test_unknown_position_is_no_fault_of_the_policy() -> None:
    """Without a measured position nothing is sent, and nothing latches: joint states may come any moment."""
    bench = Bench(latch_after=1)
    bench.measured = None
    outcome = bench.accept([0.1, 0.0])
    assert (outcome.sent, outcome.fault) == (False, True)
    assert "no position is measured to begin from: a, b never seen" in outcome.reason
    assert bench.safety.closed(0) == ""
    bench.measured = np.zeros(2)
    assert bench.accept([0.1, 0.0]).sent


def test_stream_sends_every_moment_and_holds_the_end() -> None:
    """`execute: stream` for robots without a trajectory controller: no chunk, a position in every period."""
    bench = Bench(execute="stream")
    bench.accept([0.3, 0.0])
    for tick in range(0, 2000, 10):
        bench.commands.tick(tick * MS)
    assert bench.wire.trajectories == []
    values = np.array([values for _, values in bench.wire.moments])  # [ticks, 2]
    assert len(values) == 200
    assert values[-1] == pytest.approx([0.3, 0.0])
    assert np.abs(np.diff(values[:, 0])).max() <= 2.0 * 0.01 + 1e-9, "max_velocity is 2 per s"


def test_stream_plays_the_stop_to_its_end_and_is_silent_then() -> None:
    """A stop that nobody plays leaves the arm at speed; a node that goes on talking holds others off."""
    bench = Bench(execute="stream", stop_action="decelerate", stop_time=0.2)
    bench.accept([0.3, 0.0])
    bench.commands.tick(150 * MS)
    bench.commands.stop("deactivated", 151 * MS)
    assert not bench.commands.is_settled()
    for tick in range(160, 600, 10):
        bench.commands.tick(tick * MS)
    count = len(bench.wire.moments)
    assert count < 30
    assert bench.commands.is_settled()
    bench.commands.tick(700 * MS)
    assert len(bench.wire.moments) == count


def test_R45_all_groups_or_none() -> None:
    """An arm that moves while its gripper's half of the chunk was refused drops what it carries."""
    bench = Bench(
        joint_names=["a", "b"],
        action_groups=["arm", "hand"],
        action__arm__names=["a"],
        action__hand__names=["b"],
        action__hand__space="gripper",
    )
    assert not bench.accept([0.1, 0.9]).sent
    assert bench.wire.trajectories == []
    assert bench.accept([0.1, 0.1]).sent
    assert [name for name, _ in bench.wire.trajectories] == ["arm", "hand"]


def test_increments_and_a_base_beside_each_other() -> None:
    """Groups of different spaces in one chunk: increments become positions, velocities stay what they are."""
    bench = Bench(
        action_groups=["arm", "base"],
        action__arm__names=["a", "b"],
        action__arm__space="joint_delta",
        action__base__space="base",
        action__base__max_linear_velocity=0.2,
        action__base__max_angular_velocity=1.0,
    )
    bench.measured = np.array([0.1, 0.2])
    assert bench.accept([0.01, 0.0, 0.5, 0.0, 0.1]).sent
    ((name, trajectory),) = bench.wire.trajectories
    assert name == "arm"
    assert trajectory.positions[-1] == pytest.approx([0.1 + 0.01 * HORIZON, 0.2])
    bench.commands.tick(50 * MS)
    ((name, velocity),) = bench.wire.moments
    assert (name, velocity.tolist()) == ("base", pytest.approx([0.2, 0.0, 0.1]))
    bench.commands.tick(5 * S)
    assert bench.wire.moments[-1][1].tolist() == [0.0, 0.0, 0.0], "no velocity is held beyond its chunk"


def test_replan_is_due_when_steps_are_consumed() -> None:
    """`trigger: consumed` counts what the robot has done of the chunk it was sent."""
    bench = Bench(replan_after=4)
    assert bench.commands.replan_in_s(0) == 0.0
    bench.accept([0.1, 0.0])
    assert bench.commands.replan_in_s(0) == pytest.approx(0.4)
    assert bench.commands.replan_in_s(300 * MS) == pytest.approx(0.1)
    assert bench.commands.replan_in_s(500 * MS) == 0.0
    bench.commands.stop("a new instruction", 100 * MS)
    assert bench.commands.replan_in_s(100 * MS) == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"joint.a.min": None}, "no limits for a: write joint"),
        ({"robot_description": "/nowhere.urdf"}, "'robot_description' cannot be used"),
        ({"robot_description": "<robot><joint/></robot>"}, "'robot_description' cannot be used"),
    ],
)
def test_R41_limits_must_be_known(change: dict[str, Any], words: str) -> None:
    """A robot without limits moves as far and as fast as a policy likes: configure says what is missing."""
    with pytest.raises(ConfigError, match=words):
        Bench(**change)


def test_R41_limits_come_from_the_robot_description_too() -> None:
    """Whoever has a URDF need not write its limits again; what is written wins."""
    urdf = (
        "<robot name='r'><joint name='a' type='revolute'>"
        "<limit lower='-0.2' upper='0.2' velocity='1.5' effort='1'/></joint></robot>"
    )
    bare = dict.fromkeys(("joint.a.min", "joint.a.max", "joint.a.max_velocity"))
    bench = Bench(robot_description=urdf, **{**bare, "joint.a.max": 0.1})
    bench.accept([0.5, 0.0])
    assert bench.wire.trajectories[0][1].positions[-1][0] == pytest.approx(0.1)
    assert bench.commands.channels[0].motion.limits.lower[0] == -0.2  # type: ignore[union-attr]


def test_R41_opting_out_of_limits_is_explicit() -> None:
    """Who switches them off has written so."""
    bench = Bench(limits=False, **dict.fromkeys(LIMITS))
    bench.accept([30.0, 0.0])
    assert bench.wire.trajectories[0][1].positions[-1][0] == pytest.approx(30.0)


def test_R45_commands_are_built_in_one_place() -> None:
    """A second place that sends motions would be one without limits, deadman and stop action."""
    root = Path(__file__).parents[2] / "flashrt_ros"
    for name in ("command_messages", "gripper_client"):
        users = [path.stem for path in root.rglob("*.py") if f"flashrt_ros.{name} import" in path.read_text()]
        assert users == ["outputs"], name
    senders = [path.stem for path in root.rglob("*.py") if "CommandPublishers(" in path.read_text()]
    assert senders == ["policy_node"]


BASE = {
    "action_groups": ["base"],
    "action.base.space": "base",
    "action.base.max_linear_velocity": 0.5,
    "action.base.max_angular_velocity": 1.0,
}


@pytest.mark.parametrize("stop_action", ["hold", "decelerate", "none"])
def test_R40_a_base_is_told_to_stand(stop_action: str) -> None:
    """A driver keeps the last velocity it was given: the last of a stop must be 0, whatever the action."""
    bench = Bench(**BASE, stop_action=stop_action)
    bench.accept([0.5, 0.0, 0.0])
    bench.commands.tick(20 * MS)
    assert bench.wire.moments[-1][1].tolist() == [0.5, 0.0, 0.0]
    bench.commands.stop("deactivated", 25 * MS)
    for tick in range(30, 800, 10):
        bench.commands.tick(tick * MS)
    assert bench.commands.is_settled()
    assert bench.wire.moments[-1][1].tolist() == [0.0, 0.0, 0.0]


def test_R40_a_base_is_told_to_stand_when_the_chunk_has_just_ended() -> None:
    """Between the end of a chunk and the next tick nobody has said 0 yet."""
    bench = Bench(**BASE)
    bench.accept([0.5, 0.0, 0.0])
    bench.commands.tick(995 * MS)
    assert bench.wire.moments[-1][1].tolist() == [0.5, 0.0, 0.0]
    bench.commands.stop("deactivated", 1001 * MS)
    assert bench.wire.moments[-1][1].tolist() == [0.0, 0.0, 0.0]


def test_a_robot_that_was_moved_while_it_stood_is_measured_anew() -> None:
    """It stood for another reason, then the deadman was released and somebody moved the arm: the next chunk
    begins, and its jump is judged, where the arm is."""
    bench = Bench(require_enable=True, enable_timeout=10.0)
    bench.safety.enable(True, 0)
    bench.accept([0.3, 0.0])
    bench.commands.stop("camera 'top' stopped", 500 * MS)
    bench.commands.tick(3 * S)
    bench.safety.enable(False, 3 * S)
    bench.commands.tick(3 * S + 10 * MS)
    bench.safety.enable(True, 4 * S)
    bench.measured = np.array([-0.8, 0.0])
    assert bench.accept([-0.8, 0.0], 4 * S).sent
    assert bench.wire.trajectories[-1][1].positions[0].tolist() == [-0.8, 0.0]


@pytest.mark.parametrize("stop_action", ["decelerate", "none"])
def test_R40_chunks_that_come_while_a_base_stops_do_not_lose_its_zero(stop_action: str) -> None:
    """Decisions go on while the deadman is released: whatever comes between two ticks, the last word is 0."""
    for phase in range(0, 10, 3):
        bench = Bench(**BASE, require_enable=True, enable_timeout=0.05, stop_action=stop_action)
        bench.safety.enable(True, 0)
        bench.accept([0.5, 0.0, 0.0])
        for tick in range(10, 1000):
            if tick % 10 == 0:
                bench.commands.tick(tick * MS)
            if tick % 7 == phase % 7:
                bench.accept([0.5, 0.0, 0.0], tick * MS)
        assert bench.wire.moments[-1][1].tolist() == [0.0, 0.0, 0.0], phase


class Broken(Wire):
    """A wire on which one group cannot be reached."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def trajectory(self, channel: Channel, trajectory: Trajectory) -> None:
        if channel.group.name == self._group:
            raise RuntimeError("no wire")
        super().trajectory(channel, trajectory)


def test_R48_one_group_that_cannot_be_reached_does_not_keep_the_others_moving() -> None:
    """A publisher that fails must not leave the base driving, nor an arm on the chunk that went out first."""
    groups = {
        "action_groups": ["left", "right", "base"],
        "action.left.names": ["a"],
        "action.right.names": ["b"],
        "action.base.space": "base",
        "action.base.max_linear_velocity": 0.5,
        "action.base.max_angular_velocity": 1.0,
    }
    bench = Bench(**groups)
    bench.commands._send = broken = Broken("right")
    with pytest.raises(RuntimeError, match="no wire"):
        bench.accept([0.3, 0.3, 0.5, 0.0, 0.0])
    assert [name for name, _ in broken.trajectories] == ["left"]
    with pytest.raises(RuntimeError, match="no wire"):
        bench.commands.stop("RuntimeError: no wire", 100 * MS)
    assert [name for name, _ in broken.trajectories] == ["left", "left"], "the stop"
    assert [(name, values.tolist()) for name, values in broken.moments[-1:]] == [("base", [0.0, 0.0, 0.0])]


def test_R41_a_description_without_speed_is_refused() -> None:
    """Some exporters write velocity="0": a division by it would be a NaN on the wire."""
    urdf = (
        "<robot name='r'><joint name='a' type='revolute'>"
        "<limit lower='-1' upper='1' velocity='0' effort='1'/></joint></robot>"
    )
    groups = {"action_groups": ["arm"], "action.arm.names": ["a", "b"], "action.arm.space": "joint_velocity"}
    with pytest.raises(ConfigError, match="velocity of joint 'a' is 0"):
        Bench(**groups, robot_description=urdf, **{"joint.a.max_velocity": None})


def test_nothing_that_is_not_finite_leaves_the_node() -> None:
    """The last look: a defect of ours must end in an error and a stop, not in a NaN for a motor."""
    bench = Bench()
    bench.accept([0.3, 0.0])
    channel = bench.commands.channels[0]
    broken = replace(bench.wire.trajectories[0][1], velocities=np.full((HORIZON + 1, 2), np.nan))
    with pytest.raises(FloatingPointError, match="group 'joints' is not finite"):
        bench.commands._send_trajectory(channel, broken)


def test_increments_start_where_the_robot_was_observed() -> None:
    """A slow policy: the arm has moved on meanwhile, and the increments are counted from the observation."""
    bench = Bench(action_groups=["arm"], action__arm__names=["a", "b"], action__arm__space="joint_delta")
    bench.measured = np.array([0.1, 0.0])
    seen = bench.decision([0.0, 0.0])
    bench.measured = np.array([0.3, 0.0])
    assert bench.commands.accept(seen, 0, 500 * MS).sent
    trajectory = bench.wire.trajectories[-1][1]
    assert trajectory.positions[0].tolist() == [0.3, 0.0]
    assert trajectory.positions[-1] == pytest.approx([0.1, 0.0])
