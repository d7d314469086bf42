# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0.5 as one writes it down in PyTorch: no kernels, no folding, nothing precomputed.

In fp32 it is the reference of the correctness gate and shares no arithmetic with `flashrt_kernels`; in bf16
it is the engine "plain PyTorch". Equations: Black et al. 2024 (Pi0) and the sources of LeRobot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims, VisionDims
from flashrt_kernels.checkpoint.layout import EMBEDDING, EXPERT, PROJECTOR, VISION, VLM

Cache = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: rotated keys and values, each [heads, tokens, d]


@dataclass(eq=False)
class PlainPi05:
    """The policy between normalised images and normalised actions. `tensors` by canonical key, on one device.

    Everything, the residual stream included, is in `dtype`; norms and the integration compute in fp32.
    """

    tensors: Mapping[str, torch.Tensor]
    dims: ModelDims
    dtype: torch.dtype
    steps: int = 10
    min_period: float = 4e-3
    max_period: float = 4.0

    def __post_init__(self) -> None:
        self.tensors = {key: tensor.to(self.dtype) for key, tensor in self.tensors.items()}

    # ---- the whole ----

    @torch.inference_mode()
    def actions(self, images: torch.Tensor, ids: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """images [views, 3, h, w] in [−1, 1], ids [tokens], noise [horizon, 32] → fp32 [horizon, 32]."""
        return self.denoise(self.prefix(self.embed(images, ids)), noise)[0]

    def denoise(self, cache: Cache, noise: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Euler from t = 1 to t = 0. Returns the actions and the velocity of every step."""
        x, dt, velocities = noise.float(), -1.0 / self.steps, []
        for step in range(self.steps):
            velocities.append(self.velocity(x, 1.0 + step * dt, cache).float())
            x = x + dt * velocities[-1]
        return x, velocities

    # ---- prefix ----

    def embed(self, images: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Image tokens of all views, then text tokens: [tokens, width]."""
        text = F.embedding(ids, self.tensors[EMBEDDING]) * math.sqrt(self.dims.vlm.width)
        return torch.cat([self.vision(images).flatten(0, 1), text])

    def vision(self, images: torch.Tensor) -> torch.Tensor:
        """SigLIP and the projector: [views, 3, h, w] → [views, patches, language width]."""
        dims, key = self.dims.vision, VISION + "embeddings."
        patch = self.tensors[key + "patch_embedding.weight"]
        x = F.conv2d(
            images.to(self.dtype),
            patch,
            self.tensors[key + "patch_embedding.bias"],
            stride=dims.patch_size,
        )
        x = x.flatten(2).transpose(1, 2) + self.tensors[key + "position_embedding.weight"]
        for i in range(dims.num_hidden_layers):
            x = self.vision_layer(x, f"{VISION}encoder.layers.{i}.", dims)
        return self.linear(self.layer_norm(x, VISION + "post_layernorm", dims), PROJECTOR[:-1])

    def vision_layer(self, x: torch.Tensor, key: str, dims: VisionDims) -> torch.Tensor:
        """x [views, patches, width] → the same shape."""
        h = self.layer_norm(x, key + "layer_norm1", dims)
        q, k, v = (
            self.linear(h, f"{key}self_attn.{name}_proj")
            .unflatten(2, (dims.num_attention_heads, -1))
            .transpose(1, 2)
            for name in "qkv"
        )
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.linear(h, key + "self_attn.out_proj")
        h = self.layer_norm(x, key + "layer_norm2", dims)
        h = F.gelu(self.linear(h, key + "mlp.fc1"), approximate="tanh")
        return x + self.linear(h, key + "mlp.fc2")

    def prefix(self, x: torch.Tensor) -> Cache:
        """Gemma over x [tokens, width]: every token sees every token. Returns keys and values."""
        cache: Cache = []
        positions = torch.arange(x.shape[0], device=x.device)
        for i in range(self.dims.vlm.depth):
            key = f"{VLM}layers.{i}."
            h = self.rms_norm(x, key + "input_layernorm")
            q, k, v = self.project(h, key, self.dims.vlm, positions)
            cache.append((k, v))
            if i == self.dims.vlm.depth - 1:
                break  # nobody reads the hidden states
            x = x + self.attend(q, k, v, key)
            x = x + self.mlp(self.rms_norm(x, key + "post_attention_layernorm"), key)
        return cache

    # ---- action expert ----

    def velocity(self, x: torch.Tensor, time: float, cache: Cache) -> torch.Tensor:
        """Noisy actions [horizon, width] at `time` → their velocity."""
        condition = self.condition(time, x.device)
        positions = torch.arange(x.shape[0], device=x.device) + cache[0][0].shape[1]
        h = self.linear(x.to(self.dtype), "action_in_proj")
        for i, (keys, values) in enumerate(cache):
            key = f"{EXPERT}layers.{i}."
            y, gate = self.ada_rms_norm(h, key + "input_layernorm", condition)
            q, k, v = self.project(y, key, self.dims.action_expert, positions)
            y = self.attend(q, torch.cat([keys, k], dim=1), torch.cat([values, v], dim=1), key)
            h = h + gate * y
            y, gate = self.ada_rms_norm(h, key + "post_attention_layernorm", condition)
            h = h + gate * self.mlp(y, key)
        h, _ = self.ada_rms_norm(h, EXPERT + "norm", condition)
        return self.linear(h, "action_out_proj")

    def condition(self, time: float, device: torch.device) -> torch.Tensor:
        """[1, width] from the sine-cosine embedding of the flow time: the time in fp32, angles in fp64."""
        time = float(np.float32(time))
        fraction = torch.linspace(
            0, 1, self.dims.action_expert.width // 2, dtype=torch.float64, device=device
        )
        period = self.min_period * (self.max_period / self.min_period) ** fraction
        angles = 2 * math.pi * time / period
        x = torch.cat([angles.sin(), angles.cos()])[None].to(self.dtype)
        for name in ("time_mlp_in", "time_mlp_out"):
            x = F.silu(self.linear(x, name))
        return x

    # ---- shared parts ----

    def project(
        self, h: torch.Tensor, key: str, dims: GemmaDims, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """h [tokens, width] → rotated q [heads, tokens, d], rotated k and v [kv heads, tokens, d]."""
        q, k, v = (
            self.linear(h, f"{key}self_attn.{name}_proj").unflatten(1, (heads, dims.head_dim)).transpose(0, 1)
            for name, heads in (("q", dims.num_heads), ("k", dims.num_kv_heads), ("v", dims.num_kv_heads))
        )
        return self.rotate(q, positions), self.rotate(k, positions), v

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotary embedding (Su et al. 2021), half-split, of x [heads, tokens, d]."""
        size = x.shape[-1]
        exponents = torch.arange(0, size, 2, dtype=torch.float32, device=x.device) / size
        angles = positions.float()[:, None] / self.dims.rope_theta**exponents
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, key: str) -> torch.Tensor:
        """Attention and output projection: [tokens, width]."""
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
        return self.linear(y.transpose(0, 1).flatten(1), key + "self_attn.o_proj")

    def mlp(self, h: torch.Tensor, key: str) -> torch.Tensor:
        gate = F.gelu(self.linear(h, key + "mlp.gate_proj"), approximate="tanh")
        return self.linear(gate * self.linear(h, key + "mlp.up_proj"), key + "mlp.down_proj")

    def rms_norm(self, x: torch.Tensor, key: str) -> torch.Tensor:
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.dims.rms_eps)
        return (normed * (1 + self.tensors[key + ".weight"].float())).to(self.dtype)

    def ada_rms_norm(
        self, x: torch.Tensor, key: str, condition: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised x and the gate of the branch."""
        scale, shift, gate = self.linear(condition, key + ".dense").chunk(3, dim=-1)
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.dims.rms_eps)
        return (normed * (1 + scale.float()) + shift.float()).to(self.dtype), gate

    def layer_norm(self, x: torch.Tensor, key: str, dims: VisionDims) -> torch.Tensor:
        weight, bias = self.tensors[key + ".weight"], self.tensors[key + ".bias"]
        return F.layer_norm(x, (x.shape[-1],), weight, bias, dims.layer_norm_eps)

    def linear(self, x: torch.Tensor, key: str) -> torch.Tensor:
        return F.linear(x, self.tensors[key + ".weight"], self.tensors.get(key + ".bias"))


def normalised_images(images: list[torch.Tensor], height: int, width: int) -> torch.Tensor:
    """uint8 [H, W, 3] each → [views, 3, height, width] in [−1, 1]: aspect ratio kept, black around."""
    canvas = []
    for image in images:
        rows, columns = image.shape[:2]
        ratio = max(columns / width, rows / height)
        size = int(rows / ratio), int(columns / ratio)
        small = F.interpolate(
            image.permute(2, 0, 1)[None].float() / 255, size, mode="bilinear", align_corners=False
        )
        top, left = (height - size[0]) // 2, (width - size[1]) // 2
        padding = (left, width - size[1] - left, top, height - size[0] - top)
        canvas.append(F.pad(small, padding)[0] * 2 - 1)
    return torch.stack(canvas)
