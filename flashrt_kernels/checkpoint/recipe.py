# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a random checkpoint is made of: sizes, and the JSON files that stand beside the weights."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from flashrt_kernels.checkpoint.config import ACTION, IMAGES, LONGEST, STATE
from flashrt_kernels.checkpoint.dims import (
    GEMMA_VARIANTS,
    RELEASED_VOCAB,
    GemmaDims,
    ModelDims,
    VisionDims,
    released_vision,
)
from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.errors import CheckpointError

MAX_DIM = 32  # of state and action in the Pi family, as released
# Policy → the widest state and action that it takes, as released.
WIDEST = {"pi0": MAX_DIM, "pi05": MAX_DIM, "pi0_fast": MAX_DIM, "groot_n16": 128, "groot_n17": 132}
# Policy → tokens of the longest prompt, mode of state and actions, as LeRobot configures them.
PROMPTS = {"pi0": 48, "pi05": 200, "pi0_fast": 200}
_MODE = {"pi0": "MEAN_STD", "pi05": "QUANTILES", "pi0_fast": "MEAN_STD"}
_TINY_VOCAB = 512  # of data/tokenizer_tiny
_STEPS = 10
_EPS = 1e-8
# Of Pi0-FAST: tokens of a chunk at most, and ids at the end of data/tokenizer_tiny that actions leave free.
_MAX_TEXT, _SKIP = 256, 8
FAST_IDS = (_TINY_VOCAB - _SKIP - 96, _TINY_VOCAB - _SKIP)  # of data/fast_tokenizer_tiny in that vocabulary


@dataclass(frozen=True)
class Size:
    """A named size: dimensions, chunk length, and the dtype in which LeRobot would store it."""

    dims: ModelDims
    chunk_size: int
    dtype: str
    released: bool = False


SIZES = {
    # Loads and decides in milliseconds.
    "tiny": Size(
        ModelDims(
            vision=VisionDims(48, 80, 2, num_attention_heads=4, patch_size=14, image_size=56),
            vlm=GemmaDims(64, depth=2, mlp_dim=160, num_heads=8, num_kv_heads=1, head_dim=16),
            expert=GemmaDims(32, depth=2, mlp_dim=96, num_heads=8, num_kv_heads=1, head_dim=16),
            vocab=_TINY_VOCAB,
        ),
        chunk_size=8,
        dtype="float32",
    ),
    # Image and token counts of the released policies, arithmetic for one laptop core in a tenth of a second.
    "small": Size(
        ModelDims(
            vision=VisionDims(128, 256, 3, num_attention_heads=4, patch_size=14, image_size=224),
            vlm=GemmaDims(192, depth=3, mlp_dim=512, num_heads=8, num_kv_heads=1, head_dim=32),
            expert=GemmaDims(96, depth=3, mlp_dim=256, num_heads=8, num_kv_heads=1, head_dim=32),
            vocab=_TINY_VOCAB,
        ),
        chunk_size=16,
        dtype="float32",
    ),
    "full": Size(
        ModelDims(
            vision=released_vision(224),
            vlm=GEMMA_VARIANTS["gemma_2b"],
            expert=GEMMA_VARIANTS["gemma_300m"],
            vocab=RELEASED_VOCAB,
        ),
        chunk_size=50,
        dtype="bfloat16",
        released=True,
    ),
}


