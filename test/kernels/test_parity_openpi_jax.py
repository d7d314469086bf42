# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0 and Pi0.5 against openpi's own numbers (test/data/tiny_openpi_jax_*, made with openpi 15a9616, jax).

When these fail, a checkpoint that openpi trained drives the robot differently than openpi does. Pictures,
tokens and state enter as openpi's model got them: how it makes them is tested elsewhere.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flashrt_kernels import load_policy
from flashrt_kernels.image import resize_to_patches
from test.kernels.parity import DATA, read_oracle

CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
TOLERANCE = 1.2e-4  # of actions up to 4: sine and cosine of t are float32 there. With exact t: 1.5e-4, 2.7e-4


def as_patches(image: np.ndarray, patch: int) -> torch.Tensor:
    """[n·patch, n·patch, 3] → [n², 3·patch²]."""
    n = len(image) // patch
    grid = image.reshape(n, patch, n, patch, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(np.ascontiguousarray(grid.reshape(n * n, -1)))


@pytest.mark.parametrize("name", ["pi05", "pi0"])
def test_actions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last camera is absent in the stored observation: it keeps its slot and is masked."""
    oracle = read_oracle(f"tiny_openpi_jax_{name}").tensors
    pictures = [oracle[f"in.image.{camera}"][0] for camera in CAMERAS]

    def stored(
        pixels: torch.Tensor, info: torch.Tensor, out: torch.Tensor, *, patch: int, **rule: object
    ) -> None:
        """The picture whose number is in the first pixel."""
        patches = as_patches(pictures[int(pixels[0])], patch)
        out.zero_()
        out[:, : patches.shape[1]] = patches

    monkeypatch.setattr(resize_to_patches, "reference", stored)
    horizon = oracle["actions"].shape[1]
    policy = load_policy(
        DATA / f"tiny_openpi_jax_{name}", tokenizer=DATA / "tokenizer_tiny", chunk_size=horizon
    )
    tokens = oracle["in.tokens"][0][oracle["in.token_mask"][0]].tolist()
    monkeypatch.setattr(policy._model, "tokenise", lambda instruction, state: tokens)
    present = [i for i, camera in enumerate(CAMERAS) if oracle[f"in.image_mask.{camera}"][0]]
    images = {CAMERAS[i]: np.full((56, 56, 3), i, np.uint8) for i in present}
    norm = policy._checkpoint.state_norm  # type: ignore[attr-defined] # a PiCheckpoint
    state = norm.unnormalise(oracle["in.state"][0][: policy.state_dim])
    key = "actions_normalized_padded"
    chunk = policy.decide(images, state, "anything", noise=oracle["in.noise"][0], taps=[key])
    difference = np.abs(chunk.taps[key] - oracle["actions"][0]).max()
    assert difference <= TOLERANCE, difference
    policy.close()
