# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Sizes of a GR00T policy, N1.6 or N1.7, and what must hold among them and for the kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flashrt_kernels.errors import CheckpointError

Version = Literal["n16", "n17"]


@dataclass(frozen=True, kw_only=True)
class GrootVisionDims:
    """N1.6: SigLIP2. N1.7: the ViT of Qwen3-VL.

    patch: edge in pixels. position_grid: edge of the learned position table. merge: edge of the square of
    patches that becomes one token. deepstack: blocks behind which image features are taken for the first
    language layers, one each; N1.6 has none.
    """

    width: int
    depth: int
    heads: int
    mlp: int
    patch: int
    position_grid: int
    merge: int = 2
    deepstack: tuple[int, ...] = ()
    layer_norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def merged(self) -> int:
        """Features of the patches that become one token, side by side."""
        return self.merge**2 * self.width


@dataclass(frozen=True, kw_only=True)
class QwenDims:
    """Qwen3 without its last layers. theta, mrope_section: of the rotary embedding; the sections count
    frequencies of time, row and column, None: one position per token."""

    width: int
    depth: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    theta: float
    eps: float = 1e-6
    mrope_section: tuple[int, int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class HeadDims:
    """The flow-matching head.

    hidden: between the two layers of state encoder and action decoder. width: heads · head_dim of the DiT.
    output: of the DiT, what the action decoder reads. vlsa_*: self-attention over the backbone's features,
    0 where there is none. positions: rows of the actions' position table. horizon: actions per chunk that
    the DiT works on. steps: Euler steps. time_buckets: steps of discretised time. text_every: every so many
    cross-attention blocks one attends to text, the others to images.
    """

    hidden: int
    width: int
    heads: int
    head_dim: int
    depth: int
    output: int
    vlsa_depth: int
    vlsa_heads: int
    horizon: int
    max_state: int
    max_action: int
    embodiments: int
    positions: int = 1024
    steps: int = 4
    time_buckets: int = 1000
    text_every: int = 2

    @property
    def mlp(self) -> int:
        return 4 * self.width


@dataclass(frozen=True, kw_only=True)
class GrootDims:
    version: Version
    vision: GrootVisionDims
    llm: QwenDims
    head: HeadDims

    @property
    def vlsa_mlp(self) -> int:
        return 4 * self.llm.width


def check_dims(dims: GrootDims, source: str) -> None:
    """Raises `CheckpointError` naming `source` (where the sizes come from) and every contradiction."""
    problems = [*_vision_problems(dims), *_llm_problems(dims.llm), *_head_problems(dims)]
    if problems:
        raise CheckpointError(f"{source}: " + "; ".join(problems))


def _multiple(name: str, value: int, of: int, why: str) -> Iterator[str]:
    if of < 1 or value < 1 or value % of:
        yield f"{name} is {value}, expected a multiple of {of}: {why}"


def _vision_problems(dims: GrootDims) -> Iterator[str]:
    vision = dims.vision
    yield from _multiple("vision width", vision.width, vision.heads, "the number of vision heads")
    outside = [block for block in vision.deepstack if not 0 <= block < vision.depth]
    if outside or list(vision.deepstack) != sorted(set(vision.deepstack)):
        yield (
            f"deepstack is {list(vision.deepstack)}, expected ascending blocks of a tower of {vision.depth}"
        )
    if len(vision.deepstack) > dims.llm.depth:
        yield (
            f"deepstack has {len(vision.deepstack)} blocks, expected at most one for each of the "
            f"{dims.llm.depth} language layers"
        )


def _llm_problems(llm: QwenDims) -> Iterator[str]:
    yield from _multiple("language heads", llm.heads, llm.kv_heads, "the number of key-value heads")
    yield from _multiple("head_dim", llm.head_dim, 16, "the halves of a head are interleaved in blocks of 8")
    yield from _multiple("language mlp", llm.mlp, 8, "gate and up rows are interleaved in blocks of 8")
    if llm.mrope_section is not None and sum(llm.mrope_section) != llm.head_dim // 2:
        yield (
            f"mrope_section is {list(llm.mrope_section)}, expected numbers that add up to "
            f"head_dim / 2 = {llm.head_dim // 2}"
        )


def _head_problems(dims: GrootDims) -> Iterator[str]:
    head = dims.head
    if head.heads * head.head_dim != head.width:
        yield (
            f"the action head is {head.width} wide, expected {head.heads} heads · {head.head_dim} = "
            f"{head.heads * head.head_dim}"
        )
    yield from _multiple("width of the action head", head.width, 2, "sine and cosine halves of the time")
    if head.vlsa_depth:
        yield from _multiple("language width", dims.llm.width, head.vlsa_heads, "heads of vl_self_attention")
    if head.horizon > head.positions:
        yield f"action horizon is {head.horizon}, expected at most the {head.positions} positions of the head"
    if head.steps > head.time_buckets:
        yield f"inference steps are {head.steps}, expected at most num_timestep_buckets = {head.time_buckets}"
