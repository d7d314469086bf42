# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T's flow-matching head: a diffusion transformer (Peebles and Xie 2023) over one state token and the
actions.

Even blocks attend to what the backbone says, by turns to its text and to its images; odd blocks to
themselves. Time enters through the norms: their scale and shift are a function of the denoising step, and
so constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flashrt_kernels.activation import Activation
from flashrt_kernels.arena import align_up
from flashrt_kernels.attention import attention, self_attention
from flashrt_kernels.checkpoint.groot_dims import HeadDims
from flashrt_kernels.checkpoint.groot_layout import DIT, HEAD, TIME_FEATURES
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.embodiment_mlp import Embodied
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.norm import layer_norm

ENCODER = HEAD + "action_encoder"
CONDITION, MODULATION, TIME = "time condition", " modulation", ENCODER + " time"  # names of constants
BLOCK_EPS, OUTPUT_EPS = 1e-5, 1e-6  # diffusers' norms inside a block and behind the last one
LONGEST_PERIOD = 10_000.0  # of a sinusoid of time, over 2π


@dataclass(frozen=True)
class Context:
    """Features of the backbone, of the images' tokens and of the others.

    valid: bool [text tokens], False where the prompt is filled up.
    """

    image: Buffer
    text: Buffer
    valid: Buffer


@dataclass(frozen=True)
class Keys:
    """What a cross-attention block attends to: [keys, width] each. valid: None where all keys count."""

    keys: Buffer
    values: Buffer
    valid: Buffer | None


def fold_time(e: Embodied, dims: HeadDims, steps: int) -> None:
    """What the flow time (0, 1/steps, …) turns into, as constants: it never depends on the observation.

    CONDITION [steps, width], the time MLP's result; for each adaptive norm MODULATION [steps, 2·width] =
    1 + scale | shift; and the action encoder. All in fp32 on the device, one weight after another.
    """
    w = e.weights
    buckets = [int(step / steps * dims.time_buckets) for step in range(steps)]
    times = torch.tensor(buckets, dtype=torch.float64, device=w.device)[:, None]  # [steps, 1]

    def folded(key: str, x: torch.Tensor, activation: Activation = "none") -> torch.Tensor:
        weight, bias = w.once(key + ".weight"), w.once(key + ".bias")
        return matmul(x=x, weight=weight, bias=bias, activation=activation)

    half = TIME_FEATURES // 2
    waves = sinusoid(times, half, half - 1).flip(1).flatten(1)  # cosines first
    embedder = DIT + "timestep_encoder.timestep_embedder."
    condition = folded(embedder + "linear_2", folded(embedder + "linear_1", waves, "silu"))
    w.keep(CONDITION, condition)
    active = F.silu(condition)
    for i in range(dims.depth):
        name = f"{DIT}transformer_blocks.{i}.norm1"
        scale, shift = folded(name + ".linear", active).chunk(2, dim=1)
        w.keep(name + MODULATION, torch.cat([1 + scale, shift], dim=1))
    shift, scale = folded(DIT + "proj_out_1", active).chunk(2, dim=1)  # the other way round than in blocks
    w.keep(DIT + "proj_out_1" + MODULATION, torch.cat([1 + scale, shift], dim=1))
    fold_action_encoder(e, dims, times)


def sinusoid(times: torch.Tensor, half: int, last: int) -> torch.Tensor:
    """[steps, 1] float64 → [steps, 2, half] fp32: sin and cos of time · 10000^(−i / last), i < half."""
    exponents = torch.arange(half, dtype=torch.float64, device=times.device) / last
    angles = times * torch.exp(-math.log(LONGEST_PERIOD) * exponents)
    return torch.stack([angles.sin(), angles.cos()], dim=1).float()


def fold_action_encoder(e: Embodied, dims: HeadDims, times: torch.Tensor) -> None:
    """silu(W2 · [W1 · x + b1 ; τ] + b2) = silu(A · x + c): A under ENCODER, c by step under TIME.

    Nothing lies between W1 and W2, and τ, the sinusoid of the time, is one constant for each step.
    """
    w, half = e.weights, dims.width // 2
    first, first_bias = e.once(ENCODER + ".W1")  # [actions, width]
    second, second_bias = e.once(ENCODER + ".W2")  # [2·width, width]
    for_actions, for_time = second.split(dims.width)
    waves = sinusoid(times, half, half).flatten(1)
    product = for_actions.T @ first.T  # [width, actions]
    w.keep_matrix(ENCODER, F.pad(product, (0, -product.shape[1] % 8)))
    w.keep(TIME, waves @ for_time + (first_bias @ for_actions + second_bias))


def cross_keys(g: StaticGraph, w: Weights, dims: HeadDims, context: Context) -> list[Keys]:
    """Keys and values of the even blocks: computed once, whatever the number of steps."""
    found = []
    for i in range(0, dims.depth, 2):
        text = i % (2 * dims.text_every) == 0
        rows = context.text if text else context.image
        key, value = (linear(g, w, f"{DIT}transformer_blocks.{i}.attn1.to_{part}", rows) for part in "kv")
        found.append(Keys(key, value, context.valid if text else None))
    return found


