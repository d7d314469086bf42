# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""`NodeConfig`: the parameters of one node, checked, and matched with the checkpoint by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from flashrt_kernels.errors import ObservationError
from flashrt_ros.groups import (
    ActionGroup,
    GripperConfig,
    JointConfig,
    StateGroup,
    all_joints,
    all_positions,
    elements_of,
    read_action_group,
    read_gripper,
    read_joints,
    read_state_group,
)
from flashrt_ros.observation import JOINT_STATES
from flashrt_ros.parameter_file import load_parameter_file
from flashrt_ros.parameter_rows import TRANSPORTS
from flashrt_ros.parameter_table import (
    LISTED_IN,
    PARAMETERS,
    REQUIRED,
    ROS_OWNED,
    ConfigError,
    Parameter,
    members,
    parameter_table,
    read_value,
)

__all__ = [
    "PARAMETERS",
    "REQUIRED",
    "ActionGroup",
    "CameraConfig",
    "ConfigError",
    "GripperConfig",
    "JointConfig",
    "NodeConfig",
    "Parameter",
    "StateGroup",
    "load_parameter_file",
    "parameter_table",
]


@dataclass(frozen=True)
class CameraConfig:
    """`camera.<name>.*`; max_age in seconds."""

    name: str
    slot: str
    topic: str
    transport: str
    max_age: float
    required: bool
    swap_red_blue: bool
    frozen_after: int