@dataclass(frozen=True)
class Recipe:
    """A random checkpoint. Ranges (robot units) have one value per dimension, or one for all."""

    policy: str = "pi05"
    size: str = "tiny"
    seed: int = 0
    action_dim: int = 7
    state_dim: int = 7
    cameras: tuple[str, ...] = ("base_0_rgb", "left_wrist_0_rgb")
    chunk_size: int | None = None
    dtype: str | None = None
    action_names: tuple[str, ...] | None = None
    action_low: tuple[float, ...] = (-1.5,)
    action_high: tuple[float, ...] = (1.5,)
    state_low: tuple[float, ...] = (-1.5,)
    state_high: tuple[float, ...] = (1.5,)

    def __post_init__(self) -> None:
        """Raises `CheckpointError` naming the option, what came and what would be right."""
        for option, value, known in (
            ("policy", self.policy, tuple(WIDEST)),
            ("size", self.size, tuple(SIZES)),
        ):
            if value not in known:
                raise CheckpointError(f"{option} is {value}, expected one of {listed(known)}")
        for option, width in (("action-dim", self.action_dim), ("state-dim", self.state_dim)):
            widest = WIDEST[self.policy]
            if not 1 <= width <= widest:
                raise CheckpointError(
                    f"{option} is {width}, expected 1 to {widest}, the width of {self.policy}"
                )
        if self.chunk_size is not None and not 1 <= self.chunk_size <= LONGEST:
            raise CheckpointError(f"chunk-size is {self.chunk_size}, expected 1 to {LONGEST}")
        if self.dtype not in (None, "float32", "bfloat16"):
            raise CheckpointError(f"dtype is {self.dtype}, expected float32 or bfloat16")
        names = self.camera_slots
        if not names or len(set(names)) != len(names) or not all(name.removeprefix(IMAGES) for name in names):
            raise CheckpointError(f"cameras are {list(self.cameras)}, expected distinct names, at least one")
        self._check_ranges()

    def _check_ranges(self) -> None:
        names = self.action_names
        if names is not None and not len(names) == len(set(names)) == self.action_dim:
            got = f"{len(names)} ({listed(names)})"
            raise CheckpointError(f"action-names are {got}, expected {self.action_dim} distinct names")
        for group, width in (("action", self.action_dim), ("state", self.state_dim)):
            ranges = {end: getattr(self, f"{group}_{end}") for end in ("low", "high")}
            for end, values in ranges.items():
                if len(values) not in (1, width):
                    raise CheckpointError(f"{group}-{end} has {len(values)} values, expected 1 or {width}")
            low, high = (np.broadcast_to(np.float32(values), width) for values in ranges.values())
            with np.errstate(over="ignore"):  # a span beyond float32 is infinite
                span = high - low
            if not (np.isfinite(span) & (span > 0)).all():
                raise CheckpointError(
                    f"{group}-low is {ranges['low']}, expected less than {group}-high {ranges['high']}"
                )

    @property
    def camera_slots(self) -> tuple[str, ...]:
        return tuple(name if name.startswith(IMAGES) else IMAGES + name for name in self.cameras)

    @property
    def stored_dtype(self) -> str:
        return self.dtype or SIZES[self.size].dtype


def config_json(recipe: Recipe) -> dict[str, Any]:
    """config.json with LeRobot's fields."""
    size = SIZES[recipe.size]
    chunk_size = recipe.chunk_size or size.chunk_size
    return {
        "type": recipe.policy,
        "n_obs_steps": 1,
        **_features(recipe),
        "paligemma_variant": "gemma_2b",
        "action_expert_variant": "gemma_300m",
        "dtype": recipe.stored_dtype,
        "chunk_size": chunk_size,
        "n_action_steps": chunk_size,
        "max_state_dim": MAX_DIM,
        "max_action_dim": MAX_DIM,
        **(_FAST if recipe.policy == "pi0_fast" else _FLOW),
        "use_relative_actions": False,
        "relative_exclude_joints": ["gripper"],
        "action_feature_names": list(recipe.action_names) if recipe.action_names else None,
        "image_resolution": [size.dims.vision.image_size] * 2,
        "empty_cameras": 0,
        "tokenizer_max_length": PROMPTS[recipe.policy],
        "normalization_mapping": _modes(recipe),
    }


_FLOW = {"num_inference_steps": _STEPS, "min_period": 0.004, "max_period": 4.0}
_FAST = {
    "max_action_tokens": _MAX_TEXT,
    "max_decoding_steps": _MAX_TEXT,
    "fast_skip_tokens": _SKIP,
    "validate_action_token_prefix": False,
    "temperature": 0.0,
}


def _modes(recipe: Recipe) -> dict[str, str]:
    mode = _MODE[recipe.policy]
    return {"VISUAL": "IDENTITY", "STATE": mode, "ACTION": mode}


