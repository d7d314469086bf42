# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GrootDims of a folder: from the shapes of its tensors, config.json and `model_dims.json`.

Shapes do not show how many heads a projection serves, nor rotary frequencies, nor that a last layer is
missing: these follow config.json, else the released models. `model_dims.json` wins over both; it says no
depths, and beside it the layers that are there count.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashrt_kernels.checkpoint.dims import DIMS_FILE
from flashrt_kernels.checkpoint.fields import Fields, read_json
from flashrt_kernels.checkpoint.groot_dims import (
    GrootDims,
    GrootVisionDims,
    HeadDims,
    QwenDims,
    Version,
    check_dims,
)
from flashrt_kernels.checkpoint.groot_layout import DIT, HEAD, LLM, PROJECTOR, VISION, VLSA
from flashrt_kernels.errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]
_MANY = 1_000_000


@dataclass(frozen=True)
class Released:
    """What of a released model its tensors do not show."""

    vision_heads: int
    llm_heads: int
    llm_kv_heads: int
    theta: float
    deepstack: tuple[int, ...]
    mrope_section: tuple[int, int, int] | None
    dit_heads: int
    vlsa_heads: int
    horizon: int
    vision_depth: int
    llm_depth: int
    dit_depth: int
    vlsa_depth: int


# NVIDIA Eagle-Block2A-2B-v2 and Cosmos-Reason2-2B (a Qwen3-VL-2B), and the heads trained behind them.
RELEASED: dict[Version, Released] = {
    "n16": Released(
        vision_heads=16,
        llm_heads=16,
        llm_kv_heads=8,
        theta=1e6,
        deepstack=(),
        mrope_section=None,
        dit_heads=32,
        vlsa_heads=0,
        horizon=50,
        vision_depth=27,
        llm_depth=16,
        dit_depth=32,
        vlsa_depth=0,
    ),
    "n17": Released(
        vision_heads=16,
        llm_heads=16,
        llm_kv_heads=8,
        theta=5e6,
        deepstack=(5, 11, 17),
        mrope_section=(24, 20, 20),
        dit_heads=32,
        vlsa_heads=32,
        horizon=40,
        vision_depth=24,
        llm_depth=16,
        dit_depth=32,
        vlsa_depth=4,
    ),
}


class _Sizes:
    """Shapes by canonical key; a missing tensor is an error that names the file.

    counted: whether the layers that are there count.
    """

    def __init__(self, file: Path, shapes: Shapes, counted: bool) -> None:
        self.file, self._shapes, self._counted = file, shapes, counted

    def __call__(self, key: str, axis: int, rank: int) -> int:
        if key not in self._shapes:
            raise CheckpointError(
                f"{self.file}: the tensors do not fit the policy:\n  missing (1): {key}, which gives sizes"
            )
        shape = self._shapes[key]
        if len(shape) != rank:
            raise CheckpointError(f"{self.file}: {key} is {list(shape)}, expected {rank} dimensions")
        return shape[axis]

    def depth(self, prefix: str, released: int) -> int:
        """Layers `<prefix><number>.…` that must be there."""
        if not self._counted:
            return released
        pattern = re.compile(re.escape(prefix) + r"(\d{1,4})\.")
        found = [int(match[1]) for key in self._shapes if (match := pattern.match(key))]
        return max(found, default=-1) + 1


def read_groot_dims(version: Version, config: Fields, weights: Path, shapes: Shapes) -> GrootDims:
    """The sizes of the policy whose tensors, in the file `weights`, have these shapes by canonical key.

    config: of config.json, for LeRobot's an object without sizes. Raises `CheckpointError` for tensors that
    give the sizes and are missing, and for sizes that contradict each other, naming file and key.
    """
    path = weights.parent / DIMS_FILE
    size = _Sizes(weights, shapes, counted=path.exists())
    given = read_json(path) if path.exists() else Fields(path, "", {})
    vision = _vision_n16(size, given) if version == "n16" else _vision_n17(size, given)
    dims = GrootDims(
        version=version,
        vision=vision,
        llm=_llm(version, size, given, config),
        head=_head(version, size, given, config),
    )
    check_dims(dims, f"{path if path.exists() else weights}")
    _check_config(config, dims)
    return dims


