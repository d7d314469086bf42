# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which tensors the two GR00T models have, and the names that files give them.

Keys are canonical: those of Isaac-GR00T, without LeRobot's `_groot_model.`. Norms that multiply by their
weight, Qwen3's included, have the kind of a LayerNorm.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from flashrt_kernels.checkpoint.groot_dims import GrootDims, QwenDims, Version
from flashrt_kernels.checkpoint.layout import Kind, TensorSpec

HEAD = "action_head."
DIT = HEAD + "model."
VLSA = HEAD + "vl_self_attention."
VISION = {
    "n16": "backbone.model.vision_model.vision_model.",
    "n17": "backbone.model.model.visual.",
}
LLM = {"n16": "backbone.model.language_model.model.", "n17": "backbone.model.model.language_model."}
LM_HEAD = {"n16": "backbone.model.language_model.lm_head.weight", "n17": "backbone.model.lm_head.weight"}
PROJECTOR = "backbone.model.mlp1."  # N1.6
TIME_FEATURES = 256  # sines and cosines of the DiT's timestep
_STATE = 8  # numbers of a small robot's state
FRAMES = 2  # pictures in a patch of N1.7; a still picture is repeated

_LEROBOT = re.compile(r"^_groot_model\.")
# Used in training only: the token that stands for a dropped state, SigLIP2's pooling head.
_UNUSED = re.compile(r"^(action_head\.mask_token|backbone\.model\.vision_model\.vision_model\.head\..*)$")


@dataclass(frozen=True)
class StackedSpec(TensorSpec):
    """One matrix [inputs, outputs] for each embodiment. used: inputs that a robot fills, None: all."""

    used: int | None = None

    @property
    def fan_in(self) -> int:
        return self.used or self.shape[1]


def canonical_keys(version: Version, found: Collection[str]) -> Callable[[str], str | None]:
    """Key in a file that holds the keys `found` → canonical key, None for tensors that inference never uses.

    The language model's output is not used; where it is the only copy of the embedding it stands for it.
    """
    embedding, lm_head = LLM[version] + "embed_tokens.weight", LM_HEAD[version]
    tied = not any(key.endswith(embedding) for key in found)
    unused = {LLM[version] + "norm.weight"} if version == "n17" else set()  # N1.7 reads the last layer itself

    def canonical(key: str) -> str | None:
        key = _LEROBOT.sub("", key)
        if key == lm_head:
            return embedding if tied else None
        return None if key in unused or _UNUSED.match(key) else key

    return canonical


def groot_tensors(dims: GrootDims) -> Iterator[TensorSpec]:
    """Every tensor that the policy uses."""
    yield from _siglip(dims) if dims.version == "n16" else _qwen_vision(dims)
    yield from _qwen(LLM[dims.version], dims.llm, final_norm=dims.version == "n16")
    yield from _head(dims)


def _linear(
    name: str, out: int, *inputs: int, bias: bool = True, kind: Kind = "linear"
) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (out, *inputs), kind, bf16=True)
    if bias:
        yield TensorSpec(f"{name}.bias", (out,), "bias", bf16=True)


def _norm(name: str, width: int, kind: Kind = "layer_norm") -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (width,), kind, bf16=True)
    yield TensorSpec(f"{name}.bias", (width,), "bias", bf16=True)


def _siglip(dims: GrootDims) -> Iterator[TensorSpec]:
    """SigLIP2, whose patches enter as rows, and the projector behind it."""
    vision, prefix = dims.vision, VISION["n16"]
    yield from _linear(prefix + "embeddings.patch_embedding", vision.width, 3 * vision.patch**2)
    yield TensorSpec(
        prefix + "embeddings.position_embedding.weight",
        (vision.position_grid**2, vision.width),
        "embedding",
        bf16=True,
    )
    for i in range(vision.depth):
        layer = f"{prefix}encoder.layers.{i}."
        yield from _norm(layer + "layer_norm1", vision.width, "attention_layer_norm")
        yield from _norm(layer + "layer_norm2", vision.width)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}self_attn.{name}", vision.width, vision.width)
        yield from _linear(layer + "mlp.fc1", vision.mlp, vision.width)
        yield from _linear(layer + "mlp.fc2", vision.width, vision.mlp)
    yield from _norm(prefix + "post_layernorm", vision.width)
    yield from _norm(PROJECTOR + "0", vision.merged)
    yield from _linear(PROJECTOR + "1", dims.llm.width, vision.merged)
    yield from _linear(PROJECTOR + "3", dims.llm.width, dims.llm.width)


def _qwen_vision(dims: GrootDims) -> Iterator[TensorSpec]:
    """The ViT of Qwen3-VL with its mergers."""
    vision, prefix = dims.vision, VISION["n17"]
    patch = (3, FRAMES, vision.patch, vision.patch)
    yield from _linear(prefix + "patch_embed.proj", vision.width, *patch)
    yield TensorSpec(
        prefix + "pos_embed.weight", (vision.position_grid**2, vision.width), "embedding", bf16=True
    )
    for i in range(vision.depth):
        block = f"{prefix}blocks.{i}."
        yield from _norm(block + "norm1", vision.width, "attention_layer_norm")
        yield from _norm(block + "norm2", vision.width)
        yield from _linear(block + "attn.qkv", 3 * vision.width, vision.width)
        yield from _linear(block + "attn.proj", vision.width, vision.width)
        yield from _linear(block + "mlp.linear_fc1", vision.mlp, vision.width)
        yield from _linear(block + "mlp.linear_fc2", vision.width, vision.mlp)
    mergers = [(prefix + "merger.", vision.width)]
    mergers += [(f"{prefix}deepstack_merger_list.{i}.", vision.merged) for i in range(len(vision.deepstack))]
    for merger, normed in mergers:
        yield from _norm(merger + "norm", normed)
        yield from _linear(merger + "linear_fc1", vision.merged, vision.merged)
        yield from _linear(merger + "linear_fc2", dims.llm.width, vision.merged)


