# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What openpi's checkpoints have in common, whichever framework trained them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flashrt_kernels.checkpoint.config import (
    IMAGES,
    LONGEST,
    MAX_PERIOD,
    MIN_PERIOD,
    PolicyConfig,
)
from flashrt_kernels.checkpoint.dims import ModelDims
from flashrt_kernels.checkpoint.fast import read_actions
from flashrt_kernels.checkpoint.openpi_rules import KINDS, TRAININGS, WITHOUT_STATE, Kind, Training, bool_mask
from flashrt_kernels.checkpoint.openpi_statistics import Statistics, read_statistics
from flashrt_kernels.checkpoint.options import Options
from flashrt_kernels.checkpoint.pi import PiCheckpoint, PromptRule
from flashrt_kernels.checkpoint.robot_units import ALOHA_JOINTS, AlohaUnits, RobotUnits
from flashrt_kernels.checkpoint.tensors import Unscanned
from flashrt_kernels.checkpoint.tokenizer import check_vocabulary, find_tokenizer, load_tokenizer
from flashrt_kernels.errors import CheckpointError

_STEPS = 10


@dataclass(frozen=True, eq=False)
class Found:
    """What the weights of a folder say. horizon: None where no file says it. variants: of VLM and expert."""

    folder: Path
    origin: str
    policy_type: str
    dims: ModelDims
    action_width: int | None  # padded; None where actions are text
    horizon: int | None
    variants: tuple[str, str | None]


# Called once everything else is known to fit.
Weights = Callable[[], tuple[Mapping[str, Tensor], Unscanned | None]]


def assemble(found: Found, options: Options, weights: Weights) -> PiCheckpoint:
    """The checkpoint, from what its weights and the user say and from openpi's own rules.

    Raises `CheckpointError` naming file, key or option.
    """
    kind, dims = KINDS[found.policy_type], found.dims
    if kind.fast is None:
        options.refuse_fast_tokenizer(found.folder, found.policy_type)
    statistics = read_statistics(found.folder, options.embodiment, kind.statistics)
    training = TRAININGS.get((found.policy_type, statistics.asset))
    notes = list(statistics.notes)
    horizon = _horizon(found, kind, training, options, notes)
    config = _config(found, kind, statistics, (training and training.cameras) or kind.cameras, horizon)
    prompt = _prompt(found, kind, training, options, notes)
    mask = _delta_mask(found.folder, config, training, options, notes)
    units = _units(found.folder, config, training, options, notes)
    names = training.camera_names if training else {}
    text = load_tokenizer(find_tokenizer(found.folder, options.tokenizer))
    check_vocabulary(text, found.folder, dims.vocab)
    fast = kind.fast
    actions = words = None
    if fast is not None:
        actions, words = read_actions(found.folder, options.fast_tokenizer, text, fast.skip_tokens)
    tensors, unscanned = weights()
    return PiCheckpoint(
        folder=found.folder,
        origin=found.origin,
        policy_type=found.policy_type,
        cameras=config.cameras,
        camera_names={name: IMAGES + slot for name, slot in names.items()},
        state_name="state",
        state_dim=config.state_dim,
        action_dim=config.action_dim,
        horizon=config.chunk_size,
        denoising_steps=config.num_inference_steps,
        action_names=None,
        not_positions=training.not_positions if training else "",
        tensors=tensors,
        unscanned=unscanned,
        notes=tuple(notes),
        config=config,
        dims=dims,
        tokenizer=text,
        state_norm=statistics.state,
        action_norm=statistics.actions,
        relative_action_mask=mask,
        prompt=prompt,
        time="accumulated",
        image_filter="antialias",
        camera_rule=kind.camera_rule,
        fast=actions,
        action_tokens=words,
        decoding=kind.decoding,
        fast_skip_tokens=fast.skip_tokens if fast else 0,
        max_decoding_steps=fast.max_decoding_steps if fast else 0,
        units=units,
    )


def _config(
    found: Found, kind: Kind, statistics: Statistics, cameras: Sequence[str], horizon: int
) -> PolicyConfig:
    state_dim, action_dim = len(statistics.state.offset), len(statistics.actions.offset)
    width = found.action_width
    for what, count in (("state", state_dim), ("actions", action_dim)):
        if width is not None and count > width and (what == "actions" or not kind.prompt.state):
            raise CheckpointError(
                f"{found.folder}: the statistics of asset {statistics.asset} are of {count} {what}, expected "
                f"at most {width}, the width of the policy"
            )
    size = found.dims.vision.image_size
    return PolicyConfig(
        chunk_size=horizon,
        n_action_steps=horizon,
        max_state_dim=width or state_dim,
        max_action_dim=width or action_dim,
        num_inference_steps=None if kind.fast else _STEPS,
        image_resolution=(size, size),
        tokenizer_max_length=kind.tokens,
        min_period=MIN_PERIOD,
        max_period=MAX_PERIOD,
        empty_cameras=0,
        cameras=tuple(IMAGES + name for name in cameras),
        state_dim=state_dim,
        action_dim=action_dim,
        action_names=None,
        paligemma_variant=found.variants[0],
        action_expert_variant=found.variants[1],
        dtype="float32",
        fast=kind.fast,
    )


