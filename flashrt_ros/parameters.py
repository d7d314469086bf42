# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one table of the node's parameters, and `NodeConfig` built from it.

The node declares this table and hands the values over as a flat dict; `replay` reads the same dict from a parameter
file. So a name, type, default or range exists once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import yaml


class ConfigError(ValueError):
    """A parameter, or its match with the checkpoint, is wrong. Names the parameter, what came, what would be right."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of a parameter that has none: every robot must state it."""


@dataclass(frozen=True)
class Parameter:
    """One row of the table. `type` is a key of `TYPES`; low / high bound numbers (open below with `low_open`)."""

    name: str
    type: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    choices: tuple[str, ...] | None = None
    read_only: bool = False
    example: str = ""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def named(self, **parts: str) -> Parameter:
        """This row for one camera or joint: `<name>` in name and description replaced."""
        fields = {**self.__dict__}
        for key in ("name", "description", "default", "example"):
            if isinstance(fields[key], str):
                fields[key] = fields[key].replace("<name>", parts["name"])
        return Parameter(**fields)


TRIGGERS = ("timer", "camera", "free")
TRANSPORTS: Final = {"raw": "<name>/image_raw", "compressed": "<name>/image_raw/compressed"}
"""Transport of a camera → its default topic."""
STAMP_SOURCES = ("auto", "header", "arrival")

PARAMETERS: Final = (
    Parameter("checkpoint", "string", REQUIRED, "Folder of the checkpoint.", example="/data/pi05_my_task"),
    Parameter("tokenizer", "string", "", "Tokenizer file or folder, when the checkpoint has none."),
    Parameter("device", "string", "cpu", "Device that runs the policy."),
    Parameter(
        "precision", "string", "", "Precision of the weights; empty = the device's.", choices=("", "fp32", "bf16")
    ),
    Parameter("num_inference_steps", "int", 0, "Denoising steps; 0 = the checkpoint's.", low=0, high=1000),
    Parameter("cpu_threads", "int", 0, "Threads of torch on the CPU; 0 = torch's choice.", low=0, high=1024),
    Parameter("instruction", "string", "", "Instruction at start; the newest message on ~/instruction replaces it."),
    Parameter("seed", "int", 0, "Key of the start noise.", low=0, high=2**63 - 1),
    Parameter("trigger", "string", "timer", "What starts a decision.", choices=TRIGGERS),
    Parameter("trigger_camera", "string", "", "Camera whose images start decisions, for trigger: camera."),
    Parameter("decision_rate", "double", 5.0, "Hz of decisions, for trigger: timer.", low=0, high=1000, low_open=True),
    Parameter(
        "action_rate_hz",
        "double",
        REQUIRED,
        "Hz at which the steps of a chunk are executed; no checkpoint holds it.",
        low=0,
        high=10000,
        low_open=True,
        example="30.0",
    ),
    Parameter("cameras", "string_list", REQUIRED, "Names of the node's cameras.", example="[front, wrist]"),
    Parameter(
        "joint_names",
        "string_list",
        REQUIRED,
        "Joints of the state vector, in the policy's order.",
        example="[shoulder, elbow, gripper]",
    ),
    Parameter("joint_max_age", "double", 0.5, "s; an older joint is not ready.", low=0, high=3600, low_open=True),
    Parameter("action_names", "string_list", [], "Joints of the action vector; empty = joint_names."),
    Parameter(
        "max_skew", "double", 0.0, "s between the oldest and the newest required source; 0 = off.", low=0, high=3600
    ),
    Parameter(
        "stamp_source",
        "string",
        "auto",
        "Time of a message: its header (auto falls back to arrival when that stamp is unusable), or its arrival.",
        choices=STAMP_SOURCES,
    ),
    Parameter("debug_images", "double", 0.0, "Hz of ~/model_image/<camera>; 0 = off.", low=0, high=1000),
    Parameter("autostart", "bool", False, "Configure and activate without a lifecycle manager.", read_only=True),
)

CAMERA_PARAMETERS: Final = (
    Parameter("camera.<name>.slot", "string", "<name>", "Camera slot of the checkpoint."),
    Parameter("camera.<name>.topic", "string", "", "Topic; empty = <name>/image_raw, plus /compressed if compressed."),
    Parameter("camera.<name>.transport", "string", "raw", "Message type.", choices=tuple(TRANSPORTS)),
    Parameter("camera.<name>.max_age", "double", 0.5, "s; an older image is not ready.", low=0, high=3600, low_open=True),
    Parameter("camera.<name>.required", "bool", True, "false: without a fresh image the slot is masked as in training."),
    Parameter("camera.<name>.swap_red_blue", "bool", False, "For drivers that label red and blue the wrong way round."),
)

JOINT_PARAMETERS: Final = (
    Parameter("joint.<name>.scale", "double", 1.0, "Policy value = scale · message + offset."),
    Parameter("joint.<name>.offset", "double", 0.0, "Policy value = scale · message + offset."),
)

ROS_OWNED = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Parameters that every ROS node has: a parameter file may set them, they are not ours to read."""


def camera_parameters(camera: str) -> tuple[Parameter, ...]:
    """The rows of one camera."""
    return tuple(row.named(name=camera) for row in CAMERA_PARAMETERS)


def joint_parameters(joint: str) -> tuple[Parameter, ...]:
    """The rows of one joint of `joint_names`."""
    return tuple(row.named(name=joint) for row in JOINT_PARAMETERS)


def parameter_table(cameras: Iterable[str], joints: Iterable[str]) -> dict[str, Parameter]:
    """Every parameter of a node with these cameras and joints, by full name."""
    rows = list(PARAMETERS)
    for camera in cameras:
        rows += camera_parameters(camera)
    for joint in joints:
        rows += joint_parameters(joint)
    return {row.name: row for row in rows}


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


@dataclass(frozen=True)
class JointConfig:
    """One entry of the state vector: policy value = scale · message + offset."""

    name: str
    scale: float = 1.0
    offset: float = 0.0


class PolicyShape(Protocol):
    """What `NodeConfig.check_policy` reads of a policy."""

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
    joints: tuple[JointConfig, ...]
    joint_max_age: float
    action_names: tuple[str, ...]
    max_skew: float
    stamp_source: str
    debug_images: float
    autostart: bool

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> NodeConfig:
        """Check `flat` (full parameter name → value) against the table.

        Raises ConfigError for an unknown parameter (with the nearest known name), a wrong type or range, a missing
        required one (with an example), repeated names, and a trigger camera that is not among the cameras.
        """
        raise NotImplementedError

    @property
    def joint_names(self) -> tuple[str, ...]:
        return tuple(joint.name for joint in self.joints)

    def check_policy(self, policy: PolicyShape) -> tuple[str, ...]:
        """Match cameras with slots, joints with the state and action names with the action vector, by name.

        Returns lines for the start log: which camera fills which slot, slots that stay empty (masked).
        Raises ConfigError that lists both sides.
        """
        raise NotImplementedError


def load_parameter_file(path: str | Path, node_name: str = "policy") -> dict[str, Any]:
    """Read a ROS parameter file into a flat dict (nested maps joined with dots) for the node `node_name`.

    Sections `/**`, the node's name, its full name and namespace sections count, later ones win.
    Raises ConfigError naming the file when it is no parameter file or no section fits.
    """
    raise NotImplementedError
