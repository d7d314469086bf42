# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T's joint groups: a robot's numbers ↔ the model's, on the host, in float64.

Sources: NVIDIA/Isaac-GR00T gr00t/data/utils.py and gr00t/data/state_action (Apache-2.0), lerobot
policies/groot/processor_groot.py.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.errors import ObservationError

Doubles = NDArray[np.float64]
StateRule = Literal["range", "mean_std", "sin_cos"]
ActionRule = Literal["range", "mean_std"]
POSE_WIDTH = 9  # x y z, then the first two rows of the rotation


@dataclass(frozen=True, eq=False)
class StateGroup:
    """D numbers of the state.

    rule `range`: 2 (x − offset)/span − 1, 0 where the span is empty, clipped to ±1 if `clip`;
    `mean_std`: (x − offset)/span, x itself where it is empty; `sin_cos`: [sin x | cos x].
    offset, span: [D], lowest value and range or mean and deviation. empty: [D], spans that count as none.
    """

    name: str
    rule: StateRule
    offset: Doubles
    span: Doubles
    empty: NDArray[np.bool_]
    clip: bool = True

    @property
    def width(self) -> int:
        return len(self.offset)

    def normalise(self, x: Doubles) -> Doubles:
        """[D] in robot units → [D], or [2 D] for sin_cos."""
        if self.rule == "sin_cos":
            return np.concatenate([np.sin(x), np.cos(x)])
        scaled = (x - self.offset) / np.where(self.empty, 1.0, self.span)
        if self.rule == "mean_std":
            return np.where(self.empty, x, scaled)
        normalised = np.where(self.empty, 0.0, 2.0 * scaled - 1.0)
        return normalised.clip(-1.0, 1.0) if self.clip else normalised


@dataclass(frozen=True, eq=False)
class ActionGroup:
    """D numbers of every action.

    rule `range`: (clip(y) + 1)/2 · span + offset; `mean_std`: y · span + offset, y itself where span is 0.
    offset, span: [D], or [rows, D] with one row per action of a chunk. reference: where in the state that
    stands to which the group is relative; None: absolute. pose: relative as transformations
    (x y z, rot6d) in the frame of the reference, otherwise as differences.
    """

    name: str
    rule: ActionRule
    offset: Doubles
    span: Doubles
    reference: slice | None = None
    pose: bool = False

    @property
    def width(self) -> int:
        return self.offset.shape[-1]

    def decode(self, y: Doubles, state: Doubles) -> Doubles:
        """y [T, D] as the model gives it, state [S] of the same observation → [T, D] in robot units.

        Raises ObservationError where the state holds no rotation that a pose could be relative to.
        """
        offset, span = (s[: len(y)] if s.ndim == 2 else s for s in (self.offset, self.span))
        if self.rule == "mean_std":
            value = np.where(span == 0, y, y * span + offset)
        else:
            value = (y.clip(-1.0, 1.0) + 1.0) / 2.0 * span + offset
        if self.reference is None:
            return value
        reference = state[self.reference]
        if not self.pose:
            return value + reference
        rotation = reference[3:].reshape(2, 3)
        if np.linalg.norm(np.cross(*rotation)) < 1e-6:
            raise ObservationError(
                f"state of {self.name}: {reference[3:].tolist()} is no rotation; expected its first two rows"
            )
        return compose_poses(reference, value)


def compose_poses(reference: Doubles, relative: Doubles) -> Doubles:
    """Poses [T, 9] in the frame of `reference` [9] → poses [T, 9] in the frame that it is given in.

    A pose is x, y, z and the first two rows of its rotation matrix, made orthonormal by Gram-Schmidt.
    """
    turn, turns = _rotations(reference[None, 3:])[0], _rotations(relative[:, 3:])
    places = relative[:, :3] @ turn.T + reference[:3]
    rows = (turn @ turns)[:, :2].reshape(len(relative), 6)
    return np.concatenate([places, rows], axis=1)


def _rotations(rows: Doubles) -> Doubles:
    """[T, 6] → matrices [T, 3, 3]. Rows that span no plane give NaN, which whoever executes refuses."""
    first, second = rows[:, :3], rows[:, 3:]
    with np.errstate(invalid="ignore", divide="ignore"):
        first = first / np.linalg.norm(first, axis=1, keepdims=True)
        second = second - (first * second).sum(1, keepdims=True) * first
        second = second / np.linalg.norm(second, axis=1, keepdims=True)
    return np.stack([first, second, np.cross(first, second)], axis=1)