def dims_json(recipe: Recipe) -> dict[str, Any] | None:
    """model_dims.json, or None for a released size, which needs none."""
    size = SIZES[recipe.size]
    if size.released:
        return None
    dims = asdict(size.dims)
    return {name: value for name, value in dims.items() if name != "expert" or recipe.policy != "pi0_fast"}


def _features(recipe: Recipe) -> dict[str, dict[str, Any]]:
    image = SIZES[recipe.size].dims.vision.image_size
    return {
        "input_features": {
            **{name: {"type": "VISUAL", "shape": [3, image, image]} for name in recipe.camera_slots},
            STATE: {"type": "STATE", "shape": [recipe.state_dim]},
        },
        "output_features": {ACTION: {"type": "ACTION", "shape": [recipe.action_dim]}},
    }


def preprocessor_json(recipe: Recipe, state_file: str) -> dict[str, Any]:
    features = _features(recipe)
    names = list(recipe.action_names) if recipe.action_names else None
    every = {**features["input_features"], **features["output_features"]}
    tokenizer = {
        "max_length": PROMPTS[recipe.policy],
        "task_key": "task",
        "padding_side": "right",
        "padding": "max_length",
        "truncation": True,
    }
    relative = {"enabled": False, "exclude_joints": ["gripper"], "action_names": names}
    normalise = (
        _step("relative_actions_processor", relative),
        _step(
            "normalizer_processor",
            {"eps": _EPS, "features": every, "norm_map": _modes(recipe)},
            state_file,
        ),
    )
    tokenise, device = (
        _step("tokenizer_processor", tokenizer),
        _step("device_processor", {"device": "cpu", "float_dtype": None}),
    )
    steps = {
        "pi0": (_step("pi0_new_line_processor", {}), tokenise, device, *normalise),
        "pi05": (*normalise, _step("pi05_prepare_state_tokenizer_processor_step", {}), tokenise, device),
        "pi0_fast": (
            *normalise,
            _step("pi0_fast_prepare_state_tokenizer_processor_step", {}),
            tokenise,
            _step("action_tokenizer_processor", {"max_action_tokens": _MAX_TEXT}),
            device,
        ),
    }
    first = (_step("rename_observations_processor", {"rename_map": {}}), _step("to_batch_processor", {}))
    return {"name": "policy_preprocessor", "steps": [*first, *steps[recipe.policy]]}


def postprocessor_json(recipe: Recipe, state_file: str) -> dict[str, Any]:
    output = _features(recipe)["output_features"]
    return {
        "name": "policy_postprocessor",
        "steps": [
            _step(
                "unnormalizer_processor",
                {"eps": _EPS, "features": output, "norm_map": _modes(recipe)},
                state_file,
            ),
            _step("absolute_actions_processor", {"enabled": False}),
            _step("device_processor", {"device": "cpu", "float_dtype": None}),
        ],
    }


def _step(name: str, config: dict[str, Any], state_file: str | None = None) -> dict[str, Any]:
    step: dict[str, Any] = {"registry_name": name, "config": config}
    return step if state_file is None else {**step, "state_file": state_file}


def statistics(recipe: Recipe) -> dict[str, torch.Tensor]:
    """`<feature>.<statistic>` → [D], as of values spread evenly over the ranges."""
    stats = {}
    for feature, width, low, high in (
        (STATE, recipe.state_dim, recipe.state_low, recipe.state_high),
        (ACTION, recipe.action_dim, recipe.action_low, recipe.action_high),
    ):
        bottom, span = torch.tensor(low).expand(width), torch.tensor(high) - torch.tensor(low)
        quantiles = {
            "min": 0.0,
            "q01": 0.0,
            "q10": 0.1,
            "q50": 0.5,
            "q90": 0.9,
            "q99": 1.0,
            "max": 1.0,
            "mean": 0.5,
        }
        for name, fraction in quantiles.items():
            stats[f"{feature}.{name}"] = (bottom + fraction * span).float().contiguous()
        stats[f"{feature}.std"] = (span / 12**0.5).expand(width).float().contiguous()
    return stats
