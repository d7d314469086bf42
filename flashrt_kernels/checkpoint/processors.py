# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""LeRobot's pre- and post-processor JSONs: the steps that inference repeats, read strictly.

LeRobot runs the saved steps, whatever config.json says; so do we: where both hold a value, the step wins and
`notes` says so. Source of the rules: lerobot 0.6.1 (and 0.4.4, whose files have no relative-action steps).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.config import ACTION, CONFIG_FILE, STATE, check_action_names
from flashrt_kernels.checkpoint.fields import Fields, listed, read_json
from flashrt_kernels.checkpoint.normaliser import MODES, Floats, Normaliser, make_normaliser
from flashrt_kernels.checkpoint.tensors import read_all
from flashrt_kernels.errors import CheckpointError

PREPROCESSOR_FILE = "policy_preprocessor.json"
POSTPROCESSOR_FILE = "policy_postprocessor.json"
_MODES = tuple(MODES)


class Sizes(Protocol):
    """What config.json says about the data that the steps handle."""

    @property
    def state_dim(self) -> int: ...
    @property
    def action_dim(self) -> int: ...
    @property
    def action_names(self) -> tuple[str, ...] | None: ...
    @property
    def tokenizer_max_length(self) -> int: ...


@dataclass(frozen=True)
class StepRule:
    """A step that may stand in a pipeline, in the order in which the steps must stand."""

    name: str
    required: bool = False


_FIRST = (StepRule("rename_observations_processor"), StepRule("to_batch_processor"))
_NORMALISE = (StepRule("relative_actions_processor"), StepRule("normalizer_processor", required=True))
_TOKENISE = StepRule("tokenizer_processor", required=True)
_DEVICE = StepRule("device_processor")
_AFTER = (
    StepRule("unnormalizer_processor", required=True),
    StepRule("absolute_actions_processor"),
    _DEVICE,
)


@dataclass(frozen=True)
class Pipelines:
    """The steps of one policy type. paddings: of the prompt, as far as they do not change what it says."""

    pre: tuple[StepRule, ...]
    post: tuple[StepRule, ...]
    paddings: tuple[str, ...] = ("max_length",)


PIPELINES: dict[str, Pipelines] = {
    "pi05": Pipelines(
        pre=(
            *_FIRST,
            *_NORMALISE,
            StepRule("pi05_prepare_state_tokenizer_processor_step", required=True),
            _TOKENISE,
            _DEVICE,
        ),
        post=_AFTER,
    ),
    "pi0": Pipelines(
        pre=(
            *_FIRST,
            StepRule("pi0_new_line_processor", required=True),
            _TOKENISE,
            _DEVICE,
            *_NORMALISE,
        ),
        post=_AFTER,
    ),
    "pi0_fast": Pipelines(
        pre=(
            *_FIRST,
            *_NORMALISE,
            StepRule("pi0_fast_prepare_state_tokenizer_processor_step", required=True),
            _TOKENISE,
            StepRule("action_tokenizer_processor"),  # makes targets for training
            _DEVICE,
        ),
        post=_AFTER,
    ),
    "smolvla": Pipelines(
        pre=(
            *_FIRST,
            StepRule("smolvla_new_line_processor", required=True),
            _TOKENISE,
            _DEVICE,
            StepRule("normalizer_processor", required=True),
        ),
        post=(StepRule("unnormalizer_processor", required=True), _DEVICE),
        paddings=("max_length", "longest"),
    ),
}


@dataclass(frozen=True)
class Processors:
    """What inference repeats of both pipelines."""

    state_norm: Normaliser
    action_norm: Normaliser
    relative_action_mask: NDArray[np.bool_] | None  # [D]; True: the model predicts an offset to the state
    rename_map: Mapping[str, str]  # observation key of the robot → key of the policy
    tokenizer_max_length: int
    action_names: tuple[str, ...] | None
    old: bool  # LeRobot 0.4 wrote them
    notes: tuple[str, ...] = field(default=())


