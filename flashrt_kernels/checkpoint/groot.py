# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T N1.6 and N1.7 checkpoints, of Isaac-GR00T and of LeRobot, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flashrt_kernels.checkpoint.checkpoint import Checkpoint, Floats
from flashrt_kernels.checkpoint.fields import Fields, read_json
from flashrt_kernels.checkpoint.groot_dims import GrootDims, Version
from flashrt_kernels.checkpoint.groot_groups import ActionGroup, StateGroup
from flashrt_kernels.checkpoint.groot_isaac import read_isaac
from flashrt_kernels.checkpoint.groot_lerobot import read_lerobot_groot
from flashrt_kernels.checkpoint.groot_processing import GrootImages, GrootProcessing
from flashrt_kernels.checkpoint.groot_prompt import GrootPrompt, PromptIds, load_prompt
from flashrt_kernels.checkpoint.groot_weights import read_groot_weights
from flashrt_kernels.errors import CheckpointError

CONFIG_FILE = "config.json"
LEROBOT_TYPE = "groot"
VERSIONS: dict[str, Version] = {"gr00tn1d6": "n16", "gr00tn1d7": "n17"}


@dataclass(frozen=True, eq=False, kw_only=True)
class GrootCheckpoint(Checkpoint):
    """A verified GR00T checkpoint for one embodiment.

    state: [state_dim] are the state groups one after another, actions the action groups.
    """

    dims: GrootDims
    processing: GrootProcessing
    prompts: GrootPrompt

    @property
    def embodiment(self) -> str:
        return self.processing.embodiment

    @property
    def embodiment_index(self) -> int:
        """Which of the weights of state encoder, action encoder and action decoder are its own."""
        return self.processing.embodiment_index

    @property
    def images(self) -> GrootImages:
        return self.processing.images

    @property
    def state_groups(self) -> tuple[StateGroup, ...]:
        return self.processing.state_groups

    @property
    def state_widths(self) -> Mapping[str, int]:
        return {group.name: group.width for group in self.state_groups}

    @property
    def action_groups(self) -> tuple[ActionGroup, ...]:
        return self.processing.action_groups

    @property
    def state_stats(self) -> Mapping[str, Floats]:
        return self.processing.state_stats

    @property
    def action_stats(self) -> Mapping[str, Floats]:
        return self.processing.action_stats

    def prompt(self, instruction: str, tokens_per_image: int, cameras: int | None = None) -> PromptIds:
        """The ids of a prompt with that many pictures (None: all cameras).

        Raises ObservationError for an instruction without words or with text of special tokens.
        """
        pictures = len(self.cameras) if cameras is None else cameras
        return self.prompts(instruction, pictures, tokens_per_image)

    @property
    def relative_actions(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.action_groups if group.reference is not None)

    def normalise_state(self, state: Floats) -> Floats:
        """[state_dim] in robot units → what the model sees before padding: encoded groups are wider."""
        values, parts, start = np.asarray(state, np.float64), [], 0
        for group in self.state_groups:
            parts.append(group.normalise(values[start : start + group.width]))
            start += group.width
        return np.concatenate(parts).astype(np.float32)

    def decode(self, actions: Floats, state: Floats) -> Floats:
        """actions [H, max_action] of the model, state [state_dim] of the same observation, in robot units.

        → float32 [horizon, action_dim] in robot units. Raises ObservationError where the state has no
        rotation to which a pose could be relative.
        """
        y, values = np.asarray(actions[: self.horizon], np.float64), np.asarray(state, np.float64)
        parts, start = [], 0
        for group in self.action_groups:
            parts.append(group.decode(y[:, start : start + group.width], values))
            start += group.width
        decoded = np.concatenate(parts, axis=1)[:, : self.action_dim]
        if self.processing.gripper is not None:
            mirrored = 1.0 - 2.0 * decoded[:, self.processing.gripper_dim]
            signed = self.processing.gripper == "sign"
            decoded[:, self.processing.gripper_dim] = np.sign(mirrored) if signed else mirrored
        return decoded.astype(np.float32)

    def describe(self) -> list[str]:
        processing = self.processing
        lines = [
            f"tokenizer: {self.prompts.source}",
            f"embodiment: {self.embodiment}, weights {self.embodiment_index}",
            "instructions: "
            + ("lower case, without punctuation" if processing.formalise else "as they come"),
        ]
        lines += [f"state {group.name}: {group.width} numbers, {group.rule}" for group in self.state_groups]
        for group in self.action_groups:
            kind = "absolute"
            if group.reference is not None:
                kind = "pose relative to the state" if group.pose else "relative to the state"
            rows = f", statistics of {len(group.offset)} steps" if group.offset.ndim == 2 else ""
            lines.append(f"action {group.name}: {group.width} numbers, {group.rule}, {kind}{rows}")
        if processing.gripper is not None:
            lines.append(f"action {processing.gripper_dim}: LIBERO's gripper, {processing.gripper}")
        return lines


def recognise(folder: Path) -> bool:
    """Whether `folder` is a GR00T checkpoint, of whichever version."""
    try:
        config = read_json(folder / CONFIG_FILE)
        return _kind(config) is not None
    except CheckpointError:
        return False


