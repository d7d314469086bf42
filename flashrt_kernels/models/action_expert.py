# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Action expert: a smaller Gemma that attends to the prefix cache and to itself, its adaptive norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from flashrt_kernels.activation import Activation
from flashrt_kernels.checkpoint.dims import GemmaDims
from flashrt_kernels.checkpoint.layout import EXPERT
from flashrt_kernels.checkpoint.pi import TimeRule
from flashrt_kernels.flow import time_embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.gemma import Cache, Norm, Span, block
from flashrt_kernels.models.weights import Weights
from flashrt_kernels.norm import ada_rms_norm

CONDITION, MODULATION = "time condition", " modulation"  # names of constants; the second follows a norm's key


def norm_names(dims: GemmaDims) -> list[str]:
    """Keys of the adaptive norms, in the order of use."""
    per_layer = ("input_layernorm", "post_attention_layernorm")
    return [f"{EXPERT}layers.{i}.{name}" for i in range(dims.depth) for name in per_layer] + [EXPERT + "norm"]


def flow_times(steps: int, rule: TimeRule) -> list[float]:
    """t of every denoising step, from 1 down; rule: see PiCheckpoint."""
    if rule == "exact":
        dt = -1.0 / steps
        return [1.0 + step * dt for step in range(steps)]  # LeRobot's rounding
    times, t = [], np.float32(1.0)
    for _ in range(steps):
        times.append(float(t))
        t = t + np.float32(-1.0 / steps)
    return times


def fold_time(
    w: Weights, dims: GemmaDims, times: Sequence[float], min_period: float, max_period: float
) -> None:
    """What the flow times turn into, as constants of `w`.

    CONDITION [steps, width], the result of the time MLP, and for each norm MODULATION [steps, 3·width] =
    scale | shift | gate. Computed on the device of `w` in fp32, one weight after another: none is kept.
    """

    def folded(key: str, x: torch.Tensor, activation: Activation = "none") -> torch.Tensor:
        weight, bias = w.once(key + ".weight"), w.once(key + ".bias")
        return matmul(x=x, weight=weight, bias=bias, activation=activation)

    time = torch.tensor(times, device=w.device)
    x = time_embedding(
        time=time, width=dims.width, min_period=min_period, max_period=max_period
    )  # [steps, width]
    condition = folded("time_mlp_out", folded("time_mlp_in", x, "silu"), "silu")
    w.keep(CONDITION, condition)
    for name in norm_names(dims):
        w.keep(name + MODULATION, folded(name + ".dense", condition))


class AdaptiveNorms:
    """The expert's norms at one step: `Norm` of gemma.block. condition [width]: what the time turned into."""

    def __init__(self, g: StaticGraph, w: Weights, dims: GemmaDims, step: int, eps: float) -> None:
        self._g, self._w, self._width, self._step, self._eps = g, w, dims.width, step, eps
        self.condition = w.kept(g, CONDITION)[step]

    def __call__(self, name: str, x: Buffer) -> tuple[Buffer, Buffer]:
        row = self._w.kept(self._g, name + MODULATION)[self._step]
        scale, shift, gate = (row[i * self._width : (i + 1) * self._width] for i in range(3))
        h = self._g.call(ada_rms_norm, x=x, scale=scale, shift=shift, eps=self._eps, out_dtype=self._w.dtype)
        return h, gate


def expert(
    g: StaticGraph,
    w: Weights,
    dims: GemmaDims,
    h: Buffer,
    caches: list[Cache],
    span: Span,
    norm: Norm,
    label: str,
) -> Buffer:
    """h [own, width] through all layers and the last norm. Marks `<label>.layer<i>` and `.final_norm`."""
    for i, cache in enumerate(caches):
        h = block(g, w, f"{EXPERT}layers.{i}.", dims, h, norm, cache, span)
        g.mark(f"{label}.layer{i}", h)
    h, _ = norm(EXPERT + "norm", h)
    g.mark(f"{label}.final_norm", h)
    return h
