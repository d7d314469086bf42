# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a random GR00T checkpoint is made of, in the files of Isaac-GR00T."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import torch

from flashrt_kernels.checkpoint.config import IMAGES
from flashrt_kernels.checkpoint.dims import DIMS_FILE
from flashrt_kernels.checkpoint.groot import CONFIG_FILE
from flashrt_kernels.checkpoint.groot_dims import GrootDims, GrootVisionDims, HeadDims, QwenDims, Version
from flashrt_kernels.checkpoint.groot_isaac import EMBODIMENT_FILE, PROCESSOR_FILE, STATISTICS_FILE
from flashrt_kernels.checkpoint.groot_layout import groot_tensors
from flashrt_kernels.checkpoint.groot_sizes import RELEASED
from flashrt_kernels.checkpoint.random_weights import StoredTensor
from flashrt_kernels.checkpoint.recipe import WIDEST, Recipe
from flashrt_kernels.errors import CheckpointError

VERSIONS: dict[str, Version] = {"groot_n16": "n16", "groot_n17": "n17"}
EMBODIMENT, EMBODIMENT_INDEX = "new_embodiment", 10
GROUP = "joints"  # the one group of state and of action
_TINY_VOCAB = 512  # of data/tokenizer_qwen_tiny

# `tiny` decides in milliseconds, `small` has the released image and token counts, `full` is as released.
_VISION: dict[tuple[Version, str], GrootVisionDims] = {
    ("n16", "tiny"): GrootVisionDims(width=32, depth=2, heads=2, mlp=64, patch=14, position_grid=4),
    ("n16", "small"): GrootVisionDims(width=128, depth=3, heads=4, mlp=256, patch=14, position_grid=16),
    ("n16", "full"): GrootVisionDims(width=1152, depth=27, heads=16, mlp=4304, patch=14, position_grid=16),
    ("n17", "tiny"): GrootVisionDims(
        width=32, depth=2, heads=2, mlp=64, patch=16, position_grid=4, deepstack=(0,)
    ),
    ("n17", "small"): GrootVisionDims(
        width=128, depth=3, heads=4, mlp=256, patch=16, position_grid=16, deepstack=(0, 1)
    ),
    ("n17", "full"): GrootVisionDims(
        width=1024, depth=24, heads=16, mlp=4096, patch=16, position_grid=48, deepstack=(5, 11, 17)
    ),
}
_VOCAB = {"n16": 151_680, "n17": 151_936}
_LLM = {
    "tiny": QwenDims(
        width=64, depth=2, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=_TINY_VOCAB, theta=0
    ),
    "small": QwenDims(
        width=192, depth=3, heads=8, kv_heads=4, head_dim=32, mlp=512, vocab=_TINY_VOCAB, theta=0
    ),
    "full": QwenDims(width=2048, depth=16, heads=16, kv_heads=8, head_dim=128, mlp=6144, vocab=0, theta=0),
}
_SECTIONS = {"tiny": (4, 2, 2), "small": (8, 4, 4), "full": (24, 20, 20)}
# Of the head: hidden width, heads, head_dim, blocks; of vl_self_attention: blocks, heads; actions of a chunk.
_HEAD = {
    "tiny": (32, 4, 16, 4, 1, 4, 8),
    "small": (96, 6, 32, 8, 1, 6, 16),
    "full": (1024, 32, 48, 32, 4, 32, 0),
}
_EDGE = {"tiny": {"n16": 56, "n17": 64}, "small": {"n16": 256, "n17": 256}, "full": {"n16": 256, "n17": 256}}


def groot_dims(recipe: Recipe) -> GrootDims:
    version, size = VERSIONS[recipe.policy], recipe.size
    hidden, heads, head_dim, depth, vlsa_depth, vlsa_heads, horizon = _HEAD[size]
    n17, released = version == "n17", RELEASED[version]
    llm = replace(_LLM[size], theta=released.theta, mrope_section=_SECTIONS[size] if n17 else None)
    head = HeadDims(
        hidden=hidden,
        width=heads * head_dim,
        heads=heads,
        head_dim=head_dim,
        depth=depth,
        output=hidden,
        vlsa_depth=vlsa_depth if n17 else 0,
        vlsa_heads=vlsa_heads if n17 else 0,
        horizon=horizon or released.horizon,
        max_state=WIDEST[recipe.policy],
        max_action=WIDEST[recipe.policy],
        embodiments=32,
    )
    return GrootDims(
        version=version,
        vision=_VISION[version, size],
        llm=replace(llm, vocab=llm.vocab or _VOCAB[version]),
        head=head,
    )


def groot_stored(recipe: Recipe) -> list[StoredTensor]:
    """The tensors of the file, under the names of Isaac-GR00T."""
    dtype = torch.bfloat16 if recipe.stored_dtype == "bfloat16" else torch.float32
    return [StoredTensor(spec.key, spec, dtype) for spec in groot_tensors(groot_dims(recipe))]


