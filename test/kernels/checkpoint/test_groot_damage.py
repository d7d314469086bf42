# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every damage of a GR00T checkpoint is refused with a message that tells what to repair."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashrt_kernels.checkpoint.groot import GrootCheckpoint, load_groot, recognise
from flashrt_kernels.errors import CheckpointError

from .conftest import REMOVED, Folder
from .damage import (
    ANY_JSON,
    CHOICES,
    CONFIG,
    DIMS,
    POST,
    PRE,
    WEIGHTS,
    Damage,
    content,
    cut,
    drop,
    entry,
    gone,
    load_with,
    pickled,
    poison,
    replaced,
    several,
    tensors,
)
from .groot_folders import (
    DECODE,
    ENCODE,
    N17,
    PACK,
    PACK_STATE,
    UNPACK_STATE,
    as_lerobot,
    copied,
    sharded,
    with_flat_statistics,
)

SETTINGS, STATISTICS, IDS = "processor_config.json", "statistics.json", "embodiment_id.json"
INDEX = "model.safetensors.index.json"
KWARGS = ("processor_kwargs",)
BODY = ("processor_kwargs", "modality_configs", "tiny_arm")
QKV = "backbone.model.model.visual.blocks.1.attn.qkv.weight"
GATE = "backbone.model.model.language_model.layers.2.mlp.gate_proj.weight"
W1 = "action_head.action_encoder.W1.W"


def weight_map(change: Callable[[dict[str, str]], object]) -> Damage:
    def damage(folder: Folder) -> None:
        sharded(folder)
        document = json.loads((folder.path / INDEX).read_text())
        change(document["weight_map"])
        (folder.path / INDEX).write_text(json.dumps(document))

    return damage