class PolicyShape(Protocol):
    """What `NodeConfig.check_policy` reads of a policy."""

    @property
    def camera_rule(self) -> str: ...
    @property
    def not_positions(self) -> str: ...
    def slot(self, name: str) -> str: ...
    @property
    def cameras(self) -> Sequence[str]: ...
    @property
    def state_dim(self) -> int: ...
    @property
    def action_dim(self) -> int: ...
    @property
    def action_names(self) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class NodeConfig:
    """The parameters of one node, checked. Times in seconds, rates in Hz; fields as in `PARAMETERS`."""

    checkpoint: str
    tokenizer: str
    fast_tokenizer: str
    embodiment: str
    delta_actions: str
    chunk_size: int
    state_in_prompt: bool | None
    adapt_to_pi: bool | None
    head: str
    pad_prompt_state: bool
    image_size: tuple[int, int] | None  # (height, width)
    device: str
    precision: str
    num_inference_steps: int
    cpu_threads: int
    instruction: str
    seed: int
    trigger: str
    trigger_camera: str
    decision_rate: float
    action_rate_hz: float
    cameras: tuple[CameraConfig, ...]
    state_groups: tuple[StateGroup, ...]
    action_groups: tuple[ActionGroup, ...]
    joints: tuple[JointConfig, ...]
    """The numbers of the state vector, in the policy's order."""
    action_joints: tuple[JointConfig, ...]
    """The columns of the action chunk, in the policy's order."""
    grippers: tuple[GripperConfig, ...]
    joint_max_age: float
    actions_are_positions: bool
    execute: str
    stream_rate_hz: float
    blend_steps: int
    end_velocity: str
    limits: bool
    robot_description: str
    stop_action: str
    stop_time: float
    require_enable: bool
    enable_timeout: float
    dry_run: bool
    shadow: bool
    latch_after: int
    limit_storm_after: int
    replan_after: int
    instruction_policy: str
    pose_check: bool
    max_skew: float
    stamp_source: str
    debug_images: float
    autostart: bool

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> NodeConfig:
        """Check `flat` (full parameter name → value) against the table.

        Raises ConfigError for an unknown parameter (with the nearest known name), a wrong type or range, a
        missing required one (with an example), repeated names, a trigger camera that is not a camera.
        """
        given = {name: value for name, value in flat.items() if not name.startswith(ROS_OWNED)}
        rows = {row.name: row for row in PARAMETERS}
        _refuse_unknown([name for name in given if name.partition(".")[0] not in LISTED_IN], rows)

        def strings(name: str) -> tuple[str, ...]:
            row = rows.get(name) or Parameter(name, "string_list", [], "")
            return tuple(read_value(row, given))

        named = members(strings)
        table = parameter_table(strings)
        _refuse_unowned(given, named)
        _refuse_unknown(given, table)
        values = {name: read_value(row, given) for name, row in table.items()}
        own = {name: values[name] for name in rows if name in cls.__dataclass_fields__}
        for name in ("state_in_prompt", "adapt_to_pi"):
            own[name] = {"": None, "true": True, "false": False}[own[name]]
        own["image_size"] = _image_size(own["image_size"])
        own["cameras"] = tuple(_camera(name, values) for name in named["camera"])
        if own["trigger"] == "camera" and own["trigger_camera"] not in named["camera"]:
            raise ConfigError(
                f"parameter 'trigger_camera' is {own['trigger_camera']!r}; with `trigger: camera` it must be "
                f"one of `cameras` ({', '.join(named['camera'])})"
            )
        vectors = _vectors(values, named)
        if own["execute"] == "stream" and own["end_velocity"] == "free":
            raise ConfigError(
                "parameter 'end_velocity' is 'free' with `execute: stream`: who streams must end at rest, or "
                "the robot stops dead at the end of a chunk"
            )
        return cls(**{**own, **vectors})

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the numbers of the state vector."""
        return tuple(joint.name for joint in self.joints)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the columns of the action chunk."""
        return tuple(joint.name for joint in self.action_joints)

    def for_horizon(self, horizon: int) -> NodeConfig:
        """This, with the `replan_after` that 0 stands for: half a chunk of `horizon` steps.

        Raises ConfigError where the robot would run out of steps before it.
        """
        if self.trigger == "consumed" and self.replan_after > horizon:
            raise ConfigError(
                f"parameter 'replan_after' is {self.replan_after}, but a chunk of this policy has {horizon} "
                "steps: the robot would stop in between"
            )
        return self if self.replan_after else replace(self, replan_after=max(1, horizon // 2))

    def check_policy(self, policy: PolicyShape) -> tuple[str, ...]:
        """Match cameras with slots, joints with the state and action names with the action vector, by name.

        Returns lines for the start log: which camera fills which slot, slots that stay empty (masked).
        Raises ConfigError that lists both sides.
        """
        positions = all(group.space == "joint_position" for group in self.action_groups)
        if policy.not_positions and positions and not self.actions_are_positions:
            raise ConfigError(
                f"the actions of this checkpoint are no joint positions ({policy.not_positions}), and would "
                "go out as such: say what they are with `action_groups` and `action.<group>.space`; if they "
                "are positions all the same, write `actions_are_positions: true`"
            )
        notes = self._bind_cameras(policy)
        _check_width("joint_names", self.joint_names, "state", policy.state_dim)
        _check_width("action_names", self.action_names, "action", policy.action_dim)
        stored = tuple(policy.action_names or ())
        if stored != self.action_names and sorted(stored) == sorted(self.action_names):
            raise ConfigError(
                f"action_names has the checkpoint's joints in another order: "
                f"parameter {', '.join(self.action_names)}; checkpoint {', '.join(stored)}"
            )
        return notes

    def _bind_cameras(self, policy: PolicyShape) -> tuple[str, ...]:
        bound = ", ".join(f"{camera.name} → {camera.slot}" for camera in self.cameras)
        both = (
            f"Cameras of the node (camera → slot): {bound}; "
            f"slots of the checkpoint: {', '.join(policy.cameras) or 'none'}"
        )
        filled: dict[str, str] = {}  # slot → camera
        for camera in self.cameras:
            try:
                slot = policy.slot(camera.slot)
            except ObservationError:
                raise ConfigError(
                    f"camera '{camera.name}' is bound to slot '{camera.slot}', which the checkpoint "
                    f"does not have: set camera.{camera.name}.slot. {both}"
                ) from None
            if slot in filled:
                raise ConfigError(
                    f"cameras '{filled[slot]}' and '{camera.name}' both fill slot '{slot}'. {both}"
                )
            filled[slot] = camera.name
        notes = [f"slot {slot} ← camera {camera}" for slot, camera in filled.items()]
        if policy.camera_rule == "all":
            self._check_all_cameras(policy, filled, both)
        empty = [slot for slot in policy.cameras if slot not in filled and not _is_padding(slot)]
        if empty:
            seen = policy.camera_rule == "fixed, seen"
            what = "black pictures, as in training" if seen else "masked as a camera that is missing"
            notes.append(f"no camera fills {', '.join(empty)}: {what}. {both}")
        return tuple(notes)

    def _check_all_cameras(self, policy: PolicyShape, filled: Mapping[str, str], both: str) -> None:
        """For policies that have no rule for a missing camera."""
        empty = [slot for slot in policy.cameras if slot not in filled]
        if empty:
            raise ConfigError(
                f"no camera fills {', '.join(empty)}; this policy needs all its cameras. {both}"
            )
        spared = [camera.name for camera in self.cameras if not camera.required]
        if spared:
            raise ConfigError(
                f"parameter 'camera.{spared[0]}.required' is false; this policy needs all its cameras"
            )


def _vectors(values: Mapping[str, Any], named: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """State and action vector: their groups, and joints with units and limits."""
    read = values.__getitem__
    grippers = tuple(read_gripper(name, read) for name in named["gripper"])
    states = tuple(read_state_group(name, read) for name in named["state"])
    if bool(states) == bool(values["joint_names"]):
        what = "and `state_groups` are both given: keep one" if states else "is required"
        raise ConfigError(
            f"parameter 'joint_names' {what}: joints of the state vector, in the policy's order. Write "
            "`joint_names: [shoulder, elbow, gripper]`."
        )
    states = states or (all_joints(values["joint_names"], values["joint_max_age"]),)
    actions = tuple(read_action_group(name, read) for name in named["action"])
    if actions and values["action_names"]:
        raise ConfigError("parameters 'action_names' and 'action_groups' are both given: keep one")
    elements = [name for group in states for name in group.elements]
    if not actions:
        actions = (all_positions(values["action_names"] or tuple(elements)),)
    action_names = [name for group in actions for name in group.names]
    _refuse_repeated("state_groups", elements)
    _refuse_repeated("action_groups", action_names)
    joints = {joint.name: joint for joint in read_joints(named["joint"], read, grippers)}
    return {
        "state_groups": states,
        "action_groups": actions,
        "joints": tuple(joint for group in states for joint in elements_of(group, joints)),
        "action_joints": tuple(joints.get(name, JointConfig(name)) for name in action_names),
        "grippers": grippers,
    }


def _refuse_repeated(parameter: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"parameter '{parameter}': {', '.join(twice)} belongs to more than one group")


def _refuse_unowned(given: Iterable[str], named: Mapping[str, Sequence[str]]) -> None:
    for name in given:
        family, _, rest = name.partition(".")
        owner = rest.rpartition(".")[0]
        if family in named and owner and owner not in named[family]:
            known = ", ".join(named[family]) or "none"
            raise ConfigError(f"parameter '{name}': '{owner}' is not in {LISTED_IN[family]} ({known})")


def _refuse_unknown(given: Iterable[str], known: Mapping[str, Parameter]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"unknown parameter '{name}': {hint}")


def _is_padding(slot: str) -> bool:
    """LeRobot's `empty_cameras` are slots that nobody ever fills."""
    return slot.rpartition(".")[2].startswith("empty_camera_")


def _check_width(parameter: str, names: Sequence[str], vector: str, width: int) -> None:
    if len(names) != width:
        raise ConfigError(
            f"{parameter} has {len(names)} joints ({', '.join(names)}), "
            f"but the checkpoint's {vector} vector has {width} values"
        )


def _image_size(text: str) -> tuple[int, int] | None:
    """(height, width) of `WIDTHxHEIGHT`; None for an empty text."""
    if not text:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise ConfigError(f"parameter 'image_size' is {text!r}; it must be WIDTHxHEIGHT, like 640x480")
    return int(found[2]), int(found[1])


def _camera(name: str, values: Mapping[str, Any]) -> CameraConfig:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name == JOINT_STATES:
        raise ConfigError(
            f"camera name '{name}' cannot be used in topic names: letters, digits and _, "
            f"a letter first, and not '{JOINT_STATES}'"
        )
    own = {f.name: values[f"camera.{name}.{f.name}"] for f in fields(CameraConfig) if f.name != "name"}
    own["topic"] = own["topic"] or TRANSPORTS[own["transport"]].replace("<name>", name)
    return CameraConfig(name=name, **own)
