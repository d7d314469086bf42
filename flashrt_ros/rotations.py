# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rotations as the numbers that policies write (`ROTATIONS`) and as unit quaternions x, y, z, w."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation

_SMALLEST = 1e-6  # length of a quaternion or of a column of rot6d below which it has no direction


def _scipy() -> type[Rotation]:
    """Imported late: it takes half a second, and a node without poses never needs it."""
    from scipy.spatial.transform import Rotation

    return Rotation


def rotation_of(values: np.ndarray, rotation: str) -> Rotation:
    """Values [..., k] (k and their order as in `ROTATIONS[rotation]`) → rotations, [...] of them.

    rpy turns about the fixed x, then y, then z axis, as ROS has it; rot6d and rot6d_rows need not be
    orthonormal, Gram-Schmidt makes them so. Radians. Raises ValueError for a quaternion of length 0 and for
    six numbers that span no plane.
    """
    return _FROM[rotation](np.asarray(values, dtype=np.float64))


def values_of(turn: Rotation, rotation: str) -> np.ndarray:
    """Rotations → float64 [..., k] in the form `rotation`, the inverse of `rotation_of`.

    Quaternions have w ≥ 0; pitch lies in ±π/2; a rotation vector is at most π long.
    """
    return _TO[rotation](turn)


def _from_quaternion(values: np.ndarray) -> Rotation:
    if (np.linalg.norm(values, axis=-1) < _SMALLEST).any():
        raise ValueError("a quaternion of length 0 is no rotation")
    return _scipy().from_quat(values)


def _from_columns(values: np.ndarray) -> Rotation:
    """[..., 6], the first and then the second column of the matrix."""
    first, second = values[..., :3], values[..., 3:]
    first = _direction(first)
    second = _direction(second - (first * second).sum(-1, keepdims=True) * first)
    return _scipy().from_matrix(np.stack([first, second, np.cross(first, second)], axis=-1))


def _direction(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)  # [..., 1]
    if (lengths < _SMALLEST).any():
        raise ValueError("the six numbers of a rot6d span no plane: that is no rotation")
    return vectors / lengths


def _to_columns(turn: Rotation) -> np.ndarray:
    matrix = turn.as_matrix()  # [..., 3, 3]
    return np.concatenate([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)


_FROM: Final[dict[str, Callable[[np.ndarray], Rotation]]] = {
    "quaternion": _from_quaternion,
    "rpy": lambda values: _scipy().from_euler("xyz", values),
    "rotvec": lambda values: _scipy().from_rotvec(values),
    "rot6d": _from_columns,
    # The rows of a matrix are the columns of its inverse.
    "rot6d_rows": lambda values: _from_columns(values).inv(),
}
_TO: Final[dict[str, Callable[[Rotation], np.ndarray]]] = {
    "quaternion": lambda turn: turn.as_quat(canonical=True),
    "rpy": lambda turn: turn.as_euler("xyz"),
    "rotvec": lambda turn: turn.as_rotvec(),
    "rot6d": _to_columns,
    "rot6d_rows": lambda turn: _to_columns(turn.inv()),
}


def continuous(quaternions: np.ndarray) -> np.ndarray:
    """[n, 4] → the same rotations, each with the sign that lies nearer to the one before.

    q and −q are one rotation, but whoever interpolates between q and one near −q turns the long way.
    """
    dots = (quaternions[1:] * quaternions[:-1]).sum(axis=1)  # [n − 1]
    signs = np.cumprod(np.concatenate([[1.0], np.where(dots < 0.0, -1.0, 1.0)]))
    return quaternions * signs[:, None]


def slerp(start: np.ndarray, end: np.ndarray, share: float) -> np.ndarray:
    """The quaternion [4] that lies `share` (0 … 1) of the way from `start` to `end`, signs as they come."""
    angle = float(np.arccos(np.clip(start @ end, -1.0, 1.0)))  # half the angle of the rotation
    if np.sin(angle) < _SMALLEST:
        mixed = start + share * (end - start)
    else:
        mixed = np.sin((1.0 - share) * angle) * start + np.sin(share * angle) * end
    length = np.linalg.norm(mixed)
    return mixed / length if length > 0.0 else start