# What was done to an Isaac-GR00T folder → words that the message must contain.
ISAAC: dict[str, tuple[Damage, list[str]]] = {
    # weights
    "tensor missing": (tensors(drop(QKV)), [WEIGHTS, "missing (1)", QKV]),
    "tensor with sizes missing": (tensors(drop(W1)), [WEIGHTS, "missing (1)", W1]),
    "tensor mis-shaped": (
        tensors(lambda t: t.update({QKV: t[QKV].T})),
        [WEIGHTS, QKV, "[32, 96]", "[96, 32]"],
    ),
    "tensor with sizes of other rank": (
        tensors(lambda t: t.update({W1: t[W1][0]})),
        [WEIGHTS, W1, "[8, 48]", "3 dimensions"],
    ),
    "integer weights": (
        tensors(lambda t: t.update({GATE: t[GATE].to(torch.int32)})),
        [GATE, "int32", "float32"],
    ),
    "NaN": (tensors(poison(GATE, float("nan"))), [WEIGHTS, GATE, "1 of 8192"]),
    "infinity": (tensors(poison(QKV, float("inf"))), [WEIGHTS, QKV]),
    "weights cut": (cut(WEIGHTS, 0.7), [WEIGHTS, "truncated"]),
    "weights pickled": (pickled(WEIGHTS, zipped=True), [WEIGHTS, "never loaded"]),
    "weights gone": (gone(WEIGHTS), [WEIGHTS, "no such file"]),
    "shard gone": (
        several(sharded, gone("model-00002-of-00002.safetensors")),
        ["model-00002-of-00002.safetensors", "no such file"],
    ),
    "shard outside the folder": (
        weight_map(lambda m: m.update({QKV: "../model.safetensors"})),
        [INDEX, f"weight_map.{QKV} is ../model.safetensors", "plain name"],
    ),
    "index of other shards": (
        weight_map(lambda m: m.update({"extra": "model-00001-of-00002.safetensors"})),
        [INDEX, "missing, but in the index (1): extra in model-00001-of-00002.safetensors"],
    ),
    "index without a tensor": (
        weight_map(lambda m: m.pop(QKV)),
        [INDEX, "unexpected, not in the index (1)", QKV],
    ),
    "empty index": (weight_map(lambda m: m.clear()), [INDEX, "missing (1)", "which gives sizes"]),
    # sizes
    "sizes that differ": (
        entry(CONFIG, "max_action_dim", value=132),
        [CONFIG, "max_action_dim is 132, but the tensors have 8"],
    ),
    "absurd depth": (entry(CONFIG, "select_layer", value=10**9), [CONFIG, "select_layer", "1000000000"]),
    "wrong heads": (entry(DIMS, "dit_heads", value=5), [DIMS, "48 wide", "5 heads"]),
    "wrong sections": (
        entry(DIMS, "qwen", "mrope_section", value=[4, 4, 4]),
        [DIMS, "mrope_section is [4, 4, 4]", "head_dim / 2 = 8"],
    ),
    "deepstack outside": (
        entry(DIMS, "qwen", "deepstack", value=[0, 9]),
        [DIMS, "deepstack is [0, 9]", "tower of 4"],
    ),
    "another head": (
        entry(CONFIG, "use_alternate_vl_dit", value=False),
        [CONFIG, "use_alternate_vl_dit is False, expected True"],
    ),
    "state history": (entry(CONFIG, "state_history_length", value=3), [CONFIG, "state_history_length is 3"]),
    "another version": (entry(CONFIG, "model_type", value="gr00t_n1_5"), [CONFIG, "gr00t_n1_5", "Gr00tN1d7"]),
    "horizon too long": (
        entry(SETTINGS, *BODY, "action", "delta_indices", value=list(range(7))),
        ["relative_action.arm.min", "at least 7 rows"],
    ),
    # the body
    "no processor": (gone(SETTINGS), [SETTINGS, "no such file"]),
    "no statistics": (gone(STATISTICS), [STATISTICS, "no such file"]),
    "no body in common": (
        content(STATISTICS, b"{}"),
        ["no embodiment is in both", SETTINGS, "tiny_arm", STATISTICS, "none"],
    ),
    "no weights for the body": (
        entry(IDS, "tiny_arm", value=REMOVED),
        [IDS, "does not say which weights are those of tiny_arm", "other_arm", "libero_sim"],
    ),
    "weights beyond the last": (
        entry(IDS, "tiny_arm", value=4),
        ["tiny_arm", "weights of the embodiment are number 4, expected at most 3"],
    ),
    "weights before the first": (entry(IDS, "tiny_arm", value=-1), [IDS, "tiny_arm is -1"]),
    "a group without statistics": (
        entry(STATISTICS, "tiny_arm", "state", "gripper", value=REMOVED),
        [STATISTICS, "tiny_arm.state.gripper is missing"],
    ),
    "a statistic missing": (
        entry(STATISTICS, "tiny_arm", "state", "arm", "q99", value=REMOVED),
        [STATISTICS, "tiny_arm.state.arm.q99 is missing"],
    ),
    "a statistic too short": (
        entry(STATISTICS, "tiny_arm", "state", "arm", "q99", value=[1.0]),
        [STATISTICS, "tiny_arm.state.arm.q99 has shape [1], expected [6]"],
    ),
    "NaN statistic": (
        entry(STATISTICS, "tiny_arm", "action", "gripper", "q01", value=[float("nan")]),
        [STATISTICS, "tiny_arm.action.gripper.q01 is [NaN]", "finite"],
    ),
    "ragged statistic": (
        entry(STATISTICS, "tiny_arm", "relative_action", "arm", "max", 0, value=[1.0]),
        [STATISTICS, "tiny_arm.relative_action.arm.max", "one length"],
    ),
    "bounds the wrong way round": (
        entry(STATISTICS, "tiny_arm", "state", "arm", "q01", 2, value=9.0),
        [STATISTICS, "tiny_arm.state.arm.q99 is below q01 in dimension(s) 2"],
    ),
    "relative without statistics": (
        entry(STATISTICS, "tiny_arm", "relative_action", value=REMOVED),
        [STATISTICS, "tiny_arm.relative_action is missing"],
    ),
    "more groups than configs": (
        entry(SETTINGS, *BODY, "action", "action_configs", value=[]),
        [SETTINGS, "action_configs has 0 entries", "arm, gripper"],
    ),
    "a view twice": (
        entry(SETTINGS, *BODY, "video", "modality_keys", value=["front", "front"]),
        [SETTINGS, "video.modality_keys", "distinct"],
    ),
    "several frames": (
        entry(SETTINGS, *BODY, "video", "delta_indices", value=[-15, 0]),
        [SETTINGS, "video.delta_indices is [-15.0, 0.0], expected [0]"],
    ),
    "end effector in another form": (
        entry(SETTINGS, *BODY, "action", "action_configs", 0, "type", value="EEF"),
        [SETTINGS, "action_configs[0].format is DEFAULT, expected XYZ_ROT6D"],
    ),
    "unknown type": (
        entry(SETTINGS, *BODY, "action", "action_configs", 0, "type", value="TORQUE"),
        [SETTINGS, "action_configs[0].type is TORQUE"],
    ),
    "touch sensors": (entry(SETTINGS, *KWARGS, "use_tactile", value=True), [SETTINGS, "use_tactile is true"]),
    "no state": (entry(SETTINGS, *KWARGS, "exclude_state", value=True), [SETTINGS, "exclude_state is true"]),
    "crop beyond the image": (
        entry(SETTINGS, *KWARGS, "crop_fraction", value=1.5),
        [SETTINGS, "crop_fraction is 1.5, expected at most 1"],
    ),
    "crop size": (
        entry(SETTINGS, *KWARGS, "image_crop_size", value=[44]),
        [SETTINGS, "image_crop_size is [44]", "2 positive integers"],
    ),
    "tokenizer cut": (cut("tokenizer.json", 0.5), ["tokenizer.json", "not a readable"]),
}

