# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""openpi's folders: what its files say, what only its code says, and what the user has to say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels.checkpoint import PiCheckpoint, PromptRule, load_checkpoint, load_lerobot
from flashrt_kernels.checkpoint.openpi_rules import bool_mask
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, REMOVED, TOKENIZER, Folder
from .damage import CONFIG, WEIGHTS, Damage, content, cut, drop, entry, gone, poison, several, tensors
from .openpi_folder import ASSET, STATS, openpi_folder, write_statistics

Q0 = "paligemma_with_expert.paligemma.model.language_model.layers.0.self_attn.q_proj.weight"


def load(folder: Path, **options: Any) -> PiCheckpoint:
    loaded = load_checkpoint(folder, **options)
    assert isinstance(loaded, PiCheckpoint)
    return loaded


@pytest.fixture
def pi05(tmp_path: Path) -> Folder:
    return openpi_folder(tmp_path / "openpi", "tiny_pi05")


@pytest.fixture
def pi0(tmp_path: Path) -> Folder:
    return openpi_folder(tmp_path / "openpi", "tiny_pi0")


@pytest.mark.parametrize("name", ["pi05", "pi0"])
def test_folder_loads_with_openpis_rules(name: str, request: pytest.FixtureRequest) -> None:
    """The weights are LeRobot's; everything around them is openpi's."""
    loaded = load(request.getfixturevalue(name).path)
    assert (loaded.policy_type, loaded.origin) == (name, "openpi")
    want = load_lerobot(DATA / f"tiny_{name}", TOKENIZER)
    assert list(loaded.tensors) == list(want.tensors)
    assert all(torch.equal(tensor, want.tensors[key]) for key, tensor in loaded.tensors.items())
    assert loaded.dims == want.dims
    assert loaded.prompt == PromptRule(clean=True, lower=False, state=name == "pi05")
    assert (loaded.time, loaded.image_filter, loaded.camera_rule) == ("accumulated", "antialias", "fixed")
    names = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
    assert loaded.cameras == tuple(f"observation.images.{camera}" for camera in names)
    assert (loaded.horizon, loaded.state_dim, loaded.action_dim, loaded.denoising_steps) == (6, 5, 5, 10)
    assert loaded.config.max_action_dim == 8
    assert loaded.config.tokenizer_max_length == (200 if name == "pi05" else 48)
    assert loaded.relative_action_mask is None


# ---- statistics ----


@pytest.mark.parametrize("name", ["pi05", "pi0"])
def test_openpis_formulas(name: str, request: pytest.FixtureRequest) -> None:
    """eps is added to every span, both ways: LeRobot's formula is off by 1e-4 where a joint hardly moves."""
    folder = request.getfixturevalue(name)
    tiny = 1e-2
    folder.edit_json(ASSET, "norm_stats", "state", "std", 0, value=tiny)
    folder.edit_json(ASSET, "norm_stats", "state", "q99", 0, value=STATS["state"]["q01"][0] + tiny)
    folder.edit_json(ASSET, "norm_stats", "actions", "std", 1, value=0.0)
    folder.edit_json(ASSET, "norm_stats", "actions", "q99", 1, value=STATS["actions"]["q01"][1])
    loaded = load(folder.path)
    state = {k: np.array(v) for k, v in STATS["state"].items()}
    actions = {k: np.array(v) for k, v in STATS["actions"].items()}
    state["std"][0], state["q99"][0] = tiny, state["q01"][0] + tiny
    actions["std"][1], actions["q99"][1] = 0.0, actions["q01"][1]
    x = np.array([-0.9, 0.4, 0.0, 1.0, 0.3], np.float32)
    if name == "pi0":
        forward = (x - state["mean"]) / (state["std"] + 1e-6)
        backward = x * (actions["std"] + 1e-6) + actions["mean"]
    else:
        forward = (x - state["q01"]) / (state["q99"] - state["q01"] + 1e-6) * 2.0 - 1.0
        backward = (x + 1.0) / 2.0 * (actions["q99"] - actions["q01"] + 1e-6) + actions["q01"]
    np.testing.assert_allclose(loaded.normalise_state(x), forward, rtol=0, atol=1e-5)
    np.testing.assert_allclose(loaded.action_norm.unnormalise(x), backward, rtol=1e-6, atol=1e-6)
    assert loaded.action_norm.zero_range == (1,)


