# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Action groups for the tests of motions, and what is drawn for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from flashrt_ros.groups import BASE, ActionGroup, pose_names
from flashrt_ros.planned import Planned
from flashrt_ros.rotations import rotation_of, values_of

RATE_HZ = 20.0
DT_NS = 50_000_000
NOW_NS = 7_000_000_000
BOX = (-0.5, -0.5, 0.0, 0.5, 0.5, 1.0)

seeds = st.integers(0, 2**32 - 1)
steady = settings(deadline=None, report_multiple_bugs=False)
"""For machines that are busy; one failure at a time is one that can be read."""


def group(space: str, **more: Any) -> ActionGroup:
    """An action group as the parameters would give it: end effector `arm`, with speeds and a workspace."""
    names = {
        "eef_pose": pose_names("arm", more.get("rotation", "quaternion")),
        "eef_delta": tuple(f"arm.d{axis}" for axis in ("x", "y", "z", "rx", "ry", "rz")),
        "base": tuple(f"base.{axis}" for axis in BASE),
    }.get(space, ("pan", "lift"))
    fields: dict[str, Any] = {
        "name": "arm",
        "space": space,
        "output": "pose",
        "topic": "arm/target_pose",
        "names": names,
        "rotation": "rotvec" if space == "eef_delta" else "quaternion",
        "frame": "base_link",
        "max_linear_velocity": 0.2,
        "max_angular_velocity": 0.5,
        "workspace": BOX,
    }
    return ActionGroup(**{**fields, **more})


def pose(
    x: float = 0.0, y: float = 0.0, z: float = 0.5, *, turn: tuple[float, float, float] = (0, 0, 0)
) -> Any:
    """[7], `turn` as a rotation vector."""
    return np.concatenate([[x, y, z], values_of(rotation_of(np.array(turn, float), "rotvec"), "quaternion")])


def wandering(
    seed: int, steps: int, length: float, angle: float, start: np.ndarray | None = None
) -> np.ndarray:
    """Poses [steps, 7] that go at most `length` m and `angle` rad from one to the next, from `start` on."""
    random = np.random.default_rng(seed)
    here = pose() if start is None else start
    poses = []
    for _ in range(steps):
        step, turn = random.normal(size=(2, 3))
        step *= length * random.random() / np.linalg.norm(step)
        turn *= angle * random.random() / np.linalg.norm(turn)
        rotation = rotation_of(turn, "rotvec") * rotation_of(here[3:], "quaternion")
        sign = random.choice([-1.0, 1.0])  # a policy may write either
        here = np.concatenate([here[:3] + step, sign * values_of(rotation, "quaternion")])
        poses.append(here)
    return np.stack(poses)


def committed(motion: Any, targets: np.ndarray, now_ns: int = NOW_NS, **more: Any) -> Any:
    """Plan and commit; the plan that is executed."""
    arguments = {"consumed": 0, "measured": None, **more}
    planned = motion.plan(targets, arguments["consumed"], now_ns, arguments["measured"])
    assert isinstance(planned, Planned), planned
    assert motion.commit(planned)
    return planned


def told(motion: Any, now_ns: int) -> np.ndarray:
    """What is commanded; fails when nothing is."""
    command = motion.command(now_ns)
    assert isinstance(command, np.ndarray), command
    return command
