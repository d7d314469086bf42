# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Parameters: a wrong one must be refused at configure in words that let the user repair it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_kernels.errors import ObservationError
from flashrt_kernels.names import slots_by_name
from flashrt_ros.parameters import (
    PARAMETERS,
    ConfigError,
    NodeConfig,
    load_parameter_file,
    parameter_table,
)

ROOT = Path(__file__).parents[2]


def flat(**more: Any) -> dict[str, Any]:
    return {
        "checkpoint": "/data/ckpt",
        "action_rate_hz": 30.0,
        "cameras": ["front", "wrist"],
        "joint_names": ["a", "b", "c"],
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def policy(**more: Any) -> Any:
    fields = {
        "cameras": ("observation.images.front", "observation.images.wrist"),
        "state_dim": 3,
        "action_dim": 3,
        "action_names": None,
        "camera_rule": "present first",
        "not_positions": "",
    }
    made = SimpleNamespace(**{**fields, **more})
    made.slot = lambda name: slot_among(made.cameras, name)
    return made


def slot_among(cameras: tuple[str, ...], name: str) -> str:
    """As Policy.slot; cam_high stands for a name that only the checkpoint knows."""
    names = slots_by_name(cameras, {"cam_high": cameras[0]})
    if name not in names:
        raise ObservationError(f"unknown camera {name!r}")
    return names[name]


def test_defaults_of_a_minimal_file() -> None:
    """The four required parameters are enough; everything else has the documented default."""
    config = NodeConfig.from_dict(flat())
    front = config.cameras[0]
    assert (front.slot, front.topic, front.transport) == ("front", "front/image_raw", "raw")
    assert (front.max_age, front.required, front.swap_red_blue) == (0.5, True, False)
    assert config.action_names == config.joint_names == ("a", "b", "c")
    assert (config.joints[1].scale, config.joints[1].offset) == (1.0, 0.0)
    assert (config.trigger, config.decision_rate, config.joint_max_age) == ("timer", 5.0, 0.5)
    assert (config.stamp_source, config.max_skew, config.device) == ("auto", 0.0, "cpu")


def test_compressed_camera_gets_the_compressed_topic() -> None:
    """image_transport's topic name is found without writing it down."""
    config = NodeConfig.from_dict(flat(camera__front__transport="compressed"))
    assert config.cameras[0].topic == "front/image_raw/compressed"


def test_every_row_is_usable_as_a_descriptor() -> None:
    """`ros2 param describe` shows a sentence for every parameter, and every default passes its own check."""
    table = parameter_table(lambda name: {"cameras": ["front"], "joint_names": ["a"]}.get(name, []))
    assert all(row.description.endswith((".", "off.")) and "<name>" not in row.name for row in table.values())
    values = {name: row.declared for name, row in table.items() if row.declared is not None}
    NodeConfig.from_dict({**flat(cameras=["front"], joint_names=["a"]), **values})


@pytest.mark.parametrize("name", [row.name for row in PARAMETERS if row.required])
@pytest.mark.parametrize("empty", ["absent", None, "empty"])
def test_missing_required_parameter_is_named_with_an_example(name: str, empty: str | None) -> None:
    """A robot must not move at a rate that nobody stated."""
    given = flat()
    if empty == "absent":
        del given[name]
    elif empty is None or name == "action_rate_hz":
        given[name] = None
    else:
        given[name] = type(given[name])()
    with pytest.raises(ConfigError, match=rf"'{name}' is required.*`{name}: .+`"):
        NodeConfig.from_dict(given)


def test_R60_an_integer_is_accepted_for_a_double() -> None:
    """`action_rate_hz: 30` in YAML is an integer; the robot runs at 30.0."""
    config = NodeConfig.from_dict(flat(action_rate_hz=30, joint__a__scale=2))
    assert config.action_rate_hz == 30.0
    assert isinstance(config.action_rate_hz, float)
    assert config.joints[0].scale == 2.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"decision_rat": 5.0}, "unknown parameter 'decision_rat': did you mean 'decision_rate'"),
        ({"camera": ["front"]}, "unknown parameter 'camera': did you mean 'cameras'"),
        ({"camera__front__topik": "x"}, r"did you mean 'camera\.front\.topic'"),
        ({"camera__rear__topic": "x"}, r"'rear' is not in `cameras` \(front, wrist\)"),
        ({"joint__d__scale": 1.0}, r"'d' is not in `joint_names`.*\(a, b, c\)"),
        ({"zzzzzzzz": 1}, "known are checkpoint"),
        ({"action_rate_hz": "30"}, r"'action_rate_hz' is '30' \(str\); it must be a double, like 30\.0"),
        ({"action_rate_hz": True}, r"\(bool\); it must be a double"),
        ({"seed": 1.5}, r"'seed' is 1\.5 \(float\); it must be an integer"),
        ({"seed": -1}, "at least 0"),
        ({"action_rate_hz": 0.0}, "above 0"),
        ({"action_rate_hz": float("nan")}, "finite"),
        ({"max_skew": float("inf")}, "finite"),
        ({"camera__front__required": 1}, "must be true or false"),
        ({"cameras": "front"}, r"must be a list of strings, like \[a, b\]"),
        ({"joint_names": ["a", 3]}, "entry 1 is 3"),
        ({"joint_names": ["a", "b", "a"]}, "'joint_names' names a more than once"),
        ({"cameras": ["front", "my cam"]}, "'my cam' cannot be used in topic names"),
        ({"cameras": ["joint_states"]}, "'joint_states'"),
        ({"trigger": "tick"}, "one of 'timer', 'camera', 'free'"),
        ({"trigger": "camera"}, r"'trigger_camera' is ''.*one of `cameras` \(front, wrist\)"),
        ({"camera__front__transport": "h264"}, "one of 'raw', 'compressed'"),
        ({"stamp_source": "clock"}, "one of 'auto', 'header', 'arrival'"),
        ({"precision": "fp16"}, "one of '', 'fp32', 'bf16'"),
        ({"joint__b__scale": 0.0}, r"'joint\.b\.scale' is 0\.0"),
    ],
)
def test_wrong_parameter_is_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    """The message names the parameter, what came and what would be right."""
    with pytest.raises(ConfigError, match=words):
        NodeConfig.from_dict(flat(**wrong))


