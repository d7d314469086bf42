# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one table of the node's parameters: name, type, default, description, range.

The node declares it and `NodeConfig` checks values against it, so each fact exists once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flashrt_ros.parameter_row import REQUIRED, UNSET, Parameter
from flashrt_ros.parameter_rows import (
    ACTION_PARAMETERS,
    CAMERA_PARAMETERS,
    GRIPPER_PARAMETERS,
    JOINT_PARAMETERS,
    PARAMETERS,
    STATE_PARAMETERS,
)

__all__ = ["PARAMETERS", "REQUIRED", "UNSET", "ConfigError", "Parameter", "parameter_table", "read_value"]


class ConfigError(ValueError):
    """A parameter, or its match with the checkpoint, is wrong: says what came and what would be right."""


def _doubles(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


# type → (Python types that are accepted, conversion, how to write one)
TYPES: Final[dict[str, tuple[tuple[type, ...], Any, str]]] = {
    "string": ((str,), str, "a string"),
    "int": ((int,), int, "an integer"),
    "double": ((float, int), float, "a double, like 30.0"),  # R60: `rate: 30` means 30.0
    "bool": ((bool,), bool, "true or false"),
    "string_list": ((list, tuple), tuple, "a list of strings, like [a, b]"),
    "double_list": ((list, tuple), _doubles, "a list of doubles, like [0.1, 0.2]"),
}

ROS_OWNED = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Parameters that every ROS node has: a parameter file may set them, they are not ours to read."""


FAMILIES: Final[dict[str, tuple[Parameter, ...]]] = {
    "camera": CAMERA_PARAMETERS,
    "joint": JOINT_PARAMETERS,
    "gripper": GRIPPER_PARAMETERS,
    "state": STATE_PARAMETERS,
    "action": ACTION_PARAMETERS,
}
"""Prefix of the parameters of one camera, joint, … → their rows."""

LISTED_IN: Final = {
    "camera": "`cameras`",
    "joint": "`joint_names`, `action_names` or the names of a group",
    "gripper": "`grippers`",
    "state": "`state_groups`",
    "action": "`action_groups`",
}
"""Prefix → where the names must stand that it is followed by."""


def members(strings: Callable[[str], Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The names of each family of a node; `strings` gives the value of a parameter that lists names."""
    groups = {"state": tuple(strings("state_groups")), "action": tuple(strings("action_groups"))}
    joints = [*strings("joint_names"), *strings("action_names")]
    for family, names in groups.items():
        for name in names:
            joints += strings(f"{family}.{name}.names")
    return {
        "camera": tuple(strings("cameras")),
        "joint": tuple(dict.fromkeys(joints)),
        "gripper": tuple(strings("grippers")),
        **groups,
    }


def parameter_table(strings: Callable[[str], Sequence[str]]) -> dict[str, Parameter]:
    """Every parameter of a node, by full name; `strings` as for `members`."""
    rows = list(PARAMETERS)
    for family, names in members(strings).items():
        rows += [row.named(name) for name in names for row in FAMILIES[family]]
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
        return None if row.default is UNSET else TYPES[row.type][1](row.default)
    accepted, convert, words = TYPES[row.type]
    if type(value) not in accepted:  # not isinstance: True must not pass as the integer 1
        raise ConfigError(f"parameter '{row.name}' is {value!r} ({type(value).__name__}); it must be {words}")
    if row.type in ENTRIES:
        ENTRIES[row.type](row, value)
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


def _check_numbers(row: Parameter, values: Sequence[Any]) -> None:
    for index, value in enumerate(values):
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ConfigError(
                f"parameter '{row.name}': entry {index} is {value!r}; every entry must be a finite number"
            )


ENTRIES: Final = {"string_list": _check_names, "double_list": _check_numbers}


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
