# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The tiny Pi0.5 policy and an observation for it."""

from pathlib import Path
from typing import Any

import numpy as np

from flashrt_kernels import Policy, load_policy
from flashrt_kernels.backend import CpuBackend

CPU = CpuBackend()
DATA = Path(__file__).resolve().parent.parent / "data"
TINY, TOKENIZER = DATA / "tiny_pi05", DATA / "tokenizer_tiny"
TOP, WRIST, EXTRA = (f"observation.images.{name}" for name in ("top", "wrist", "extra"))
STATE = [0.1, -0.2, 0.3, 0.0, 0.5]


def load(**options: Any) -> Policy:
    return load_policy(TINY, tokenizer=TOKENIZER, num_inference_steps=2, **options)


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (40, 64, 3), np.uint8)


def act(policy: Policy, images: dict[str, Any] | None = None, **changes: Any) -> np.ndarray:
    observation: dict[str, Any] = {"state": STATE, "instruction": "pick up the red block"}
    images = {TOP: picture(1), WRIST: picture(2)} if images is None else images
    return policy.decide(images=images, **(observation | changes)).actions