def test_parameters_that_ros_owns_are_not_unknown() -> None:
    """A file with use_sim_time or QoS overrides still starts."""
    given = flat(use_sim_time=True, qos_overrides__x=1)
    assert NodeConfig.from_dict(given).checkpoint == "/data/ckpt"


@pytest.mark.parametrize("slot", ["front", "observation.images.front", "video.front", "cam_high"])
def test_R57_slots_are_found_under_all_their_names(slot: str) -> None:
    """A camera is bound by name, whichever form of the name the user knows."""
    notes = NodeConfig.from_dict(flat(camera__front__slot=slot)).check_policy(policy())
    assert "slot observation.images.front ← camera front" in notes


def test_R57_unknown_slot_lists_both_sides() -> None:
    """A camera on the wrong slot would show the model another view than it was trained on."""
    config = NodeConfig.from_dict(flat(camera__wrist__slot="left_wrist_rgb"))
    with pytest.raises(ConfigError) as caught:
        config.check_policy(policy())
    for word in (
        "'wrist'",
        "left_wrist_rgb",
        "front → front",
        "observation.images.wrist",
        "camera.wrist.slot",
    ):
        assert word in str(caught.value)


def test_R57_two_cameras_on_one_slot_are_refused() -> None:
    """One view must not silently replace another."""
    config = NodeConfig.from_dict(flat(camera__wrist__slot="front"))
    with pytest.raises(ConfigError, match=r"'front' and 'wrist' both fill slot 'observation\.images\.front'"):
        config.check_policy(policy())


def test_R57_unfilled_slot_is_told_with_both_sides() -> None:
    """A slot without a camera is masked; the start log must say so, except for LeRobot's padding slots."""
    slots = ("observation.images.front", "observation.images.wrist", "observation.images.top")
    config = NodeConfig.from_dict(flat())
    notes = config.check_policy(policy(cameras=(*slots, "observation.images.empty_camera_0")))
    assert notes[-1].startswith("no camera fills observation.images.top: masked")
    assert "wrist → wrist" in notes[-1]
    assert len(config.check_policy(policy())) == 2


def test_wrong_number_of_joints_is_refused_with_their_names() -> None:
    """A shifted state vector moves the wrong joint."""
    with pytest.raises(ConfigError, match=r"joint_names has 3 joints \(a, b, c\).*state vector has 5"):
        NodeConfig.from_dict(flat()).check_policy(policy(state_dim=5))
    with pytest.raises(ConfigError, match=r"action_names has 2 joints \(a, b\).*action vector has 3"):
        NodeConfig.from_dict(flat(action_names=["a", "b"])).check_policy(policy())


def test_R14_permuted_action_names_are_refused() -> None:
    """The checkpoint knows the order of its columns; a permutation in the parameters would swap joints."""
    config = NodeConfig.from_dict(flat(action_names=["b", "a", "c"]))
    with pytest.raises(ConfigError, match="another order: parameter b, a, c; checkpoint a, b, c"):
        config.check_policy(policy(action_names=("a", "b", "c")))
    config.check_policy(policy(action_names=("motor_0", "motor_1", "motor_2")))