def test_padding_of_early_statistics_is_cut_off(pi0: Folder) -> None:
    """openpi's first releases stored those of the padded state: a robot has 5 joints, not 8."""
    padded = {
        feature: {name: [*values, 0.0, 0.0, 0.0] for name, values in stats.items()}
        for feature, stats in STATS.items()
    }
    pi0.edit_json(ASSET, "norm_stats", value=padded)
    loaded = load(pi0.path)
    assert (loaded.state_dim, loaded.action_dim) == (5, 5)
    assert any("last 3 hold nothing but zeros" in note for note in loaded.notes)


def test_quantiles_may_be_absent_where_none_are_needed(pi0: Folder) -> None:
    """Early statistics have no quantiles, and Pi0 needs none."""
    for feature in STATS:
        for name in ("q01", "q99"):
            pi0.edit_json(ASSET, "norm_stats", feature, name, value=None)
    assert load(pi0.path).state_norm.mode == "MEAN_STD"


@pytest.mark.filterwarnings("error")
def test_huge_quantiles_are_no_matter_where_none_are_needed(pi0: Folder) -> None:
    """A warning out of NumPy's depths names no file, and there is nothing to be done about it."""
    pi0.edit_json(ASSET, "norm_stats", "state", "q99", 0, value=1e308)
    assert np.isinf(load(pi0.path).state_stats["q99"][0])


def test_one_asset_of_several_is_chosen_by_its_id(pi05: Folder) -> None:
    """Statistics of another robot scale every joint wrongly."""
    other = {feature: {**stats, "q99": [9.0] * 5} for feature, stats in STATS.items()}
    write_statistics(pi05.path, "someone/else", other)
    with pytest.raises(CheckpointError, match=r"holds someone/else, tiny_robot, and none was chosen.*embodi"):
        load(pi05.path)
    with pytest.raises(CheckpointError, match=r"holds someone/else, tiny_robot, and \.\./x is none of them"):
        load(pi05.path, embodiment="../x")
    assert load(pi05.path, embodiment="someone/else").state_stats["q99"][0] == 9
    assert load(pi05.path, embodiment="tiny_robot").state_stats["q99"][0] == np.float32(0.9)


# ---- what no file says ----


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("2,-1", [True, True, False]),
        ("6,-1,6,-1", [True] * 6 + [False] + [True] * 6 + [False]),
        (" 1 , -2 ", [True, False, False]),
        ("-1", [False]),
        ("0", []),
        ("6;-1", None),
        ("", None),
        ("1.5", None),
        ("1000000000000", None),
    ],
)
def test_masks_in_openpis_notation(text: str, mask: list[bool] | None) -> None:
    """make_bool_mask, as users know it from openpi's configuration."""
    got = bool_mask(text)
    assert (None if got is None else got.tolist()) == mask


def test_offsets_to_the_state(pi05: Folder) -> None:
    """Whether actions are offsets decides between a small motion and a leap; openpi keeps it in its code."""
    assert any("delta_actions" in note for note in load(pi05.path).notes)
    loaded = load(pi05.path, delta_actions="3,-1")
    assert loaded.relative_action_mask is not None
    assert loaded.relative_action_mask.tolist() == [True, True, True, False, False]
    assert not any("delta_actions" in note for note in loaded.notes)
    for wrong in ("6", "a", "5,-1"):
        with pytest.raises(CheckpointError, match="delta_actions is"):
            load(pi05.path, delta_actions=wrong)


def test_chunk_size_where_no_file_says_it(pi05: Folder) -> None:
    """openpi's own training writes no config.json; 50 is its default, and a note says so."""
    (pi05.path / CONFIG).unlink()
    pi05.edit_tensors(WEIGHTS, lambda t: [t.update(_widened(t))])
    loaded = load(pi05.path)
    assert loaded.horizon == 50
    assert any("chunk_size" in note for note in loaded.notes)
    said = load(pi05.path, chunk_size=15)
    assert said.horizon == said.config.n_action_steps == 15
    assert not any("chunk_size" in note for note in said.notes)
    with pytest.raises(CheckpointError, match="chunk_size is 0"):
        load(pi05.path, chunk_size=0)


