# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the numbers of the state and action vector are on this robot: joints, grippers, groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from flashrt_ros.parameter_rows import OUTPUT_TOPICS, OUTPUTS, ROTATIONS, STATE_SOURCES
from flashrt_ros.parameter_table import ConfigError

ALL: Final = "joints"
"""Name of the group that a node has when it names none."""

JOINT_SPACES: Final = ("joint_position", "joint_delta", "joint_velocity", "gripper")
"""Spaces whose numbers belong to joints; the others move a frame."""

TWIST: Final = ("vx", "vy", "vz", "wx", "wy", "wz")
BASE: Final = ("vx", "vy", "wz")

Read = Callable[[str], Any]
"""Full name of a parameter → its checked value."""


@dataclass(frozen=True)
class GripperConfig:
    """`gripper.<name>.*`: positions in the robot's units, and the values the policy has for them."""

    name: str
    open: float
    closed: float
    policy_open: float
    policy_closed: float

    @property
    def words(self) -> str:
        """R18: which way it moves, in words."""
        return (
            f"gripper '{self.name}': the policy's {self.policy_closed:g} is closed = {self.closed:g}, its "
            f"{self.policy_open:g} is open = {self.open:g}, in the robot's units"
        )


@dataclass(frozen=True)
class JointConfig:
    """One number of state or action: policy value = scale · robot's value + offset.

    Limits are in the robot's units (and units per s); None = not given.
    """

    name: str
    scale: float = 1.0
    offset: float = 0.0
    min: float | None = None
    max: float | None = None
    max_velocity: float | None = None
    max_jump: float | None = None


@dataclass(frozen=True)
class StateGroup:
    """`state.<name>.*`: where some numbers of the state vector come from. `max_age` in seconds."""

    name: str
    source: str  # a key of STATE_SOURCES
    topic: str
    names: tuple[str, ...]
    field: str
    rotation: str
    frame: str
    child_frame: str
    max_age: float

    @property
    def elements(self) -> tuple[str, ...]:
        """Names of its numbers: of the joints, with the field where that is not the position."""
        if self.source != "joint_state" or self.field == "position":
            return self.names
        return tuple(f"{name}.{self.field}" for name in self.names)


@dataclass(frozen=True)
class ActionGroup:
    """`action.<name>.*`: what some columns of the action chunk are, and as what they go out.

    Velocities in m/s and rad/s, None = not given; `workspace` is () or lowest and highest x, y, z in m.
    """

    name: str
    space: str  # a key of OUTPUTS
    output: str
    topic: str
    names: tuple[str, ...]
    rotation: str
    frame: str
    max_linear_velocity: float | None
    max_angular_velocity: float | None
    workspace: tuple[float, ...]


def read_joints(
    names: Sequence[str], read: Read, grippers: Sequence[GripperConfig]
) -> tuple[JointConfig, ...]:
    """`joint.<name>.*` of every name; of a gripper, scale and offset follow from its two positions.

    Raises ConfigError for a scale of 0, limits that cross, and a gripper that has scale or offset as well.
    """
    by_name = {gripper.name: gripper for gripper in grippers}
    unknown = [name for name in by_name if name not in names]
    if unknown:
        raise ConfigError(
            f"parameter 'grippers' names {', '.join(unknown)}, which is no joint of state or action "
            f"({', '.join(names)})"
        )
    return tuple(_joint(name, read, by_name.get(name)) for name in names)


def _joint(name: str, read: Read, gripper: GripperConfig | None) -> JointConfig:
    own = {f.name: read(f"joint.{name}.{f.name}") for f in fields(JointConfig) if f.name != "name"}
    if own["scale"] == 0.0:
        raise ConfigError(
            f"parameter 'joint.{name}.scale' is 0.0: the joint's position would be lost; must not be 0"
        )
    if own["min"] is not None and own["max"] is not None and own["min"] >= own["max"]:
        raise ConfigError(
            f"parameter 'joint.{name}.min' is {own['min']:g} and 'joint.{name}.max' {own['max']:g}; min must "
            "be below max"
        )
    if gripper is not None:
        if (own["scale"], own["offset"]) != (1.0, 0.0):
            raise ConfigError(
                f"'{name}' is in `grippers` and has joint.{name}.scale or offset: give one of the two"
            )
        own["scale"] = (gripper.policy_open - gripper.policy_closed) / (gripper.open - gripper.closed)
        own["offset"] = gripper.policy_closed - own["scale"] * gripper.closed
    if not (math.isfinite(own["scale"]) and math.isfinite(own["offset"])):
        raise ConfigError(f"open and closed of gripper '{name}' are too close to each other")
    return JointConfig(name, **own)


def elements_of(group: StateGroup, joints: Mapping[str, JointConfig]) -> tuple[JointConfig, ...]:
    """The numbers of a state group with their units. A velocity or effort has the scale of its joint only."""
    elements = zip(group.elements, group.names, strict=True)
    configs = [(element, joints.get(name, JointConfig(name))) for element, name in elements]
    return tuple(
        joint if element == joint.name else JointConfig(element, joint.scale) for element, joint in configs
    )


