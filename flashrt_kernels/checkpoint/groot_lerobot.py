# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The processing of a GR00T N1.7 policy that LeRobot saved: everything is in its two processor JSONs.

Two forms: tuned with the groups of an Isaac-GR00T checkpoint, or with a dataset's plain statistics. The
saved steps are what LeRobot runs, whatever config.json says. Source: lerobot
policies/groot/processor_groot.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flashrt_kernels.checkpoint.fields import Fields, listed, read_json
from flashrt_kernels.checkpoint.groot_groups import ActionGroup, StateGroup
from flashrt_kernels.checkpoint.groot_isaac import action_configs, relative_rule
from flashrt_kernels.checkpoint.groot_processing import (
    Gripper,
    GrootProcessing,
    action_group,
    camera_names,
    check_one_frame,
    joined_statistics,
    modality_keys,
    numbered,
    places,
    read_images,
    statistic,
)
from flashrt_kernels.checkpoint.normaliser import as_float32
from flashrt_kernels.checkpoint.tensors import read_all
from flashrt_kernels.errors import CheckpointError

PREPROCESSOR_FILE = "policy_preprocessor.json"
POSTPROCESSOR_FILE = "policy_postprocessor.json"
STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."
RENAME = "rename_observations_processor"
PACK, ENCODE = "groot_n1_7_pack_inputs_v1", "groot_n1_7_vlm_encode_v1"
DECODE, UNPACK = "groot_n1_7_action_decode_v1", "groot_action_unpack_unnormalize_v2"
_MOST = 100_000


@dataclass(frozen=True)
class _Steps:
    """The configs of the steps. `flat`: the statistics are those of whole vectors, in state files."""

    pack: Fields
    encode: Fields
    decode: Fields
    rename: Mapping[str, str]
    state_stats: Mapping[str, np.ndarray]
    action_stats: Mapping[str, np.ndarray]
    flat: bool


def read_lerobot_groot(
    folder: Path, config: Fields, embodiment: str | None, image_size: tuple[int, int] | None
) -> GrootProcessing:
    """config: of config.json. Raises `CheckpointError` naming file and key."""
    steps = _read_steps(folder)
    pack = steps.pack
    tag = pack.string("embodiment_tag")
    if embodiment not in (None, tag):
        raise pack.error("embodiment_tag", f"is {tag}, but the embodiment {embodiment} was asked for")
    if not pack.boolean("normalize_min_max", default=True):
        raise pack.error("normalize_min_max", "is false, expected true: GR00T's state is normalised")
    horizon = pack.integer("valid_action_horizon", 1, _MOST)
    horizon = min(horizon, config.integer("chunk_size", 1, _MOST, default=horizon))
    cameras, names = _cameras(config, steps)
    states, actions = _flat_groups(pack, steps) if steps.flat else _groups(pack, steps, horizon)
    decoded = sum(group.width for group in actions)
    action_dim = min(steps.decode.integer("env_action_dim", 0, _MOST, default=0) or decoded, decoded)
    gripper, gripper_dim = _gripper(steps, actions, action_dim)
    _check_state_width(config, sum(group.width for group in states))
    return GrootProcessing(
        embodiment=tag,
        embodiment_index=pack.child("embodiment_mapping").integer(tag, 0, _MOST, default=0),
        cameras=cameras,
        camera_names=names,
        state_groups=states,
        action_groups=actions,
        action_dim=action_dim,
        action_names=None if steps.flat else numbered(actions)[:action_dim],
        horizon=horizon,
        formalise=pack.boolean("formalize_language", default=True),
        images=read_images(steps.encode, image_size),
        state_stats={name: as_float32(value) for name, value in steps.state_stats.items()},
        action_stats=_action_stats(steps, actions, action_dim),
        gripper=gripper,
        gripper_dim=gripper_dim,
    )


