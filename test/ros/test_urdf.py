# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Limits from robot descriptions. When these fail, a robot moves with limits that are not its own."""

from __future__ import annotations

import math

import pytest

from flashrt_ros.limits import limits_from_urdf

NEVER = math.inf


def urdf(joints: str) -> str:
    return f'<?xml version="1.0"?><robot name="r"><link name="base"/>{joints}</robot>'


def test_R41_limits_from_the_robot_description() -> None:
    """Lost otherwise: the limits that every robot brings along are typed by hand, or not at all."""
    text = urdf(
        '<joint name="a" type="revolute"><limit lower="-1.5" upper="2" velocity="3" effort="9"/></joint>'
        '<joint name="b" type="prismatic"><limit upper="0.08" velocity="0.2"/></joint>'
        '<joint name="c" type="continuous"/>'
        '<joint name="d" type="continuous"><limit lower="1" upper="2" velocity="4"/></joint>'
        '<joint name="e" type="fixed"/><joint name="f" type="floating"/>'
        '<joint name="g" type="prismatic"><limit upper="1" velocity="1"/><mimic joint="b"/></joint>'
        '<ros2_control name="x" type="system"><joint name="a"/><joint name="h"/></ros2_control>'
        '<transmission name="t"><joint name="a"/></transmission>'
    )
    assert limits_from_urdf(text) == {
        "a": (-1.5, 2.0, 3.0),
        "b": (0.0, 0.08, 0.2),
        "c": (-NEVER, NEVER, NEVER),
        "d": (-NEVER, NEVER, 4.0),
    }


REVOLUTE = '<joint name="a" type="revolute">{}</joint>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not XML"),
        ("<robot>", "not XML"),
        ("<sdf/>", "root element is <sdf>"),
        (urdf('<joint type="fixed"/>'), "no name"),
        (urdf('<joint name="a" type="hinge"/>'), "joint a has type hinge; known are continuous"),
        (urdf('<joint name="a" type="fixed"/><joint name="a" type="fixed"/>'), "joint a is there twice"),
        (urdf(REVOLUTE.format("")), "joint a has no <limit>"),
        (urdf(REVOLUTE.format('<limit lower="0" upper="1"/>')), "joint a: <limit> has no velocity"),
        (
            urdf(REVOLUTE.format('<limit lower="x" upper="1" velocity="1"/>')),
            "lower is 'x', expected a number",
        ),
        (urdf(REVOLUTE.format('<limit upper="nan" velocity="1"/>')), "upper is 'nan'"),
        (urdf(REVOLUTE.format('<limit upper="1" velocity="-1"/>')), "velocity is -1"),
        (urdf(REVOLUTE.format('<limit lower="2" upper="1" velocity="1"/>')), "lower 2 is above upper 1"),
        ('<!DOCTYPE r [<!ENTITY e "x">]><robot name="&e;"/>', "document type declaration"),
    ],
)
def test_malformed_descriptions_say_what_is_wrong(text: str, words: str) -> None:
    """Lost otherwise: a typing error in a description becomes a limit of 0, or a traceback."""
    with pytest.raises(ValueError, match=words):
        limits_from_urdf(text)
