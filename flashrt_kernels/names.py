# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The robot's names of cameras and parts of the state → the checkpoint's own. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flashrt_kernels.errors import ObservationError

if TYPE_CHECKING:
    from flashrt_kernels.checkpoint.checkpoint import Checkpoint


class Names:
    """rename: the robot's name → a name of the checkpoint, in front of all others that are accepted."""

    def __init__(self, checkpoint: Checkpoint, rename: Mapping[str, str]) -> None:
        """Raises ObservationError where `rename` is no mapping of names, or leads to nothing."""
        if not isinstance(rename, Mapping) or not all(
            isinstance(name, str) for pair in rename.items() for name in pair
        ):
            raise ObservationError(
                f"rename is {rename!r}; expected {{robot's name: checkpoint's name}} of cameras and "
                "groups of the state"
            )
        self._cameras, self._groups = checkpoint.cameras, dict(checkpoint.state_widths)
        self._slots = slots_by_name(checkpoint.cameras, checkpoint.camera_names)
        self._parts = {name: name for name in self._groups}
        known = dict(self._slots)  # a robot may call its cameras as the checkpoint calls others
        for robot, own in rename.items():
            if own in known:
                self._slots[robot] = known[own]
            elif own in self._groups:
                self._parts[robot] = own
            else:
                raise ObservationError(
                    f"rename: {robot!r} → {own!r}, which the checkpoint does not have; it has cameras "
                    f"{', '.join(self._cameras)} and state {', '.join(self._groups)}"
                )

    def slot(self, name: str) -> str:
        """Full slot name of a camera. Raises ObservationError for names that it does not have."""
        if name not in self._slots:
            raise ObservationError(f"unknown camera {name!r}; the checkpoint has {', '.join(self._cameras)}")
        return self._slots[name]

    def state(self, state: Sequence[float] | np.ndarray | Mapping[str, Any]) -> Any:
        """The groups of a state one after another; what is no mapping is returned as it is.

        Raises ObservationError for groups that are unknown, missing, given twice or of the wrong length.
        """
        if not isinstance(state, Mapping):
            return state
        found: dict[str, Any] = {}
        for name, values in state.items():
            group = self._parts.get(name)
            if group is None or group in found:
                what = "unknown" if group is None else f"{group!r} for the second time"
                raise ObservationError(
                    f"state group {name!r} is {what}; the checkpoint has {', '.join(self._groups)}"
                )
            found[group] = np.atleast_1d(values)
            width = self._groups[group]
            if found[group].shape != (width,):
                shape = list(found[group].shape)
                raise ObservationError(f"state group {name!r} has shape {shape}; expected [{width}]")
        missing = [group for group in self._groups if group not in found]
        if missing:
            raise ObservationError(
                f"state lacks {', '.join(missing)}; it has {', '.join(state) or 'nothing'}"
            )
        return np.concatenate([found[group] for group in self._groups])


def slots_by_name(cameras: Sequence[str], others: Mapping[str, str]) -> dict[str, str]:
    """Every accepted camera name → full slot name.

    The full name; its last component and `video.<last>` where only one slot has it; and the names that the
    checkpoint renames.
    """
    last = [slot.rpartition(".")[2] for slot in cameras]
    names = {slot: slot for slot in cameras}
    for slot, short in zip(cameras, last, strict=True):
        if last.count(short) == 1:
            names.setdefault(short, slot)
            names.setdefault(f"video.{short}", slot)
    for robot_name, slot in others.items():
        if slot in cameras:
            names.setdefault(robot_name, slot)
    return names
