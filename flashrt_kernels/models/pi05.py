# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0.5: SigLIP views and a prompt with the state in it → Gemma prefix → flow-matching action expert."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.checkpoint import PiCheckpoint
from flashrt_kernels.checkpoint.layout import EMBEDDING, VLM
from flashrt_kernels.embedding import embedding
from flashrt_kernels.flow import euler_step, start_flow
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image import resize_to_patches
from flashrt_kernels.kernel import short
from flashrt_kernels.models.action_expert import fold_time, velocity
from flashrt_kernels.models.gemma import Cache, Span, prefix
from flashrt_kernels.models.siglip import vision_tower
from flashrt_kernels.models.weights import RESIDUAL, Weights
from flashrt_kernels.rope import rope_table
from flashrt_kernels.scaling import unnormalise

STATE_BIN_EDGES = np.linspace(-1, 1, 257)[:-1]


class Pi05:
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens."""

    name = "pi05"

    def __init__(
        self,
        checkpoint: PiCheckpoint,
        dtype: torch.dtype,
        steps: int,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """dtype: of matmul weights and activations. steps: denoising steps. device: of the weights.

        progress: called with (bytes of weights in place, bytes in all).
        """
        self.config, self.dims, self.steps = checkpoint.config, checkpoint.dims, steps
        self.action_norm = checkpoint.action_norm
        self.relative = checkpoint.relative_action_mask
        self.pad_id = checkpoint.tokenizer.pad_id
        self.weights = Weights(checkpoint.tensors, dtype, device, progress)
        fold_time(self.weights, self.dims.expert, steps, self.config.min_period, self.config.max_period)

    @staticmethod
    def prompt(instruction: str, normalised_state: np.ndarray) -> str:
        """Text of the prompt. normalised_state: float32 [D]; bins −1 … 255, not clipped, as in training."""
        clean = instruction.strip().replace("_", " ").replace("\n", " ")
        bins = np.digitize(normalised_state, STATE_BIN_EDGES) - 1
        return f"Task: {clean}, State: {' '.join(map(str, bins))};\nAction: "

    # ---- the graph ----

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`; keeps `prefix`.

        `prefix`, [cameras·patches + tokens, width], has the image tokens of every camera in front; `compose`
        writes the prompt's rows.
        """
        vision, dtype = self.dims.vision, self.weights.dtype
        height, width = self.config.image_resolution
        features = align_up(vision.num_channels * vision.patch_size**2, 8)
        rows = cameras * vision.patches
        with g.section("vision"):
            patches = g.buffer("patches", (rows, features), dtype)
            for i in range(cameras):
                part = patches[i * vision.patches : (i + 1) * vision.patches]
                g.call(
                    resize_to_patches,
                    pixels=g.input(f"image{i}.pixels", (image_bytes,), torch.uint8),
                    info=g.input(f"image{i}.info", (4,), torch.int32),
                    out=part,
                    height=height,
                    width=width,
                    patch=vision.patch_size,
                )
                g.output(f"image{i}.patches", part)
                g.mark(f"image{i}.patches", part)
            x = g.buffer("prefix", (rows + tokens, self.dims.vlm.width), RESIDUAL)
            vision_tower(g, self.weights, vision, patches, cameras, out=x[:rows])
        g.keep("prefix", x)

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Inputs `tokens`, `valid`, `positions`, `noise` and, where actions are relative, `base`.

        Output: `actions` [horizon, D] in robot units. Marks carry the names of LeRobot's intermediates:
        `prefix.layer0`, `suffix.step0.layer1`, `x_t.step3`, …
        """
        dims, horizon = self.dims, self.config.chunk_size
        length = cameras * dims.vision.patches + tokens
        x = g.borrow("prefix")[:length]
        valid = g.input("valid", (length + horizon,), torch.bool)
        positions = g.input("positions", (length + horizon,), torch.int32)
        noise = g.input("noise", (horizon, self.config.max_action_dim), torch.float32)
        kv_width = dims.vlm.num_kv_heads * dims.vlm.head_dim
        caches = [
            Cache(
                *(
                    g.buffer(f"kv.{i}.{part}", (length + horizon, kv_width), self.weights.dtype)
                    for part in "kv"
                )
            )
            for i in range(dims.vlm.depth)
        ]
        with g.section("prefix"):
            self._embed_text(g, x[length - tokens :], tokens)
            g.mark("prefix.embs", x)
            g.mark("prefix.pad_masks", valid[:length])
            span = Span(slice(0, length), self._rotation(g, positions[:length]), valid[:length])
            prefix(g, self.weights, VLM, dims.vlm, x, caches, span, dims.rms_eps)
        with g.section("action"):
            suffix = slice(length, length + horizon)
            self._denoise(g, noise, caches, Span(suffix, self._rotation(g, positions[suffix]), valid))

    def _embed_text(self, g: StaticGraph, out: Buffer, tokens: int) -> None:
        ids = g.input("tokens", (tokens,), torch.int32)
        g.mark("tokens", ids)
        scale = math.sqrt(self.dims.vlm.width)
        g.call(embedding, ids=ids, table=self.weights.matrix(g, EMBEDDING), out=out, scale=scale)

    def _rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        return g.call(
            rope_table, positions=positions, head_dim=self.dims.vlm.head_dim, theta=self.dims.rope_theta
        )

    def _denoise(self, g: StaticGraph, noise: Buffer, caches: list[Cache], span: Span) -> None:
        """Euler steps from noise at t = 1 to actions at t = 0; each rewrites its own rows of the caches."""
        x = g.call(start_flow, noise=noise)  # [horizon, max_action_dim]
        for step in range(self.steps):
            g.mark(f"x_t.step{step}", x)
            v = velocity(g, self.weights, self.dims.expert, x, caches, span, step, self.dims.rms_eps)
            g.mark(f"v_t.step{step}", v)
            g.call(euler_step, x=x, velocity=v, dt=-1.0 / self.steps)
        g.mark("actions_normalized_padded", x)
        norm = self.action_norm
        base = None if self.relative is None else g.input("base", (self.config.action_dim,), torch.float32)
        actions = g.call(
            unnormalise,
            x=x,
            offset=self.weights.fixed(g, "action offset", torch.from_numpy(norm.offset)),
            span=self.weights.fixed(g, "action span", torch.from_numpy(norm.span)),
            base=base,
            mul=norm.mul,
            sub=norm.sub,
        )
        g.output("actions", actions)

    # ---- its inputs ----

    def write_inputs(self, g: StaticGraph, ids: Sequence[int], present: int, state: np.ndarray) -> None:
        """Token ids, which prefix tokens count, and what relative actions are relative to.

        Padding and missing cameras keep their place, are masked and do not advance positions; the actions'
        positions follow the valid tokens.
        """
        tokens, valid, positions = g.host("tokens"), g.host("valid"), g.host("positions")
        horizon = self.config.chunk_size
        length = valid.size - horizon
        images = length - tokens.size
        tokens[: len(ids)] = ids
        tokens[len(ids) :] = self.pad_id
        valid[: present * self.dims.vision.patches] = True
        valid[present * self.dims.vision.patches : images] = False
        valid[images : images + len(ids)] = True
        valid[images + len(ids) : length] = False
        valid[length:] = True
        positions[:] = np.cumsum(valid) - 1
        if self.relative is not None:
            count = len(self.relative)
            g.host("base")[:] = np.where(self.relative, state[:count], 0.0)

    def describe(self) -> str:
        """One line for each part of the model."""
        parts = {
            "vision": self.dims.vision,
            "language model": self.dims.vlm,
            "action expert": self.dims.expert,
        }
        lines = [f"{name}: {dims}" for name, dims in parts.items()]
        return "\n".join([*lines, f"weights: {short(self.weights.dtype)}, {self.steps} denoising steps"])