def _read_steps(folder: Path) -> _Steps:
    before = _named(folder / PREPROCESSOR_FILE, (RENAME, "to_batch_processor", PACK, ENCODE))
    after = _named(folder / POSTPROCESSOR_FILE, (DECODE, UNPACK))
    for file, steps, wanted in (
        (PREPROCESSOR_FILE, before, (PACK,)),
        (PREPROCESSOR_FILE, before, (ENCODE,)),
        (POSTPROCESSOR_FILE, after, (DECODE, UNPACK)),
    ):
        if not any(name in steps for name in wanted):
            lacking, have = " or ".join(wanted), listed(list(steps)) or "nothing"
            raise CheckpointError(f"{folder / file}: steps lacks {lacking}; it has {have}")
    flat = DECODE not in after
    decode = after[UNPACK if flat else DECODE]
    return _Steps(
        pack=before[PACK].child("config"),
        encode=before[ENCODE].child("config"),
        decode=decode.child("config"),
        rename=_renames(before[RENAME].child("config")) if RENAME in before else {},
        state_stats=_state_file(folder, before[PACK], STATE),
        action_stats=_state_file(folder, decode, ACTION) if flat else {},
        flat=flat,
    )


def _renames(config: Fields) -> dict[str, str]:
    """Observation key of the robot → key of the policy."""
    renames = config.child("rename_map", default={})
    return {name: renames.string(name) for name in renames}


def _named(path: Path, known: tuple[str, ...]) -> dict[str, Fields]:
    """Step name → step. Refuses steps that change something in a way that is not repeated here."""
    steps: dict[str, Fields] = {}
    for step in read_json(path).children("steps"):
        name = step.string(
            "registry_name", default=str(step.string("class", default="a step without registry_name"))
        )
        if name == "device_processor":
            continue
        if name not in known or name in steps:
            raise step.error(
                "registry_name", f"is {name}, expected each of {listed(list(known))} at most once"
            )
        steps[name] = step
    placed = list(steps)
    if placed != [name for name in known if name in steps]:
        raise CheckpointError(
            f"{path}: steps are in the order {listed(placed)}, expected {listed(list(known))}"
        )
    return steps


def _state_file(folder: Path, step: Fields, feature: str) -> dict[str, np.ndarray]:
    """Statistic → float64 values of a feature; the file's keys are `<feature>.<statistic>`."""
    name = step.string("state_file", default="")
    if not name or Path(name).name != name:
        raise step.error(
            "state_file",
            f"is {name!r}, expected the plain name of the file with the statistics of {feature}",
        )
    stats = {}
    for key, tensor in read_all(folder / name).items():
        owner, _, statistic_name = key.rpartition(".")
        if owner == feature:
            values = tensor.double().numpy()
            if not np.isfinite(values).all():
                raise CheckpointError(f"{folder / name}: {key} holds NaN or infinity")
            stats[statistic_name] = values
    missing = [f"{feature}.{bound}" for bound in ("min", "max") if bound not in stats]
    if missing:
        raise CheckpointError(
            f"{folder / name}: {listed(missing)} missing; the file has {listed(list(stats))}"
        )
    return stats


def _cameras(config: Fields, steps: _Steps) -> tuple[tuple[str, ...], dict[str, str]]:
    """Slots in the model's order, and other names for them."""
    if steps.pack.given("video_modality_keys"):
        cameras = steps.pack.strings("video_modality_keys") or ()
        names = camera_names(cameras)
    else:  # LeRobot sorts what it finds
        features = config.child("input_features")
        cameras = tuple(sorted(name for name in features if features.child(name).string("type") == "VISUAL"))
        names = {}
        for camera in cameras:
            last = camera.removeprefix(IMAGES)
            names |= {last: camera, f"video.{last}": camera}
    if not cameras or len(set(cameras)) != len(cameras):
        raise steps.pack.error(
            "video_modality_keys", f"gives the cameras {list(cameras)}, expected distinct ones"
        )
    for robot, policy in steps.rename.items():
        slot = names.get(policy, policy)
        if slot in cameras:
            names[robot] = slot
    return cameras, names