def _square(size: _Sizes, key: str) -> int:
    rows = size(key, 0, 2)
    if math.isqrt(rows) ** 2 != rows:
        raise CheckpointError(f"{size.file}: {key} has {rows} rows, expected the square of a grid's edge")
    return math.isqrt(rows)


def _vision_n16(size: _Sizes, given: Fields) -> GrootVisionDims:
    own = given.child("vis", default={})
    prefix = VISION["n16"]
    features = size(prefix + "embeddings.patch_embedding.weight", 1, 2)
    patch = math.isqrt(features // 3)
    if 3 * patch**2 != features:
        raise CheckpointError(
            f"{size.file}: {prefix}embeddings.patch_embedding.weight has {features} columns, "
            "expected 3 · patch²"
        )
    width = size(prefix + "embeddings.patch_embedding.weight", 0, 2)
    return GrootVisionDims(
        width=width,
        depth=size.depth(prefix + "encoder.layers.", RELEASED["n16"].vision_depth),
        heads=own.integer("heads", 1, _MANY, default=RELEASED["n16"].vision_heads),
        mlp=size(prefix + "encoder.layers.0.mlp.fc1.weight", 0, 2),
        patch=patch,
        position_grid=_square(size, prefix + "embeddings.position_embedding.weight"),
        merge=math.isqrt(size(PROJECTOR + "0.weight", 0, 1) // width),
    )


def _vision_n17(size: _Sizes, given: Fields) -> GrootVisionDims:
    own = given.child("qwen", default={})
    prefix = VISION["n17"]
    width = size(prefix + "patch_embed.proj.weight", 0, 5)
    deepstack = RELEASED["n17"].deepstack
    if own.given("deepstack"):
        deepstack = tuple(int(block) for block in own.array("deepstack").ravel())
    return GrootVisionDims(
        width=width,
        depth=size.depth(prefix + "blocks.", RELEASED["n17"].vision_depth),
        heads=own.integer("vis_heads", 1, _MANY, default=RELEASED["n17"].vision_heads),
        mlp=size(prefix + "blocks.0.mlp.linear_fc1.weight", 0, 2),
        patch=size(prefix + "patch_embed.proj.weight", 4, 5),
        position_grid=_square(size, prefix + "pos_embed.weight"),
        merge=math.isqrt(size(prefix + "merger.linear_fc1.weight", 1, 2) // width),
        deepstack=deepstack,
    )


def _llm(version: Version, size: _Sizes, given: Fields, config: Fields) -> QwenDims:
    own, released, prefix = given.child("qwen", default={}), RELEASED[version], LLM[version]
    section = released.mrope_section
    if own.given("mrope_section"):
        first, second, third = own.integers("mrope_section", count=3)
        section = (first, second, third)
    depth = size.depth(prefix + "layers.", released.llm_depth)
    return QwenDims(
        width=size(prefix + "embed_tokens.weight", 1, 2),
        depth=config.integer("select_layer", 1, 512, default=depth),
        heads=own.integer("heads", 1, _MANY, default=released.llm_heads),
        kv_heads=own.integer("kv_heads", 1, _MANY, default=released.llm_kv_heads),
        head_dim=size(prefix + "layers.0.self_attn.q_norm.weight", 0, 1),
        mlp=size(prefix + "layers.0.mlp.gate_proj.weight", 0, 2),
        vocab=size(prefix + "embed_tokens.weight", 0, 2),
        theta=own.positive("theta", default=released.theta),
        eps=own.positive("eps", default=1e-6),
        mrope_section=section,
    )


def _head(version: Version, size: _Sizes, given: Fields, config: Fields) -> HeadDims:
    released = RELEASED[version]
    dit, vlsa = (
        config.child(name, default={}) if config.given(name) else Fields(config.file, name, {})
        for name in ("diffusion_model_cfg", "vl_self_attention_cfg")
    )
    width = size(DIT + "proj_out_2.weight", 1, 2)
    heads = dit.integer("num_attention_heads", 1, _MANY, default=released.dit_heads)
    heads = given.integer("dit_heads", 1, _MANY, default=heads)
    vlsa_depth = size.depth(VLSA + "transformer_blocks.", released.vlsa_depth)
    vlsa_depth = vlsa.integer("num_layers", 0, 512, default=vlsa_depth)
    dit_depth = size.depth(DIT + "transformer_blocks.", released.dit_depth)
    vlsa_heads = vlsa.integer("num_attention_heads", 0, _MANY, default=released.vlsa_heads)
    vlsa_heads = given.integer("vlsa_heads", 0, _MANY, default=vlsa_heads)
    horizon = config.integer("action_horizon", 1, _MANY, default=released.horizon)
    steps = config.integer("num_inference_timesteps", 1, 1000, default=4)
    return HeadDims(
        hidden=size(HEAD + "state_encoder.layer1.W", 2, 3),
        width=width,
        heads=heads,
        head_dim=width // heads,
        depth=dit.integer("num_layers", 1, 512, default=dit_depth),
        output=size(DIT + "proj_out_2.weight", 0, 2),
        vlsa_depth=vlsa_depth,
        vlsa_heads=vlsa_heads if vlsa_depth else 0,
        horizon=given.integer("action_horizon", 1, _MANY, default=horizon),
        max_state=size(HEAD + "state_encoder.layer1.W", 1, 3),
        max_action=size(HEAD + "action_encoder.W1.W", 1, 3),
        embodiments=size(HEAD + "state_encoder.layer1.W", 0, 3),
        positions=size(HEAD + "position_embedding.weight", 0, 2),
        steps=given.integer("steps", 1, 1000, default=steps),
        time_buckets=config.integer("num_timestep_buckets", 1, _MANY, default=1000),
        text_every=config.integer("attend_text_every_n_blocks", 1, 512, default=2),
    )


def _check_config(config: Fields, dims: GrootDims) -> None:
    """What config.json says about sizes is what the tensors have, and it asks for nothing else."""
    head = dims.head
    for name, size in (
        ("max_state_dim", head.max_state),
        ("max_action_dim", head.max_action),
        ("hidden_size", head.hidden),
        ("input_embedding_dim", head.width),
        ("max_num_embodiments", head.embodiments),
        ("max_seq_len", head.positions),
        ("backbone_embedding_dim", dims.llm.width),
    ):
        if config.integer(name, 0, 10 * _MANY, default=size) != size:
            raise config.error(name, f"is {config.integer(name, 0, 10 * _MANY)}, but the tensors have {size}")
    for name, value in (
        ("use_alternate_vl_dit", True),
        ("use_vlln", True),
        ("add_pos_embed", True),
        ("exclude_state", False),
        ("use_tactile", False),
    ):
        if config.boolean(name, default=value) != value:
            raise config.error(
                name, f"is {not value}, expected {value}: no other form of GR00T is known here"
            )
    history = config.integer("state_history_length", 1, _MANY, default=1)
    if history != 1:
        raise config.error("state_history_length", f"is {history}, expected 1: one state per decision")
    if not config.given("diffusion_model_cfg"):
        return
    dit = config.child("diffusion_model_cfg")
    dit.string("norm_type", choices=("ada_norm",), default="ada_norm")
    if not dit.boolean("interleave_self_attention", default=True):
        raise dit.error(
            "interleave_self_attention", "is false, expected true: every other block attends to itself"
        )
    if dit.given("positional_embeddings"):
        raise dit.error("positional_embeddings", "is given, expected null: none are added in the blocks")
