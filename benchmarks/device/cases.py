# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What is measured: task sizes, their targets, and the least that any engine must compute and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims

STEPS = 10  # denoising steps
ACTION_WIDTH = 32


@dataclass(frozen=True)
class Case:
    """One task size. Targets: milliseconds of GPU time on an H200; level A beats every peer, B is the aim."""

    key: str
    views: int
    prompt: int  # valid tokens
    horizon: int
    state_dim: int  # chosen so that a prompt of this length can hold the state
    level_a: float | None = None
    level_b: float | None = None

    def prefix(self, patches: int) -> int:
        """Tokens in front of the actions, padding not counted."""
        return self.views * patches + self.prompt

    @property
    def words(self) -> str:
        views = "1 view" if self.views == 1 else f"{self.views} views"
        return f"{views}, prompt {self.prompt}, chunk {self.horizon}"


CASES = {
    case.key: case
    for case in (
        Case("3v-968-50", 3, 200, 50, state_dim=7, level_a=20.0, level_b=12.0),
        Case("2v-532-10", 2, 20, 10, state_dim=2, level_a=14.0, level_b=9.3),
        Case("1v-276-10", 1, 20, 10, state_dim=2),
    )
}


@dataclass(frozen=True)
class Product:
    """`count` products rows×n×k; `weights` of n·k are read from memory, activations stay in the cache."""

    rows: int
    n: int
    k: int
    count: int = 1
    weights: bool = True

    def milliseconds(self, tflops: float, tb_s: float, bytes_per_weight: int = 2) -> float:
        """The longer of arithmetic and reading the weights once."""
        arithmetic = 2 * self.rows * self.n * self.k / (tflops * 1e12)
        reading = bytes_per_weight * self.n * self.k / (tb_s * 1e12) if self.weights else 0.0
        return 1e3 * self.count * max(arithmetic, reading)


def vision_products(dims: ModelDims, views: int) -> Iterator[Product]:
    """Patch embedding, layers, projector."""
    v = dims.vision
    rows, width, layers = views * v.patches, v.hidden_size, v.num_hidden_layers
    yield Product(rows, width, v.num_channels * v.patch_size**2)
    yield Product(rows, 3 * width, width, layers)
    yield Product(rows, width, width, layers)
    yield Product(rows, v.intermediate_size, width, layers)
    yield Product(rows, width, v.intermediate_size, layers)
    yield Product(v.patches, v.patches, 2 * width, layers * views, weights=False)  # scores and values
    yield Product(rows, dims.vlm.width, width)


def gemma_products(dims: GemmaDims, rows: int, keys: int, layers: int) -> Iterator[Product]:
    """`layers` whole layers over `rows` tokens that see `keys` keys."""
    queries, kv = dims.num_heads * dims.head_dim, dims.num_kv_heads * dims.head_dim
    yield Product(rows, queries + 2 * kv, dims.width, layers)
    yield Product(rows, dims.width, queries, layers)
    yield Product(rows, 2 * dims.mlp_dim, dims.width, layers)
    yield Product(rows, dims.width, dims.mlp_dim, layers)
    yield Product(rows, keys, 2 * queries, layers, weights=False)


def stage_products(dims: ModelDims, case: Case) -> dict[str, list[Product]]:
    """Products of each stage. The last prefix layer gives only keys and values."""
    prefix, kv = case.prefix(dims.vision.patches), 2 * dims.vlm.num_kv_heads * dims.vlm.head_dim
    language = [
        *gemma_products(dims.vlm, prefix, prefix, dims.vlm.depth - 1),
        Product(prefix, kv, dims.vlm.width),
    ]
    expert = [
        *gemma_products(
            dims.action_expert, case.horizon, prefix + case.horizon, dims.action_expert.depth * STEPS
        ),
        Product(1, prefix, kv, dims.action_expert.depth * STEPS),  # keys and values: read like weights
        Product(case.horizon, 2 * ACTION_WIDTH, dims.action_expert.width, STEPS),
    ]
    return {"vision": list(vision_products(dims, case.views)), "prefix": language, "action": expert}


def floors(dims: ModelDims, case: Case, tflops: float, tb_s: float) -> dict[str, float]:
    """Milliseconds of each stage at these rates, with no launch cost and weights streamed once in bf16."""
    return {
        stage: sum(product.milliseconds(tflops, tb_s) for product in products)
        for stage, products in stage_products(dims, case).items()
    }