def _kind(config: Fields) -> str | None:
    """`groot` for LeRobot's, otherwise Isaac-GR00T's name of the architecture; None: something else."""
    if config.string("type", default="") == LEROBOT_TYPE:
        return LEROBOT_TYPE
    name = config.string("model_type", default="").lower().replace("_", "")
    return name if name.startswith("gr00tn") else None


def load_groot(
    folder: str | Path,
    tokenizer: str | Path | None = None,
    embodiment: str | None = None,
    scan: bool = True,
    image_size: tuple[int, int] | None = None,
) -> GrootCheckpoint:
    """Reads and verifies the GR00T checkpoint in `folder`.

    The tokenizer (`tokenizer.json`, and for N1.7 its chat template) comes from the folder, else from
    `tokenizer`, a file or a folder. embodiment: which robot, where the folder knows several.
    image_size: (height, width) of every camera, where the token count follows their aspect ratio.
    Without `scan` the values of the weights are not looked at: whoever brings them to a GPU passes
    `unscanned` to `Weights.verify`.

    Raises `CheckpointError` naming file and key for anything missing, unexpected, mis-shaped, non-finite,
    contradictory or unreadable; the small files are checked before the weights are opened.
    """
    place = Path(folder).expanduser()
    if image_size is not None and not _is_size(image_size):
        raise CheckpointError(f"image_size is {image_size!r}, expected (height, width) in pixels")
    try:
        return _load(place, tokenizer, embodiment, scan, image_size)
    except OSError as error:  # permissions, a disk that fails, names that are too long
        raise CheckpointError(f"{place}: cannot be read: {error}") from error


def _is_size(value: object) -> bool:
    pair = isinstance(value, tuple | list) and len(value) == 2
    return pair and all(type(edge) is int and 0 < edge < 1 << 16 for edge in value)  # type: ignore[attr-defined]


def _load(
    folder: Path,
    tokenizer: str | Path | None,
    embodiment: str | None,
    scan: bool,
    image_size: tuple[int, int] | None,
) -> GrootCheckpoint:
    config = read_json(folder / CONFIG_FILE)
    kind = _kind(config)
    lerobot = kind == LEROBOT_TYPE
    version = _version(config, kind)
    if lerobot:
        processing = read_lerobot_groot(folder, config, embodiment, image_size)
    else:
        processing = read_isaac(folder, version, embodiment, image_size)
    prompts = load_prompt(version, folder, tokenizer, processing.formalise)
    prompts.frame(len(processing.cameras))
    sizes = _lerobot_sizes(config) if lerobot else config
    dims, tensors, unscanned = read_groot_weights(folder, version, sizes, scan)
    _check_fit(folder, dims, processing, prompts)
    notes = list(processing.notes)
    if image_size is None and (version == "n16" or processing.images.albumentations):
        notes.append("cameras are taken to be square: image_size = (height, width) says otherwise")
    return GrootCheckpoint(
        folder=folder,
        origin="lerobot" if lerobot else "isaac-groot",
        policy_type=f"groot_{version}",
        cameras=processing.cameras,
        camera_names=processing.camera_names,
        state_dim=sum(group.width for group in processing.state_groups),
        action_dim=processing.action_dim,
        horizon=processing.horizon,
        denoising_steps=dims.head.steps,
        action_names=processing.action_names,
        tensors=tensors,
        unscanned=unscanned,
        not_positions=processing.not_positions,
        notes=tuple(notes),
        dims=dims,
        processing=processing,
        prompts=prompts,
    )


def _version(config: Fields, kind: str | None) -> Version:
    if kind == LEROBOT_TYPE:
        if config.given("tokenizer_assets_repo"):
            raise config.error("tokenizer_assets_repo", "is given: this is GR00T N1.5, expected N1.7")
        return "n17"
    if kind not in VERSIONS:
        came = config.string("model_type", default="missing")
        raise config.error("model_type", f"is {came}, expected Gr00tN1d6 or Gr00tN1d7")
    return VERSIONS[kind]


def _lerobot_sizes(config: Fields) -> Fields:
    """What LeRobot's config.json says about the model's own sizes: the steps of inference, if anything."""
    steps = "num_inference_timesteps"
    own = {steps: config.integer(steps, 1, 1000)} if config.given(steps) else {}
    return Fields(config.file, "", own)


def _check_fit(folder: Path, dims: GrootDims, processing: GrootProcessing, prompts: GrootPrompt) -> None:
    """What the files say about the robot fits into the model."""
    head = dims.head
    encoded = sum(
        2 * group.width if group.rule == "sin_cos" else group.width for group in processing.state_groups
    )
    decoded = sum(group.width for group in processing.action_groups)
    for what, value, limit in (
        ("state groups have", encoded, head.max_state),
        ("action groups have", decoded, head.max_action),
        ("actions of a chunk are", processing.horizon, head.horizon),
        ("weights of the embodiment are number", processing.embodiment_index, head.embodiments - 1),
    ):
        if value > limit:
            raise CheckpointError(
                f"{folder}: {processing.embodiment}: {what} {value}, expected at most {limit} as in the model"
            )
    if prompts.size > dims.llm.vocab:
        raise CheckpointError(
            f"{prompts.source}: has ids up to {prompts.size - 1}, but the embedding table of {folder} has "
            f"{dims.llm.vocab} rows; expected the tokenizer that the policy was trained with"
        )
