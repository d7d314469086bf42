# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The parameter table as ROS parameters: declared with descriptors, read back as the flat dict of
`NodeConfig`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import InvalidParameterValueException
from rclpy.node import Node

from flashrt_ros.parameter_table import (
    FAMILIES,
    PARAMETERS,
    ROS_OWNED,
    ConfigError,
    Parameter,
    parameter_table,
    read_value,
)

# Everything else shapes buffers, subscriptions or threads that exist from configure to cleanup.
CHANGEABLE_WHILE_CONFIGURED = ("instruction", "debug_images")

# Parameters that decide which others there are.
NAMING = ("cameras", "joint_names", "action_names", "grippers", "state_groups", "action_groups")


def describe(row: Parameter) -> ParameterDescriptor:
    """Descriptor of one row: description, range, choices. Typed by the table and not by ROS, so that an
    integer is accepted where a number is meant (R60) and an empty list has a type."""
    constraints = f"one of {', '.join(repr(choice) for choice in row.choices)}" if row.choices else ""
    if row.low_open:
        constraints = f"above {row.low}"
    descriptor = ParameterDescriptor(
        description=f"{row.description}{' Required.' if row.required else ''}",
        additional_constraints=constraints,
        read_only=row.read_only,
        dynamic_typing=True,
    )
    if row.low is not None and row.high is not None:
        if row.type == "int":
            descriptor.integer_range = [IntegerRange(from_value=int(row.low), to_value=int(row.high), step=0)]
        else:
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(row.low), to_value=float(row.high), step=0.0)
            ]
    return descriptor


class NodeParameters:
    """Declares the table on a node and keeps the rows of cameras, joints, … in step with the lists of their
    names.

    `is_configured` tells whether structural parameters are frozen; `on_change(name, value)` is called for
    each parameter of `CHANGEABLE_WHILE_CONFIGURED` that was set.
    """

    def __init__(
        self, node: Node, is_configured: Callable[[], bool], on_change: Callable[[str, Any], None]
    ) -> None:
        self._node = node
        self._is_configured = is_configured
        self._on_change = on_change
        self._refused: dict[
            str, Any
        ] = {}  # values from outside that the descriptor refuses: configure reports them
        self._declaring = False
        self._declare_all(PARAMETERS)
        self._declare_named()
        node.add_on_set_parameters_callback(self._check_set)
        node.add_post_set_parameters_callback(self._after_set)

    def read(self) -> dict[str, Any]:
        """All values that are set, by full name, for `NodeConfig.from_dict`; misspelt ones included so that
        it can name them."""
        self._declare_named()
        flat = {name: self._value(name) for name in self._table()}
        flat = {name: value for name, value in flat.items() if value is not None}
        return {**flat, **self._refused, **self._misspelt()}

    def _value(self, name: str) -> Any:
        if not self._node.has_parameter(name):
            return None
        value = self._node.get_parameter(name).value
        return list(value) if isinstance(value, tuple) else value

    def _table(self) -> dict[str, Parameter]:
        return parameter_table(self._strings)

    def _strings(self, name: str) -> list[str]:
        value = self._value(name)
        if not isinstance(value, list):
            return []
        return [item for item in value if isinstance(item, str) and item]

    def _declare_all(self, rows: Iterable[Parameter]) -> None:
        self._declaring = True
        try:
            for row in rows:
                if self._node.has_parameter(row.name):
                    continue
                try:
                    self._node.declare_parameter(row.name, row.declared, describe(row))
                except InvalidParameterValueException:
                    self._refused[row.name] = self._node._parameter_overrides[row.name].value
                    self._node.declare_parameter(row.name, row.declared, describe(row), ignore_override=True)
        finally:
            self._declaring = False

    def _declare_named(self) -> None:
        """Declare the rows of the cameras, joints, … named now, drop those of names that are gone.

        Twice: the names of a group's joints are a parameter of the group.
        """
        for _ in range(2):
            table = self._table()
            for family in FAMILIES:
                for name in list(self._node.get_parameters_by_prefix(family)):
                    if f"{family}.{name}" not in table:
                        self._node.undeclare_parameter(f"{family}.{name}")
            self._refused = {name: value for name, value in self._refused.items() if name in table}
            self._declare_all(table.values())

    def _misspelt(self) -> dict[str, Any]:
        """Values from outside that no node declared and that were most likely meant for this one.

        A parameter file may be shared by all nodes of a robot, so a name that resembles nothing here is no
        error.
        """
        known = list(self._table())
        found = {}
        for name, parameter in self._node._parameter_overrides.items():
            if self._node.has_parameter(name) or name.startswith(ROS_OWNED):
                continue
            if name.startswith(tuple(f"{family}." for family in FAMILIES)) or difflib.get_close_matches(
                name, known, 1, 0.75
            ):
                found[name] = parameter.value
        return found

    def _check_set(self, parameters: list[Any]) -> SetParametersResult:
        if self._declaring:
            return SetParametersResult(successful=True)
        table = self._table()
        for parameter in parameters:
            row = table.get(parameter.name)
            if row is None:
                continue
            if parameter.value is None:  # `ros2 param delete`
                reason = f"{parameter.name} cannot be deleted; set it to the value that is wanted"
                return SetParametersResult(successful=False, reason=reason)
            if self._is_configured() and parameter.name not in CHANGEABLE_WHILE_CONFIGURED:
                reason = (
                    f"{parameter.name} can be changed only while the node is unconfigured: clean up first"
                )
                return SetParametersResult(successful=False, reason=reason)
            try:
                read_value(row, {parameter.name: parameter.value})
            except ConfigError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _after_set(self, parameters: list[Any]) -> None:
        if self._declaring:
            return
        for parameter in parameters:
            self._refused.pop(parameter.name, None)
            if parameter.name in NAMING or parameter.name.endswith(".names"):
                self._declare_named()
            if parameter.name in CHANGEABLE_WHILE_CONFIGURED:
                self._on_change(parameter.name, parameter.value)
