# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Flow matching around any action expert: noise at t = 1 → actions at t = 0 → robot units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.flow import euler_step, start_flow, time_embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.scaling import unnormalise

ACTION_TIME, TIME = "actions into the time MLP", "flow times into the time MLP"  # constants


def fold_time(w: Weights, width: int, times: Sequence[float], min_period: float, max_period: float) -> None:
    """The first layer of the time MLP reads [projected actions | time embedding], `width` numbers each.

    Nothing lies between it and the projection: one matrix takes actions there, time adds a row per step.
    """
    t = torch.tensor(times, device=w.device)
    embedded = time_embedding(time=t, width=width, min_period=min_period, max_period=max_period)
    into, bias = w.once("action_time_mlp_in.weight"), w.once("action_time_mlp_in.bias")
    actions, time = into[:, :width], into[:, width:]
    project, offset = w.once("action_in_proj.weight"), w.once("action_in_proj.bias")
    w.keep(TIME, embedded @ time.T + (actions @ offset + bias))  # [steps, width]
    w.keep_matrix(ACTION_TIME, actions @ project)  # [width, max_action_dim]


def embed_actions(g: StaticGraph, w: Weights, x: Buffer, step: int) -> Buffer:
    """x [horizon, max_action_dim] at one step → the expert's tokens, fp32. Marks `suffix.t1.embs`."""
    row = w.kept(g, TIME)[step]
    h = g.call(matmul, x=x, weight=w.kept(g, ACTION_TIME), bias=row, activation="silu", out_dtype=w.dtype)
    h = linear(g, w, "action_time_mlp_out", h, out_dtype=RESIDUAL)
    if step == 0:
        g.mark("suffix.t1.embs", h)
    return h


def denoise(g: StaticGraph, noise: Buffer, steps: int, velocity: Callable[[Buffer, int], Buffer]) -> Buffer:
    """Euler steps from noise [horizon, max_action_dim] to normalised actions of the same shape.

    velocity: of (x, number of the step). Marks `x_t.step<i>`, `v_t.step<i>`, `actions_normalized_padded`.
    """
    x: Buffer = g.call(start_flow, noise=noise)
    for step in range(steps):
        g.mark(f"x_t.step{step}", x)
        v = velocity(x, step)
        g.mark(f"v_t.step{step}", v)
        g.call(euler_step, x=x, velocity=v, dt=-1.0 / steps)
    g.mark("actions_normalized_padded", x)
    return x


def to_robot_units(
    g: StaticGraph, w: Weights, x: Buffer, norm: Normaliser, base: Buffer | None = None
) -> Buffer:
    """Normalised actions → [horizon, action_dim]. base: what relative actions are relative to."""
    actions: Buffer = g.call(
        unnormalise,
        x=x,
        offset=w.fixed(g, "action offset", torch.from_numpy(norm.offset)),
        span=w.fixed(g, "action span", torch.from_numpy(norm.span)),
        base=base,
        mul=norm.mul,
        sub=norm.sub,
    )
    return actions
