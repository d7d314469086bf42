# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joint limits out of a robot description (URDF). No ROS types, standard library only."""

from __future__ import annotations

import math
from typing import NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

UrdfLimits = tuple[float, float, float]
"""lower, upper, max velocity; in rad and rad/s, or m and m/s for prismatic joints."""

_HAS_RANGE = {"revolute": True, "prismatic": True, "continuous": False}
_WITHOUT_LIMITS = frozenset({"fixed", "floating", "planar"})


def limits_from_urdf(text: str) -> dict[str, UrdfLimits]:
    """Limits of the joints that somebody can command: {name: (lower, upper, velocity)}.

    Fixed, floating, planar and mimic joints are left out. Continuous joints have infinite position limits,
    and an infinite velocity when they name none. Raises ValueError naming the joint and the attribute when
    the text is no URDF, and for a document type declaration: its entities could grow without bound.
    """
    _refuse_doctype(text)
    root = ElementTree.fromstring(text)
    if root.tag != "robot":
        raise ValueError(f"robot description: the root element is <{root.tag}>, expected <robot>")
    limits: dict[str, UrdfLimits] = {}
    seen: set[str] = set()
    for joint in root.findall("joint"):  # children only: ros2_control and transmissions name joints too
        name, kind = joint.get("name"), joint.get("type")
        if not name:
            raise ValueError("robot description: a joint has no name")
        if name in seen:
            raise ValueError(f"robot description: joint {name} is there twice")
        seen.add(name)
        if kind not in _HAS_RANGE and kind not in _WITHOUT_LIMITS:
            known = ", ".join(sorted(_HAS_RANGE.keys() | _WITHOUT_LIMITS))
            raise ValueError(f"robot description: joint {name} has type {kind}; known are {known}")
        if kind in _HAS_RANGE and joint.find("mimic") is None:
            limits[name] = _joint_limits(name, joint.find("limit"), _HAS_RANGE[kind])
    return limits


def _refuse_doctype(text: str) -> None:
    """Read `text` once for its form alone; entities can only be declared in a document type declaration."""

    def refuse(*_: object) -> NoReturn:
        raise ValueError("robot description: it has a document type declaration (<!DOCTYPE …>); remove it")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"robot description: not XML: {error}") from error


def _joint_limits(name: str, limit: ElementTree.Element | None, has_range: bool) -> UrdfLimits:
    if limit is None:
        if has_range:
            raise ValueError(f"robot description: joint {name} has no <limit>")
        return -math.inf, math.inf, math.inf
    velocity = _number(name, limit, "velocity", None)
    if velocity < 0.0:
        raise ValueError(f"robot description: joint {name}: velocity is {velocity:g}, below 0")
    if not has_range:
        return -math.inf, math.inf, velocity
    lower = _number(name, limit, "lower", 0.0)  # URDF: 0 when it is not there
    upper = _number(name, limit, "upper", 0.0)
    if lower > upper:
        raise ValueError(f"robot description: joint {name}: lower {lower:g} is above upper {upper:g}")
    return lower, upper, velocity


def _number(name: str, limit: ElementTree.Element, attribute: str, default: float | None) -> float:
    text = limit.get(attribute)
    if text is None:
        if default is None:
            raise ValueError(f"robot description: joint {name}: <limit> has no {attribute}")
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ValueError(f"robot description: joint {name}: {attribute} is {text!r}, expected a number")
    return value
