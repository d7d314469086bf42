# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The state vector in groups: joints, arrays and poses, each from a topic of its own."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_ros.joints import MalformedState
from flashrt_ros.parameters import JointConfig, NodeConfig
from flashrt_ros.state import PoseNumbers, WholeTracker, array_numbers, listened_sources, state_sources
from test.ros.test_ingest import MS, T0, Rig, S, header, image

HALF = math.sqrt(0.5)
QUARTER_ABOUT_Z = (0.0, 0.0, HALF, HALF)


def pose(stamp_ns: int, *position: float, turn: tuple[float, ...] = QUARTER_ABOUT_Z, frame: str = "") -> Any:
    x, y, z, w = turn
    stamped = header(stamp_ns)
    stamped.frame_id = frame
    place = SimpleNamespace(**dict(zip("xyz", position, strict=True)))
    return SimpleNamespace(
        header=stamped,
        pose=SimpleNamespace(position=place, orientation=SimpleNamespace(x=x, y=y, z=z, w=w)),
    )


def array_of(*values: float) -> Any:
    return SimpleNamespace(data=list(values))


def joint_state(stamp_ns: int, names: str, **fields: Any) -> Any:
    all_fields = {"position": [], "velocity": [], "effort": [], **fields}
    return SimpleNamespace(header=header(stamp_ns), name=list(names), **all_fields)


GROUPS: dict[str, Any] = {
    "cameras": ["front"],
    "joint_names": [],
    "state_groups": ["arm", "hand", "ee", "speed"],
    "state__arm__names": ["a", "b"],
    "state__hand__source": "array",
    "state__hand__names": ["thumb", "palm"],
    "state__ee__source": "pose",
    "state__ee__rotation": "rotvec",
    "state__speed__names": ["b"],
    "state__speed__field": "velocity",
    "action_names": ["a", "b"],
}


def rig(**changes: Any) -> Rig:
    return Rig(**{**GROUPS, **changes})


