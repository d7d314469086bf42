# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0 and Pi0-FAST as LeRobot stores them; what holds for every type is tested with Pi0.5."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels.checkpoint import PiCheckpoint, PromptRule, layout, load_lerobot
from flashrt_kernels.checkpoint.dims import released_dims
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, FIXTURE, REMOVED, TOKENIZER, Folder
from .damage import CONFIG, DIMS, POST, PRE, WEIGHTS, drop, rename

FAST = DATA / "fast_tokenizer_tiny"


def load(folder: Path, **options: bool) -> PiCheckpoint:
    return load_lerobot(folder, TOKENIZER, fast_tokenizer=FAST, **options)


def copy(name: str, to: Path) -> Folder:
    """A LeRobot folder that a test may damage."""
    shutil.copytree(DATA / name, to / name, ignore=shutil.ignore_patterns("oracle*"))
    return Folder(to / name)


@pytest.fixture
def pi0(tmp_path: Path) -> Folder:
    return copy("tiny_pi0", tmp_path)


@pytest.fixture
def pi0_fast(tmp_path: Path) -> Folder:
    return copy("tiny_pi0_fast", tmp_path)


def test_pi0_loads_with_its_own_values() -> None:
    """Its state is a vector beside the prompt, and its instruction is not cleaned."""
    loaded = load(DATA / "tiny_pi0")
    assert (loaded.policy_type, loaded.origin, loaded.denoising_steps) == ("pi0", "lerobot", 10)
    assert loaded.prompt == PromptRule(clean=False, lower=False, state=False)
    assert (loaded.time, loaded.image_filter, loaded.camera_rule) == ("exact", "bilinear", "present first")
    assert (loaded.state_norm.mode, loaded.action_norm.mode) == ("MEAN_STD", "MEAN_STD")
    assert (loaded.horizon, loaded.state_dim, loaded.action_dim) == (6, 5, 5)
    assert loaded.config.tokenizer_max_length == 24
    assert loaded.fast is None
    assert loaded.notes == ()
    stored = load_file(DATA / "tiny_pi0" / WEIGHTS)
    assert len(loaded.tensors) == len(stored) - 2  # the second embedding copy and the expert's unused head
    assert all(torch.equal(tensor, stored["model." + key]) for key, tensor in loaded.tensors.items())


def test_pi0_fast_loads_with_its_own_values() -> None:
    """No expert, no denoising steps; the rules of decoding come from config.json."""
    loaded = load(DATA / "tiny_pi0_fast")
    assert (loaded.policy_type, loaded.denoising_steps, loaded.dims.expert) == ("pi0_fast", None, None)
    assert loaded.prompt == PromptRule(clean=True, lower=False, state=True)
    assert (loaded.fast_skip_tokens, loaded.max_decoding_steps) == (8, 16)
    assert loaded.decoding is not None
    assert loaded.decoding.bos_behind_padding
    assert loaded.decoding.ends_at_bar
    assert loaded.fast is not None
    assert loaded.fast.scale == 10
    assert loaded.action_tokens is not None
    assert loaded.action_tokens.top == loaded.tokenizer.vocab_size - 1 - 8
    assert any("fast_tokenizer_tiny" in line for line in loaded.describe())
    with pytest.raises(ValueError, match="no action expert"):
        _ = loaded.dims.action_expert


def test_released_sizes_have_the_released_tensors() -> None:
    """A wrong table would refuse every released file: Pi0 has 778 tensors, two of them unused copies."""
    pi0 = list(layout.pi0_tensors(released_dims("gemma_2b", "gemma_300m", 224), 32, 32))
    assert len(pi0) == 778 - 2
    shapes = {spec.key: spec.shape for spec in pi0}
    assert shapes["state_proj.weight"] == (1024, 32)
    assert shapes["action_time_mlp_in.weight"] == (1024, 2048)
    assert shapes[layout.EXPERT + "layers.17.input_layernorm.weight"] == (1024,)
    fast = {spec.key for spec in layout.pi0_fast_tensors(released_dims("gemma_2b", None, 224), 32, 32)}
    assert fast == {key for key in shapes if key.startswith(layout.PALIGEMMA)}


@pytest.mark.parametrize("name", ["tiny_pi0_fast", "tiny_pi0_fast_e2e"])
def test_pi0_fast_with_and_without_the_second_embedding(name: str) -> None:
    """Released files keep lm_head only, others both."""
    loaded, stored = load(DATA / name), load_file(DATA / name / WEIGHTS)
    head = stored["model." + layout.LM_HEAD]
    assert torch.equal(loaded.tensors[layout.EMBEDDING], head)


def test_bare_paligemma_keys_are_read(pi0_fast: Folder) -> None:
    """Converters that know no expert leave out the name of the pair."""
    want = load(pi0_fast.path).tensors
    pi0_fast.edit_tensors(WEIGHTS, rename(r"^model\.paligemma_with_expert\.", ""))
    got = load(pi0_fast.path).tensors
    assert list(got) == list(want)


