# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every damage of a checkpoint is refused with a message that tells what to repair."""

import json

import pytest
import torch

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.errors import CheckpointError

from .conftest import ACTION_FILE, REMOVED, STATE_FILE, Folder
from .damage import (
    CAMERAS,
    CONFIG,
    DIMS,
    EMBED,
    FC1,
    HEAD,
    NORMALIZER,
    POST,
    PRE,
    Q0,
    RELATIVE,
    RENAME,
    TOKENIZE,
    WEIGHTS,
    Damage,
    content,
    cut,
    drop,
    entry,
    gone,
    no_tokenizer,
    only_bin,
    pickled,
    poison,
    rename,
    several,
    tensors,
)


def shorten(t: dict[str, torch.Tensor]) -> None:
    t[EMBED] = t[HEAD] = t[EMBED][:300]


def tokenize_first(folder: Folder) -> None:
    steps = json.loads((folder.path / PRE).read_text())["steps"]
    steps.insert(NORMALIZER, steps.pop(TOKENIZE))
    folder.edit_json(PRE, "steps", value=steps)


# What was done → words that the message must contain.
FEATURES = ("steps", NORMALIZER, "config", "features")
DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    # weights
    "tensor missing": (tensors(drop(Q0)), [WEIGHTS, "missing (1)", Q0.removeprefix("model.")]),
    "tensor unexpected": (
        tensors(lambda t: t.update(extra=torch.zeros(2))),
        [WEIGHTS, "unexpected (1)", "extra"],
    ),
    "tensor mis-shaped": (
        tensors(lambda t: t.update({Q0: t[Q0].T})),
        [WEIGHTS, Q0, "[64, 128]", "[128, 64]"],
    ),
    "both embeddings missing": (tensors(drop(EMBED, HEAD)), ["missing (1)", "embed_tokens.weight"]),
    "tied pair differs": (tensors(lambda t: t.update({HEAD: t[HEAD] + 1})), [HEAD, EMBED, "differ"]),
    "tied pair, two dtypes": (
        tensors(lambda t: t.update({HEAD: t[HEAD].bfloat16()})),
        [HEAD, EMBED, "differ"],
    ),
    "integer weights": (tensors(lambda t: t.update({Q0: t[Q0].to(torch.int32)})), [Q0, "int32", "float32"]),
    "a Pi0 file": (
        tensors(rename(r"(gemma_expert.*norm)\.dense\.bias", r"\1.weight")),
        ["missing (7)", "unexpected (7)", "norm.dense.bias"],
    ),
    "NaN": (tensors(poison(Q0, float("nan"))), [WEIGHTS, Q0.removeprefix("model."), "1 of 8192"]),
    "infinity": (tensors(poison(FC1, -float("inf"))), [WEIGHTS, "layers.1.mlp.fc1.bias"]),
    "weights cut": (cut(WEIGHTS, 0.7), [WEIGHTS, "truncated"]),
    "weights empty": (content(WEIGHTS, b""), [WEIGHTS, "truncated", "0 bytes"]),
    "weights are text": (content(WEIGHTS, b"hello world, no tensors"), [WEIGHTS, "not a safetensors file"]),
    "weights are a web page": (content(WEIGHTS, b"<!DOCTYPE html>"), [WEIGHTS, "HTML"]),
    "weights are a Git LFS pointer": (
        content(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        [WEIGHTS, "git lfs pull"],
    ),
    "torch.save archive renamed": (
        pickled(WEIGHTS, zipped=True),
        [WEIGHTS, "zip", "convert it to safetensors"],
    ),
    "pickle renamed": (pickled(WEIGHTS, zipped=False), [WEIGHTS, "pickle", "convert it to safetensors"]),
    "only a .bin": (only_bin, [WEIGHTS, "no such file", "pytorch_model.bin"]),
    # config.json and model_dims.json
    "no config": (gone(CONFIG), [CONFIG, "no such file"]),
    "broken JSON": (content(CONFIG, b'{"type": "pi05",'), [CONFIG, "not valid JSON", "line 1"]),
    "not UTF-8": (content(CONFIG, b'{"type": "\xff"}'), [CONFIG, "not valid JSON"]),
    "a list for config": (content(CONFIG, b"[1]"), [CONFIG, "expected an object"]),
    "nested without end": (content(CONFIG, b"[" * 100_000), [CONFIG, "not valid JSON"]),
    "NaN in JSON": (content(CONFIG, b'{"type": NaN}'), [CONFIG, "NaN"]),
    "unknown policy": (entry(CONFIG, "type", value="smolvla"), [CONFIG, "type", "smolvla", "pi05"]),
    "no policy type": (entry(CONFIG, "type", value=REMOVED), [CONFIG, "type is missing"]),
    "field missing": (entry(CONFIG, "chunk_size", value=REMOVED), [CONFIG, "chunk_size is missing"]),
    "text for a number": (entry(CONFIG, "chunk_size", value="50"), [CONFIG, 'chunk_size is "50"', "integer"]),
    "true for a number": (entry(CONFIG, "chunk_size", value=True), [CONFIG, "chunk_size is true", "integer"]),
    "zero steps": (entry(CONFIG, "num_inference_steps", value=0), [CONFIG, "num_inference_steps is 0"]),
    "endless chunk": (entry(CONFIG, "chunk_size", value=10**12), [CONFIG, "chunk_size"]),
    "period not positive": (entry(CONFIG, "min_period", value=-1), [CONFIG, "min_period is -1", "positive"]),
    "period infinite": (entry(CONFIG, "max_period", value=10**400), [CONFIG, "max_period"]),
    "periods reversed": (entry(CONFIG, "min_period", value=5.0), [CONFIG, "min_period", "max_period = 4.0"]),
    "resolution not square": (
        entry(CONFIG, "image_resolution", value=[56, 70]),
        ["image_resolution", "square"],
    ),
    "resolution one number": (entry(CONFIG, "image_resolution", value=56), ["image_resolution is 56", "2 "]),
    "no camera": (
        several(*(entry(CONFIG, "input_features", c, value=REMOVED) for c in CAMERAS)),
        [CONFIG, "input_features", "no VISUAL", "observation.state"],
    ),
    "unknown feature type": (
        entry(CONFIG, "input_features", "observation.images.top", "type", value="LIDAR"),
        [CONFIG, "input_features.observation.images.top.type", "LIDAR"],
    ),
    "no state": (
        entry(CONFIG, "input_features", "observation.state", value=REMOVED),
        [CONFIG, "input_features.observation.state is missing"],
    ),
    "state shape": (
        entry(CONFIG, "input_features", "observation.state", "shape", value=[5, 1]),
        [CONFIG, "observation.state.shape is [5, 1]"],
    ),
    "action wider than the model": (
        entry(CONFIG, "output_features", "action", "shape", value=[9]),
        [CONFIG, "output_features.action is 9 wide", "max_action_dim = 8"],
    ),
    "chunk executed beyond its end": (
        entry(CONFIG, "n_action_steps", value=7),
        [CONFIG, "n_action_steps is 7", "chunk_size = 6"],
    ),
    "variant": (
        entry(CONFIG, "paligemma_variant", value="gemma_9b"),
        ["paligemma_variant", "gemma_9b", "gemma_2b"],
    ),
    "names and width": (
        entry(CONFIG, "action_feature_names", value=["a", "b"]),
        [CONFIG, "action_feature_names has 2 names (a, b), expected 5"],
    ),
    "names twice": (
        entry(CONFIG, "action_feature_names", value=["a", "b", "c", "a", "d"]),
        [CONFIG, "action_feature_names has a more than once"],
    ),
    "dims field missing": (entry(DIMS, "vlm", "head_dim", value=REMOVED), [DIMS, "vlm.head_dim is missing"]),
    "dims type": (entry(DIMS, "vision", value=3), [DIMS, "vision is 3", "object"]),
    "dims too deep": (entry(DIMS, "vlm", "depth", value=10**9), [DIMS, "vlm.depth", "512"]),
    "heads": (
        entry(DIMS, "vision", "num_attention_heads", value=5),
        [DIMS, "vision.hidden_size is 48", "= 5"],
    ),
    "patches": (entry(DIMS, "vision", "patch_size", value=15), [DIMS, "vision.image_size is 56", "= 15"]),
    "odd width": (entry(DIMS, "vlm", "width", value=63), [DIMS, "vlm.width is 63", "multiple of 2"]),
    "half a block of a head": (
        entry(DIMS, "vlm", "head_dim", value=24),
        [DIMS, "vlm.head_dim is 24", "multiple of 16"],
    ),
    "half a block of an MLP": (
        entry(DIMS, "expert", "mlp_dim", value=100),
        [DIMS, "expert.mlp_dim is 100", "multiple of 8"],
    ),
    "key heads": (entry(DIMS, "vlm", "num_kv_heads", value=3), [DIMS, "vlm.num_heads is 8", "= 3"]),
    "image size": (
        entry(CONFIG, "image_resolution", value=[70, 70]),
        [DIMS, "vision.image_size is 56", "70"],
    ),
    "activation": (entry(DIMS, "vision", "hidden_act", value="relu"), [DIMS, "vision.hidden_act", "relu"]),
    "depths differ": (entry(DIMS, "expert", "depth", value=2), [DIMS, "expert.depth is 2, expected 3"]),
    "wrong width": (
        entry(DIMS, "expert", "mlp_dim", value=64),
        [WEIGHTS, "wrong shape, sizes from model_dims.json (9)"],
    ),
    # processors
    "no preprocessor": (gone(PRE), [PRE, "no such file"]),
    "no postprocessor": (gone(POST), [POST, "no such file"]),
    "steps missing": (entry(PRE, "steps", value=REMOVED), [PRE, "steps is missing"]),
    "unknown step": (
        entry(PRE, "steps", RELATIVE, "registry_name", value="my_magic_step"),
        [PRE, "steps[2].registry_name is my_magic_step", "normalizer_processor"],
    ),
    "custom step": (
        entry(PRE, "steps", RELATIVE, value={"class": "my.module.Step", "config": {}}),
        [PRE, "steps[2]", "my.module.Step"],
    ),
    "step twice": (
        entry(PRE, "steps", 1, value={"registry_name": "rename_observations_processor", "config": {}}),
        [PRE, "steps[1]", "second time"],
    ),
    "no normaliser": (entry(PRE, "steps", NORMALIZER, value=REMOVED), [PRE, "lacks normalizer_processor"]),
    "no un-normaliser": (entry(POST, "steps", 0, value=REMOVED), [POST, "lacks unnormalizer_processor"]),
    "order": (
        tokenize_first,
        [PRE, "order", "tokenizer_processor, normalizer_processor"],
    ),
    "no state file named": (
        entry(PRE, "steps", NORMALIZER, "state_file", value=REMOVED),
        [PRE, "steps[3].state_file is missing", "observation.state"],
    ),
    "state file outside": (
        entry(PRE, "steps", NORMALIZER, "state_file", value="../other.safetensors"),
        [PRE, "state_file", "../other.safetensors", "plain name"],
    ),
    "state file absent": (gone(STATE_FILE), [STATE_FILE, "no such file"]),
    "state file cut": (cut(ACTION_FILE, 0.5), [ACTION_FILE, "truncated"]),
    "feature absent": (
        entry(PRE, *FEATURES, "observation.state", value=REMOVED),
        [PRE, "features.observation.state is missing"],
    ),
    "feature width": (
        entry(PRE, *FEATURES, "observation.state", "shape", value=[6]),
        [PRE, "observation.state.shape is [6], expected [5]", CONFIG],
    ),
    "unknown mode": (
        entry(PRE, "steps", NORMALIZER, "config", "norm_map", "STATE", value="ZSCORE"),
        [PRE, "norm_map.STATE", "ZSCORE", "MEAN_STD"],
    ),
    "no mode": (
        entry(POST, "steps", 0, "config", "norm_map", "ACTION", value=REMOVED),
        [POST, "norm_map.ACTION is missing"],
    ),
    "normalised images": (
        entry(PRE, "steps", NORMALIZER, "config", "norm_map", "VISUAL", value="MEAN_STD"),
        [PRE, "norm_map.VISUAL is MEAN_STD, expected IDENTITY"],
    ),
    "eps": (entry(PRE, "steps", NORMALIZER, "config", "eps", value=0), [PRE, "config.eps is 0", "positive"]),
    "rename map": (
        entry(PRE, "steps", RENAME, "config", "rename_map", value={"a": 1}),
        [PRE, "rename_map.a is 1", "string"],
    ),
    "padding side": (
        entry(PRE, "steps", TOKENIZE, "config", "padding_side", value="left"),
        [PRE, "padding_side", "left", "right"],
    ),
    "padding": (
        entry(PRE, "steps", TOKENIZE, "config", "padding", value="longest"),
        [PRE, "config.padding", "longest", "max_length"],
    ),
    "truncation": (
        entry(PRE, "steps", TOKENIZE, "config", "truncation", value=False),
        [PRE, "truncation is false, expected true"],
    ),
    "other text": (
        entry(PRE, "steps", TOKENIZE, "config", "task_key", value="subtask"),
        [PRE, "task_key", "subtask", "task"],
    ),
    "no prompt length": (
        entry(PRE, "steps", TOKENIZE, "config", "max_length", value=REMOVED),
        [PRE, "steps[5].config.max_length is missing"],
    ),
    "relative in, absolute not out": (
        entry(PRE, "steps", RELATIVE, "config", "enabled", value=True),
        ["relative_actions_processor", "absolute_actions_processor", "enabled = True", "enabled = False"],
    ),
    "relative without names for all": (
        entry(PRE, "steps", RELATIVE, "config", "action_names", value=["a"]),
        [PRE, "steps[2].config.action_names has 1 names (a), expected 5"],
    ),
    # tokenizer
    "no tokenizer": (no_tokenizer, ["no tokenizer", "tokenizer.json", "tokenizer.model", "`tokenizer`"]),
    "tokenizer cut": (cut("tokenizer.json", 0.5), ["tokenizer.json", "not a readable"]),
    "no BOS": (
        entry("tokenizer_config.json", "bos_token", value="<start>"),
        ["tokenizer.json", "<start>", "bos"],
    ),
    "vocabulary too large": (
        several(entry(DIMS, "vocab", value=300), tensors(shorten)),
        ["tokenizer.json", "511", "300 rows"],
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named(folder: Folder, damage: Damage, words: list[str]) -> None:
    """A message without the file and key leaves the user searching through gigabytes."""
    damage(folder)
    with pytest.raises(CheckpointError) as caught:
        load_lerobot(folder.path)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
