# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Random checkpoints stand in for trained ones in the demo, in replays and in every measurement."""

import json
import shutil
import signal
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels import load_policy, make_checkpoint
from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.recipe import SIZES, Recipe
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.make_checkpoint import main, stored_tensors

WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_what_is_made_loads(tmp_path: Path, size: str, dtype: str | None) -> None:
    """The strict reader is the one that users' robots have."""
    recipe = Recipe(
        size=size, dtype=dtype, action_dim=26, state_dim=20, cameras=("head", "observation.images.hand")
    )
    loaded = load_lerobot(make_checkpoint.make_checkpoint(tmp_path / "out", recipe))
    assert loaded.config.cameras == ("observation.images.head", "observation.images.hand")
    assert (loaded.config.action_dim, loaded.config.state_dim) == (26, 20)
    assert (loaded.config.max_action_dim, loaded.config.tokenizer_max_length) == (32, 200)
    assert loaded.dims == SIZES[size].dims
    assert loaded.tokenizer.source.parent == tmp_path / "out"
    kinds = {tensor.dtype for tensor in loaded.tensors.values()}
    assert kinds == ({torch.float32, torch.bfloat16} if dtype else {torch.float32})
    assert loaded.notes == ()


def test_full_size_is_the_released_one() -> None:
    """Hardware measured with it must do the work of a released Pi0.5, stored as LeRobot stores it in bf16."""
    tensors = {tensor.key.removeprefix("model."): tensor for tensor in stored_tensors(Recipe(size="full"))}
    assert len(tensors) == 811
    assert "paligemma_with_expert.paligemma.lm_head.weight" in tensors
    assert not any("embed_tokens" in key for key in tensors)
    in_bf16 = {key for key, tensor in tensors.items() if tensor.dtype == torch.bfloat16}
    linear = {
        key
        for key in tensors
        if "vision" not in key and ("self_attn." in key or "mlp.d" in key or "mlp.g" in key or "mlp.u" in key)
    }
    assert in_bf16 == linear | {"paligemma_with_expert.paligemma.lm_head.weight"}
    assert sum(tensor.size for tensor in tensors.values()) == pytest.approx(7.78e9, rel=0.01)


