# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLA: SmolVLM2 over camera images, the instruction and the state → flow-matching action expert.

Source of the rules: lerobot 0.6.1, policies/smolvla/{modeling_smolvla,smolvlm_with_expert}.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.checkpoint.checkpoint import CameraRule
from flashrt_kernels.checkpoint.smolvla import EMBEDDING, TEXT, SmolVLACheckpoint
from flashrt_kernels.embedding import embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image_rules import Fit, ImageRule
from flashrt_kernels.kernel import short
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.action_expert import flow_times
from flashrt_kernels.models.denoising import denoise, embed_actions, fold_time, to_robot_units
from flashrt_kernels.models.gemma import Cache, Span, project, query
from flashrt_kernels.models.llama import layer
from flashrt_kernels.models.model import Bucket, Outcome
from flashrt_kernels.models.pictures import compose_pictures
from flashrt_kernels.models.prompt import PromptLimit
from flashrt_kernels.models.smolvla_expert import Chunk, expert, look, prefix_only
from flashrt_kernels.models.smolvlm import fold_positions, image_tokens
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.rope import rope_table

BUCKET = 16  # prompt tokens
CHUNK_ROTATION = "rotation of the chunk by itself"  # name of a constant


class SmolVLA:
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens.

    Rows of the prefix: image tokens of all cameras, the prompt, the state. Images and prompt see each other,
    the state sees everything and is seen by the actions only.
    """

    name = "smolvla"
    camera_rule: CameraRule = "present first"
    steps_tokens = False
    marks: tuple[str, ...] = ()

    def __init__(
        self,
        checkpoint: SmolVLACheckpoint,
        dtype: torch.dtype,
        steps: int,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """dtype: of matmul weights and activations. steps: denoising steps. device: of the weights.

        progress: called with (bytes of weights in place, bytes in all).
        """
        self.config, self.dims, self.steps = checkpoint.config, checkpoint.dims, steps
        self.tokenizer, self.normalise_state = checkpoint.tokenizer, checkpoint.normalise_state
        self.action_norm = checkpoint.action_norm
        self.horizon = self.config.chunk_size
        self.noise_shape: tuple[int, int] | None = (self.horizon, self.config.max_action_dim)
        limit = self.config.tokenizer_max_length
        self.buckets = (*range(BUCKET, limit, BUCKET), limit)
        self.prompt_limit = PromptLimit(limit)
        height, width = self.config.image_resolution
        patch = self.dims.vision.patch_size
        self.images: ImageRule = Fit(height, width, patch, place="end", merge=self.dims.scale)
        self.weights = w = Weights(checkpoint.tensors, dtype, device, progress)
        fold_positions(w, self.dims)
        times, periods = flow_times(steps, "exact"), (self.config.min_period, self.config.max_period)
        fold_time(w, self.dims.expert.width, times, *periods)
        own = torch.arange(self.horizon, dtype=torch.int32, device=w.device)
        head_dim, theta = self.dims.expert.head_dim, self.dims.rope_theta
        w.keep(CHUNK_ROTATION, rope_table(positions=own, head_dim=head_dim, theta=theta))

    # ---- the graphs ----

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`; keeps `prefix`.

        `prefix`, [image tokens + tokens + 1, width], has the image tokens of every camera in front; `compose`
        writes the rows of prompt and state.
        """
        rows = cameras * self.dims.image_tokens
        with g.section("vision"):
            patches = compose_pictures(g, self.images, cameras, image_bytes, self.weights.dtype)
            x = g.buffer("prefix", (rows + tokens + 1, self.dims.text.width), RESIDUAL)
            image_tokens(g, self.weights, self.dims, patches, cameras, out=x[:rows])
        g.keep("prefix", x)

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Inputs `tokens`, `state`, `valid`, `positions`, `noise`.

        Output: `actions` [horizon, D] in robot units. Marks: `prefix.layer0`, `suffix.step0.layer1`, …
        """
        length = cameras * self.dims.image_tokens + tokens + 1
        rows = length + self.horizon
        x = g.borrow("prefix")[:length]
        valid = g.input("valid", (rows,), torch.bool)
        positions = g.input("positions", (rows,), torch.int32)
        noise = g.input("noise", (self.horizon, self.config.max_action_dim), torch.float32)
        with g.section("prefix"):
            self._embed(g, x, tokens)
            g.mark("prefix.pad_masks", valid[:length])
            span = Span(slice(0, length), self._rotation(g, positions[:length]), valid[:length])
            caches = self._prefix(g, x, span)
        with g.section("action"):
            own = Span(slice(length, rows), self._rotation(g, positions[length:]), valid, settled=length)
            mask = self._constant_mask(g, "what the chunk sees", causal(length, self.horizon))
            chunk = Chunk(caches, own, mask, self.weights.kept(g, CHUNK_ROTATION))
            actions = denoise(g, noise, self.steps, lambda x, step: self._velocity(g, x, chunk, step))
            g.output("actions", to_robot_units(g, self.weights, actions, self.action_norm))

    def compose_step(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Nothing: the policy does not write tokens."""

    def _embed(self, g: StaticGraph, x: Buffer, tokens: int) -> None:
        """Rows of prompt and state. Marks `tokens`, `prefix.embs`."""
        w, state = self.weights, x.shape[0] - 1
        ids = g.input("tokens", (tokens,), torch.int32)
        g.mark("tokens", ids)
        scale = math.sqrt(self.dims.text.width)
        g.call(embedding, ids=ids, table=w.matrix(g, EMBEDDING), scale=scale, out=x[state - tokens : state])
        row = g.input("state", (1, align_up(self.config.max_state_dim, 8)), torch.float32)
        bias = w.vector(g, "state_proj.bias")
        g.call(matmul, x=row, weight=w.patches(g, "state_proj.weight"), bias=bias, out=x[state:])
        g.mark("prefix.embs", x)

    def _prefix(self, g: StaticGraph, x: Buffer, span: Span) -> list[Cache]:
        """The language model over the prefix: what every layer of the expert reads of it.

        The policy does not use the hidden states, so the end of the last layer runs only for taps. Marks
        `prefix.layer<i>`, `prefix.kv.<i>.{k,v}`.
        """
        w, dims, length = self.weights, self.dims.text, x.shape[0]
        mask = self._constant_mask(g, "what the prefix sees", all_but_state(length))
        caches = []
        for i, cross in enumerate(self.dims.cross):
            shape = (length + (0 if cross else self.horizon), dims.num_kv_heads * dims.head_dim)
            cache = Cache(*(g.buffer(f"kv.{i}.{part}", shape, w.dtype) for part in "kv"))
            own = Cache(cache.keys[:length], cache.values[:length])
            key, last = f"{TEXT}layers.{i}.", i == dims.depth - 1

            def attend(h: Buffer, key: str = key, own: Cache = own, last: bool = last) -> Buffer:
                q = project(g, w, key + "self_attn.", dims, h, own, span, heads=0 if last else dims.num_heads)
                if last:
                    q = query(g, w, key + "self_attn.", dims, h, span.table)
                return look(g, dims, q, own, span.key_valid, mask)

            x = layer(g, w, key, x, self.dims.rms_eps, attend)
            g.mark(f"prefix.layer{i}", x)
            g.mark(f"prefix.kv.{i}.k", own.keys)
            g.mark(f"prefix.kv.{i}.v", own.values)
            caches.append(prefix_only(g, w, i, cache) if cross else cache)
        return caches

    def _velocity(self, g: StaticGraph, x: Buffer, chunk: Chunk, step: int) -> Buffer:
        h = embed_actions(g, self.weights, x, step)
        h = expert(g, self.weights, self.dims, h, chunk, f"suffix.step{step}")
        return linear(g, self.weights, "action_out_proj", h, out_dtype=torch.float32)

    def _rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        head_dim, theta = self.dims.text.head_dim, self.dims.rope_theta
        table: Buffer = g.call(rope_table, positions=positions, head_dim=head_dim, theta=theta)
        return table

    def _constant_mask(self, g: StaticGraph, what: str, mask: torch.Tensor) -> Buffer:
        name = f"{what}, {mask.shape[0]} × {mask.shape[1]}"
        return self.weights.derived(g, name, lambda: mask.to(self.weights.device), torch.bool)

    # ---- their inputs ----

    def tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        """Ids of the instruction and an end of line, cut to what the policy was trained with."""
        text = instruction if instruction.endswith("\n") else instruction + "\n"
        ids = self.tokenizer.encode(text)[1:]  # no BOS
        return self.prompt_limit.cut(ids, instruction)

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        """Token ids, the normalised state filled up with zeros, and which tokens of the prefix count.

        Padding and missing cameras keep their place, are masked and do not advance positions.
        """
        tokens, valid, positions = g.host("tokens"), g.host("valid"), g.host("positions")
        row, each = g.host("state")[0], self.dims.image_tokens
        images = len(present) * each
        text = slice(images, images + tokens.size)
        tokens[: len(ids)] = ids
        tokens[len(ids) :] = self.tokenizer.pad_id
        valid[:images] = np.repeat(present, each)
        valid[text] = np.arange(tokens.size) < len(ids)
        valid[text.stop :] = True  # state and actions
        positions[:] = np.cumsum(valid) - 1
        row[: len(state)] = self.normalise_state(state)
        row[len(state) :] = 0

    def finish(self, bucket: Bucket, state: np.ndarray, taps: Sequence[str]) -> Outcome:
        """The graph has done it all."""
        return Outcome(bucket.graph.read("actions"))

    def describe(self) -> str:
        """One line for each part of the model."""
        crossing = [i for i, cross in enumerate(self.dims.cross) if cross]
        return "\n".join(
            [
                f"vision: {self.dims.vision}, {self.dims.scale}×{self.dims.scale} patches to a token",
                f"language model: {self.dims.text}",
                f"action expert: {self.dims.expert}; layers {crossing} attend to the prefix only",
                f"weights: {short(self.weights.dtype)}, {self.steps} denoising steps",
            ]
        )


def all_but_state(length: int) -> torch.Tensor:
    """bool [length, length]: every row sees all, but only the last row sees itself."""
    mask = torch.ones((length, length), dtype=torch.bool)
    mask[:-1, -1] = False
    return mask


def causal(length: int, horizon: int) -> torch.Tensor:
    """bool [horizon, length + horizon]: a row sees the prefix and, of the chunk, what is not behind it."""
    seen = torch.ones((horizon, horizon), dtype=torch.bool).tril()
    return torch.cat([torch.ones((horizon, length), dtype=torch.bool), seen], dim=1)