def groot_files(recipe: Recipe) -> dict[str, bytes]:
    """Name → content of the files beside the weights.

    Raises `CheckpointError` for options that such a folder has no place for.
    """
    dims = groot_dims(recipe)
    if recipe.action_names is not None:
        raise CheckpointError(f"action-names have no place in a folder of {recipe.policy}; expected none")
    if recipe.chunk_size is not None and recipe.chunk_size > dims.head.horizon:
        raise CheckpointError(
            f"chunk-size is {recipe.chunk_size}, expected at most {dims.head.horizon} as {recipe.policy} has"
        )
    documents = {
        CONFIG_FILE: _config(dims),
        DIMS_FILE: None if recipe.size == "full" else _dims_json(dims),
        PROCESSOR_FILE: _processor(recipe, dims),
        STATISTICS_FILE: {EMBODIMENT: _statistics(recipe)},
        EMBODIMENT_FILE: {EMBODIMENT: EMBODIMENT_INDEX},
    }
    files = {
        name: (json.dumps(document, indent=2) + "\n").encode()
        for name, document in documents.items()
        if document is not None
    }
    for file in resources.files("flashrt_kernels").joinpath("data/tokenizer_qwen_tiny").iterdir():
        files[file.name] = file.read_bytes()
    return files


def _config(dims: GrootDims) -> dict[str, Any]:
    head = dims.head
    config: dict[str, Any] = {
        "model_type": "Gr00tN1d6" if dims.version == "n16" else "Gr00tN1d7",
        "backbone_embedding_dim": dims.llm.width,
        "select_layer": dims.llm.depth,
        "max_state_dim": head.max_state,
        "max_action_dim": head.max_action,
        "action_horizon": head.horizon,
        "hidden_size": head.hidden,
        "input_embedding_dim": head.width,
        "max_seq_len": head.positions,
        "max_num_embodiments": head.embodiments,
        "num_inference_timesteps": head.steps,
        "num_timestep_buckets": head.time_buckets,
        "attend_text_every_n_blocks": head.text_every,
        "use_alternate_vl_dit": True,
        "use_vlln": True,
        "add_pos_embed": True,
        "diffusion_model_cfg": _blocks(head.depth, head.heads, head.head_dim)
        | {"norm_type": "ada_norm", "interleave_self_attention": True, "output_dim": head.output},
    }
    if head.vlsa_depth:
        width = dims.llm.width // head.vlsa_heads
        config["vl_self_attention_cfg"] = _blocks(head.vlsa_depth, head.vlsa_heads, width)
    return config


def _blocks(layers: int, heads: int, head_dim: int) -> dict[str, Any]:
    return {
        "num_layers": layers,
        "num_attention_heads": heads,
        "attention_head_dim": head_dim,
        "positional_embeddings": None,
    }


def _dims_json(dims: GrootDims) -> dict[str, Any]:
    """model_dims.json: what shapes and config.json do not show."""
    llm, vision = dims.llm, dims.vision
    qwen = {"heads": llm.heads, "kv_heads": llm.kv_heads, "theta": llm.theta, "eps": llm.eps}
    if dims.version == "n16":
        return {"qwen": qwen, "vis": {"heads": vision.heads}}
    return {
        "qwen": qwen
        | {
            "vis_heads": vision.heads,
            "deepstack": list(vision.deepstack),
            "mrope_section": list(llm.mrope_section or ()),
        }
    }


def _processor(recipe: Recipe, dims: GrootDims) -> dict[str, Any]:
    n17, edge = dims.version == "n17", _EDGE[recipe.size][dims.version]
    horizon = recipe.chunk_size or dims.head.horizon
    config = {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None}
    modalities = {
        "video": _modality([name.removeprefix(IMAGES) for name in recipe.cameras], 1),
        "state": _modality([GROUP], 1),
        "action": _modality([GROUP], horizon) | {"action_configs": [config]},
        "language": _modality(["annotation.human.task_description"], 1),
    }
    images = {
        "image_target_size": [edge, edge] if n17 else None,
        "image_crop_size": [round(edge * 230 / 256)] * 2 if n17 else None,
        "shortest_image_edge": None if n17 else edge,
        "crop_fraction": None if n17 else 0.95,
        "use_albumentations": not n17,
    }
    return {
        "processor_class": "Gr00tN1d7Processor" if n17 else "Gr00tN1d6Processor",
        "processor_kwargs": {
            "modality_configs": {EMBODIMENT: modalities},
            **images,
            "use_percentiles": True,
            "clip_outliers": True,
            "use_relative_action": False,
            "formalize_language": True,
            "max_state_dim": dims.head.max_state,
            "max_action_dim": dims.head.max_action,
            "max_action_horizon": dims.head.horizon,
        },
    }


def _modality(keys: Sequence[str], steps: int) -> dict[str, Any]:
    return {"delta_indices": list(range(steps)), "modality_keys": list(keys)}


def _statistics(recipe: Recipe) -> dict[str, dict[str, dict[str, list[float]]]]:
    """As of values spread evenly over the ranges."""
    found = {}
    for kind, width, low, high in (
        ("state", recipe.state_dim, recipe.state_low, recipe.state_high),
        ("action", recipe.action_dim, recipe.action_low, recipe.action_high),
    ):
        bottom, top = (np.broadcast_to(np.asarray(end, np.float64), width) for end in (low, high))
        values = {"min": bottom, "q01": bottom, "mean": (bottom + top) / 2, "q99": top, "max": top}
        values["std"] = (top - bottom) / 12**0.5
        found[kind] = {GROUP: {name: value.tolist() for name, value in values.items()}}
    return found