# The same for a folder that LeRobot saved.
LEROBOT: dict[str, tuple[Damage, list[str]]] = {
    "N1.5": (entry(CONFIG, "tokenizer_assets_repo", value="x"), [CONFIG, "N1.5"]),
    "no preprocessor": (gone(PRE), [PRE, "no such file"]),
    "state file gone": (gone(PACK_STATE), [PACK_STATE, "no such file"]),
    "state file elsewhere": (
        entry(PRE, "steps", PACK, "state_file", value="../x.safetensors"),
        [PRE, "state_file is '../x.safetensors'", "plain name"],
    ),
    "state file without the state": (
        tensors(drop("observation.state.min"), PACK_STATE),
        [PACK_STATE, "observation.state.min missing"],
    ),
    "NaN in the state file": (
        tensors(poison("observation.state.max", float("nan")), PACK_STATE),
        [PACK_STATE, "observation.state.max holds NaN"],
    ),
    "other state": (
        tensors(
            lambda t: t.update({f"observation.state.{b}": torch.ones(6) for b in ("min", "max")}), PACK_STATE
        ),
        [PRE, "raw_stats.state has groups of [6, 1] numbers", "observation.state.min has 6"],
    ),
    "other state feature": (
        entry(CONFIG, "input_features", "observation.state", "shape", value=[8]),
        [CONFIG, "observation.state has shape [8], but the statistics have 7"],
    ),
    "unknown step": (
        entry(PRE, "steps", 1, "registry_name", value="normalizer_processor"),
        [PRE, "steps[1].registry_name is normalizer_processor"],
    ),
    "step missing": (
        entry(PRE, "steps", ENCODE, value=REMOVED),
        [PRE, "steps lacks groot_n1_7_vlm_encode_v1"],
    ),
    "no decoding": (
        entry(POST, "steps", DECODE, value=REMOVED),
        [POST, "steps lacks groot_n1_7_action_decode"],
    ),
    "state as it is": (
        entry(PRE, "steps", PACK, "config", "normalize_min_max", value=False),
        [PRE, "normalize_min_max is false"],
    ),
    "unknown transform": (
        entry(POST, "steps", DECODE, "config", "action_decode_transform", value="aloha"),
        [POST, "action_decode_transform", "aloha", "libero"],
    ),
    "libero without a gripper": (
        several(
            entry(POST, "steps", DECODE, "config", "action_decode_transform", value="libero"),
            entry(POST, "steps", DECODE, "config", "env_action_dim", value=6),
        ),
        [POST, "action_decode_transform is libero", "gripper"],
    ),
    "not clipped": (
        lambda folder: with_flat_statistics(folder, clip_normalized_action=False),
        [POST, "clip_normalized_action is false"],
    ),
    "flat statistics the wrong way round": (
        several(
            with_flat_statistics,
            tensors(lambda t: t.update({"action.max": t["action.min"] - 1}), UNPACK_STATE),
        ),
        [POST, "stats of action", "none of max below its min"],
    ),
    "no camera": (
        several(
            with_flat_statistics,
            *(entry(CONFIG, "input_features", f"observation.images.{c}", value=REMOVED) for c in "ab"),
        ),
        [PRE, "video_modality_keys gives the cameras []"],
    ),
}


def refused(path: Path, words: list[str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_groot(path)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@pytest.mark.parametrize(("damage", "words"), ISAAC.values(), ids=ISAAC)
def test_damage_is_named(tmp_path: Path, damage: Damage, words: list[str]) -> None:
    """A message without the file and key leaves the user searching through gigabytes."""
    folder = copied(N17, tmp_path / "n17")
    damage(folder)
    refused(folder.path, words)


@pytest.mark.parametrize(("damage", "words"), LEROBOT.values(), ids=LEROBOT)
def test_damage_of_a_lerobot_folder_is_named(tmp_path: Path, damage: Damage, words: list[str]) -> None:
    """The same for what LeRobot saves."""
    folder = as_lerobot(copied(N17, tmp_path / "n17"))
    damage(folder)
    refused(folder.path, words)


FILES = [path for path in sorted(N17.iterdir()) if not path.name.startswith(("oracle", "policy"))]
SMALL = [path.name for path in FILES if path.suffix == ".json" and "tokenizer" not in path.name]
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of which one file at a time is replaced."""
    folder = tmp_path_factory.mktemp("linked")
    for path in FILES:
        shutil.copy(path, folder)
    return folder


def load(folder: Path) -> GrootCheckpoint:
    """As load_checkpoint: recognised first."""
    recognise(folder)
    return load_groot(folder)


@fuzz
@given(name=st.sampled_from([path.name for path in FILES]), keep=st.floats(0, 0.999))
def test_truncated_files_are_refused(linked: Path, name: str, keep: float) -> None:
    """A copy that stopped half-way is the most frequent damage of all."""
    data = (linked / name).read_bytes()
    outcome = load_with(load, linked, name, data[: int(keep * len(data.rstrip()))])
    if name != "chat_template.jinja":  # text: what is left may still be a template
        assert isinstance(outcome, CheckpointError)


@fuzz
@given(name=st.sampled_from(SMALL), choices=CHOICES, value=ANY_JSON)
def test_any_value_anywhere_is_taken_or_refused_in_words(
    linked: Path, name: str, choices: list[int], value: object
) -> None:
    """An exception of another kind would pass the node's handler of bad checkpoints."""
    document = replaced(json.loads((linked / name).read_text()), choices, value)
    outcome = load_with(load, linked, name, json.dumps(document).encode())
    assert isinstance(outcome, GrootCheckpoint | CheckpointError)
