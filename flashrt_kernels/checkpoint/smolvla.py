# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLA folders of LeRobot: their tensors, and the strict reader."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashrt_kernels.checkpoint.checkpoint import Checkpoint, Floats
from flashrt_kernels.checkpoint.config import CONFIG_FILE, STATE
from flashrt_kernels.checkpoint.dims import DIMS_FILE
from flashrt_kernels.checkpoint.layout import TensorSpec, gemma_tensors, vision_tensors
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.checkpoint.processors import read_processors
from flashrt_kernels.checkpoint.shards import read_weights
from flashrt_kernels.checkpoint.smolvla_config import POLICY_TYPE, SmolVLAConfig, SmolVLADims, read_smolvla
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, match
from flashrt_kernels.checkpoint.tokenizer import Tokenizer, check_vocabulary, find_tokenizer, load_tokenizer
from flashrt_kernels.errors import CheckpointError

BACKBONE = "vlm_with_expert.vlm."
VISION = BACKBONE + "model.vision_model."
CONNECTOR = BACKBONE + "model.connector.modality_projection.proj"
TEXT = BACKBONE + "model.text_model."
EMBEDDING = TEXT + "embed_tokens.weight"
EXPERT = "vlm_with_expert.lm_expert."
IGNORED = frozenset({BACKBONE + "lm_head.weight"})  # the language model writes nothing


@dataclass(frozen=True, eq=False, kw_only=True)
class SmolVLACheckpoint(Checkpoint):
    """A SmolVLA policy as LeRobot saves it."""

    config: SmolVLAConfig
    dims: SmolVLADims
    tokenizer: Tokenizer
    state_norm: Normaliser
    action_norm: Normaliser

    @property
    def state_widths(self) -> Mapping[str, int]:
        return {STATE: self.state_dim}

    @property
    def state_stats(self) -> Mapping[str, Floats]:
        return dict(self.state_norm.stats)

    @property
    def action_stats(self) -> Mapping[str, Floats]:
        return dict(self.action_norm.stats)

    def normalise_state(self, state: Floats) -> Floats:
        return self.state_norm.normalise(state)

    def describe(self) -> list[str]:
        statistics = (
            *self.state_norm.describe("state", None),
            *self.action_norm.describe("action", self.action_names),
        )
        return [f"tokenizer: {self.tokenizer.source}", *statistics]


def smolvla_tensors(config: SmolVLAConfig, dims: SmolVLADims) -> Iterator[TensorSpec]:
    """Every tensor of the policy, keys without LeRobot's leading `model.`.

    Layers of the expert that attend to the prefix only take keys and values from the prefix's own.
    """
    yield from vision_tensors(dims.vision, VISION)
    features = dims.vision.hidden_size * dims.scale**2
    yield TensorSpec(CONNECTOR + ".weight", (dims.text.width, features), "linear")
    yield TensorSpec(EMBEDDING, (dims.vocab, dims.text.width), "embedding")
    yield from gemma_tensors(TEXT, dims.text, adaptive=False)
    keys = dims.text.num_kv_heads * dims.text.head_dim
    crossing = {
        f"{EXPERT}layers.{i}.self_attn.{part}_proj.weight"
        for i, cross in enumerate(dims.cross)
        for part in "kv"
        if cross
    }
    for spec in gemma_tensors(EXPERT, dims.expert, adaptive=False):
        yield replace(spec, shape=(keys, keys)) if spec.key in crossing else spec
    width = dims.expert.width
    for name, outputs, inputs in (
        ("state_proj", dims.text.width, config.max_state_dim),
        ("action_in_proj", width, config.max_action_dim),
        ("action_time_mlp_in", width, 2 * width),
        ("action_time_mlp_out", width, width),
        ("action_out_proj", config.max_action_dim, width),
    ):
        yield TensorSpec(name + ".weight", (outputs, inputs), "linear")
        yield TensorSpec(name + ".bias", (outputs,), "bias")


def canonical(key: str) -> str | None:
    """The key of a tensor in a file → as in `smolvla_tensors`; None for those that inference never uses."""
    key = key.removeprefix("model.")
    return None if key in IGNORED else key


def load_smolvla(
    folder: str | Path, tokenizer: str | Path | None = None, *, scan: bool = True
) -> SmolVLACheckpoint:
    """Reads and verifies the SmolVLA in `folder`; arguments and errors as `load_lerobot`.

    The tokenizer is the backbone's: `tokenizer.json` with its `tokenizer_config.json`.
    """
    try:
        return _load(Path(folder).expanduser(), tokenizer, scan)
    except OSError as error:  # permissions, a disk that fails, names that are too long
        raise CheckpointError(f"{folder}: cannot be read: {error}") from error


def _load(folder: Path, tokenizer: str | Path | None, scan: bool) -> SmolVLACheckpoint:
    config, dims = read_smolvla(folder)
    processors = read_processors(folder, POLICY_TYPE, config)
    config = replace(config, tokenizer_max_length=processors.tokenizer_max_length)
    text = load_tokenizer(find_tokenizer(folder, tokenizer))
    check_vocabulary(text, folder, dims.vocab)
    path, stored = read_weights(folder)
    sizes = DIMS_FILE if (folder / DIMS_FILE).exists() else f"vlm_model_name of {CONFIG_FILE}"
    tensors, twins = match(path, stored, smolvla_tensors(config, dims), canonical, sizes, scan)
    if scan:
        check_finite(path, tensors)
    return SmolVLACheckpoint(
        folder=folder,
        origin="lerobot",
        policy_type=POLICY_TYPE,
        cameras=config.cameras,
        camera_names={name: slot for name, slot in processors.rename_map.items() if slot in config.cameras},
        state_dim=config.state_dim,
        action_dim=config.action_dim,
        horizon=config.chunk_size,
        denoising_steps=config.num_inference_steps,
        action_names=config.action_names,
        tensors=tensors,
        unscanned=None if scan else Unscanned(path, twins),
        notes=processors.notes,
        config=config,
        dims=dims,
        tokenizer=text,
        state_norm=processors.state_norm,
        action_norm=processors.action_norm,
    )