def _bounds(stats: Mapping[str, np.ndarray], fields: Fields, feature: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = stats["min"], stats["max"]
    if low.ndim != 1 or low.shape != high.shape or (high < low).any():
        raise fields.error(
            "stats",
            f"of {feature} has min {list(low.shape)} and max {list(high.shape)}, expected two rows of one "
            "length, none of max below its min",
        )
    return low, high - low


def _state_slices(pack: Fields, steps: _Steps, widths: Sequence[tuple[str, int]]) -> tuple[StateGroup, ...]:
    """Groups of the state; LeRobot normalises it with the numbers of the state file, the groups' joined."""
    low, span = _bounds(steps.state_stats, pack, STATE)
    if sum(width for _, width in widths) != len(low):
        raise pack.error(
            "raw_stats.state",
            f"has groups of {[width for _, width in widths]} numbers, but {STATE}.min has {len(low)}",
        )
    clip = pack.boolean("clip_outliers", default=True)
    groups, start = [], 0
    for name, width in widths:
        place = slice(start, start + width)
        groups.append(StateGroup(name, "range", low[place], span[place], span[place] == 0, clip))
        start += width
    return tuple(groups)


def _flat_groups(pack: Fields, steps: _Steps) -> tuple[tuple[StateGroup, ...], tuple[ActionGroup, ...]]:
    states = _state_slices(pack, steps, [("state", len(steps.state_stats["min"].reshape(-1)))])
    offset, span = _bounds(steps.action_stats, steps.decode, ACTION)
    if not steps.decode.boolean("clip_normalized_action", default=False):
        raise steps.decode.error("clip_normalized_action", "is false, expected true as GR00T decodes")
    return states, (ActionGroup("action", "range", offset, span),)


def _groups(
    pack: Fields, steps: _Steps, horizon: int
) -> tuple[tuple[StateGroup, ...], tuple[ActionGroup, ...]]:
    decode = steps.decode
    modality, statistics = decode.child("modality_config"), decode.child("raw_stats")
    for name in ("video", "state"):
        if modality.given(name):
            check_one_frame(modality.child(name))
    own = statistics.child("state")
    widths = [
        (name, statistic(own.child(name), "min").shape[-1]) for name in modality_keys(modality.child("state"))
    ]
    states = _state_slices(pack, steps, widths)
    enabled = decode.boolean("use_relative_action", default=False)
    percentiles = decode.boolean("use_percentiles", default=False)
    groups = []
    for name, config in action_configs(modality.child("action")):
        relative = relative_rule(config, name) if enabled and config is not None else None
        groups.append(action_group(statistics, name, "range", percentiles, relative, places(states), horizon))
    return states, tuple(groups)


def _action_stats(steps: _Steps, actions: Sequence[ActionGroup], action_dim: int) -> dict[str, np.ndarray]:
    if steps.flat:
        joined = {name: value for name, value in steps.action_stats.items() if value.ndim == 1}
    else:
        own = steps.decode.child("raw_stats").child("action")
        joined = dict(joined_statistics(own, [group.name for group in actions]))
    return {name: as_float32(value[:action_dim]) for name, value in joined.items()}


def _gripper(steps: _Steps, actions: Sequence[ActionGroup], action_dim: int) -> tuple[Gripper | None, int]:
    """LIBERO's sign convention: (rule, which action)."""
    if steps.flat:
        if not steps.decode.boolean("libero_gripper_action", default=False) or action_dim < 7:
            return None, -1
        sign = steps.decode.boolean("libero_gripper_binarize", default=True)
        return ("sign" if sign else "mirrored"), action_dim - 1
    if not steps.decode.given("action_decode_transform"):
        return None, -1
    steps.decode.string("action_decode_transform", choices=("libero",))
    start = 0
    for group in actions:
        if group.name == "gripper" and group.width == 1 and start < action_dim:
            return "sign", start
        start += group.width
    raise steps.decode.error(
        "action_decode_transform", "is libero, which expects an action group gripper of one number"
    )


def _check_state_width(config: Fields, width: int) -> None:
    features = config.child("input_features", default={})
    if STATE not in features:
        return
    shape = features.child(STATE).integers("shape")
    if shape != (width,):
        raise features.error(STATE, f"has shape {list(shape)}, but the statistics have {width} numbers")