def read_processors(folder: Path, policy_type: str, config: Sizes) -> Processors:
    """Both pipelines of `folder`. Raises `CheckpointError` naming file and key."""
    rules = PIPELINES[policy_type]
    pre = _read_steps(folder / PREPROCESSOR_FILE, rules.pre)
    post = _read_steps(folder / POSTPROCESSOR_FILE, rules.post)
    notes: list[str] = []
    mask, names = _relative_actions(pre, post, config, notes)
    return Processors(
        state_norm=_state_normaliser(folder, pre["normalizer_processor"], config, notes),
        action_norm=_feature_normaliser(
            folder, post["unnormalizer_processor"], ACTION, "ACTION", config.action_dim
        ),
        relative_action_mask=mask,
        rename_map=_rename_map(pre),
        tokenizer_max_length=_max_length(pre["tokenizer_processor"], config, rules.paddings, notes),
        action_names=names,
        old="relative_actions_processor" not in pre,
        notes=tuple(notes),
    )


def _read_steps(path: Path, rules: tuple[StepRule, ...]) -> dict[str, Fields]:
    """Step name → the step. Refuses unknown, repeated, missing and misplaced steps."""
    order = [rule.name for rule in rules]
    steps: dict[str, Fields] = {}
    for step in read_json(path).children("steps"):
        # Custom steps carry their Python class instead of a registered name.
        name = step.string(
            "registry_name", default=str(step.string("class", default="a step without registry_name"))
        )
        if name not in order:
            raise step.error(
                "registry_name", f"is {name}, a step that this policy does not know; known: {listed(order)}"
            )
        if name in steps:
            raise step.error("registry_name", f"is {name} for the second time, expected one such step")
        steps[name] = step
    missing = [rule.name for rule in rules if rule.required and rule.name not in steps]
    if missing:
        raise CheckpointError(
            f"{path}: steps lacks {listed(missing)}; it has {listed(list(steps)) or 'nothing'}"
        )
    # Where the data is moved to another device does not change its values.
    placed = [name for name in steps if name != "device_processor"]
    if placed != [name for name in order if name in placed]:
        raise CheckpointError(f"{path}: steps are in the order {listed(placed)}, expected {listed(order)}")
    return steps


def _rename_map(steps: Mapping[str, Fields]) -> dict[str, str]:
    step = steps.get("rename_observations_processor")
    if step is None:
        return {}
    renames = step.child("config").child("rename_map")
    return {name: renames.string(name) for name in renames}


def _state_normaliser(folder: Path, step: Fields, config: Sizes, notes: list[str]) -> Normaliser:
    settings = step.child("config")
    norm_map = settings.child("norm_map")
    visual = norm_map.string("VISUAL", choices=_MODES, default="IDENTITY")
    if visual != "IDENTITY":
        raise norm_map.error(
            "VISUAL", f"is {visual}, expected IDENTITY: this policy's images are scaled to [-1, 1]"
        )
    only = settings.strings("normalize_observation_keys", default=None)
    if only is not None and STATE not in only:
        notes.append(f"{step.file.name}: normalize_observation_keys leaves {STATE} as it is")
        return make_normaliser(step.file, STATE, "IDENTITY", {}, config.state_dim, 0.0)
    return _feature_normaliser(folder, step, STATE, "STATE", config.state_dim)


def _feature_normaliser(
    folder: Path, step: Fields, feature: str, feature_type: str, width: int
) -> Normaliser:
    """The normaliser of `feature` from the state file that the step names (its name differs by release)."""
    settings = step.child("config")
    _check_feature(settings.child("features"), feature, feature_type, width)
    # LeRobot passes silently what has no mode or no statistics; a robot deserves an error.
    mode = settings.child("norm_map").string(feature_type, choices=_MODES)
    epsilon = settings.positive("eps")
    if mode == "IDENTITY" and "state_file" not in step:
        return make_normaliser(step.file, feature, mode, {}, width, epsilon)
    name = step.string("state_file", default="")
    if not name:
        raise step.error("state_file", f"is missing, expected the file with the statistics of {feature}")
    if Path(name).name != name:
        raise step.error(
            "state_file", f"is {name}, expected the plain name of a file in the checkpoint folder"
        )
    path = folder / name
    return make_normaliser(path, feature, mode, _statistics(path, feature), width, epsilon)