def fill(to: Rig, at_ns: int = T0, without: str = "", only: str = "") -> None:
    """One message of every source but one, or of one only; a turn of 90 degrees about z."""
    messages = {
        "front": image(at_ns, at_ns // MS % 251),
        "joint_states": joint_state(at_ns, "ba", position=[2.0, 1.0], velocity=[20.0, 10.0]),
        "state.hand": array_of(5.0, 6.0),
        "state.ee": pose(at_ns, 0.1, 0.2, 0.3),
    }
    for source, message in messages.items():
        if source != without and only in ("", source):
            to.put(source, message, at_ns)


def config_of(**changes: Any) -> NodeConfig:
    flat = {"checkpoint": "/x", "action_rate_hz": 30.0, **GROUPS, **changes}
    return NodeConfig.from_dict({name.replace("__", "."): value for name, value in flat.items()})


def test_state_is_the_groups_one_after_another() -> None:
    """A group in another place moves every number behind it into the wrong column."""
    seen = rig()
    fill(seen)
    observation = seen.seen(T0 + MS)
    expected = [1, 2, 5, 6, 0.1, 0.2, 0.3, 0, 0, math.pi / 2, 20]
    assert observation.state.dtype == np.float32
    assert observation.state == pytest.approx(expected)
    assert observation.required == ("front", "joint_states", "state.hand", "state.ee")
    assert set(observation.stamps_ns) == set(observation.required)


def test_groups_of_one_topic_share_a_subscription() -> None:
    """Every subscription to joint states at 500 Hz costs; each group of a topic gets each message."""
    sources = state_sources(config_of())
    assert {name: [group.name for group in groups] for name, groups in sources.items()} == {
        "joint_states": ["arm", "speed"],
        "state.hand": ["hand"],
        "state.ee": ["ee"],
    }
    two = config_of(state__arm__topic="left/joint_states", state__speed__topic="left/joint_states")
    assert next(iter(state_sources(two))) == "state.arm+speed"


def test_measured_joints_alone_are_listened_to() -> None:
    """The motion code needs the joints of the actions, also where the state is a pose."""
    flat = {name: value for name, value in GROUPS.items() if not name.startswith("state__")}
    only_pose = NodeConfig.from_dict(
        {
            "checkpoint": "/x",
            "action_rate_hz": 30.0,
            **flat,
            "state_groups": ["ee"],
            "state.ee.source": "pose",
        }
    )
    assert listened_sources(only_pose)["joint_states"] == ()
    assert "joint_states" not in state_sources(only_pose)


def test_units_apply_to_every_kind() -> None:
    """Degrees, millimetres and turned axes come on arrays and poses as well; a velocity has no offset."""
    scaled = rig(joint__palm__scale=10.0, joint__palm__offset=1.0, joint__b__scale=-2.0, joint__b__offset=5.0)
    fill(scaled)
    state = scaled.seen(T0).state
    assert state[[1, 3, 10]] == pytest.approx([1.0, 61.0, -40.0])


@pytest.mark.parametrize(
    ("without", "words"),
    [
        (
            "joint_states",
            "state group 'arm' on joint_states: none of the 2 joints was ever seen",
        ),
        ("state.hand", "state group 'hand' on hand: never seen; it gives thumb, palm"),
        ("state.ee", "state group 'ee' on ee/pose: never seen; it gives ee.x, ee.y, ee.z, ee.rx"),
    ],
)
def test_R15_missing_group_is_named(without: str, words: str) -> None:
    """The operator reads which group on which topic is missing; zeros in its place would move the robot."""
    waiting = rig()
    fill(waiting, without=without)
    missing = waiting.refused(T0 + MS)
    assert words in str(missing)
    assert all(key.startswith(f"{without}:") for key in missing.keys)


def test_R15_joint_of_a_group_is_named_beside_what_is_there() -> None:
    """Two drivers share joint_states: which group lacks which joint."""
    waiting = rig()
    fill(waiting, without="joint_states")
    waiting.put("joint_states", joint_state(T0, "axy", position=[1.0, 2.0, 3.0]), T0)
    text = str(waiting.refused(T0))
    assert "state group 'arm' on joint_states: b never seen; there are a, x, y" in text
    assert (
        "state group 'speed' on joint_states: none of the 1 joints was ever seen; the messages have no"
        in text
    )


def test_R13_age_of_each_group() -> None:
    """A pose tracker at 5 Hz and joints at 500 Hz have limits of their own; each that stops is named."""
    slow = rig(state__ee__max_age=2.0)
    fill(slow)
    later = T0 + S
    for source in ("front", "joint_states"):
        fill(slow, later, only=source)
    assert slow.refused(later).keys == ("state.hand: old",)
    fill(slow, later, only="state.hand")
    assert slow.seen(later).ages_ms["state.ee"] == 1000.0


def test_R24_skew_counts_groups() -> None:
    """A pose of another moment than the picture."""
    skewed = rig(max_skew=0.1)
    fill(skewed)
    for source in ("front", "joint_states", "state.hand"):
        fill(skewed, T0 + 300 * MS, only=source)
    assert skewed.refused(T0 + 300 * MS).keys == ("skew of state.ee",)


@pytest.mark.parametrize(
    ("source", "message", "kind", "words"),
    [
        ("state.hand", array_of(1.0), "length", "1 numbers came, 2 are needed (thumb, palm)"),
        ("state.hand", array_of(1.0, math.nan), "non_finite", "palm = nan"),
        ("state.ee", pose(T0, 0.0, math.inf, 0.0), "non_finite", "y = inf"),
        ("state.ee", pose(T0, 0.0, 0.0, 0.0, turn=(0.0, 0.0, math.nan, 1.0)), "non_finite", "qz = nan"),
        ("state.ee", pose(T0, 0.0, 0.0, 0.0, turn=(0.0, 0.0, 0.0, 0.0)), "rotation", "length 0"),
        (
            "joint_states",
            joint_state(T0, "ab", position=[1.0, 2.0], velocity=[math.nan, math.nan]),
            "non_finite",
            "velocity of b = nan",
        ),
        (
            "joint_states",
            joint_state(T0, "ab", position=[1.0, 2.0], velocity=[1.0]),
            "length",
            "1 velocities",
        ),
    ],
    ids=["array-length", "array-nan", "pose-inf", "turn-nan", "turn-0", "joints-nan", "joints-length"],
)
def test_R16_unusable_messages_are_dropped_and_counted(
    source: str, message: Any, kind: str, words: str
) -> None:
    """NaN, a wrong length or a rotation that is none: the message is dropped whole, warned about once."""
    seen = rig()
    fill(seen)
    before = seen.seen(T0).state.tolist()
    for later in range(3):
        at_ns = T0 + (1 + later) * MS
        if source == "joint_states":
            message = joint_state(at_ns, "ab", position=message.position, velocity=message.velocity)
        else:
            message = SimpleNamespace(**vars(message))
        seen.put(source, message, at_ns)
    assert seen.seen(T0 + 5 * MS).state.tolist() == before
    assert seen.counts(source)[kind] == 3
    assert [said for said, _ in seen.said] == [kind]
    assert words in seen.said[0][1]


def test_R11_unused_fields_of_a_group_do_not_matter() -> None:
    """A driver with NaN efforts, or velocities of joints that nobody uses."""
    seen = rig()
    fill(seen, without="joint_states")
    message = joint_state(T0, "ab", position=[1.0, 2.0], velocity=[math.nan, 3.0], effort=[math.nan])
    seen.put("joint_states", message, T0)
    assert seen.seen(T0).state[[0, 1, -1]].tolist() == [1, 2, 3]


def test_counts_of_a_shared_topic_add_up() -> None:
    """A message that two groups use is one message."""
    seen = rig()
    fill(seen)
    seen.seen(T0)
    fill(seen, T0 + MS)
    assert seen.counts("joint_states") == {"received": 2, "used": 1, "skipped": 0, "waiting": 1}
    seen.seen(T0 + MS)
    assert seen.counts("joint_states")["used"] == 2
    seen.ingest.flush()
    assert seen.counts("state.hand") == {"received": 2, "used": 2, "skipped": 0, "waiting": 0}


def test_array_without_header_is_as_old_as_its_arrival() -> None:
    """A Float64MultiArray has no stamp; that must not be called a zero stamp."""
    seen = rig(stamp_source="header")
    fill(seen)
    assert seen.seen(T0 + 3 * MS).stamps_ns["state.hand"] == T0
    assert seen.said == []


ROTATIONS: dict[str, list[float]] = {
    "quaternion": [0, 0, HALF, HALF],
    "rpy": [0, 0, math.pi / 2],
    "rotvec": [0, 0, math.pi / 2],
    "rot6d": [0, 1, 0, -1, 0, 0],  # the columns of x → y, y → -x
}


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("length", [1.0, 3.0])
def test_rotations_are_written_as_the_policy_was_trained(rotation: str, length: float) -> None:
    """A rotation in another form, or of a quaternion that is not normalised, turns the hand."""
    turn = tuple(length * part for part in QUARTER_ABOUT_Z)
    numbers = PoseNumbers(rotation)(pose(T0, 1.0, 2.0, 3.0, turn=turn), "x")
    assert numbers == pytest.approx([1, 2, 3, *ROTATIONS[rotation]], abs=1e-12)


def test_rpy_turns_about_fixed_axes() -> None:
    """REP-103: roll, then pitch, then yaw about the axes of the frame, not of the hand."""
    roll, pitch, yaw = 0.3, -0.4, 1.1
    cr, sr, cp, sp, cy, sy = (f(a / 2) for a in (roll, pitch, yaw) for f in (math.cos, math.sin))
    turn = (
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )
    assert PoseNumbers("rpy")(pose(T0, 0, 0, 0, turn=turn), "x")[3:] == pytest.approx([roll, pitch, yaw])


def test_quaternion_keeps_its_sign() -> None:
    """Datasets are recorded with the sign as it comes; turning it would leave their range."""
    turn = tuple(-part for part in QUARTER_ABOUT_Z)
    assert PoseNumbers("quaternion")(pose(T0, 0, 0, 0, turn=turn), "x")[3:] == pytest.approx(turn)


def test_pose_of_another_frame_is_dropped() -> None:
    """A pose in the camera's frame is no pose in the robot's."""
    numbers = PoseNumbers("rpy", frame="base_link")
    with pytest.raises(MalformedState, match="in frame 'camera', not 'base_link'"):
        numbers(pose(T0, 0, 0, 0, frame="camera"), "x")
    numbers(pose(T0, 0, 0, 0, frame="base_link"), "x")


def test_transform_is_a_pose() -> None:
    """What tf gives has other field names."""
    given = pose(T0, 1.0, 2.0, 3.0).pose
    transform = SimpleNamespace(translation=given.position, rotation=given.orientation)
    message = SimpleNamespace(header=header(T0), transform=transform)
    assert PoseNumbers("rotvec")(message, "x") == pytest.approx([1, 2, 3, 0, 0, math.pi / 2])


def test_values_do_not_change_with_the_message() -> None:
    """A publisher in the same process may use its message again."""
    message = array_of(1.0, 2.0)
    tracker = WholeTracker([JointConfig("a"), JointConfig("b")], 0.5, "x", "state.x", array_numbers)
    tracker.keep(tracker.read(message), 0, 0, 1)
    message.data[0] = 9.0
    assert tracker.state().tolist() == [1, 2]
