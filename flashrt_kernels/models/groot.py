# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What GR00T N1.6 and N1.7 have in common: the prompt's rows, the flow-matching head, and the way through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.checkpoint.checkpoint import CameraRule
from flashrt_kernels.checkpoint.groot import GrootCheckpoint
from flashrt_kernels.checkpoint.groot_layout import HEAD
from flashrt_kernels.embedding import embedding
from flashrt_kernels.errors import GraphError, ObservationError
from flashrt_kernels.flow import euler_step
from flashrt_kernels.graph import SMALL, Buffer, StaticGraph
from flashrt_kernels.image_rules import ImageRule
from flashrt_kernels.image_rules_groot import RULES
from flashrt_kernels.kernel import short
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.dit import Context, Keys, cross_keys, fold_time, start_tokens, velocity
from flashrt_kernels.models.embodiment_mlp import Embodied
from flashrt_kernels.models.groot_rows import Bools, Ints, place, write_mask
from flashrt_kernels.models.model import Bucket, Outcome
from flashrt_kernels.models.pictures import compose_pictures
from flashrt_kernels.models.qwen3 import Order
from flashrt_kernels.models.vl_self_attention import vl_self_attention
from flashrt_kernels.models.weights import RESIDUAL, Weights
from flashrt_kernels.norm import layer_norm

BUCKETS = (32, 64, 96, 128, 192, 256)
VLLN_EPS = 1e-5
START = "from noise to actions"  # name of a constant


