# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The part of LeRobot's config.json that inference needs, for the Pi family."""

from dataclasses import dataclass
from pathlib import Path

from flashrt_kernels.checkpoint.dims import GEMMA_VARIANTS
from flashrt_kernels.checkpoint.fields import Fields, listed, read_json
from flashrt_kernels.errors import CheckpointError

CONFIG_FILE = "config.json"
STATE = "observation.state"
ACTION = "action"
IMAGES = "observation.images."
_FEATURE_TYPES = ("VISUAL", "STATE", "ACTION", "ENV", "LANGUAGE", "REWARD")
LONGEST = 100_000
FAST_TYPE = "pi0_fast"


# Periods of the sine and cosine of time, as openpi and LeRobot have them.
MIN_PERIOD, MAX_PERIOD = 4e-3, 4.0


@dataclass(frozen=True)
class FastConfig:
    """How Pi0-FAST decodes, from config.json.

    skip_tokens: ids at the end of the vocabulary that actions leave free. max_decoding_steps: tokens of one
    chunk at most. demands_prefix: a text that does not begin with `Action:` is no action.
    """

    skip_tokens: int
    max_decoding_steps: int
    demands_prefix: bool


@dataclass(frozen=True)
class PolicyConfig:
    """Values of config.json; dimensions are numbers of joints, resolutions (height, width) in pixels.

    num_inference_steps: None, and the periods of no meaning, where `fast` is there.
    action_expert_variant: None where the policy has no expert.
    """

    chunk_size: int
    n_action_steps: int
    max_state_dim: int
    max_action_dim: int
    num_inference_steps: int | None
    image_resolution: tuple[int, int]
    tokenizer_max_length: int
    min_period: float
    max_period: float
    empty_cameras: int
    cameras: tuple[str, ...]  # full slot names in order, the empty ones included
    state_dim: int
    action_dim: int
    action_names: tuple[str, ...] | None
    paligemma_variant: str
    action_expert_variant: str | None
    dtype: str
    fast: FastConfig | None = None


def read_config(folder: Path, known_types: tuple[str, ...]) -> tuple[str, PolicyConfig]:
    """(policy type, config) of the checkpoint in `folder`. Raises `CheckpointError` naming file and key."""
    path = folder / CONFIG_FILE
    fields = read_json(path)
    policy_type = fields.string("type", choices=known_types)
    flow = policy_type != FAST_TYPE
    config = PolicyConfig(
        chunk_size=fields.integer("chunk_size", 1, LONGEST),
        n_action_steps=fields.integer("n_action_steps", 1, LONGEST),
        max_state_dim=fields.integer("max_state_dim", 1, LONGEST),
        max_action_dim=fields.integer("max_action_dim", 1, LONGEST),
        num_inference_steps=fields.integer("num_inference_steps", 1, LONGEST) if flow else None,
        image_resolution=_resolution(fields),
        tokenizer_max_length=fields.integer("tokenizer_max_length", 1, LONGEST),
        min_period=fields.positive("min_period") if flow else MIN_PERIOD,
        max_period=fields.positive("max_period") if flow else MAX_PERIOD,
        empty_cameras=fields.integer("empty_cameras", 0, 64, default=0),
        cameras=camera_slots(fields),
        state_dim=feature_width(fields, "input_features", STATE, "STATE"),
        action_dim=feature_width(fields, "output_features", ACTION, "ACTION"),
        action_names=fields.strings("action_feature_names", default=None),
        paligemma_variant=fields.string("paligemma_variant", choices=tuple(GEMMA_VARIANTS)),
        action_expert_variant=_expert(fields) if flow else None,
        dtype=fields.string("dtype", choices=("float32", "bfloat16"), default="float32"),
        fast=None if flow else _fast(fields),
    )
    _check_supported(fields)
    _check_consistent(fields, config)
    return policy_type, config


def _expert(fields: Fields) -> str:
    return fields.string("action_expert_variant", choices=tuple(GEMMA_VARIANTS))


def _fast(fields: Fields) -> FastConfig:
    return FastConfig(
        skip_tokens=fields.integer("fast_skip_tokens", 0, LONGEST),
        max_decoding_steps=fields.integer("max_decoding_steps", 1, LONGEST),
        demands_prefix=fields.boolean("validate_action_token_prefix", default=True),
    )


def _check_supported(fields: Fields) -> None:
    """Refuse what would change the policy and is not built here (lerobot after 0.6.1)."""
    for name, what in (("use_visual_memory", "images"), ("use_proprioceptive_memory", "states")):
        if fields.boolean(name, default=False):
            raise fields.error(name, f"is true, expected false: no memory of earlier {what} here")


def _resolution(fields: Fields) -> tuple[int, int]:
    height, width = fields.integers("image_resolution", count=2)
    if height != width:
        raise fields.error(
            "image_resolution", f"is {[height, width]}, expected a square: SigLIP's grid is square"
        )
    return height, width


def _feature_type(features: Fields, name: str) -> str:
    return features.child(name).string("type", choices=_FEATURE_TYPES)


def camera_slots(fields: Fields) -> tuple[str, ...]:
    """VISUAL features in order; LeRobot appends `empty_camera_i` unless a saved config already has it."""
    features = fields.child("input_features")
    cameras = {name: None for name in features if _feature_type(features, name) == "VISUAL"}
    for i in range(fields.integer("empty_cameras", 0, 64, default=0)):
        cameras[f"{IMAGES}empty_camera_{i}"] = None
    if not cameras:
        raise fields.error(
            "input_features", f"has no VISUAL feature among {listed(list(features)) or 'no features'}"
        )
    return tuple(cameras)


def feature_width(fields: Fields, group: str, name: str, expected_type: str) -> int:
    """Numbers of one state or action."""
    features = fields.child(group)
    feature = features.child(name)
    feature.string("type", choices=(expected_type,))
    (width,) = feature.integers("shape", count=1)
    return width


def _check_consistent(fields: Fields, config: PolicyConfig) -> None:
    if config.n_action_steps > config.chunk_size:
        raise fields.error(
            "n_action_steps", f"is {config.n_action_steps}, expected at most chunk_size = {config.chunk_size}"
        )
    if config.action_dim > config.max_action_dim:
        problem = f"is {config.action_dim} wide, expected at most max_action_dim = {config.max_action_dim}"
        raise fields.error(f"output_features.{ACTION}", problem)
    if config.min_period >= config.max_period:
        raise fields.error(
            "min_period", f"is {config.min_period}, expected less than max_period = {config.max_period}"
        )
    check_action_names(
        fields.file, fields.path("action_feature_names"), config.action_names, config.action_dim
    )


def check_action_names(file: Path, key: str, names: tuple[str, ...] | None, action_dim: int) -> None:
    """Names, where there are any, are one per action dimension and distinct."""
    if names is None:
        return
    if len(names) != action_dim:
        raise CheckpointError(
            f"{file}: {key} has {len(names)} names ({listed(names)}), expected {action_dim}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CheckpointError(f"{file}: {key} has {listed(twice)} more than once, expected distinct names")