def test_same_seed_same_files_other_seed_other_weights(tmp_path: Path) -> None:
    """A result that others cannot reproduce is no result."""
    first, again, other = (
        make_checkpoint.make_checkpoint(tmp_path / name, Recipe(seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for file in first.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name
    assert (first / WEIGHTS).read_bytes() != (other / WEIGHTS).read_bytes()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's command, with every option."""
    options = (
        "--size tiny --seed 5 --action-dim 2 --state-dim 3 --cameras a,b --chunk-size 4 --dtype bfloat16 "
        "--action-names shoulder,elbow --action-low=-1,-2 --action-high=1,2.5 --state-low=-3 --state-high=3"
    )
    assert main(["pi05", str(tmp_path / "deep" / "out"), *options.split()]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "deep" / "out")
    loaded = load_lerobot(tmp_path / "deep" / "out")
    assert loaded.config.cameras == ("observation.images.a", "observation.images.b")
    assert loaded.config.chunk_size == 4
    assert loaded.config.action_names == ("shoulder", "elbow")
    np.testing.assert_array_equal(loaded.action_norm.stats["q01"], [-1, -2])
    np.testing.assert_array_equal(loaded.action_norm.stats["q99"], [1, 2.5])
    np.testing.assert_array_equal(loaded.state_norm.stats["q99"], [3, 3, 3])


BAD_OPTIONS = {
    "--action-dim 33": "action-dim is 33, expected 1 to 32",
    "--state-dim 0": "state-dim is 0, expected 1 to 32",
    "--size huge": "size is huge, expected one of tiny, small, full",
    "--cameras a,a": "expected distinct names",
    "--cameras ,": "expected distinct names",
    "--chunk-size 0": "chunk-size is 0",
    "--dtype int8": "dtype is int8, expected float32 or bfloat16",
    "--action-names a,b": "expected 7 distinct names",
    "--action-low=-1,-2": "action-low has 2 values, expected 1 or 7",
    "--action-dim 2 --action-names a,b,a": "action-names are 3 (a, b, a), expected 2 distinct names",
    "--chunk-size 200000": "chunk-size is 200000, expected 1 to 100000",
    "--action-low=-3e38 --action-high=3e38": "expected less than action-high",
    "--state-low=2": "expected less than state-high",
    "--action-high=nan": "expected less than action-high",
}


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS.items())
def test_bad_options_are_named_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, words: str
) -> None:
    """Otherwise the mistake shows only when the checkpoint is loaded on the robot."""
    assert main(["pi05", str(tmp_path / "out"), *options.split()]) == 1
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_never_overwrites(tmp_path: Path) -> None:
    """A slip of the path must not cost anyone a trained policy."""
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(CheckpointError, match="not an empty folder"):
            make_checkpoint.make_checkpoint(place, Recipe())
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    assert (make_checkpoint.make_checkpoint(tmp_path / "empty", Recipe()) / WEIGHTS).exists()


def test_refuses_when_the_disk_lacks_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stops a robot's other software too; 8 GB are announced before the first byte."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**9))
    with pytest.raises(CheckpointError, match=r"1\.0 GB free, the checkpoint needs 7\.8 GB"):
        make_checkpoint.make_checkpoint(tmp_path / "out", Recipe(size="full"))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_leaves_nothing(tmp_path: Path) -> None:
    """Half a file under the right name would be taken for a checkpoint."""

    def interrupt(count: int, total: int) -> None:
        (partial,) = tmp_path.iterdir()
        assert partial.name.startswith(".out.partial")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_checkpoint.make_checkpoint(tmp_path / "out", Recipe(), interrupt)
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_those_of_the_ranges(tmp_path: Path) -> None:
    """The node compares the robot's pose with q01 to q99 and reports other statistics beside it."""
    recipe = Recipe(action_low=(-2.0,), action_high=(2.0,))
    folder = make_checkpoint.make_checkpoint(tmp_path / "out", recipe)
    file = json.loads((folder / "policy_postprocessor.json").read_text())["steps"][0]["state_file"]
    stats = load_file(folder / file)
    want = {
        "min": -2,
        "q01": -2,
        "q10": -1.6,
        "mean": 0,
        "q50": 0,
        "q90": 1.6,
        "q99": 2,
        "max": 2,
        "std": 4 / 12**0.5,
    }
    for name, value in want.items():
        np.testing.assert_allclose(stats[f"action.{name}"], np.full(7, value), atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_says_what_is_left(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """8 GB take a minute: Ctrl-C, or a batch system's SIGTERM, is no crash and leaves no half file."""

    def interrupt(*arguments: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(make_checkpoint, "write_random", interrupt)
    assert main(["pi05", str(tmp_path / "out")]) == 130
    assert "interrupted; nothing is left" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path is one line, not a traceback."""
    (tmp_path / "file").write_text("")
    assert main(["pi05", str(tmp_path / "file" / "out")]) == 1
    assert "out: cannot be written: " in capsys.readouterr().err


def test_link_to_an_empty_folder_is_followed(tmp_path: Path) -> None:
    """Large files often live on another disk behind a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    make_checkpoint.make_checkpoint(tmp_path / "link", Recipe())
    assert (tmp_path / "disk" / WEIGHTS).exists()
    assert (tmp_path / "link").is_symlink()


# ---- what the weights are for ----


def scene(seed: int, size: int = 96) -> np.ndarray:
    """[size, size, 3] uint8: coloured rectangles."""
    generator = np.random.default_rng(seed)
    image = np.full((size, size, 3), generator.integers(0, 255, 3), np.uint8)
    for _ in range(6):
        top, left = generator.integers(0, size - 20, 2)
        image[top : top + 40, left : left + 40] = generator.integers(0, 255, 3)
    return image


def test_actions_depend_on_images_state_and_instruction(tmp_path: Path) -> None:
    """A policy deaf to its inputs would hide every error in the way from camera and joints to the model."""
    folder = make_checkpoint.make_checkpoint(tmp_path / "out", Recipe(cameras=("top", "wrist")))
    policy = load_policy(folder)
    state = np.linspace(-1, 1, policy.state_dim, dtype=np.float32)

    def actions(
        first: int = 1, second: int = 2, state: np.ndarray = state, text: str = "pick up the red block"
    ) -> np.ndarray:
        images = {"top": scene(first), "wrist": scene(second)}
        return policy.decide(images=images, state=state, instruction=text, seed=0).actions

    base = actions()
    np.testing.assert_array_equal(actions(), base)
    scale = np.abs(base).max()
    changes = {
        "first camera": actions(first=3),
        "second camera": actions(second=4),
        "state": actions(state=-state),
        "instruction": actions(text="open the drawer"),
    }
    policy.close()
    for name, changed in changes.items():
        assert np.abs(changed - base).max() > 0.02 * scale, name