def write(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_parameter_file_is_read_as_ros_reads_it(tmp_path: Path) -> None:
    """replay must run with the robot's own file: wildcard first, own section over it, maps flattened."""
    path = write(
        tmp_path,
        """
/**:
  ros__parameters:
    seed: 1
    camera:
      front: {topic: a, max_age: 0.2}
    joint.a.scale: 2.0
policy:
  ros__parameters: {seed: 7}
other_node:
  ros__parameters: {seed: 9}
""",
    )
    assert load_parameter_file(path) == {
        "seed": 7,
        "camera.front.topic": "a",
        "camera.front.max_age": 0.2,
        "joint.a.scale": 2.0,
    }


NAMESPACES = """
left:
  policy:
    ros__parameters: {seed: 1}
/right/policy:
  ros__parameters: {seed: 2}
"""


def test_R61_two_robots_in_one_file_are_told_apart(tmp_path: Path) -> None:
    """One file for two arms: the full name picks one, a bare name is refused, never picked at random."""
    path = write(tmp_path, NAMESPACES)
    assert load_parameter_file(path, "/left/policy") == {"seed": 1}
    assert load_parameter_file(path, "/right/policy") == {"seed": 2}
    with pytest.raises(ConfigError, match=r"/left/policy, /right/policy all fit node 'policy'.*full name"):
        load_parameter_file(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1", "is no ROS parameter file: it needs a section like"),
        ("", "is no ROS parameter file"),
        ("a: [b", "cannot read parameter file"),
        ("camera_node:\n  ros__parameters: {a: 1}", r"no section fits \(it has /camera_node\) node 'policy'"),
        ("/**:\n  ros__parameters: [1]", r"must be a map"),
    ],
)
def test_broken_parameter_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    """The message names the file and what is missing in it."""
    with pytest.raises(ConfigError, match=words) as caught:
        load_parameter_file(write(tmp_path, text))
    assert "params.yaml" in str(caught.value)


def test_missing_parameter_file_is_named(tmp_path: Path) -> None:
    """A typing error in the path is told as such."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_parameter_file(tmp_path / "nowhere.yaml")


def test_unitree_g1_file_describes_its_recording() -> None:
    """The shipped file is complete but for the checkpoint: 26 joints, the JPEG head camera, the task."""
    config = NodeConfig.from_dict(
        {**load_parameter_file(ROOT / "config" / "unitree_g1.yaml"), "checkpoint": "x"}
    )
    (head,) = config.cameras
    assert (head.name, head.slot, head.transport) == ("head", "head", "compressed")
    assert head.topic == "head_camera/color/image_raw/compressed"
    assert len(config.joints) == 26
    assert len([name for name in config.joint_names if "hand" in name]) == 12
    assert config.action_rate_hz == 30.0
    assert config.instruction == "Pick up the yellow bottle on the table."


def test_a_policy_that_needs_all_its_cameras_gets_them() -> None:
    """GR00T has no rule for a missing camera: it would act on nothing that it was trained for."""
    needy = policy(camera_rule="all")
    bound = NodeConfig.from_dict(flat(cameras=["front"]))
    with pytest.raises(ConfigError, match=r"no camera fills .*wrist; this policy needs all its cameras"):
        bound.check_policy(needy)
    spared = NodeConfig.from_dict(flat(cameras=["front"]) | {"camera.front.required": False})
    with pytest.raises(ConfigError, match=r"camera.front.required' is false; this policy needs all"):
        spared.check_policy(policy(camera_rule="all", cameras=needy.cameras[:1]))


@pytest.mark.parametrize(("text", "size"), [("", None), ("640x480", (480, 640))])
def test_image_size_is_width_by_height(text: str, size: tuple[int, int] | None) -> None:
    """As people and cameras say it; the model counts rows first."""
    assert NodeConfig.from_dict(flat(image_size=text)).image_size == size


@pytest.mark.parametrize("text", ["640", "640x0", "x480", "640 x 480", "-1x5"])
def test_R57_image_size_that_is_none_is_refused(text: str) -> None:
    """Else the policy is loaded for another grid than the camera's."""
    with pytest.raises(ConfigError, match=r"'image_size' is .* it must be WIDTHxHEIGHT, like 640x480"):
        NodeConfig.from_dict(flat(image_size=text))


@pytest.mark.parametrize("name", ["state_in_prompt", "adapt_to_pi"])
@pytest.mark.parametrize(("text", "value"), [("", None), ("true", True), ("false", False)])
def test_switches_of_checkpoints_have_three_values(name: str, text: str, value: bool | None) -> None:
    """Empty is the checkpoint's own way."""
    assert getattr(NodeConfig.from_dict(flat(**{name: text})), name) is value


def test_actions_that_are_no_positions_are_not_sent_as_such() -> None:
    """Velocities near zero, taken for angles, fold an arm to its zero pose."""
    fast = policy(not_positions="joint velocities")
    with pytest.raises(
        ConfigError, match=r"no joint positions \(joint velocities\).*actions_are_positions: true"
    ):
        NodeConfig.from_dict(flat()).check_policy(fast)
    assert NodeConfig.from_dict(flat(actions_are_positions=True)).check_policy(fast)


def test_a_black_picture_is_not_called_a_mask() -> None:
    """openpi's Pi0-FAST looks at the pictures of cameras that are not there."""
    config = NodeConfig.from_dict(flat(cameras=["front"]))
    notes = config.check_policy(policy(camera_rule="fixed, seen"))
    assert "no camera fills observation.images.wrist: black pictures" in notes[-1]
