# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""openpi's rules that no checkpoint holds: its policies, and its own training configurations.

Source: openpi 15a9616, models/, policies/, transforms.py and training/config.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.checkpoint import CameraRule
from flashrt_kernels.checkpoint.config import LONGEST, FastConfig
from flashrt_kernels.checkpoint.pi import DecodingRule, PromptRule

_FAST = FastConfig(skip_tokens=128, max_decoding_steps=256, demands_prefix=True)
_ARM_CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")


@dataclass(frozen=True)
class Kind:
    """What openpi's code says of one policy type. tokens: of the prompt, at most."""

    horizon: int
    tokens: int
    statistics: str
    prompt: PromptRule
    cameras: tuple[str, ...] = _ARM_CAMERAS
    camera_rule: CameraRule = "fixed"
    fast: FastConfig | None = None
    decoding: DecodingRule | None = None


WITHOUT_STATE = PromptRule(clean=True, lower=False, state=False)
KINDS: Mapping[str, Kind] = {
    "pi0": Kind(50, 48, "MEAN_STD", WITHOUT_STATE),
    "pi05": Kind(50, 200, "QUANTILES", PromptRule(clean=True, lower=False, state=True)),
    "pi0_fast": Kind(
        32,
        250,
        "QUANTILES",
        PromptRule(clean=True, lower=True, state=True),
        cameras=("base_0_rgb", "base_1_rgb", "wrist_0_rgb"),
        camera_rule="fixed, seen",
        fast=_FAST,
        decoding=DecodingRule(
            bos_behind_padding=False, skipped_positions=1, ends_at_bar=False, lenient=False
        ),
    ),
}


@dataclass(frozen=True)
class Training:
    """What openpi's own training configuration of a policy type and an asset says.

    adapt_to_pi: joints and grippers are turned into those of openpi's base models and back.
    not_positions: what the actions are, where they are no joint positions.
    camera_names: the robot's name → slot. cameras: the slots, where they are not those of the policy type.
    """

    horizon: int
    state_in_prompt: bool | None = None
    delta_actions: str | None = None
    adapt_to_pi: bool = False
    not_positions: str = ""
    camera_names: Mapping[str, str] = field(default_factory=dict)
    cameras: tuple[str, ...] | None = None


def _observed(**slots: str) -> Mapping[str, str]:
    """Keys of observations → slots; with and without the `observation/` in front."""
    return {place + name: slot for place in ("observation/", "") for name, slot in slots.items()}


_DROID = _observed(exterior_image_1_left="base_0_rgb", wrist_image_left="left_wrist_0_rgb")
_DROID_FAST = _observed(exterior_image_1_left="base_0_rgb", wrist_image_left="wrist_0_rgb")
_LIBERO_NAMES = _observed(image="base_0_rgb", wrist_image="left_wrist_0_rgb")
_ALOHA_NAMES = dict(zip(("cam_high", "cam_left_wrist", "cam_right_wrist"), _ARM_CAMERAS, strict=True))
_ALOHA = Training(50, delta_actions="6,-1,6,-1", adapt_to_pi=True, camera_names=_ALOHA_NAMES)
_LIBERO = "physical-intelligence/libero"
_STEPS = "LIBERO's are steps of the end effector"
_VELOCITIES = "DROID's are joint velocities, but for a policy of its full fine-tuning"
TRAININGS: Mapping[tuple[str, str], Training] = {
    ("pi0", "droid"): Training(10, camera_names=_DROID, not_positions=_VELOCITIES),
    ("pi05", "droid"): Training(15, camera_names=_DROID, not_positions=_VELOCITIES),
    ("pi0_fast", "droid"): Training(10, camera_names=_DROID_FAST, not_positions=_VELOCITIES),
    ("pi0", _LIBERO): Training(50, delta_actions="6,-1", camera_names=_LIBERO_NAMES, not_positions=_STEPS),
    ("pi05", _LIBERO): Training(10, state_in_prompt=False, camera_names=_LIBERO_NAMES, not_positions=_STEPS),
    # LiberoInputs names the slots alike for all policies.
    ("pi0_fast", _LIBERO): Training(
        10, delta_actions="6,-1", camera_names=_LIBERO_NAMES, cameras=_ARM_CAMERAS, not_positions=_STEPS
    ),
    ("pi0", "trossen"): _ALOHA,
    ("pi05", "trossen"): _ALOHA,
    ("pi0", "lerobot/aloha_sim_transfer_cube_human"): Training(
        50, adapt_to_pi=True, camera_names={**_ALOHA_NAMES, "top": "base_0_rgb"}
    ),
}


def bool_mask(text: str) -> NDArray[np.bool_] | None:
    """openpi's make_bool_mask: "2,-1" → [True, True, False]. None where the text is no such list."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        return None
    if any(abs(count) > LONGEST for count in counts):
        return None
    return np.array([count > 0 for count in counts for _ in range(abs(count))], np.bool_)