def _widened(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The projections for 32 actions, openpi's width."""
    width = stored["action_in_proj.bias"].numel()
    return {
        "action_in_proj.weight": torch.zeros(width, 32),
        "action_out_proj.weight": torch.zeros(32, width),
        "action_out_proj.bias": torch.zeros(32),
    }


def test_chunk_size_against_the_file_is_refused(pi05: Folder) -> None:
    """Two sources for one number: the user should know that one of them is wrong."""
    assert load(pi05.path, chunk_size=6).horizon == 6
    with pytest.raises(CheckpointError, match=r"chunk_size is 7, but config\.json says action_horizon = 6"):
        load(pi05.path, chunk_size=7)


def test_known_assets_bring_openpis_own_configuration(tmp_path: Path) -> None:
    """pi05_libero is trained without the state in its prompt; with it, it would fail every task."""
    folder = openpi_folder(tmp_path / "libero", "tiny_pi05", "physical-intelligence/libero")
    loaded = load(folder.path)
    assert loaded.prompt == PromptRule(clean=True, lower=False, state=False)
    assert any("state_in_prompt = False" in note for note in loaded.notes)
    assert load(folder.path, state_in_prompt=True).prompt.state


def test_a_mask_that_does_not_fit_the_robot_is_not_assumed(tmp_path: Path) -> None:
    """A fine-tuned policy of another robot may bear the name of openpi's asset."""
    loaded = load(openpi_folder(tmp_path / "aloha", "tiny_pi05", "trossen").path)
    assert loaded.relative_action_mask is None
    assert any("none is; delta_actions = 6,-1 would mean" in note for note in loaded.notes)


def test_state_in_the_prompt_can_be_said(pi05: Folder) -> None:
    """openpi's discrete_state_input, which is in no file."""
    assert load(pi05.path).prompt.state
    assert not load(pi05.path, state_in_prompt=False).prompt.state


def test_pi0_never_has_the_state_in_its_prompt(pi0: Folder) -> None:
    """A switch that does nothing leaves the user believing that it did."""
    assert not load(pi0.path, state_in_prompt=False).prompt.state
    with pytest.raises(CheckpointError, match="state_in_prompt is True, expected False"):
        load(pi0.path, state_in_prompt=True)


def test_tokenizer_may_be_elsewhere(pi05: Folder) -> None:
    """openpi's folders never have one."""
    for file in pi05.path.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(CheckpointError, match="no tokenizer found"):
        load(pi05.path)
    assert load(pi05.path, tokenizer=TOKENIZER).tokenizer.source.parent == TOKENIZER


def test_without_scan_the_values_are_left_to_the_gpu(pi05: Folder) -> None:
    """As with LeRobot's folders: gigabytes are not read twice."""
    pi05.edit_tensors(WEIGHTS, poison(Q0, float("nan")))
    assert load(pi05.path, scan=False).unscanned is not None
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        load(pi05.path)


# ---- damage ----

STATE = ("norm_stats", "state")
DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    "weights cut": (cut(WEIGHTS, 0.7), [WEIGHTS, "truncated"]),
    "weights empty": (content(WEIGHTS, b""), [WEIGHTS, "truncated", "0 bytes"]),
    "tensor missing": (tensors(drop(Q0)), [WEIGHTS, f"missing (1): {Q0}"]),
    "tensor unexpected": (tensors(lambda t: t.update(extra=torch.zeros(2))), ["unexpected (1): extra"]),
    "tensor mis-shaped": (tensors(lambda t: t.update({Q0: t[Q0].T})), [Q0, "[64, 128]", "[128, 64]"]),
    "integer weights": (tensors(lambda t: t.update({Q0: t[Q0].int()})), [Q0, "int32"]),
    "NaN": (tensors(poison(Q0, float("nan"))), [WEIGHTS, "NaN", Q0]),
    "neither policy": (tensors(lambda t: [t.pop(key) for key in list(t) if "norm" in key]), ["Pi0.5", "Pi0"]),
    "patches not square": (
        tensors(lambda t: t.update({k: v[:15] for k, v in t.items() if "position_embedding" in k})),
        ["position_embedding", "15 rows", "square"],
    ),
    "no action width": (entry(CONFIG, "action_dim", value=REMOVED), [CONFIG, "action_dim is missing"]),
    "action width": (
        entry(CONFIG, "action_dim", value=9),
        ["action_in_proj.weight is [32, 8], expected [32, 9]"],
    ),
    "absurd horizon": (entry(CONFIG, "action_horizon", value=10**9), [CONFIG, "action_horizon"]),
    "horizon is text": (entry(CONFIG, "action_horizon", value="6"), [CONFIG, 'action_horizon is "6"']),
    "variant": (entry(CONFIG, "paligemma_variant", value="gemma_9b"), [CONFIG, "gemma_9b", "gemma_2b"]),
    "config broken": (content(CONFIG, b"{"), [CONFIG, "not valid JSON"]),
    "no statistics": (gone(ASSET), ["norm_stats.json: no such file", "<asset id>"]),
    "statistics cut": (cut(ASSET, 0.5), [ASSET, "not valid JSON"]),
    "statistics of nothing": (content(ASSET, b'{"norm_stats": {}}'), [ASSET, "norm_stats.state is missing"]),
    "no mean": (entry(ASSET, *STATE, "mean", value=REMOVED), [ASSET, "norm_stats.state.mean is missing"]),
    "no quantile": (
        entry(ASSET, *STATE, "q99", value=None),
        [ASSET, "norm_stats.state.q99 missing", "QUANT"],
    ),
    "statistics NaN": (entry(ASSET, *STATE, "q01", 2, value=float("nan")), [ASSET, "q01 is NaN", "2"]),
    "statistics infinite": (entry(ASSET, *STATE, "q99", 0, value=10**400), [ASSET, "q99 is NaN or inf", "0"]),
    "statistics beyond float32": (
        entry(ASSET, *STATE, "q99", 0, value=1e308),
        [ASSET, "q99 is NaN or inf", "0"],
    ),
    "span beyond float32": (
        several(entry(ASSET, *STATE, "q01", 0, value=-3e38), entry(ASSET, *STATE, "q99", 0, value=3e38)),
        [ASSET, "the span up to norm_stats.state.q99 is NaN or inf", "0"],
    ),
    "statistics are text": (entry(ASSET, *STATE, "q01", value="0"), [ASSET, 'q01 is "0"', "list of numbers"]),
    "statistics hold null": (entry(ASSET, *STATE, "q01", 1, value=None), [ASSET, "q01", "list of numbers"]),
    "statistics hold true": (entry(ASSET, *STATE, "q01", 1, value=True), [ASSET, "q01", "list of numbers"]),
    "widths differ": (
        entry(ASSET, *STATE, "q01", value=[0.0]),
        [ASSET, "q01 has shape [1], expected [5]", "mean"],
    ),
    "reversed": (
        entry(ASSET, *STATE, "q99", 3, value=-5.0),
        [ASSET, "q99 is below norm_stats.state.q01", "3"],
    ),
    "all zero": (
        entry(ASSET, "norm_stats", "actions", value={n: [0.0] * 3 for n in ("mean", "std", "q01", "q99")}),
        [ASSET, "norm_stats.actions.mean", "zero in all of 3"],
    ),
    "wider than the policy": (
        several(
            *(
                entry(ASSET, "norm_stats", "actions", n, value=[0.5 + i for i in range(9)])
                for n in ("mean", "std", "q01", "q99")
            )
        ),
        ["9 actions", "at most 8"],
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named(pi05: Folder, damage: Damage, words: list[str]) -> None:
    """A message without file and key leaves the user searching."""
    damage(pi05)
    with pytest.raises(CheckpointError) as caught:
        load(pi05.path)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
