# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Action expert with adaptive RMS norm: a smaller Gemma that attends to the prefix cache and to itself."""

from __future__ import annotations

import torch

from flashrt_kernels.activation import Activation
from flashrt_kernels.checkpoint.dims import GemmaDims
from flashrt_kernels.checkpoint.layout import EXPERT
from flashrt_kernels.flow import time_embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.gemma import Cache, Span, block
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.norm import ada_rms_norm

CONDITION, MODULATION = "time condition", " modulation"  # names of constants; the second follows a norm's key


def norm_names(dims: GemmaDims) -> list[str]:
    """Keys of the adaptive norms, in the order of use."""
    per_layer = ("input_layernorm", "post_attention_layernorm")
    return [f"{EXPERT}layers.{i}.{name}" for i in range(dims.depth) for name in per_layer] + [EXPERT + "norm"]


def fold_time(w: Weights, dims: GemmaDims, steps: int, min_period: float, max_period: float) -> None:
    """What the flow time turns into at every denoising step (t = 1, 1 − 1/steps, …), as constants of `w`.

    CONDITION [steps, width], the result of the time MLP, and for each norm MODULATION [steps, 3·width] =
    scale | shift | gate. Computed on the device of `w` in fp32, one weight after another: none is kept.
    """

    def folded(key: str, x: torch.Tensor, activation: Activation = "none") -> torch.Tensor:
        weight, bias = w.once(key + ".weight"), w.once(key + ".bias")
        return matmul(x=x, weight=weight, bias=bias, activation=activation)

    dt = -1.0 / steps
    time = torch.tensor([1.0 + step * dt for step in range(steps)], device=w.device)  # LeRobot's rounding
    x = time_embedding(
        time=time, width=dims.width, min_period=min_period, max_period=max_period
    )  # [steps, width]
    condition = folded("time_mlp_out", folded("time_mlp_in", x, "silu"), "silu")
    w.keep(CONDITION, condition)
    for name in norm_names(dims):
        w.keep(name + MODULATION, folded(name + ".dense", condition))


def velocity(
    g: StaticGraph,
    w: Weights,
    dims: GemmaDims,
    x: Buffer,
    caches: list[Cache],
    span: Span,
    step: int,
    eps: float,
) -> Buffer:
    """x [horizon, actions] at one step → velocity of the same shape, fp32."""

    def norm(name: str, h: Buffer) -> tuple[Buffer, Buffer]:
        row = w.kept(g, name + MODULATION)[step]
        scale, shift, gate = (row[i * dims.width : (i + 1) * dims.width] for i in range(3))
        return g.call(ada_rms_norm, x=h, scale=scale, shift=shift, eps=eps, out_dtype=w.dtype), gate

    h = linear(g, w, "action_in_proj", x, out_dtype=RESIDUAL)
    if step == 0:
        g.mark("suffix.t1.embs", h)
        g.mark("suffix.t1.adarms_cond", w.kept(g, CONDITION)[0])
    for i, cache in enumerate(caches):
        h = block(g, w, f"{EXPERT}layers.{i}.", dims, h, norm, cache, span)
        g.mark(f"suffix.step{step}.layer{i}", h)
    h, _ = norm(EXPERT + "norm", h)
    g.mark(f"suffix.step{step}.final_norm", h)
    return linear(g, w, "action_out_proj", h, out_dtype=torch.float32)