def _check_feature(features: Fields, feature: str, feature_type: str, width: int) -> None:
    entry = features.child(feature)
    entry.string("type", choices=(feature_type,))
    shape = entry.integers("shape")
    if shape != (width,):
        raise entry.error("shape", f"is {list(shape)}, expected [{width}] as in {CONFIG_FILE}")


def _statistics(path: Path, feature: str) -> dict[str, Floats]:
    """Statistic name → float32 values of one feature; the file's keys are `<feature>.<statistic>`."""
    stats = {}
    for key, tensor in read_all(path).items():
        name, _, statistic = key.rpartition(".")
        if name == feature:
            stats[statistic] = tensor.to(torch.float32).numpy().copy()
    return stats


def _max_length(step: Fields, config: Sizes, paddings: tuple[str, ...], notes: list[str]) -> int:
    settings = step.child("config")
    settings.string("padding_side", choices=("right",))
    settings.string("padding", choices=paddings)
    settings.string("task_key", choices=("task",), default="task")
    if not settings.boolean("truncation", default=True):
        raise settings.error("truncation", "is false, expected true: the prompt has a fixed length")
    length = settings.integer("max_length", 1, 100_000)
    if length != config.tokenizer_max_length:
        notes.append(
            f"{step.file.name}: {settings.path('max_length')} = {length} is used, not tokenizer_max_length = "
            f"{config.tokenizer_max_length} of {CONFIG_FILE}"
        )
    return length


def _relative_actions(
    pre: Mapping[str, Fields], post: Mapping[str, Fields], config: Sizes, notes: list[str]
) -> tuple[NDArray[np.bool_] | None, tuple[str, ...] | None]:
    """(mask [D] or None, action names)."""
    relative, absolute = pre.get("relative_actions_processor"), post.get("absolute_actions_processor")
    enabled = relative is not None and relative.child("config").boolean("enabled")
    undone = absolute is not None and absolute.child("config").boolean("enabled")
    if enabled != undone:
        folder = next(iter(post.values())).file.parent
        raise CheckpointError(
            f"{folder}: relative_actions_processor of {PREPROCESSOR_FILE} has enabled = {enabled}, "
            f"absolute_actions_processor of {POSTPROCESSOR_FILE} has enabled = {undone}; expected both alike"
        )
    if relative is None:
        return None, config.action_names
    settings = relative.child("config")
    names = settings.strings("action_names", default=None)
    check_action_names(relative.file, settings.path("action_names"), names, config.action_dim)
    excluded = settings.strings("exclude_joints", default=None) or ()
    shown_names = names or config.action_names
    if not enabled:
        return None, shown_names
    if config.state_dim < config.action_dim:
        raise CheckpointError(
            f"{relative.file}: {settings.path('enabled')} is true, but {STATE} has {config.state_dim} "
            f"dimensions and {ACTION} {config.action_dim}; expected a state at least as wide as the action"
        )
    if excluded and names is None:
        notes.append(
            f"{relative.file.name}: exclude_joints ({listed(excluded)}) has no effect without action_names"
        )
    return relative_mask(config.action_dim, names, excluded), shown_names


def relative_mask(
    action_dim: int, names: tuple[str, ...] | None, excluded: tuple[str, ...]
) -> NDArray[np.bool_]:
    """[action_dim]; False where an excluded word is part of the name, in any case. No names: all True."""
    if names is None:
        return np.ones(action_dim, np.bool_)
    words = [word.lower() for word in excluded if word]
    return np.array([not any(word in name.lower() for word in words) for name in names], np.bool_)
