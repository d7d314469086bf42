# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SigLIP vision tower and the projector into the language model's width."""

from __future__ import annotations

from flashrt_kernels.attention import self_attention
from flashrt_kernels.checkpoint.dims import VisionDims
from flashrt_kernels.checkpoint.layout import PROJECTOR, VISION
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.weights import RESIDUAL, Weights, linear
from flashrt_kernels.norm import layer_norm


def vision_tower(
    g: StaticGraph, w: Weights, dims: VisionDims, patches: Buffer, cameras: int, out: Buffer
) -> None:
    """patches [cameras·n, 3·patch² filled up to a multiple of 8] → out [cameras·n, language width].

    All cameras go through each matmul together; attention stays inside an image. No class token, no
    pooling; image features are not scaled by √width. Marks `vision.<stage>.cam<i>` for every camera.
    """

    def mark(stage: str, x: Buffer) -> None:
        for camera in range(cameras):
            rows = slice(camera * dims.patches, (camera + 1) * dims.patches)
            g.mark(f"vision.{stage}.cam{camera}", x[rows])

    embed = VISION + "embeddings."
    x = g.call(
        matmul,
        x=patches,
        weight=w.patches(g, embed + "patch_embedding.weight"),
        bias=w.vector(g, embed + "patch_embedding.bias"),
        residual=w.repeated(g, embed + "position_embedding.weight", cameras),
        out_dtype=RESIDUAL,
    )
    mark("embeddings", x)
    for i in range(dims.num_hidden_layers):
        x = layer(g, w, f"{VISION}encoder.layers.{i}.", dims, x, cameras)
        mark(f"layer{i}", x)
    x = norm(g, w, VISION + "post_layernorm", dims, x)
    mark("post_layernorm", x)
    linear(g, w, PROJECTOR[:-1], x, out=out)
    mark("projected", out)


def layer(g: StaticGraph, w: Weights, key: str, dims: VisionDims, x: Buffer, cameras: int) -> Buffer:
    """One pre-norm transformer layer: x [cameras·n, width] → the same shape."""
    heads = dims.num_attention_heads
    h = norm(g, w, key + "layer_norm1", dims, x)
    names = [f"{key}self_attn.{name}_proj" for name in ("q", "k", "v")]
    qkv = g.call(
        matmul,
        x=h,
        weight=w.matrix(g, *(f"{name}.weight" for name in names)),
        bias=w.vector(g, *(f"{name}.bias" for name in names)),
    )
    h = g.call(self_attention, qkv=qkv, heads=heads, head_dim=dims.hidden_size // heads, sequences=cameras)
    x = linear(g, w, key + "self_attn.out_proj", h, residual=x, out_dtype=RESIDUAL)
    h = norm(g, w, key + "layer_norm2", dims, x)
    h = linear(g, w, key + "mlp.fc1", h, activation="gelu_tanh")
    return linear(g, w, key + "mlp.fc2", h, residual=x, out_dtype=RESIDUAL)


def norm(g: StaticGraph, w: Weights, key: str, dims: VisionDims, x: Buffer) -> Buffer:
    """Layer norm with the weights under `key`."""
    weight, bias = w.vector(g, key + ".weight"), w.vector(g, key + ".bias")
    return g.call(layer_norm, x=x, weight=weight, bias=bias, eps=dims.layer_norm_eps, out_dtype=w.dtype)