def _horizon(found: Found, kind: Kind, training: Training | None, options: Options, notes: list[str]) -> int:
    given = options.chunk_size
    if given is not None and not 1 <= given <= LONGEST:
        raise CheckpointError(f"{found.folder}: chunk_size is {given}, expected 1 to {LONGEST}")
    if found.horizon is not None:
        if given not in (None, found.horizon):
            raise CheckpointError(
                f"{found.folder}: chunk_size is {given}, but config.json says action_horizon = "
                f"{found.horizon}"
            )
        return found.horizon
    if given is not None:
        return given
    horizon = training.horizon if training else kind.horizon
    notes.append(
        f"no file says how many actions a chunk has: {horizon} as in openpi's configuration; chunk_size = N "
        f"if it was trained with others"
    )
    return horizon


def _prompt(
    found: Found, kind: Kind, training: Training | None, options: Options, notes: list[str]
) -> PromptRule:
    given = options.state_in_prompt
    if found.policy_type != "pi05":
        if given not in (None, kind.prompt.state):
            raise CheckpointError(
                f"{found.folder}: state_in_prompt is {given}, expected {kind.prompt.state} as always with "
                f"{found.policy_type}"
            )
        return kind.prompt
    if given is None and training and training.state_in_prompt is not None:
        given = training.state_in_prompt
        notes.append(
            f"state_in_prompt = {given}, as openpi trains with this asset (discrete_state_input); no file "
            f"says it"
        )
    return kind.prompt if given in (None, True) else WITHOUT_STATE


def _delta_mask(
    folder: Path, config: PolicyConfig, training: Training | None, options: Options, notes: list[str]
) -> NDArray[np.bool_] | None:
    """[action_dim]; None where no action is an offset."""
    given, most = options.delta_actions, min(config.action_dim, config.state_dim)
    if given is None:
        given = training.delta_actions if training else None
        usual = None if given is None else bool_mask(given)
        if given is None or usual is None or len(usual) > most:
            notes.append(
                "no file says which actions are offsets to the state: none is; delta_actions = 6,-1 would "
                "mean the first 6, but not the next"
            )
            return None
        notes.append(
            f"delta_actions = {given}, as openpi trains with this asset: these actions are offsets to the "
            f"state; no file says it, and -{config.action_dim} would mean that none is"
        )
    mask = bool_mask(given)
    if mask is None or len(mask) > most:
        raise CheckpointError(
            f"{folder}: delta_actions is {given!r}, expected counts joined by commas, "
            f"negative ones for actions that are no offsets, of at most {config.action_dim} actions and "
            f"{config.state_dim} numbers of the state"
        )
    padded = np.zeros(config.action_dim, np.bool_)
    padded[: len(mask)] = mask
    return padded if padded.any() else None


def _units(
    folder: Path, config: PolicyConfig, training: Training | None, options: Options, notes: list[str]
) -> RobotUnits:
    """ALOHA's, where the user says so or else where openpi trains with this asset so."""
    given, widths = options.adapt_to_pi, (config.state_dim, config.action_dim)
    fits = widths == (ALOHA_JOINTS, ALOHA_JOINTS)
    if given and not fits:
        raise CheckpointError(
            f"{folder}: adapt_to_pi is True, but the statistics are of {widths[0]} joints and {widths[1]} "
            f"actions, expected ALOHA's {ALOHA_JOINTS}"
        )
    if given is None and training and training.adapt_to_pi:
        given = fits
        why = (
            "as openpi trains with this asset" if given else f"which takes {ALOHA_JOINTS} joints and actions"
        )
        notes.append(f"adapt_to_pi = {given}, {why}; no file says it")
    elif given is None and not training and fits:
        notes.append(
            "joints and grippers are taken and given as the policy knows them: no file says whether it was "
            "trained on those of ALOHA with openpi's adapt_to_pi; adapt_to_pi = True if so"
        )
    return AlohaUnits() if given else RobotUnits()
