# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The columns of an action chunk by group: where they are, what they mean, what has to be said of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from flashrt_ros.groups import ALL, ActionGroup, StateGroup
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.rotations import rotation_of, values_of

MEANINGS: Final = {
    "joint_position": "absolute joint targets",
    "joint_delta": "per-step increments, made absolute",
    "joint_velocity": "velocities, each held for one step",
    "eef_pose": "absolute poses, rotation as {rotation}",
    "eef_delta pose": "per-step motions, rotation as {rotation}, composed onto the commanded pose",
    "eef_delta": "per-step motions, rotation as {rotation}, made velocities, each held for one step",
    "gripper": "absolute gripper targets",
    "base": "velocities vx vy wz, each held for one step",
}
"""Space (and output, where that matters) → what the node does with the columns, for the start log."""

NEEDED: Final = {
    "pose": ("max_linear_velocity", "max_angular_velocity", "workspace"),
    "twist": ("max_linear_velocity", "max_angular_velocity"),
    "twist_stamped": ("max_linear_velocity", "max_angular_velocity"),
}
"""Output of a group → the limits that it needs (`action.<group>.…`)."""
_EXAMPLES: Final = {
    "max_linear_velocity": "0.25",
    "max_angular_velocity": "0.5",
    "workspace": "[0.2, -0.4, 0.05, 0.7, 0.4, 0.6]",
    "max_velocity": "1.0",
}
_OFFSET_FREE: Final = ("joint_delta", "joint_velocity")  # differences: a shifted zero is none of theirs


class GroupedPolicy(Protocol):
    """What `describe` and `check_groups` read of a policy."""

    @property
    def not_positions(self) -> str: ...
    @property
    def state_groups(self) -> Mapping[str, int]: ...
    @property
    def action_names(self) -> Sequence[str] | None: ...


def columns(groups: Sequence[ActionGroup]) -> list[slice]:
    """Where each group lies in a row of the chunk, in their order."""
    ends = itertools.accumulate((len(group.names) for group in groups), initial=0)
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


@dataclass(frozen=True)
class GroupFields:
    """The groups of a chunk for its message: the columns are theirs, one after another."""

    names: tuple[str, ...]
    spaces: tuple[str, ...]
    widths: tuple[int, ...]


def group_fields(groups: Sequence[ActionGroup]) -> GroupFields:
    """What the message of a chunk says about its groups."""
    return GroupFields(
        names=tuple(group.name for group in groups),
        spaces=tuple(group.space for group in groups),
        widths=tuple(len(group.names) for group in groups),
    )


def describe(groups: Sequence[ActionGroup], policy: GroupedPolicy) -> list[str]:
    """R35: what the actions are taken for and how they go out, a line for each group, for the start log."""
    lines = [f"the checkpoint says of its actions: {policy.not_positions}"] if policy.not_positions else []
    for group, place in zip(groups, columns(groups), strict=True):
        width = place.stop - place.start
        frame = f" in frame {group.frame}" if group.frame else ""
        lines.append(
            f"group {group.name}: {group.space}, {width} column{'' if width == 1 else 's'} from "
            f"{place.start} on, {_meaning(group)}; out as {group.output} on {group.topic}{frame}"
        )
    return lines


def _meaning(group: ActionGroup) -> str:
    words = MEANINGS.get(f"{group.space} {group.output}") or MEANINGS[group.space]
    return words.format(rotation=group.rotation)


def absolute(rows: np.ndarray, start: np.ndarray) -> np.ndarray:
    """joint_delta: increments [H, J] → positions [H, J] for `JointMotion`.

    Row k is what step k adds to the step before it, row 0 to `start` [J], where the robot was at row 0: in
    the observation. So all rows are summed, those included that are past.
    """
    return np.asarray(start, dtype=np.float64) + np.cumsum(np.asarray(rows, dtype=np.float64), axis=0)


def action_units(config: NodeConfig) -> tuple[np.ndarray, np.ndarray]:
    """(scale [D], offset [D]) of the columns: robot's value = (action − offset) / scale.

    Increments and velocities have the scale of their joint only.
    """
    pairs = zip(config.action_groups, columns(config.action_groups), strict=True)
    differences = {
        column for group, place in pairs if group.space in _OFFSET_FREE for column in _range(place)
    }
    joints = config.action_joints
    scale = np.array([joint.scale for joint in joints])
    offset = np.array([0.0 if i in differences else joint.offset for i, joint in enumerate(joints)])
    return scale, offset


def _range(place: slice) -> range:
    return range(place.start, place.stop)


# ---- poses ----


