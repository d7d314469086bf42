# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The arrays of openpi's JAX policies, and the canonical tensors that each of them holds.

JAX stacks the layers in front and multiplies from the right: kernels are [layers, inputs, outputs]. Source of
the names: openpi 15a9616, models/{siglip, gemma, pi0}.py and examples/convert_jax_model_to_pytorch.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims, VisionDims
from flashrt_kernels.checkpoint.layout import EMBEDDING, EXPERT, PROJECTOR, VISION, VLM

IMAGE = "PaliGemma/img/"
BLOCK = IMAGE + "Transformer/encoderblock/"
LANGUAGE = "PaliGemma/llm/"
LAYERS = LANGUAGE + "layers/"
# Policy type → its linear layers outside PaliGemma.
PROJECTIONS = {
    "pi05": ("action_in_proj", "action_out_proj", "time_mlp_in", "time_mlp_out"),
    "pi0": ("action_in_proj", "action_out_proj", "state_proj", "action_time_mlp_in", "action_time_mlp_out"),
    "pi0_fast": (),
}

Split = Callable[[Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class LeafSpec:
    """One array. shape: without the layers in front. layers: None where there is one of it.

    keys: canonical keys, `{}` for the number of the layer. split: one layer → the tensors of `keys`.
    """

    name: str
    shape: tuple[int, ...]
    keys: tuple[str, ...]
    split: Split
    layers: int | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if self.layers is None else (self.layers, *self.shape)

    def tensors(self, array: Tensor) -> Iterator[tuple[str, Tensor]]:
        """(canonical key, contiguous tensor) of everything that the array holds."""
        stack = [array] if self.layers is None else array
        for i, layer in enumerate(stack):
            for key, tensor in zip(self.keys, self.split(layer), strict=True):
                yield key.format(i), tensor.contiguous()


def _same(x: Tensor) -> tuple[Tensor, ...]:
    return (x,)


def _turned(x: Tensor) -> tuple[Tensor, ...]:
    """[inputs, outputs] → [outputs, inputs]."""
    return (x.t(),)


def _heads_out(x: Tensor) -> tuple[Tensor, ...]:
    """[inputs, heads, head_dim] → [heads·head_dim, inputs]."""
    return (x.flatten(1).t(),)


def _heads_in(x: Tensor) -> tuple[Tensor, ...]:
    """[heads, head_dim, outputs] → [outputs, heads·head_dim]."""
    return (x.flatten(0, 1).t(),)


def _each_head(x: Tensor) -> tuple[Tensor, ...]:
    """[heads, inputs, head_dim] → [heads·head_dim, inputs]."""
    return (x.transpose(1, 2).flatten(0, 1),)


def _keys_and_values(x: Tensor) -> tuple[Tensor, ...]:
    """[2, heads, inputs, head_dim] → twice [heads·head_dim, inputs]."""
    return (*_each_head(x[0]), *_each_head(x[1]))


def _pair(x: Tensor) -> tuple[Tensor, ...]:
    """[2, inputs, outputs] → twice [outputs, inputs]."""
    return (x[0].t(), x[1].t())


def leaves(policy_type: str, dims: ModelDims, action_width: int | None) -> Iterator[LeafSpec]:
    """Every array of a policy. action_width: padded; None where actions are text."""
    yield from _vision(dims.vision, dims.vlm.width)
    embedding = (dims.vocab, dims.vlm.width)
    yield LeafSpec(LANGUAGE + "embedder/input_embedding", embedding, (EMBEDDING,), _same)
    yield from _gemma(dims.vlm, VLM, "", adaptive=False)
    if dims.expert is not None and action_width is not None:
        yield from _gemma(dims.expert, EXPERT, "_1", adaptive=policy_type == "pi05")
        yield from _projections(policy_type, dims.expert.width, action_width)


def _vision(v: VisionDims, projected: int) -> Iterator[LeafSpec]:
    width, hidden, heads = v.hidden_size, v.intermediate_size, v.num_attention_heads
    each, n, layer = width // heads, v.num_hidden_layers, VISION + "encoder.layers.{}."

    def single(name: str, shape: tuple[int, ...], key: str, split: Split = _same) -> LeafSpec:
        return LeafSpec(IMAGE + name, shape, (key,), split)

    def stacked(name: str, shape: tuple[int, ...], key: str, split: Split = _same) -> LeafSpec:
        return LeafSpec(BLOCK + name, shape, (layer + key,), split, n)

    patch = (v.patch_size, v.patch_size, v.num_channels, width)
    embed, post = VISION + "embeddings.", VISION + "post_layernorm."
    yield single(
        "embedding/kernel", patch, embed + "patch_embedding.weight", lambda x: (x.permute(3, 2, 0, 1),)
    )
    yield single("embedding/bias", (width,), embed + "patch_embedding.bias")
    positions = embed + "position_embedding.weight"
    yield single("pos_embedding", (1, v.patches, width), positions, lambda x: (x[0],))
    for name, key in (("LayerNorm_0", "layer_norm1"), ("LayerNorm_1", "layer_norm2")):
        yield stacked(f"{name}/scale", (width,), f"{key}.weight")
        yield stacked(f"{name}/bias", (width,), f"{key}.bias")
    for name, key, inputs, outputs in (("0", "fc1", width, hidden), ("1", "fc2", hidden, width)):
        yield stacked(f"MlpBlock_0/Dense_{name}/kernel", (inputs, outputs), f"mlp.{key}.weight", _turned)
        yield stacked(f"MlpBlock_0/Dense_{name}/bias", (outputs,), f"mlp.{key}.bias")
    attention = "MultiHeadDotProductAttention_0/"
    for name, key in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        kernel, key = (width, heads, each), f"self_attn.{key}"
        yield stacked(f"{attention}{name}/kernel", kernel, f"{key}.weight", _heads_out)
        yield stacked(f"{attention}{name}/bias", (heads, each), f"{key}.bias", lambda x: (x.flatten(),))
    yield stacked(f"{attention}out/kernel", (heads, each, width), "self_attn.out_proj.weight", _heads_in)
    yield stacked(f"{attention}out/bias", (width,), "self_attn.out_proj.bias")
    yield single("Transformer/encoder_norm/scale", (width,), post + "weight")
    yield single("Transformer/encoder_norm/bias", (width,), post + "bias")
    yield single("head/kernel", (width, projected), PROJECTOR + "weight", _turned)
    yield single("head/bias", (projected,), PROJECTOR + "bias")


def _gemma(g: GemmaDims, prefix: str, suffix: str, adaptive: bool) -> Iterator[LeafSpec]:
    """A Gemma stack; the expert has the names of the VLM with `_1` behind them."""
    layer = prefix + "layers.{}."

    def stacked(name: str, shape: tuple[int, ...], split: Split, *keys: str) -> LeafSpec:
        return LeafSpec(LAYERS + name, shape, tuple(layer + key + ".weight" for key in keys), split, g.depth)

    def norm(name: str, key: str, layers: int | None) -> Iterator[LeafSpec]:
        if not adaptive:
            yield LeafSpec(f"{name}/scale", (g.width,), (f"{key}.weight",), _same, layers)
            return
        kernel = (g.width, 3 * g.width)
        yield LeafSpec(f"{name}/Dense_0/kernel", kernel, (f"{key}.dense.weight",), _turned, layers)
        yield LeafSpec(f"{name}/Dense_0/bias", (3 * g.width,), (f"{key}.dense.bias",), _same, layers)

    attn, queries = "self_attn.", (g.num_heads, g.width, g.head_dim)
    yield stacked(f"attn/q_einsum{suffix}/w", queries, _each_head, attn + "q_proj")
    kv = (2, g.num_kv_heads, g.width, g.head_dim)
    yield stacked(f"attn/kv_einsum{suffix}/w", kv, _keys_and_values, attn + "k_proj", attn + "v_proj")
    out = (g.num_heads, g.head_dim, g.width)
    yield stacked(f"attn/attn_vec_einsum{suffix}/w", out, _heads_in, attn + "o_proj")
    gates = (2, g.width, g.mlp_dim)
    yield stacked(f"mlp{suffix}/gating_einsum", gates, _pair, "mlp.gate_proj", "mlp.up_proj")
    yield stacked(f"mlp{suffix}/linear", (g.mlp_dim, g.width), _turned, "mlp.down_proj")
    yield from norm(f"{LAYERS}pre_attention_norm{suffix}", layer + "input_layernorm", g.depth)
    yield from norm(f"{LAYERS}pre_ffw_norm{suffix}", layer + "post_attention_layernorm", g.depth)
    yield from norm(f"{LANGUAGE}final_norm{suffix}", prefix + "norm", None)


def _projections(policy_type: str, width: int, action_width: int) -> Iterator[LeafSpec]:
    sizes = {
        "action_in_proj": (action_width, width),
        "action_out_proj": (width, action_width),
        "state_proj": (action_width, width),
        "action_time_mlp_in": (2 * width, width),
    }
    for name in PROJECTIONS[policy_type]:
        inputs, outputs = sizes.get(name, (width, width))
        yield LeafSpec(f"{name}/kernel", (inputs, outputs), (f"{name}.weight",), _turned)
        yield LeafSpec(f"{name}/bias", (outputs,), (f"{name}.bias",), _same)