def _qwen(prefix: str, llm: QwenDims, final_norm: bool) -> Iterator[TensorSpec]:
    """Token embedding and the kept layers of Qwen3."""

    def norm(name: str, width: int, kind: Kind = "layer_norm") -> TensorSpec:
        return TensorSpec(f"{prefix}{name}.weight", (width,), kind, bf16=True)

    yield TensorSpec(prefix + "embed_tokens.weight", (llm.vocab, llm.width), "unit_embedding", bf16=True)
    queries, keys = llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
    for i in range(llm.depth):
        layer = f"layers.{i}."
        yield norm(layer + "input_layernorm", llm.width)
        yield norm(layer + "post_attention_layernorm", llm.width, "mlp_norm")
        for name in ("q_norm", "k_norm"):
            yield norm(f"{layer}self_attn.{name}", llm.head_dim)
        for name, out, inputs in (
            ("self_attn.q_proj", queries, llm.width),
            ("self_attn.k_proj", keys, llm.width),
            ("self_attn.v_proj", keys, llm.width),
            ("self_attn.o_proj", llm.width, queries),
            ("mlp.gate_proj", llm.mlp, llm.width),
            ("mlp.up_proj", llm.mlp, llm.width),
            ("mlp.down_proj", llm.width, llm.mlp),
        ):
            yield from _linear(prefix + layer + name, out, inputs, bias=False)
    if final_norm:
        yield norm("norm", llm.width)


def _by_embodiment(
    name: str, dims: GrootDims, inputs: int, out: int, kind: Kind = "linear", used: int | None = None
) -> Iterator[TensorSpec]:
    embodiments = dims.head.embodiments
    yield StackedSpec(f"{HEAD}{name}.W", (embodiments, inputs, out), kind, bf16=True, used=used)
    yield TensorSpec(f"{HEAD}{name}.b", (embodiments, out), "bias", bf16=True)


def _head(dims: GrootDims) -> Iterator[TensorSpec]:
    head = dims.head
    # Of the numbers that fit, a robot's state has few: random weights must not drown them.
    yield from _by_embodiment("state_encoder.layer1", dims, head.max_state, head.hidden, "state_mlp", _STATE)
    yield from _by_embodiment("state_encoder.layer2", dims, head.hidden, head.width, "state_mlp")
    for name, inputs, out in (
        ("action_encoder.W1", head.max_action, head.width),
        ("action_encoder.W2", 2 * head.width, head.width),
        ("action_encoder.W3", head.width, head.width),
        ("action_decoder.layer1", head.output, head.hidden),
    ):
        yield from _by_embodiment(name, dims, inputs, out)
    yield from _by_embodiment("action_decoder.layer2", dims, head.hidden, head.max_action, "action_output")
    yield TensorSpec(HEAD + "position_embedding.weight", (head.positions, head.width), "embedding", bf16=True)
    yield from _norm(HEAD + "vlln", dims.llm.width)
    for i in range(head.vlsa_depth):
        block = f"{VLSA}transformer_blocks.{i}."
        yield from _norm(block + "norm1", dims.llm.width)
        yield from _norm(block + "norm3", dims.llm.width)
        yield from _attention(block + "attn1.", dims.llm.width, dims.llm.width, "quiet_branch")
        yield from _feed_forward(block + "ff.", dims.llm.width, dims.vlsa_mlp, "quiet_branch")
    embedder = DIT + "timestep_encoder.timestep_embedder."
    yield from _linear(embedder + "linear_1", head.width, TIME_FEATURES)
    yield from _linear(embedder + "linear_2", head.width, head.width)
    for i in range(head.depth):
        block = f"{DIT}transformer_blocks.{i}."
        yield from _linear(block + "norm1.linear", 2 * head.width, head.width)
        yield from _attention(block + "attn1.", head.width, head.width if i % 2 else dims.llm.width)
        yield from _feed_forward(block + "ff.", head.width, head.mlp)
    yield from _linear(DIT + "proj_out_1", 2 * head.width, head.width)
    yield from _linear(DIT + "proj_out_2", head.output, head.width)


def _attention(prefix: str, width: int, context: int, end: Kind = "linear") -> Iterator[TensorSpec]:
    yield from _linear(prefix + "to_q", width, width)
    yield from _linear(prefix + "to_k", width, context)
    yield from _linear(prefix + "to_v", width, context)
    yield from _linear(prefix + "to_out.0", width, width, kind=end)


def _feed_forward(prefix: str, width: int, mlp: int, end: Kind = "linear") -> Iterator[TensorSpec]:
    yield from _linear(prefix + "net.0.proj", mlp, width)
    yield from _linear(prefix + "net.2", width, mlp, kind=end)
