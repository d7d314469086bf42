# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one table of the node's parameters: name, type, default, description, range.

The node declares it and `NodeConfig` checks values against it, so each fact exists once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final


class ConfigError(ValueError):
    """A parameter, or its match with the checkpoint, is wrong: says what came and what would be right."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of a parameter that has none: every robot must state it."""


@dataclass(frozen=True)
class Parameter:
    """One row of the table. `type` is a key of `TYPES`; `low` (open: `low_open`) and `high` bound numbers.

    `example` is shown when a required parameter is missing.
    """

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

    def named(self, name: str) -> Parameter:
        """This row for one camera or joint: `<name>` in its name and default replaced."""
        default = self.default.replace("<name>", name) if isinstance(self.default, str) else self.default
        return replace(self, name=self.name.replace("<name>", name), default=default)


# type → (Python types that are accepted, conversion, how to write one)
TYPES: Final[dict[str, tuple[tuple[type, ...], Any, str]]] = {
    "string": ((str,), str, "a string"),
    "int": ((int,), int, "an integer"),
    "double": ((float, int), float, "a double, like 30.0"),  # R60: `rate: 30` means 30.0
    "bool": ((bool,), bool, "true or false"),
    "string_list": ((list, tuple), tuple, "a list of strings, like [a, b]"),
}

TRIGGERS = ("timer", "camera", "free")
TRANSPORTS: Final = {"raw": "<name>/image_raw", "compressed": "<name>/image_raw/compressed"}
"""Transport of a camera → its default topic."""
STAMP_SOURCES = ("auto", "header", "arrival")

PARAMETERS: Final = (
    Parameter("checkpoint", "string", REQUIRED, "Folder of the checkpoint.", example="/data/pi05_my_task"),
    Parameter("tokenizer", "string", "", "Tokenizer file or folder, when the checkpoint has none."),
    Parameter(
        "fast_tokenizer", "string", "", "Folder of the FAST tokenizer, when a Pi0-FAST checkpoint has none."
    ),
    Parameter("embodiment", "string", "", "The robot, where the checkpoint knows several (GR00T, openpi)."),
    Parameter(
        "delta_actions",
        "string",
        "",
        "openpi only: which actions are offsets to the state: 6,-1 is the first six of seven.",
    ),
    Parameter("chunk_size", "int", 0, "openpi only: actions of a chunk; 0 = its default.", low=0, high=10000),
    Parameter(
        "state_in_prompt",
        "string",
        "",
        "openpi's Pi0.5 only: whether the prompt holds the state; empty = its default.",
        choices=("", "true", "false"),
    ),
    Parameter(
        "adapt_to_pi",
        "string",
        "",
        "openpi on ALOHA only: joints and grippers become the policy's and back; empty = its default.",
        choices=("", "true", "false"),
    ),
    Parameter(
        "head",
        "string",
        "full",
        "actions: Pi0-FAST chooses among the words of a chunk only, which is faster.",
        choices=("full", "actions"),
    ),
    Parameter("pad_prompt_state", "bool", False, "LeRobot 0.4 only: the prompt holds the padded state."),
    Parameter(
        "image_size",
        "string",
        "",
        "WIDTHxHEIGHT of the cameras, for policies that see another number of patches then (GR00T N1.6).",
    ),
    Parameter("device", "string", "cpu", "Device that runs the policy."),
    Parameter(
        "precision",
        "string",
        "",
        "Precision of the weights; empty = the device's.",
        choices=("", "fp32", "bf16"),
    ),
    Parameter("num_inference_steps", "int", 0, "Denoising steps; 0 = the checkpoint's.", low=0, high=1000),
    Parameter("cpu_threads", "int", 0, "Threads of torch on the CPU; 0 = torch's choice.", low=0, high=1024),
    Parameter(
        "instruction", "string", "", "Instruction at start; the newest message on ~/instruction replaces it."
    ),
    Parameter("seed", "int", 0, "Key of the start noise.", low=0, high=2**63 - 1),
    Parameter("trigger", "string", "timer", "What starts a decision.", choices=TRIGGERS),
    Parameter("trigger_camera", "string", "", "Camera whose images start decisions, for trigger: camera."),
    Parameter(
        "decision_rate",
        "double",
        5.0,
        "Hz of decisions, for trigger: timer.",
        low=0,
        high=1000,
        low_open=True,
    ),
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
    Parameter(
        "joint_max_age", "double", 0.5, "s; an older joint is not ready.", low=0, high=3600, low_open=True
    ),
    Parameter("action_names", "string_list", [], "Joints of the action vector; empty = joint_names."),
    Parameter(
        "actions_are_positions",
        "bool",
        False,
        "The actions are joint positions, whatever the checkpoint suggests (velocities, steps, poses).",
    ),
    Parameter(
        "max_skew",
        "double",
        0.0,
        "s between the oldest and the newest required source; 0 = off.",
        low=0,
        high=3600,
    ),
    Parameter(
        "stamp_source",
        "string",
        "auto",
        "Time of a message: its header's (auto: its arrival where that is unusable) or its arrival.",
        choices=STAMP_SOURCES,
    ),
    Parameter("debug_images", "double", 0.0, "Hz of ~/model_image/<camera>; 0 = off.", low=0, high=1000),
    Parameter(
        "autostart", "bool", False, "Configure and activate without a lifecycle manager.", read_only=True
    ),
)