def test_pi05s_names_of_the_time_mlp_are_read_as_pi0s(pi0: Folder) -> None:
    """LeRobot reads them so."""
    pi0.edit_tensors(WEIGHTS, rename(r"^model\.action_time_mlp_", "model.time_mlp_"))
    assert "action_time_mlp_in.weight" in load(pi0.path).tensors


def test_pi0_without_its_state_projection_is_refused(pi0: Folder) -> None:
    """Pi0.5 never uses it, Pi0 sees the robot through nothing else."""
    pi0.edit_tensors(WEIGHTS, drop("model.state_proj.weight"))
    with pytest.raises(CheckpointError, match=r"missing \(1\): state_proj\.weight"):
        load(pi0.path)


# ---- the pipelines ----


@pytest.mark.parametrize("name", ["tiny_pi0", "tiny_pi0_fast"])
def test_pipeline_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
    """Another order of the steps, or another prompt, is another policy."""
    folder = copy(name, tmp_path)
    shutil.copy(FIXTURE / PRE, folder.path / PRE)
    with pytest.raises(CheckpointError, match="pi05_prepare_state_tokenizer_processor_step, a step that"):
        load(folder.path)


def test_pi0_normalises_after_tokenising(pi0: Folder) -> None:
    """Pi0's own order; the one of Pi0.5 would put the normalised state into a prompt."""
    steps = json.loads((pi0.path / PRE).read_text())["steps"]
    pi0.edit_json(PRE, "steps", value=[*steps[:2], *steps[5:], *steps[2:5]])
    with pytest.raises(CheckpointError, match="steps are in the order"):
        load(pi0.path)


def test_folders_of_lerobot_04_have_no_relative_steps(pi0: Folder) -> None:
    """They are read all the same, and the prompt of Pi0 never held the state."""
    steps = pi0.steps(PRE)
    pi0.edit_json(PRE, "steps", steps["relative_actions_processor"], value=REMOVED)
    pi0.edit_json(POST, "steps", pi0.steps(POST)["absolute_actions_processor"], value=REMOVED)
    assert load(pi0.path).notes == ()


@pytest.mark.parametrize("name", ["tiny_pi05", "tiny_pi0_fast"])
def test_padded_state_in_the_prompt(name: str, tmp_path: Path) -> None:
    """LeRobot 0.4 trained with the padded state: ten more numbers in every prompt, where the user says so."""
    folder = copy(name, tmp_path)
    assert load(folder.path).prompt.padded_state is None
    assert load(folder.path, pad_prompt_state=True).prompt.padded_state == 8
    folder.edit_json(PRE, "steps", folder.steps(PRE)["relative_actions_processor"], value=REMOVED)
    folder.edit_json(POST, "steps", folder.steps(POST)["absolute_actions_processor"], value=REMOVED)
    undecided, padded, plain = (load(folder.path, **said) for said in PADDING)
    assert [loaded.prompt.padded_state for loaded in (undecided, padded, plain)] == [None, 8, None]
    assert "pad_prompt_state" in undecided.notes[0]
    assert padded.notes == plain.notes == ()


PADDING: tuple[dict[str, bool], ...] = ({}, {"pad_prompt_state": True}, {"pad_prompt_state": False})


def test_padded_state_without_a_state_in_the_prompt_is_refused() -> None:
    """A switch that does nothing leaves the user believing that it did."""
    with pytest.raises(CheckpointError, match="prompt of pi0 holds no state"):
        load(DATA / "tiny_pi0", pad_prompt_state=True)


# ---- config.json ----


@pytest.mark.parametrize("key", ["use_visual_memory", "use_proprioceptive_memory"])
def test_policies_with_memory_are_refused(key: str, folder: Folder) -> None:
    """LeRobot after 0.6.1 can train them: without their memory they would act on half of what they know."""
    folder.edit_json(CONFIG, key, value=True)
    with pytest.raises(CheckpointError, match=rf"{key} is true, expected false"):
        load(folder.path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("max_decoding_steps", 0, "max_decoding_steps is 0"),
        ("max_decoding_steps", 10**12, "max_decoding_steps"),
        ("fast_skip_tokens", -1, "fast_skip_tokens is -1"),
        ("fast_skip_tokens", 500, "last 500 are left free"),
        ("validate_action_token_prefix", "yes", "validate_action_token_prefix"),
    ],
)
def test_pi0_fast_settings_that_cannot_be_are_named(
    pi0_fast: Folder, key: str, value: object, words: str
) -> None:
    """They say which words of the vocabulary are actions."""
    pi0_fast.edit_json(CONFIG, key, value=value)
    with pytest.raises(CheckpointError, match=words):
        load(pi0_fast.path)


def test_pi0_fast_needs_no_expert_sizes(pi0_fast: Folder) -> None:
    """It has no expert, whatever the file of sizes says."""
    pi0_fast.edit_json(DIMS, "expert", value=REMOVED)
    assert load(pi0_fast.path).dims.expert is None
