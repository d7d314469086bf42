# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which tensors a policy has: one table per model part, generated from the sizes.

The strict reader checks a file against these tables and `make_checkpoint` fills them, so both always agree.
Keys are canonical: without LeRobot's leading `model.` and with `vision_tower.vision_model.`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims, VisionDims

PALIGEMMA = "paligemma_with_expert.paligemma."
VISION = PALIGEMMA + "model.vision_tower.vision_model."
PROJECTOR = PALIGEMMA + "model.multi_modal_projector.linear."
VLM = PALIGEMMA + "model.language_model."
EMBEDDING = VLM + "embed_tokens.weight"
LM_HEAD = PALIGEMMA + "lm_head.weight"
EXPERT = "paligemma_with_expert.gemma_expert.model."
EXPERT_LM_HEAD = "paligemma_with_expert.gemma_expert.lm_head.weight"

Kind = Literal[
    "linear",
    "bias",
    "embedding",
    "rms_norm",
    "layer_norm",
    "attention_rms_norm",
    "attention_layer_norm",
    "mlp_rms_norm",
    "mlp_norm",
    "unit_embedding",
    "state_token",
    "state_mlp",
    "action_tokens",
    "quiet_branch",
    "action_output",
]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: canonical key, shape, what it is, and whether LeRobot's bf16 policies store it in bf16.

    loud: rows that stand out among random weights, from one to another.
    """

    key: str
    shape: tuple[int, ...]
    kind: Kind
    bf16: bool = False
    loud: tuple[int, int] = (0, 0)

    @property
    def fan_in(self) -> int:
        """Inputs that one output of a linear layer or convolution sums over."""
        return math.prod(self.shape[1:])


def _linear(
    name: str, out: int, *inputs: int, bias: bool = False, bf16: bool = False, kind: Kind = "linear"
) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (out, *inputs), kind, bf16)
    if bias:
        yield TensorSpec(f"{name}.bias", (out,), "bias", bf16)


def _layer_norm(name: str, width: int, kind: Kind = "layer_norm") -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (width,), kind)
    yield TensorSpec(f"{name}.bias", (width,), "bias")


def vision_tensors(dims: VisionDims, prefix: str = VISION) -> Iterator[TensorSpec]:
    """SigLIP without a pooling head."""
    width, patch = dims.hidden_size, dims.patch_size
    patches = (dims.num_channels, patch, patch)
    yield from _linear(prefix + "embeddings.patch_embedding", width, *patches, bias=True)
    yield TensorSpec(prefix + "embeddings.position_embedding.weight", (dims.patches, width), "embedding")
    for i in range(dims.num_hidden_layers):
        layer = f"{prefix}encoder.layers.{i}."
        yield from _layer_norm(layer + "layer_norm1", width, "attention_layer_norm")
        yield from _layer_norm(layer + "layer_norm2", width)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}self_attn.{name}", width, width, bias=True)
        yield from _linear(layer + "mlp.fc1", dims.intermediate_size, width, bias=True)
        yield from _linear(layer + "mlp.fc2", width, dims.intermediate_size, bias=True)
    yield from _layer_norm(prefix + "post_layernorm", width)


def gemma_tensors(prefix: str, dims: GemmaDims, adaptive: bool) -> Iterator[TensorSpec]:
    """A Gemma stack without embedding. `adaptive`: one Linear of the condition gives scale, shift, gate."""
    width, queries, keys = dims.width, dims.num_heads * dims.head_dim, dims.num_kv_heads * dims.head_dim

    def norm(name: str, kind: Kind = "rms_norm") -> Iterator[TensorSpec]:
        if adaptive:
            yield from _linear(f"{prefix}{name}.dense", 3 * width, width, bias=True)
        else:
            yield TensorSpec(f"{prefix}{name}.weight", (width,), kind)

    for i in range(dims.depth):
        layer = f"layers.{i}."
        yield from norm(layer + "input_layernorm", "attention_rms_norm")
        yield from norm(layer + "post_attention_layernorm", "mlp_rms_norm")
        for name, out, inputs in (
            ("self_attn.q_proj", queries, width),
            ("self_attn.k_proj", keys, width),
            ("self_attn.v_proj", keys, width),
            ("self_attn.o_proj", width, queries),
            ("mlp.gate_proj", dims.mlp_dim, width),
            ("mlp.up_proj", dims.mlp_dim, width),
            ("mlp.down_proj", width, dims.mlp_dim),
        ):
            yield from _linear(prefix + layer + name, out, inputs, bf16=True)
    yield from norm("norm")


def paligemma_tensors(dims: ModelDims) -> Iterator[TensorSpec]:
    """Vision tower, projector, token embedding (the one copy of the tied pair) and Gemma."""
    yield from vision_tensors(dims.vision)
    yield from _linear(PROJECTOR[:-1], dims.vlm.width, dims.vision.hidden_size, bias=True)
    yield TensorSpec(EMBEDDING, (dims.vocab, dims.vlm.width), "embedding", bf16=True)
    yield from gemma_tensors(VLM, dims.vlm, adaptive=False)


def pi05_tensors(dims: ModelDims, action_width: int, state_width: int) -> Iterator[TensorSpec]:
    """Every tensor that Pi0.5 uses. action_width, state_width: padded; the state is in the prompt."""
    width = dims.action_expert.width
    yield from paligemma_tensors(dims)
    yield from gemma_tensors(EXPERT, dims.action_expert, adaptive=True)
    yield from _linear("action_in_proj", width, action_width, bias=True)
    yield from _linear("action_out_proj", action_width, width, bias=True)
    yield from _linear("time_mlp_in", width, width, bias=True)
    yield from _linear("time_mlp_out", width, width, bias=True)


def pi0_tensors(dims: ModelDims, action_width: int, state_width: int) -> Iterator[TensorSpec]:
    """Every tensor that Pi0 uses. action_width, state_width: padded."""
    width = dims.action_expert.width
    yield from paligemma_tensors(dims)
    yield from gemma_tensors(EXPERT, dims.action_expert, adaptive=False)
    yield from _linear("state_proj", width, state_width, bias=True, kind="state_token")
    yield from _linear("action_in_proj", width, action_width, bias=True)
    yield from _linear("action_out_proj", action_width, width, bias=True)
    yield from _linear("action_time_mlp_in", width, 2 * width, bias=True)
    yield from _linear("action_time_mlp_out", width, width, bias=True, kind="action_tokens")


def pi0_fast_tensors(dims: ModelDims, action_width: int, state_width: int) -> Iterator[TensorSpec]:
    """Every tensor that Pi0-FAST uses: actions and state are text."""
    yield from paligemma_tensors(dims)