CAMERA_PARAMETERS: Final = (
    Parameter("camera.<name>.slot", "string", "<name>", "Camera slot of the checkpoint."),
    Parameter(
        "camera.<name>.topic",
        "string",
        "",
        "Topic; empty = <name>/image_raw, plus /compressed if compressed.",
    ),
    Parameter("camera.<name>.transport", "string", "raw", "Message type.", choices=tuple(TRANSPORTS)),
    Parameter(
        "camera.<name>.max_age",
        "double",
        0.5,
        "s; an older image is not ready.",
        low=0,
        high=3600,
        low_open=True,
    ),
    Parameter(
        "camera.<name>.required",
        "bool",
        True,
        "false: without a fresh image the slot is masked as in training.",
    ),
    Parameter(
        "camera.<name>.swap_red_blue",
        "bool",
        False,
        "For drivers that label red and blue the wrong way round.",
    ),
)

JOINT_PARAMETERS: Final = (
    Parameter(
        "joint.<name>.scale", "double", 1.0, "Policy value = scale · message + offset; actions go back."
    ),
    Parameter(
        "joint.<name>.offset", "double", 0.0, "Policy value = scale · message + offset; actions go back."
    ),
)

ROS_OWNED = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Parameters that every ROS node has: a parameter file may set them, they are not ours to read."""


def camera_parameters(camera: str) -> tuple[Parameter, ...]:
    """The rows of one camera."""
    return tuple(row.named(camera) for row in CAMERA_PARAMETERS)


def joint_parameters(joint: str) -> tuple[Parameter, ...]:
    """The rows of one joint of `joint_names`."""
    return tuple(row.named(joint) for row in JOINT_PARAMETERS)


def parameter_table(cameras: Iterable[str], joints: Iterable[str]) -> dict[str, Parameter]:
    """Every parameter of a node with these cameras and joints, by full name."""
    rows = list(PARAMETERS)
    for camera in cameras:
        rows += camera_parameters(camera)
    for joint in joints:
        rows += joint_parameters(joint)
    return {row.name: row for row in rows}


def read_value(row: Parameter, given: Mapping[str, Any]) -> Any:
    """The checked value of one row, or its default.

    Raises ConfigError for a wrong type or range and for a required one that is absent (or empty, as ROS
    leaves a parameter that was declared but not set).
    """
    value: Any = given.get(row.name)
    if value is None or (row.required and value in ("", [], ())):
        if row.required:
            raise ConfigError(
                f"parameter '{row.name}' is required: {row.description} Write `{row.name}: {row.example}`."
            )
        return TYPES[row.type][1](row.default)
    accepted, convert, words = TYPES[row.type]
    if type(value) not in accepted:  # not isinstance: True must not pass as the integer 1
        raise ConfigError(f"parameter '{row.name}' is {value!r} ({type(value).__name__}); it must be {words}")
    if row.type == "string_list":
        _check_names(row, value)
    _check_range(row, value)
    return convert(value)


def _check_names(row: Parameter, names: Sequence[Any]) -> None:
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"parameter '{row.name}': entry {index} is {name!r}; every entry must be a name"
            )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"parameter '{row.name}' names {', '.join(twice)} more than once")


def _check_range(row: Parameter, value: Any) -> None:
    if row.choices is not None and value not in row.choices:
        known = ", ".join(repr(choice) for choice in row.choices)
        raise ConfigError(f"parameter '{row.name}' is {value!r}; it must be one of {known}")
    if row.type not in ("int", "double"):
        return
    low = -math.inf if row.low is None else row.low
    high = math.inf if row.high is None else row.high
    if not math.isfinite(value) or not low <= value <= high or (row.low_open and value == low):
        bounds = f"{'above' if row.low_open else 'at least'} {low:g} and at most {high:g}"
        raise ConfigError(f"parameter '{row.name}' is {value!r}; it must be finite, {bounds}")
