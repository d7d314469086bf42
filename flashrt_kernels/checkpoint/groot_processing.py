# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a GR00T checkpoint does to a robot's numbers, and the parts of it that both kinds of folders share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from flashrt_kernels.checkpoint.checkpoint import Floats
from flashrt_kernels.checkpoint.fields import Fields, listed
from flashrt_kernels.checkpoint.groot_groups import (
    POSE_WIDTH,
    ActionGroup,
    ActionRule,
    Doubles,
    StateGroup,
    StateRule,
)
from flashrt_kernels.checkpoint.normaliser import as_float32

STATISTICS = ("mean", "std", "min", "max", "q01", "q99")
_LONGEST = 100_000
Gripper = Literal["sign", "mirrored"]


@dataclass(frozen=True)
class GrootImages:
    """How pictures reach the vision tower, as processor_config.json says it; sizes are (height, width).

    target_size, crop_size, shortest_edge: there image_target_size, image_crop_size, shortest_image_edge.
    albumentations, letter_box: there use_albumentations, letter_box_transform.

    camera_size: of every camera, where the tower's grid follows the camera's aspect ratio; None: a square.
    """

    target_size: tuple[int, int] | None = None
    crop_size: tuple[int, int] | None = None
    shortest_edge: int | None = None
    crop_fraction: float | None = None
    albumentations: bool = False
    letter_box: bool = False
    camera_size: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class GrootProcessing:
    """Everything between a robot and the model, for one embodiment.

    horizon: actions of a chunk that mean something. formalise: instructions are lower-cased and lose their
    punctuation. gripper: the action group `gripper`, g in 0 … 1, leaves as −sign(2g − 1) (`sign`) or
    −(2g − 1) (`mirrored`). action_dim: the first so many numbers of the decoded groups.
    """

    embodiment: str
    embodiment_index: int
    cameras: tuple[str, ...]
    camera_names: Mapping[str, str]
    state_groups: tuple[StateGroup, ...]
    action_groups: tuple[ActionGroup, ...]
    action_dim: int
    action_names: tuple[str, ...] | None
    horizon: int
    formalise: bool
    images: GrootImages
    state_stats: Mapping[str, Floats]
    action_stats: Mapping[str, Floats]
    gripper: Gripper | None = None
    gripper_dim: int = -1
    not_positions: str = ""
    notes: tuple[str, ...] = field(default=())


def read_images(fields: Fields, camera_size: tuple[int, int] | None) -> GrootImages:
    """The settings under their names in Isaac-GR00T's processor_config.json, LeRobot's included."""

    def pair(name: str) -> tuple[int, int] | None:
        if not fields.given(name):
            return None
        height, width = fields.integers(name, count=2)
        return height, width

    fraction = fields.positive("crop_fraction") if fields.given("crop_fraction") else None
    if fraction is not None and fraction > 1:
        raise fields.error("crop_fraction", f"is {fraction}, expected at most 1")
    return GrootImages(
        target_size=pair("image_target_size"),
        crop_size=pair("image_crop_size"),
        shortest_edge=fields.integer("shortest_image_edge", 1, _LONGEST)
        if fields.given("shortest_image_edge")
        else None,
        crop_fraction=fraction,
        albumentations=fields.boolean("use_albumentations", default=False),
        letter_box=fields.boolean("letter_box_transform", default=False),
        camera_size=camera_size,
    )


def camera_names(cameras: Sequence[str]) -> dict[str, str]:
    """Names that a robot may use → slot, for slots named by the bare name of a view."""
    names = {}
    for camera in cameras:
        for prefix in ("video.", "observation.images."):
            names[prefix + camera] = camera
    return names


def modality_keys(modality: Fields) -> tuple[str, ...]:
    """The groups or views of a modality in order. Raises `CheckpointError` for none, or one twice."""
    keys = modality.strings("modality_keys") or ()
    if not keys or len(set(keys)) != len(keys):
        raise modality.error("modality_keys", f"is {list(keys)}, expected distinct names, at least one")
    return keys


def check_one_frame(modality: Fields) -> None:
    """Only the present observation is looked at. Raises `CheckpointError` for a modality with a history."""
    if modality.given("delta_indices") and modality.array("delta_indices").tolist() != [0]:
        came = modality.array("delta_indices").tolist()
        raise modality.error(
            "delta_indices", f"is {came}, expected [0]: a history of observations is not kept"
        )


