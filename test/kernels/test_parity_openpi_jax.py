# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0 and Pi0.5 from openpi's JAX checkpoints against openpi's own numbers (made with openpi 15a9616).

When these fail, a checkpoint trained with openpi drives the robot differently than openpi would.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import load_policy
from flashrt_kernels.arena import align_up
from flashrt_kernels.checkpoint import load_checkpoint
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models import MODELS
from test.kernels.parity import DATA, assert_close, read_oracle
from test.kernels.policies import CPU

FOLDERS = ("tiny_openpi_jax_pi05", "tiny_openpi_jax_pi0")
CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
TOLERANCE = 5e-4  # t is summed up in float32 on both sides; openpi's sines are of float32 angles
PATCH = 14


def as_patches(image: np.ndarray) -> np.ndarray:
    """[n·patch, n·patch, 3] in [−1, 1] → [n², features], filled up as the image kernel does."""
    n = len(image) // PATCH
    grid = image.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(n * n, -1)
    return np.pad(grid, ((0, 0), (0, align_up(grid.shape[1], 8) - grid.shape[1])))


@pytest.mark.parametrize("folder", FOLDERS)
def test_actions(folder: str) -> None:
    """From what openpi's transforms hand to its model to the normalised chunk."""
    oracle = read_oracle(folder).tensors
    checkpoint = load_checkpoint(DATA / folder, tokenizer=DATA / "tokenizer_tiny", chunk_size=6)
    model: Any = MODELS[checkpoint.policy_type](checkpoint, torch.float32, 10, CPU.device)
    ids = oracle["in.tokens"][0][oracle["in.token_mask"][0]]
    tokens = len(oracle["in.tokens"][0])
    patches = np.concatenate([as_patches(oracle[f"in.image.{name}"][0]) for name in CAMERAS])

    vision = StaticGraph("vision", CPU)
    with vision.section("vision"):
        model.see(vision, vision.input("patches", patches.shape, torch.float32), 3, tokens)
    graph = StaticGraph("rest", CPU, after=vision)
    model.compose(graph, 3, tokens)
    vision.plan()
    graph.plan()
    vision.write("patches", patches)
    present = [bool(oracle[f"in.image_mask.{name}"][0]) for name in CAMERAS]
    assert present == [True, True, False]
    model.write_inputs(graph, ids, present, np.zeros(checkpoint.state_dim, np.float32))
    if checkpoint.policy_type == "pi0":
        graph.host("state")[:] = oracle["in.state"]
    graph.write("noise", oracle["in.noise"][0])
    got = graph.replay(("actions_normalized_padded",))["actions_normalized_padded"]
    assert_close(got, oracle["actions"][0], TOLERANCE)


def test_layouts_of_release_and_training_are_one_checkpoint(tmp_path: Path) -> None:
    """Whoever resumes from a training checkpoint must get the same policy."""
    released = DATA / FOLDERS[0]
    shutil.copytree(released / "params_trainstyle", tmp_path / "params")
    shutil.copytree(released / "assets", tmp_path / "assets")
    one, other = (
        load_checkpoint(folder, tokenizer=DATA / "tokenizer_tiny", chunk_size=6)
        for folder in (released, tmp_path)
    )
    assert one.tensors.keys() == other.tensors.keys()
    for key, tensor in one.tensors.items():
        torch.testing.assert_close(tensor, other.tensors[key], rtol=0, atol=0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_raw_observation_to_robot_units(folder: str) -> None:
    """The public path runs and depends on state, instruction and cameras: nothing is lost between them."""
    policy = load_policy(DATA / folder, tokenizer=DATA / "tokenizer_tiny", chunk_size=6)
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (40, 64, 3), np.uint8) for name in CAMERAS[:2]}
    state = {"state": [0.1, -0.2, 0.3, 0.0, 0.5]}
    usual = policy.decide(images, state, "pick up the red block").actions
    assert usual.shape == (6, 5)
    turned = dict(zip(images, reversed(images.values()), strict=True))
    for changed in (
        policy.decide(turned, state, "pick up the red block"),
        policy.decide(images, state, "put it down"),
        policy.decide(images, {"state": [0.4, 0.2, -0.3, 1.0, 0.9]}, "pick up the red block"),
    ):
        assert np.abs(changed.actions - usual).max() > 1e-3


def test_offsets_of_a_robot_that_has_fewer_joints_than_actions(tmp_path: Path) -> None:
    """An action beyond the state is no offset; the decision must not fail for it on a live robot."""
    shutil.copytree(DATA / FOLDERS[0], tmp_path, dirs_exist_ok=True)
    file = tmp_path / "assets/tiny_robot/norm_stats.json"
    stats = json.loads(file.read_text(encoding="utf-8"))
    narrow = {name: values[:4] for name, values in stats["norm_stats"]["state"].items()}
    stats["norm_stats"]["state"] = narrow
    file.write_text(json.dumps(stats), encoding="utf-8")
    absolute, relative = (
        load_policy(tmp_path, tokenizer=DATA / "tokenizer_tiny", chunk_size=6, delta_actions=mask)
        for mask in (None, "3,-1")
    )
    images, state = {CAMERAS[0]: np.zeros((40, 64, 3), np.uint8)}, [0.1, -0.2, 0.3, 0.4]
    moved, offset = (policy.decide(images, state, "go").actions for policy in (absolute, relative))
    np.testing.assert_allclose(offset - moved, np.tile([0.1, -0.2, 0.3, 0, 0], (6, 1)), rtol=0, atol=1e-5)