def pose_source(group: ActionGroup, states: Sequence[StateGroup]) -> StateGroup | None:
    """The state group that says where the end effector of a group is: of its name, else the only one."""
    poses = [state for state in states if state.source in ("pose", "tf")]
    named = [state for state in poses if state.name == group.name]
    if named:
        return named[0]
    return poses[0] if len(poses) == 1 else None


def measured_pose(group: ActionGroup, states: Sequence[StateGroup], state: np.ndarray) -> np.ndarray | None:
    """The pose [7] of a group's end effector in a state [D]; None where the state does not hold it.

    Raises ValueError where its numbers are no rotation.
    """
    source = pose_source(group, states)
    if source is None:
        return None
    start = sum(len(other.elements) for other in states[: states.index(source)])
    pose = np.asarray(state[start : start + len(source.elements)], dtype=np.float64)  # [3 + k]
    turn = values_of(rotation_of(pose[3:], source.rotation), "quaternion")
    return np.concatenate([pose[:3], turn])


def check_poses(config: NodeConfig) -> None:
    """Raises ConfigError where a pose is commanded that nobody measures, or in another frame than measured.

    Its first chunk would be refused: where the motion begins is not known.
    """
    for group in config.action_groups:
        if group.output != "pose":
            continue
        source = pose_source(group, config.state_groups)
        if source is None:
            raise ConfigError(
                f"action group '{group.name}' goes out as poses, but no state group says where its end "
                f"effector is: write one named `{group.name}` with `state.{group.name}.source: tf` (or pose)"
            )
        if group.frame and source.frame and group.frame != source.frame:
            raise ConfigError(
                f"parameter 'action.{group.name}.frame' is '{group.frame}', but 'state.{source.name}.frame' "
                f"is '{source.frame}': a pose is commanded in the frame in which it is measured"
            )


# ---- what the checkpoint and the limits want ----


def check_groups(config: NodeConfig, policy: GroupedPolicy) -> None:
    """Match the groups that were declared with those of a checkpoint that has several (GR00T), in order.

    Raises ConfigError that lists both sides where names or widths differ.
    """
    states = [(group.name, len(group.elements)) for group in config.state_groups]
    actions = [(group.name, len(group.names)) for group in config.action_groups]
    _match("state_groups", states, policy.state_groups)
    _match("action_groups", actions, numbered_groups(policy.action_names or ()))


def _match(parameter: str, ours: list[tuple[str, int]], theirs: Mapping[str, int]) -> None:
    declared = [name for name, _ in ours] != [ALL]
    if not declared or len(theirs) < 2 or ours == list(theirs.items()):
        return
    raise ConfigError(
        f"parameter '{parameter}' has {_listed(ours)}; the checkpoint has {_listed(theirs.items())}, in this "
        "order (group: numbers)"
    )


def _listed(groups: Collection[tuple[str, int]]) -> str:
    return ", ".join(f"{name}: {width}" for name, width in groups)


def numbered_groups(names: Sequence[str]) -> dict[str, int]:
    """Names like arm.0, arm.1, hand.0 (as GR00T's actions have) → {arm: 2, hand: 1}; others → {}."""
    widths: dict[str, int] = {}
    for name in names:
        found = re.fullmatch(r"(.+)\.(\d+)", name)
        if found is None or int(found[2]) != widths.get(found[1], 0):
            return {}
        widths[found[1]] = int(found[2]) + 1
    return widths


def check_limits(config: NodeConfig, described: Collection[str] = ()) -> None:
    """R41: limits of what is no joint position must be given, as long as they are on.

    described: joints whose highest velocity the robot description gives. Raises ConfigError that lists
    everything that is missing.
    """
    missing = _missing_limits(config, described)
    if not config.limits or not missing:
        return
    examples = ", ".join(f"`{name}: {_EXAMPLES[name.rpartition('.')[2]]}`" for name in missing)
    raise ConfigError(
        f"limits are on and these are missing: {', '.join(missing)}. Write them, like {examples}, or "
        "`limits: false` to go without any"
    )


def _missing_limits(config: NodeConfig, described: Collection[str]) -> list[str]:
    speeds = {joint.name: joint.max_velocity for joint in config.action_joints}
    missing = []
    for group in config.action_groups:
        needed = NEEDED.get(group.output, ())
        missing += [f"action.{group.name}.{name}" for name in needed if getattr(group, name) in (None, ())]
        if group.space == "joint_velocity":
            bare = [name for name in group.names if speeds[name] is None and name not in described]
            missing += [f"joint.{name}.max_velocity" for name in bare]
    return missing