def statistic(group: Fields, name: str, shape: tuple[int, ...] | None = None) -> Doubles:
    """[D] or, one row per action of a chunk, [T, D]; of the given shape unless None."""
    values = group.array(name)
    if values.size == 0 or (shape is not None and values.shape != shape):
        expected = (
            f"[{', '.join(map(str, shape))}] as the other statistics" if shape else "at least one number"
        )
        raise group.error(name, f"has shape {list(values.shape)}, expected {expected}")
    return values


def bounds(group: Fields, low: str, high: str) -> tuple[Doubles, Doubles]:
    """(lowest values, spans). Raises `CheckpointError` where a bound is below its lower one."""
    first = statistic(group, low)
    span = statistic(group, high, first.shape) - first
    if (span < 0).any():
        where = listed([str(i) for i in np.flatnonzero((span < 0).reshape(-1, span.shape[-1]).any(0))])
        raise group.error(high, f"is below {low} in dimension(s) {where}")
    return first, span


def moments(group: Fields) -> tuple[Doubles, Doubles]:
    """(mean, deviation)."""
    mean = statistic(group, "mean")
    deviation = statistic(group, "std", mean.shape)
    if (deviation < 0).any():
        raise group.error("std", "is negative, expected standard deviations")
    return mean, deviation


def state_group(group: Fields, name: str, rule: StateRule, low: str, high: str, clip: bool) -> StateGroup:
    """A group of the state after Isaac-GR00T, which takes a span for empty that np.isclose does."""
    if rule == "mean_std":
        offset, span = moments(group)
        empty = span == 0
    else:
        offset, span = bounds(group, low, high)
        empty = np.isclose(offset + span, offset)
    if offset.ndim != 1:
        raise group.error(low, f"has shape {list(offset.shape)}, expected one row")
    return StateGroup(name, rule, offset, span, empty, clip)


def action_group(
    statistics: Fields,
    name: str,
    rule: ActionRule,
    percentiles: bool,
    relative: tuple[str, bool] | None,
    states: Mapping[str, slice],
    horizon: int,
) -> ActionGroup:
    """A group of the actions.

    relative: (state group of the reference, whether both are poses); its statistics are those of
    `relative_action`, always minimum and maximum. states: where each state group lies. Raises
    `CheckpointError` where the reference is missing or of another width, or rows of statistics are.
    """
    width = statistic(statistics.child("action").child(name), "min").shape[-1]
    if relative is None:
        group = statistics.child("action").child(name)
        low, high = ("q01", "q99") if percentiles else ("min", "max")
    else:
        group, low, high = statistics.child("relative_action").child(name), "min", "max"
    offset, span = moments(group) if rule == "mean_std" else bounds(group, low, high)
    if offset.shape[-1] != width or (offset.ndim == 2 and len(offset) < horizon):
        raise group.error(
            low, f"has shape {list(offset.shape)}, expected [{width}] or at least {horizon} rows of that"
        )
    if relative is None:
        return ActionGroup(name, rule, offset, span)
    reference, pose = relative
    if reference not in states:
        raise group.error(
            low,
            f"is relative to the state group {reference}, but the state has {listed(list(states))}",
        )
    place = states[reference]
    if place.stop - place.start != width or (pose and width != POSE_WIDTH):
        wanted = f"{POSE_WIDTH}, a pose" if pose else str(width)
        raise group.error(
            low,
            f"is {width} wide and its reference, the state group {reference}, {place.stop - place.start}; "
            f"expected both to be {wanted}",
        )
    return ActionGroup(name, rule, offset, span, place, pose)


def places(groups: Sequence[StateGroup]) -> dict[str, slice]:
    """State group → its numbers in the state of the robot."""
    found, start = {}, 0
    for group in groups:
        found[group.name] = slice(start, start + group.width)
        start += group.width
    return found


def numbered(groups: Sequence[ActionGroup]) -> tuple[str, ...]:
    """Action names: `<group>.<i>`."""
    return tuple(f"{group.name}.{i}" for group in groups for i in range(group.width))


def joined_statistics(modality: Fields, groups: Sequence[str]) -> dict[str, Floats]:
    """Statistic → values of all groups one after another, where every group has them as one row."""
    joined = {}
    for name in STATISTICS:
        if all(modality.child(group).given(name) for group in groups):
            rows = [modality.child(group).array(name) for group in groups]
            if all(row.ndim == 1 for row in rows):
                joined[name] = as_float32(np.concatenate(rows))
    return joined
