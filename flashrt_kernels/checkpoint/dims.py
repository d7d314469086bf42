# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Sizes of a policy: the released variants, or `model_dims.json` beside config.json for any other size."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashrt_kernels.checkpoint.fields import Fields, read_json

DIMS_FILE = "model_dims.json"
_WIDEST = 1_000_000
_DEEPEST = 512
# Sizes of a Gemma stack that kernels take in parts.
_MULTIPLES = (
    ("width", 2, "sine and cosine halves of the time embedding"),
    ("mlp_dim", 8, "gate and up rows are interleaved in blocks of 8"),
    ("head_dim", 16, "the halves of a head are interleaved in blocks of 8"),
)


@dataclass(frozen=True)
class VisionDims:
    """SigLIP: square images of `image_size` pixels cut into square patches."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    image_size: int
    num_channels: int = 3
    layer_norm_eps: float = 1e-6

    @property
    def patches(self) -> int:
        """Image tokens per camera."""
        return (self.image_size // self.patch_size) ** 2


@dataclass(frozen=True)
class GemmaDims:
    """One Gemma stack; the query projection is num_heads · head_dim wide."""

    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class ModelDims:
    """expert: None where actions are text."""

    vision: VisionDims
    vlm: GemmaDims
    expert: GemmaDims | None
    vocab: int
    rms_eps: float = 1e-6
    rope_theta: float = 10_000.0

    @property
    def action_expert(self) -> GemmaDims:
        """The expert of a flow-matching policy. Raises ValueError where there is none."""
        if self.expert is None:
            raise ValueError("this policy has no action expert")
        return self.expert


# Names and sizes as LeRobot's and openpi's configuration give them.
GEMMA_VARIANTS = {
    "gemma_2b": GemmaDims(2048, depth=18, mlp_dim=16_384, num_heads=8, num_kv_heads=1, head_dim=256),
    "gemma_300m": GemmaDims(1024, depth=18, mlp_dim=4096, num_heads=8, num_kv_heads=1, head_dim=256),
}
RELEASED_VOCAB = 257_152


def released_vision(image_size: int) -> VisionDims:
    """SigLIP So400m/14."""
    return VisionDims(
        1152, 4304, num_hidden_layers=27, num_attention_heads=16, patch_size=14, image_size=image_size
    )


def released_dims(vlm_variant: str, expert_variant: str | None, image_size: int) -> ModelDims:
    """The sizes that the names of the variants stand for."""
    return ModelDims(
        vision=released_vision(image_size),
        vlm=GEMMA_VARIANTS[vlm_variant],
        expert=None if expert_variant is None else GEMMA_VARIANTS[expert_variant],
        vocab=RELEASED_VOCAB,
    )


def read_dims(folder: Path, vlm_variant: str, expert_variant: str | None, image_size: int) -> ModelDims:
    """The sizes of the checkpoint in `folder`. expert_variant: None for policies without an expert.

    `model_dims.json` wins over the variants of config.json. Raises `CheckpointError` for fields that are
    missing, of the wrong type or contradict each other.
    """
    path = folder / DIMS_FILE
    if not path.exists():
        return released_dims(vlm_variant, expert_variant, image_size)
    fields = read_json(path)
    dims = ModelDims(
        vision=read_vision(fields.child("vision"), image_size),
        vlm=read_gemma(fields.child("vlm")),
        expert=None if expert_variant is None else read_gemma(fields.child("expert")),
        vocab=fields.integer("vocab", 1, 10 * _WIDEST),
        rms_eps=fields.positive("rms_eps", default=1e-6),
        rope_theta=fields.positive("rope_theta", default=10_000.0),
    )
    _check_shared_attention(fields, dims)
    return dims


def read_vision(fields: Fields, image_size: int) -> VisionDims:
    """SigLIP's sizes. image_size: in pixels, of config.json. Raises `CheckpointError` for what cannot be."""
    fields.string("hidden_act", choices=("gelu_pytorch_tanh",), default="gelu_pytorch_tanh")
    dims = VisionDims(
        hidden_size=fields.integer("hidden_size", 1, _WIDEST),
        intermediate_size=fields.integer("intermediate_size", 1, _WIDEST),
        num_hidden_layers=fields.integer("num_hidden_layers", 1, _DEEPEST),
        num_attention_heads=fields.integer("num_attention_heads", 1, _WIDEST),
        patch_size=fields.integer("patch_size", 1, _WIDEST),
        image_size=fields.integer("image_size", 1, _WIDEST),
        num_channels=fields.integer("num_channels", 3, 3, default=3),
        layer_norm_eps=fields.positive("layer_norm_eps", default=1e-6),
    )
    if dims.hidden_size % dims.num_attention_heads:
        problem = (
            f"is {dims.hidden_size}, expected a multiple of num_attention_heads = {dims.num_attention_heads}"
        )
        raise fields.error("hidden_size", problem)
    if dims.image_size % dims.patch_size:
        problem = f"is {dims.image_size}, expected a multiple of patch_size = {dims.patch_size}"
        raise fields.error("image_size", problem)
    if dims.image_size != image_size:
        problem = f"is {dims.image_size}, expected {image_size}, the size of images in config.json"
        raise fields.error("image_size", problem)
    return dims


def gemma_problems(dims: GemmaDims) -> Iterator[tuple[str, str]]:
    """(size, what is wrong with it) of everything that the kernels cannot take."""
    for name, multiple, reason in _MULTIPLES:
        size = getattr(dims, name)
        if size % multiple:
            yield name, f"is {size}, expected a multiple of {multiple}: {reason}"
    if dims.num_heads % dims.num_kv_heads:
        yield (
            "num_heads",
            f"is {dims.num_heads}, expected a multiple of num_kv_heads = {dims.num_kv_heads}",
        )


def read_gemma(fields: Fields) -> GemmaDims:
    """Sizes of one stack. Raises `CheckpointError` for what kernels cannot take."""
    dims = GemmaDims(
        width=fields.integer("width", 2, _WIDEST),
        depth=fields.integer("depth", 1, _DEEPEST),
        mlp_dim=fields.integer("mlp_dim", 1, _WIDEST),
        num_heads=fields.integer("num_heads", 1, _WIDEST),
        num_kv_heads=fields.integer("num_kv_heads", 1, _WIDEST),
        head_dim=fields.integer("head_dim", 2, _WIDEST),
    )
    for name, problem in gemma_problems(dims):
        raise fields.error(name, problem)
    return dims


def _check_shared_attention(fields: Fields, dims: ModelDims) -> None:
    """The expert attends to the VLM's keys layer by layer, so these sizes are shared."""
    if dims.expert is None:
        return
    expert = fields.child("expert")
    for name in ("depth", "num_heads", "num_kv_heads", "head_dim"):
        got, want = getattr(dims.expert, name), getattr(dims.vlm, name)
        if got != want:
            raise expert.error(
                name, f"is {got}, expected {want} as in vlm: the expert attends to the VLM's keys"
            )
