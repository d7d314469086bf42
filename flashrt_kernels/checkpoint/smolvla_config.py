# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a SmolVLA folder of LeRobot says about the policy: config.json, and the sizes behind the names in it.

Source of the rules: lerobot 0.6.1, policies/smolvla/{configuration_smolvla,smolvlm_with_expert}.py.
"""

from dataclasses import dataclass
from pathlib import Path

from flashrt_kernels.checkpoint.config import ACTION, CONFIG_FILE, LONGEST, STATE, camera_slots, feature_width
from flashrt_kernels.checkpoint.dims import DIMS_FILE, GemmaDims, VisionDims, read_gemma, read_vision
from flashrt_kernels.checkpoint.fields import Fields, read_json

POLICY_TYPE = "smolvla"
_DEEPEST = 512
# What would change the policy and is not built here: key → the value that it must have.
_UNSUPPORTED = {
    "add_image_special_tokens": "no special tokens around images",
    "adapt_to_pi_aloha": "joints and grippers as they are",
    "use_delta_joint_actions_aloha": "absolute actions",
}


@dataclass(frozen=True)
class SmolVLAConfig:
    """Values of config.json; dimensions are numbers of joints, the resolution is (height, width) in pixels.

    backbone: name of the vision-language model, of which the first `layers` layers are used.
    self_attention_every: expert layer i attends to itself too where i is a multiple of it, to the prefix only
    elsewhere; below 1: nowhere.
    """

    chunk_size: int
    max_state_dim: int
    max_action_dim: int
    num_inference_steps: int
    image_resolution: tuple[int, int]
    tokenizer_max_length: int
    min_period: float
    max_period: float
    cameras: tuple[str, ...]
    state_dim: int
    action_dim: int
    action_names: tuple[str, ...] | None
    backbone: str
    layers: int
    self_attention_every: int
    expert_width_multiplier: float


@dataclass(frozen=True)
class SmolVLADims:
    """scale: scale × scale neighbouring patches become one image token. cross: which layers of the expert
    attend to the prefix only."""

    vision: VisionDims
    scale: int
    text: GemmaDims
    expert: GemmaDims
    cross: tuple[bool, ...]
    vocab: int
    rms_eps: float = 1e-5
    rope_theta: float = 10_000.0  # LeRobot's own rotation, not that of the language model's configuration

    @property
    def image_tokens(self) -> int:
        """Tokens of one camera."""
        return self.vision.patches // self.scale**2


@dataclass(frozen=True)
class Backbone:
    """A released vision-language model, all of its layers."""

    vision: VisionDims
    scale: int
    text: GemmaDims
    vocab: int
    rms_eps: float = 1e-5


BACKBONES = {
    "HuggingFaceTB/SmolVLM2-500M-Video-Instruct": Backbone(
        vision=VisionDims(
            768, 3072, num_hidden_layers=12, num_attention_heads=12, patch_size=16, image_size=512
        ),
        scale=4,
        text=GemmaDims(960, depth=32, mlp_dim=2560, num_heads=15, num_kv_heads=5, head_dim=64),
        vocab=49_280,
    ),
}


def read_smolvla(folder: Path) -> tuple[SmolVLAConfig, SmolVLADims]:
    """Raises `CheckpointError` naming file and key; `model_dims.json` wins over the name of the backbone."""
    fields = read_json(folder / CONFIG_FILE)
    config = _read_config(fields)
    return config, _sizes(_backbone(folder, fields, config), fields, config)


def _read_config(fields: Fields) -> SmolVLAConfig:
    fields.string("type", choices=(POLICY_TYPE,))
    fields.string("attention_mode", choices=("cross_attn",))
    for name, expected in _UNSUPPORTED.items():
        if fields.boolean(name, default=False):
            raise fields.error(name, f"is true, expected false: {expected} here")
    config = SmolVLAConfig(
        chunk_size=fields.integer("chunk_size", 1, LONGEST),
        max_state_dim=fields.integer("max_state_dim", 1, LONGEST),
        max_action_dim=fields.integer("max_action_dim", 1, LONGEST),
        num_inference_steps=fields.integer("num_steps", 1, LONGEST),
        image_resolution=_resolution(fields),
        tokenizer_max_length=fields.integer("tokenizer_max_length", 1, LONGEST),
        min_period=fields.positive("min_period"),
        max_period=fields.positive("max_period"),
        cameras=camera_slots(fields),
        state_dim=feature_width(fields, "input_features", STATE, "STATE"),
        action_dim=feature_width(fields, "output_features", ACTION, "ACTION"),
        action_names=None,
        backbone=fields.string("vlm_model_name"),
        layers=fields.integer("num_vlm_layers", 1, _DEEPEST),
        self_attention_every=fields.integer("self_attn_every_n_layers", -1, _DEEPEST),
        expert_width_multiplier=fields.positive("expert_width_multiplier"),
    )
    _check_consistent(fields, config)
    return config


def _resolution(fields: Fields) -> tuple[int, int]:
    width, height = fields.integers("resize_imgs_with_padding", count=2)
    if height != width:
        raise fields.error("resize_imgs_with_padding", f"is {[width, height]}, expected a square")
    return height, width


def _check_consistent(fields: Fields, config: SmolVLAConfig) -> None:
    widths = (
        ("input_features", STATE, config.state_dim, "max_state_dim", config.max_state_dim),
        ("output_features", ACTION, config.action_dim, "max_action_dim", config.max_action_dim),
    )
    for group, name, width, limit, most in widths:
        if width > most:
            raise fields.error(f"{group}.{name}", f"is {width} wide, expected at most {limit} = {most}")
    if config.min_period >= config.max_period:
        problem = f"is {config.min_period}, expected less than max_period = {config.max_period}"
        raise fields.error("min_period", problem)
    # LeRobot cannot build an expert with fewer layers either, once some of them read the prefix only.
    layers = fields.integer("num_expert_layers", -1, _DEEPEST, default=-1)
    if layers > 0 and layers != config.layers:
        raise fields.error("num_expert_layers", f"is {layers}, expected num_vlm_layers = {config.layers}")


def _backbone(folder: Path, fields: Fields, config: SmolVLAConfig) -> Backbone:
    path = folder / DIMS_FILE
    if not path.exists():
        if config.backbone not in BACKBONES:
            known = ", ".join(BACKBONES)
            problem = f"is {config.backbone}, expected {known}, or its sizes in {DIMS_FILE}"
            raise fields.error("vlm_model_name", problem)
        return BACKBONES[config.backbone]
    sizes = read_json(path)
    vision = read_vision(sizes.child("vision"), config.image_resolution[0])
    return Backbone(
        vision=vision,
        scale=_scale(sizes, vision.image_size // vision.patch_size),
        text=read_gemma(sizes.child("text")),
        vocab=sizes.integer("vocab", 1, 10_000_000),
        rms_eps=sizes.positive("rms_eps", default=1e-5),
    )


def _scale(sizes: Fields, edge: int) -> int:
    """How many of the `edge` patches along an edge become one token."""
    # transformers looks a position up by a rounded fraction of the edge, which is exact for powers of two.
    if edge & (edge - 1):
        raise sizes.error("vision", f"gives {edge} patches along an edge, expected a power of two")
    scale = sizes.integer("scale", 1, edge)
    if edge % scale:
        raise sizes.error("scale", f"is {scale}, expected a divisor of the {edge} patches along an edge")
    return scale


def _sizes(backbone: Backbone, fields: Fields, config: SmolVLAConfig) -> SmolVLADims:
    vision, text = backbone.vision, backbone.text
    if config.image_resolution[0] != vision.image_size:
        problem = (
            f"is {list(config.image_resolution)}, expected {vision.image_size} as {config.backbone} has it"
        )
        raise fields.error("resize_imgs_with_padding", problem)
    if config.layers > text.depth:
        raise fields.error(
            "num_vlm_layers", f"is {config.layers}, but {config.backbone} has {text.depth} layers"
        )
    every = config.self_attention_every
    width = int(text.width * config.expert_width_multiplier)
    return SmolVLADims(
        vision=vision,
        scale=backbone.scale,
        text=_with(text, text.width, text.mlp_dim, config.layers),
        expert=_with(text, width, expert_mlp_dim(width), config.layers),
        cross=tuple(every < 1 or i % every != 0 for i in range(config.layers)),
        vocab=backbone.vocab,
        rms_eps=backbone.rms_eps,
    )


def _with(text: GemmaDims, width: int, mlp_dim: int, depth: int) -> GemmaDims:
    return GemmaDims(width, depth, mlp_dim, text.num_heads, text.num_kv_heads, text.head_dim)


def expert_mlp_dim(width: int) -> int:
    """Two thirds of four times the width, up to a multiple of 256: LeRobot's get_intermediate_size."""
    return -(-4 * int(2 * width / 3) // 256) * 256
