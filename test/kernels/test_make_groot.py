# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Random GR00T checkpoints stand in for trained ones in every measurement."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import load_policy
from flashrt_kernels.checkpoint.groot import load_groot
from flashrt_kernels.checkpoint.groot_recipe import groot_dims
from flashrt_kernels.checkpoint.recipe import Recipe
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.make_checkpoint import main, make_checkpoint, stored_tensors

POLICIES = ("groot_n16", "groot_n17")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("size", "dtype"), [("tiny", "bfloat16"), ("small", None)])
def test_what_is_made_loads(tmp_path: Path, policy: str, size: str, dtype: str | None) -> None:
    """The strict reader is the one that users' robots have."""
    recipe = Recipe(
        policy=policy,
        size=size,
        dtype=dtype,
        action_dim=26,
        state_dim=20,
        cameras=("head", "hand"),
        chunk_size=5,
    )
    loaded = load_groot(make_checkpoint(tmp_path / "out", recipe))
    assert loaded.policy_type == policy
    assert loaded.dims == groot_dims(recipe)
    assert loaded.cameras == ("head", "hand")
    assert (loaded.action_dim, loaded.state_dim, loaded.horizon) == (26, 20, 5)
    assert {tensor.dtype for tensor in loaded.tensors.values()} == {
        torch.bfloat16 if dtype else torch.float32
    }
    assert loaded.prompt("pick up the block", 4).ids.count(loaded.prompts.image_id) == 8
    square = "cameras are taken to be square: image_size = (height, width) says otherwise"
    assert loaded.notes == ((square,) if loaded.policy_type == "groot_n16" else ())


@pytest.mark.parametrize(
    ("policy", "count", "numbers"), [("groot_n16", 1094, 2.961e9), ("groot_n17", 1029, 3.144e9)]
)
def test_full_size_is_the_released_one(policy: str, count: int, numbers: float) -> None:
    """Hardware measured with it must do the work of a released policy."""
    tensors = stored_tensors(Recipe(policy=policy, size="full"))
    assert len(tensors) == count
    assert sum(tensor.size for tensor in tensors) == pytest.approx(2 * numbers, rel=1e-3)


def test_same_seed_same_files(tmp_path: Path) -> None:
    """A result that others cannot reproduce is no result."""
    folders = [
        make_checkpoint(tmp_path / name, Recipe(policy="groot_n17", seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    first, again, other = ({file.name: file.read_bytes() for file in f.iterdir()} for f in folders)
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]


def test_ranges_are_those_of_the_robot(tmp_path: Path) -> None:
    """Actions of a demo must stay within the simulated arm's limits."""
    recipe = Recipe(
        policy="groot_n16", action_dim=2, state_dim=2, action_low=(-1.0, 0.0), action_high=(1.0, 5.0)
    )
    loaded = load_groot(make_checkpoint(tmp_path / "out", recipe))
    decoded = loaded.decode(np.full((8, 128), 3, np.float32), np.zeros(2, np.float32))
    assert decoded[0].tolist() == [1.0, 5.0]
    assert loaded.normalise_state(np.array([0, 1.5], np.float32)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"action_names": tuple("abcdefg")}, "action-names have no place"),
        ({"chunk_size": 9}, "chunk-size is 9, expected at most 8"),
        ({"state_dim": 133}, "state-dim is 133, expected 1 to 132"),
    ],
    ids=["names", "chunk", "width"],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """What is silently dropped is missed on the robot."""
    with pytest.raises(CheckpointError, match=words):
        make_checkpoint(tmp_path / "out", Recipe(policy="groot_n17", **options))
    assert not any(tmp_path.iterdir())


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way in which a user makes one."""
    assert main(["groot_n17", str(tmp_path / "out"), "--cameras", "front"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    assert load_groot(tmp_path / "out").cameras == ("front",)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_input_reaches_the_actions(tmp_path: Path, policy: str) -> None:
    """With weights that ignore an input, a wrong camera or state would go unnoticed in tests and demos."""
    made = make_checkpoint(tmp_path / "out", Recipe(policy=policy, cameras=("front", "wrist"), seed=5))
    model = load_policy(made)
    images = {name: np.full((64, 64, 3), 40 * (i + 1), np.uint8) for i, name in enumerate(model.cameras)}
    images["front"][:32] = 200
    usual: dict[str, Any] = {
        "images": images,
        "state": np.full(7, 0.2),
        "instruction": "pick up the red block",
        "seed": 1,
    }
    actions = model.decide(**usual).actions
    for name, value in (
        ("state", np.full(7, -0.5)),
        ("instruction", "open the drawer"),
        ("seed", 2),
        ("images", images | {"front": images["wrist"]}),
        ("images", images | {"wrist": images["front"]}),
    ):
        moved = model.decide(**(usual | {name: value})).actions
        assert np.linalg.norm(moved - actions) > 0.01 * np.linalg.norm(actions), name