def read_gripper(name: str, read: Read) -> GripperConfig:
    """`gripper.<name>.*`. Raises ConfigError when open and closed are the same, for robot or policy."""
    own = {f.name: read(f"gripper.{name}.{f.name}") for f in fields(GripperConfig) if f.name != "name"}
    for a, b in (("open", "closed"), ("policy_open", "policy_closed")):
        if own[a] == own[b]:
            raise ConfigError(
                f"parameters 'gripper.{name}.{a}' and 'gripper.{name}.{b}' are both {own[a]:g}; "
                "they must differ"
            )
    return GripperConfig(name, **own)


def read_state_group(name: str, read: Read) -> StateGroup:
    """`state.<name>.*`. Raises ConfigError for missing names or frames, and for names that a pose brings."""
    own = {f.name: read(f"state.{name}.{f.name}") for f in fields(StateGroup) if f.name != "name"}
    if own["source"] in ("pose", "tf"):
        _refuse_names(f"state.{name}", own["names"], own["source"])
        own["names"] = pose_names(name, own["rotation"])
    elif not own["names"]:
        raise ConfigError(
            f"parameter 'state.{name}.names' is required for source {own['source']}: write the names of its "
            f"numbers in the policy's order, like `state.{name}.names: [a, b]`"
        )
    if own["source"] == "tf" and not (own["frame"] and own["child_frame"]):
        raise ConfigError(
            f"state group '{name}' has source tf: write `state.{name}.frame: base_link` and "
            f"`state.{name}.child_frame: gripper_link`"
        )
    own["topic"] = own["topic"] or STATE_SOURCES[own["source"]].replace("<name>", name)
    own["max_age"] = own["max_age"] or read("joint_max_age")
    return StateGroup(name, **own)


def read_action_group(name: str, read: Read) -> ActionGroup:
    """`action.<name>.*`. Raises ConfigError for missing names, and outputs that do not fit the space."""
    own = {f.name: read(f"action.{name}.{f.name}") for f in fields(ActionGroup) if f.name != "name"}
    space, fitting = own["space"], OUTPUTS[own["space"]]
    own["output"] = own["output"] or fitting[0]
    if own["output"] not in fitting:
        raise ConfigError(
            f"parameter 'action.{name}.output' is '{own['output']}'; with space {space} it must be one of "
            f"{', '.join(fitting)}"
        )
    own["names"] = _action_names(name, own)
    own["topic"] = own["topic"] or f"{name}/{OUTPUT_TOPICS[own['output']]}"
    if own["workspace"]:
        _check_workspace(name, own["output"], own["workspace"])
    return ActionGroup(name, **own)


def _action_names(name: str, own: Mapping[str, Any]) -> tuple[str, ...]:
    space, names = own["space"], tuple(own["names"])
    if space in JOINT_SPACES:
        if not names:
            raise ConfigError(
                f"parameter 'action.{name}.names' is required for space {space}: write its joints in the "
                f"policy's order, like `action.{name}.names: [a, b]`"
            )
        return names
    _refuse_names(f"action.{name}", names, space)
    if space == "eef_pose":
        return pose_names(name, own["rotation"])
    if space == "base":
        return tuple(f"{name}.{axis}" for axis in BASE)
    if own["rotation"] not in ("rpy", "rotvec"):
        raise ConfigError(
            f"parameter 'action.{name}.rotation' is '{own['rotation']}'; a step of eef_delta is written as "
            "rpy or rotvec"
        )
    return tuple(f"{name}.d{axis}" for axis in ("x", "y", "z", *ROTATIONS[own["rotation"]]))


def _refuse_names(owner: str, names: Sequence[str], what: str) -> None:
    if names:
        raise ConfigError(f"parameter '{owner}.names' is {list(names)}; the numbers of {what} have names")


def pose_names(group: str, rotation: str) -> tuple[str, ...]:
    """Names of the numbers of a pose: `group.x` and so on."""
    return tuple(f"{group}.{axis}" for axis in ("x", "y", "z", *ROTATIONS[rotation]))


def _check_workspace(name: str, output: str, box: Sequence[float]) -> None:
    if output != "pose":
        raise ConfigError(
            f"parameter 'action.{name}.workspace' is given, but its output is {output}: only a group that "
            "goes out as poses can be kept in a box"
        )
    if len(box) != 6 or any(low >= high for low, high in zip(box[:3], box[3:], strict=True)):
        raise ConfigError(
            f"parameter 'action.{name}.workspace' is {list(box)}; it must be the lowest x, y, z and then the "
            "highest, in m"
        )


def all_joints(names: tuple[str, ...], max_age: float) -> StateGroup:
    """The state group of a node that names none: positions on joint_states."""
    topic = STATE_SOURCES["joint_state"]
    return StateGroup(ALL, "joint_state", topic, names, "position", "quaternion", "", "", max_age)


def all_positions(names: tuple[str, ...]) -> ActionGroup:
    """The action group of a node that names none: joint positions as one trajectory."""
    output = OUTPUTS["joint_position"][0]
    topic = OUTPUT_TOPICS[output]
    return ActionGroup(ALL, "joint_position", output, topic, names, "quaternion", "", None, None, ())
