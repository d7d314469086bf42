# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the Pi policies share: SigLIP views and a prompt in front of a Gemma that fills key/value caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from flashrt_kernels.checkpoint.checkpoint import CameraRule
from flashrt_kernels.checkpoint.layout import EMBEDDING
from flashrt_kernels.checkpoint.pi import PiCheckpoint
from flashrt_kernels.embedding import embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.image_rules import Fit, ImageRule, openpi
from flashrt_kernels.kernel import short
from flashrt_kernels.models.gemma import Cache
from flashrt_kernels.models.pictures import compose_pictures
from flashrt_kernels.models.prompt import PromptLimit, PromptWriter
from flashrt_kernels.models.siglip import vision_tower
from flashrt_kernels.models.weights import RESIDUAL, Weights
from flashrt_kernels.rope import rope_table

BUCKET, LARGEST_BUCKET = 32, 192  # prompt tokens


def prompt_buckets(limit: int) -> tuple[int, ...]:
    """Lengths of prompt for which there are graphs: multiples of BUCKET, then the longest prompt."""
    return (*range(BUCKET, min(limit, LARGEST_BUCKET + 1), BUCKET), limit)


class PaliGemma:
    """Weights, inputs and the vision graph of one loaded checkpoint."""

    marks: tuple[str, ...] = ()
    steps_tokens = False
    noise_shape: tuple[int, int] | None = None

    def __init__(
        self,
        checkpoint: PiCheckpoint,
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """dtype: of matmul weights and activations. device: of the weights.

        progress: called with (bytes of weights in place, bytes in all).
        """
        self.name = checkpoint.policy_type
        self.config, self.dims = checkpoint.config, checkpoint.dims
        self.action_norm = checkpoint.action_norm
        self.relative = checkpoint.relative_action_mask
        self.normalise_state, self.units = checkpoint.normalise_state, checkpoint.units
        height, width = self.config.image_resolution
        rule = openpi if checkpoint.image_filter == "antialias" else Fit
        self.images: ImageRule = rule(height, width, self.dims.vision.patch_size)
        self.buckets = prompt_buckets(self.config.tokenizer_max_length)
        self.camera_rule: CameraRule = checkpoint.camera_rule
        self.prompt_limit = PromptLimit(self.config.tokenizer_max_length)
        self.pad_id = checkpoint.tokenizer.pad_id
        self.prompts = PromptWriter(checkpoint.tokenizer, checkpoint.prompt, self.name)
        self.weights = Weights(checkpoint.tensors, dtype, device, progress)

    # ---- the graph ----

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`; keeps `prefix`.

        `prefix`, [cameras·patches + tokens, width], has the image tokens of every camera in front; `compose`
        writes the prompt's rows.
        """
        with g.section("vision"):
            patches = compose_pictures(g, self.images, cameras, image_bytes, self.weights.dtype)
            self.see(g, patches, cameras, tokens)

    def see(self, g: StaticGraph, patches: Buffer, cameras: int, tokens: int) -> None:
        """patches [cameras·n, features] in [−1, 1] → `prefix`, kept."""
        rows = patches.shape[0]
        x = g.buffer("prefix", (rows + tokens, self.dims.vlm.width), RESIDUAL)
        vision_tower(g, self.weights, self.dims.vision, patches, cameras, out=x[:rows])
        g.keep("prefix", x)

    def embed(self, g: StaticGraph, ids: Buffer, out: Buffer | None = None) -> Buffer:
        """Token ids [n] → embeddings [n, width], scaled by √width as Gemma's are."""
        given = {"out_dtype": RESIDUAL} if out is None else {"out": out}
        scale = math.sqrt(self.dims.vlm.width)
        found: Buffer = g.call(
            embedding, ids=ids, table=self.weights.matrix(g, EMBEDDING), scale=scale, **given
        )
        return found

    def caches(self, g: StaticGraph, rows: int) -> list[Cache]:
        """Empty caches of `rows` tokens, one for each layer."""
        width = self.dims.vlm.num_kv_heads * self.dims.vlm.head_dim
        return [
            Cache(*(g.buffer(f"kv.{i}.{part}", (rows, width), self.weights.dtype) for part in "kv"))
            for i in range(self.dims.vlm.depth)
        ]

    def rotation(self, g: StaticGraph, positions: Buffer) -> Buffer:
        """positions int32 [n] → [n, head_dim], what queries and keys turn by."""
        head_dim, theta = self.dims.vlm.head_dim, self.dims.rope_theta
        table: Buffer = g.call(rope_table, positions=positions, head_dim=head_dim, theta=theta)
        return table

    def compose_step(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Nothing: the policy does not write tokens."""

    # ---- its inputs ----

    def tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        """Ids of the prompt, cut to what the policy was trained with. state: float32 [D] in robot units."""
        return self.prompt_limit.cut(self.prompts.ids(instruction, self.normalise_state(state)), instruction)

    def write_images(self, valid: np.ndarray, present: Sequence[bool]) -> None:
        """Which image tokens, bool [≥ cameras·patches], count: those of absent cameras do not, unless the
        policy was trained to look at black pictures."""
        seen = self.camera_rule == "fixed, seen"
        for camera, there in enumerate(present):
            rows = slice(camera * self.dims.vision.patches, (camera + 1) * self.dims.vision.patches)
            valid[rows] = there or seen

    def describe(self) -> str:
        """One line for each part of the model."""
        parts = {"vision": self.dims.vision, "language model": self.dims.vlm}
        lines = [f"{name}: {dims}" for name, dims in parts.items()]
        return "\n".join([*lines, f"weights: {short(self.weights.dtype)}"])