def start_tokens(g: StaticGraph, e: Embodied, dims: HeadDims) -> Buffer:
    """The DiT's input [1 + horizon, width]: the state token is there, the actions are not yet.

    Input `state` [1, max_state filled up with zeros to a multiple of 8], normalised.
    """
    state = g.input("state", (1, align_up(dims.max_state, 8)), torch.float32)
    tokens = g.buffer("state and actions", (1 + dims.horizon, dims.width), RESIDUAL)
    e.mlp(g, HEAD + "state_encoder", state, out=tokens[:1])
    g.mark("head.state_features", tokens[:1])
    return tokens


def velocity(
    g: StaticGraph, e: Embodied, dims: HeadDims, x: Buffer, tokens: Buffer, keys: list[Keys], step: int
) -> Buffer:
    """x [horizon, actions, filled up to a multiple of 8] at one step → velocity of the same shape, fp32.

    tokens: from start_tokens; its rows of actions are overwritten.
    """
    w = e.weights
    mark = f"head.step{step}."
    encode_actions(g, e, dims, x, tokens[1:], step)
    g.mark(mark + "action_tokens", tokens[1:])
    g.mark(mark + "temb", w.kept(g, CONDITION)[step])
    y = tokens
    for i in range(dims.depth):
        y = block(g, w, dims, i, y, keys[i // 2] if i % 2 == 0 else None, step)
        g.mark(f"{mark}block{i}", y)
    h = adaptive_norm(g, w, DIT + "proj_out_1", y, step, OUTPUT_EPS)
    h = linear(g, w, DIT + "proj_out_2", h)
    g.mark(mark + "dit_out", h)
    prediction = e.mlp(g, HEAD + "action_decoder", h, outputs=x.shape[1])
    g.mark(mark + "pred", prediction)
    return prediction[1:]


def encode_actions(g: StaticGraph, e: Embodied, dims: HeadDims, x: Buffer, out: Buffer, step: int) -> None:
    """x [horizon, actions] → out [horizon, width]; positions belong to the actions only."""
    w = e.weights
    weight, bias = w.kept(g, ENCODER), w.kept(g, TIME)[step]
    h = g.call(matmul, x=x, weight=weight, bias=bias, activation="silu", out_dtype=w.dtype)
    table = HEAD + "position_embedding.weight"
    positions = w.derived(g, f"{table}[:{dims.horizon}]", lambda: w.once(table)[: dims.horizon])
    e.linear(g, ENCODER + ".W3", h, residual=positions, out=out)


def block(
    g: StaticGraph, w: Weights, dims: HeadDims, i: int, y: Buffer, keys: Keys | None, step: int
) -> Buffer:
    """Block `i`: y [tokens, width] → the same shape. keys: None attends to the tokens themselves."""
    key = f"{DIT}transformer_blocks.{i}."
    h = adaptive_norm(g, w, key + "norm1", y, step, BLOCK_EPS)
    h = attend_to_self(g, w, dims, key, h) if keys is None else attend_to(g, w, dims, key, h, keys)
    y = linear(g, w, key + "attn1.to_out.0", h, residual=y, out_dtype=RESIDUAL)
    ones = w.fixed(g, f"{dims.width} ones", torch.ones(dims.width))
    zeros = w.fixed(g, f"{dims.width} zeros", torch.zeros(dims.width))
    h = g.call(layer_norm, x=y, weight=ones, bias=zeros, eps=BLOCK_EPS, out_dtype=w.dtype)
    return feed_forward(g, w, key, h, y, RESIDUAL)


def attend_to(g: StaticGraph, w: Weights, dims: HeadDims, key: str, h: Buffer, keys: Keys) -> Buffer:
    """Cross attention: h [tokens, width] → the same shape, before the output projection."""
    return g.call(
        attention,
        q=linear(g, w, key + "attn1.to_q", h),
        k=keys.keys,
        v=keys.values,
        key_valid=keys.valid,
        heads=dims.heads,
        kv_heads=dims.heads,
        head_dim=dims.head_dim,
        settled=keys.keys.shape[0],
    )


def attend_to_self(g: StaticGraph, w: Weights, dims: HeadDims, key: str, h: Buffer) -> Buffer:
    """h [tokens, width] → the same shape, before the output projection."""
    names = [f"{key}attn1.to_{part}" for part in "qkv"]
    qkv = g.call(
        matmul,
        x=h,
        weight=w.matrix(g, *(f"{name}.weight" for name in names)),
        bias=w.vector(g, *(f"{name}.bias" for name in names)),
    )
    return g.call(self_attention, qkv=qkv, heads=dims.heads, head_dim=dims.head_dim)


def feed_forward(
    g: StaticGraph, w: Weights, key: str, h: Buffer, residual: Buffer, dtype: torch.dtype
) -> Buffer:
    """residual + ff(h): the end of a block of diffusers' kind, [tokens, width] in `dtype`."""
    h = linear(g, w, key + "ff.net.0.proj", h, activation="gelu_tanh")
    return linear(g, w, key + "ff.net.2", h, residual=residual, out_dtype=dtype)


def adaptive_norm(g: StaticGraph, w: Weights, name: str, y: Buffer, step: int, eps: float) -> Buffer:
    """Layer norm · (1 + scale) + shift of one step."""
    row = w.kept(g, name + MODULATION)[step]
    width = y.shape[1]
    return g.call(layer_norm, x=y, weight=row[:width], bias=row[width:], eps=eps, out_dtype=w.dtype)