class Groot(ABC):
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens.

    A prompt is a list of ids in which each image is one id, `image_token`. That counts as one of the tokens
    that a bucket holds, beside those that the vision tower makes of the image.
    """

    name: str
    camera_rule: CameraRule = "all"
    steps_tokens = False
    buckets: tuple[int, ...] = BUCKETS
    marks: tuple[str, ...] = ()
    language: str  # prefix of the language model's keys
    axes: int  # of positions

    def __init__(
        self,
        checkpoint: GrootCheckpoint,
        dtype: torch.dtype,
        steps: int,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
        images: ImageRule | None = None,
    ) -> None:
        """dtype: of matmul weights and activations. steps: denoising steps. device: of the weights.

        progress: called with (bytes of weights in place, bytes in all). images: None as the checkpoint says.
        """
        # The model must not hold on to the mapped file.
        self.checkpoint = replace(checkpoint, tensors={}, unscanned=None)
        self.dims, self.steps = checkpoint.dims, steps
        vision, head = self.dims.vision, self.dims.head
        rule = RULES[self.dims.version]
        self.images: ImageRule = images or rule(checkpoint.images, vision.patch, vision.merge)
        self.image_token = checkpoint.prompts.image_id
        self.weights = Weights(checkpoint.tensors, dtype, device, progress)
        self.embodied = Embodied(self.weights, checkpoint.embodiment_index)
        edge = vision.patch * vision.merge  # pixels of a token
        self.grid = (self.images.height // edge, self.images.width // edge)
        self.image_tokens = self.grid[0] * self.grid[1]
        self._sequence = np.arange(self.image_tokens, dtype=np.int32)[None]
        self.noise_shape: tuple[int, int] | None = (head.horizon, head.max_action)
        self._fold_vision(self.grid[0] * vision.merge, self.grid[1] * vision.merge)
        fold_time(self.embodied, head, steps)
        self.weights.keep(START, torch.eye(align_up(head.max_action, 8), head.max_action, device=device))

    # ---- the parts that differ ----

    @abstractmethod
    def _fold_vision(self, rows: int, columns: int) -> None:
        """Constants of a grid of so many patches."""

    @abstractmethod
    def _vision(self, g: StaticGraph, patches: Buffer, cameras: int, out: Buffer) -> tuple[Buffer, ...]:
        """patches [cameras·patches, features] → out [image tokens, language width].

        Returns what `_backbone` adds to the image tokens behind its first layers.
        """

    @abstractmethod
    def _rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        """positions int32 [axes, rows] → table of the language model's rotary embedding."""

    @abstractmethod
    def _backbone(self, g: StaticGraph, x: Buffer, order: Order, deep: Sequence[Buffer]) -> Buffer:
        """x [rows, language width] → features of the same shape, fp32."""

    @abstractmethod
    def _places(self, is_image: Bools, rows: int) -> Ints:
        """Positions int32 [axes, rows]; arguments as `place`."""

    # ---- the graph ----

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`; keeps `prefix` and `deepstack<i>`.

        `prefix`, [image tokens + tokens, language width], has the image tokens of every camera in front;
        `compose` writes the prompt's rows. `deepstack<i>` has image tokens only.
        """
        images = cameras * self.image_tokens
        with g.section("vision"):
            patches = compose_pictures(g, self.images, cameras, image_bytes, self.weights.dtype)
            x = g.buffer("prefix", (images + tokens, self.dims.llm.width), RESIDUAL)
            deep = self._vision(g, patches, cameras, x[:images])
        g.keep("prefix", x)
        for i, features_of_block in enumerate(deep):
            g.keep(f"deepstack{i}", features_of_block)

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Inputs `tokens`, `valid`, `mask`, `positions`, `state` and `noise`.

        Output: `actions` [horizon, max_action filled up to a multiple of 8], normalised.
        """
        head, images = self.dims.head, cameras * self.image_tokens
        rows = images + tokens
        x = g.borrow("prefix")[:rows]
        deep = [g.borrow(f"deepstack{i}") for i in range(len(self.dims.vision.deepstack))]
        valid = g.input("valid", (rows,), torch.bool)
        mask = g.input("mask", (rows, rows), torch.bool)
        positions = g.input("positions", (self.axes, rows), torch.int32)
        noise = g.input("noise", (head.horizon, head.max_action), torch.float32)
        with g.section("prefix"):
            ids, table = g.input("tokens", (tokens,), torch.int32), self.language + "embed_tokens.weight"
            g.call(embedding, ids=ids, table=self.weights.matrix(g, table), out=x[images:])
            g.mark("llm.embs", x)
            features = self._backbone(g, x, Order(self._rotation(g, positions), mask), deep)
            features = self._head_norm(g, features, valid)
            context = Context(features[:images], features[images:], valid[images:])
            keys = cross_keys(g, self.weights, head, context)
        with g.section("action"):
            self._denoise(g, noise, keys)

    def compose_step(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Raises GraphError: the policy does not write tokens."""
        raise GraphError(f"{g.name}: {self.name} has no graph for one token")

    def _head_norm(self, g: StaticGraph, x: Buffer, valid: Buffer) -> Buffer:
        """Features as the DiT reads them: `vlln`, then the head's own self-attention where it has one."""
        w, head = self.weights, self.dims.head
        weight, bias = w.vector(g, HEAD + "vlln.weight"), w.vector(g, HEAD + "vlln.bias")
        dtype = RESIDUAL if head.vlsa_depth else w.dtype
        x = g.call(layer_norm, x=x, weight=weight, bias=bias, eps=VLLN_EPS, out_dtype=dtype)
        g.mark("head.vlln", x)
        if head.vlsa_depth:
            x = vl_self_attention(g, w, head, x, valid)
            g.mark("head.vl_self_attention", x)
        return x

    def _denoise(self, g: StaticGraph, noise: Buffer, keys: list[Keys]) -> None:
        """Euler steps from noise at t = 0 to actions at t = 1: the other way round than Pi0."""
        head = self.dims.head
        tokens = start_tokens(g, self.embodied, head)
        x = g.call(matmul, x=noise, weight=self.weights.kept(g, START))  # a copy with zeros behind it
        for step in range(self.steps):
            g.mark(f"x_t.step{step}", x)
            v = velocity(g, self.embodied, head, x, tokens, keys, step)
            g.call(euler_step, x=x, velocity=v, dt=1.0 / self.steps)
        g.mark("action_pred", x)
        g.output("actions", x)

    # ---- its inputs and outputs ----

    def tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        """Ids with one image for each camera; the state is not in them.

        Raises ObservationError for an instruction that is too long, or that the checkpoint refuses.
        """
        ids = self.checkpoint.prompt(instruction, tokens_per_image=1).ids
        if len(ids) > self.buckets[-1]:
            raise ObservationError(
                f"instruction {instruction[:80]!r}… makes a prompt of {len(ids)} tokens; expected at most "
                f"{self.buckets[-1]}"
            )
        return ids

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        """Rows of the prompt: their ids, positions and what they see; and the normalised state.

        Raises GraphError where the prompt does not have one image for each camera.
        """
        prompt = np.asarray(ids, np.int32)
        is_image = prompt == self.image_token
        text, images = prompt[~is_image], int(is_image.sum()) * self.image_tokens
        tokens, valid = g.host("tokens"), g.host("valid")
        if images + tokens.size != valid.size or not all(present):
            raise GraphError(
                f"{g.name}: {is_image.sum()} images in the prompt and {sum(present)} from cameras; expected "
                f"{(valid.size - tokens.size) // self.image_tokens} of both"
            )
        end = images + len(text)
        tokens[: len(text)], tokens[len(text) :] = text, 0
        valid[:end], valid[end:] = True, False
        order = place(is_image, self.image_tokens, self._sequence, valid.size)[0]
        mask = g.host("mask")
        write_mask(order, valid, mask)
        if mask.nbytes > SMALL:
            g.send("mask", mask.nbytes)
        g.host("positions")[:] = self._places(is_image, valid.size)
        row, normalised = g.host("state")[0], self.checkpoint.normalise_state(state)
        row[: len(normalised)], row[len(normalised) :] = normalised, 0

    def finish(self, bucket: Bucket, state: np.ndarray, taps: Sequence[str]) -> Outcome:
        """Actions in robot units. The model has no marks of its own: those of the graph are all."""
        normalised = bucket.graph.read("actions")[:, : self.dims.head.max_action]
        return Outcome(self.checkpoint.decode(normalised, state))

    def describe(self) -> str:
        """One line for each part of the model."""
        d = self.dims
        lines = [f"vision: {d.vision}", f"language model: {d.llm}", f"action head: {d.head}"]
        return "\n".join([*lines, f"weights: {short(self.weights.dtype)}, {self.steps} denoising steps"])
