# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""LeRobot checkpoint folders, read strictly: everything fits, or a `CheckpointError` says what does not."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint import layout
from flashrt_kernels.checkpoint.config import CONFIG_FILE, STATE, read_config
from flashrt_kernels.checkpoint.dims import DIMS_FILE, ModelDims, read_dims
from flashrt_kernels.checkpoint.pi import PiCheckpoint, PromptRule
from flashrt_kernels.checkpoint.processors import read_processors
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, match, read_all
from flashrt_kernels.checkpoint.tokenizer import find_tokenizer, load_tokenizer
from flashrt_kernels.errors import CheckpointError

WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class PolicyFormat:
    """How one policy type is stored: its tensors, and how keys of older or other writers are read."""

    tensors: Callable[[ModelDims, int], Iterable[layout.TensorSpec]]
    renames: tuple[tuple[re.Pattern[str], str], ...]
    ignored: frozenset[str]

    def canonical(self, key: str) -> str | None:
        """The canonical name of a key in a file; None for tensors that inference never uses."""
        for pattern, replacement in self.renames:
            key = pattern.sub(replacement, key)
        return None if key in self.ignored else key


_COMMON_RENAMES = (
    (re.compile(r"^model\."), ""),  # LeRobot's policy object holds the model as `model`, openpi's does not
    (re.compile(r"\.vision_tower\.(?!vision_model\.)"), ".vision_tower.vision_model."),  # transformers ≥ 5.17
    (
        re.compile("^" + re.escape(layout.LM_HEAD) + "$"),
        layout.EMBEDDING,
    ),  # tied: either copy or both are stored
)

FORMATS: dict[str, PolicyFormat] = {
    "pi05": PolicyFormat(
        tensors=layout.pi05_tensors,
        # Early files kept Pi0's names for the time MLP and its state projection, which Pi0.5 never uses.
        renames=(*_COMMON_RENAMES, (re.compile(r"^action_time_mlp_(in|out)\."), r"time_mlp_\1.")),
        ignored=frozenset({layout.EXPERT_LM_HEAD, "state_proj.weight", "state_proj.bias"}),
    ),
}


def load_lerobot(
    folder: str | Path, tokenizer: str | Path | None = None, *, scan: bool = True
) -> PiCheckpoint:
    """Reads and verifies the LeRobot checkpoint in `folder`.

    The tokenizer comes from the folder, else from `tokenizer` (a file or a folder). Without `scan` the values
    of the weights are not looked at: whoever brings them to a GPU passes `unscanned` to `Weights.verify`.

    Raises `CheckpointError` naming file and key for anything missing, unexpected, mis-shaped, non-finite,
    contradictory or unreadable; the small files are checked before the weights are opened.
    """
    try:
        return _load(Path(folder).expanduser(), tokenizer, scan)
    except OSError as error:  # permissions, a disk that fails, names that are too long
        raise CheckpointError(f"{folder}: cannot be read: {error}") from error


def _load(folder: Path, tokenizer: str | Path | None, scan: bool) -> PiCheckpoint:
    _check_folder(folder)
    policy_type, config = read_config(folder, tuple(FORMATS))
    dims = read_dims(
        folder, config.paligemma_variant, config.action_expert_variant, config.image_resolution[0]
    )
    processors = read_processors(folder, policy_type, config)
    config = replace(
        config, tokenizer_max_length=processors.tokenizer_max_length, action_names=processors.action_names
    )
    text = load_tokenizer(find_tokenizer(folder, tokenizer))
    if text.size > dims.vocab:
        raise CheckpointError(
            f"{text.source}: has ids up to {text.size - 1}, but the embedding table of {folder} has "
            f"{dims.vocab} rows; expected the tokenizer that the policy was trained with"
        )
    tensors, unscanned = _read_weights(
        folder / WEIGHTS_FILE, FORMATS[policy_type], dims, config.max_action_dim, scan
    )
    return PiCheckpoint(
        folder=folder,
        origin="lerobot",
        policy_type=policy_type,
        cameras=config.cameras,
        camera_names={name: slot for name, slot in processors.rename_map.items() if slot in config.cameras},
        state_groups={STATE: config.state_dim},
        state_dim=config.state_dim,
        action_dim=config.action_dim,
        horizon=config.chunk_size,
        denoising_steps=config.num_inference_steps,
        action_names=config.action_names,
        config=config,
        dims=dims,
        tensors=tensors,
        state_norm=processors.state_norm,
        action_norm=processors.action_norm,
        relative_action_mask=processors.relative_action_mask,
        tokenizer=text,
        prompt=PromptRule(clean=True, lower=False, state=True),
        time="exact",
        image_filter="bilinear",
        camera_rule="present first",
        notes=processors.notes,
        unscanned=unscanned,
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise CheckpointError(
            f"{folder}: {what}, expected a checkpoint folder with {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    if not (folder / CONFIG_FILE).is_file():
        raise CheckpointError(f"{folder / CONFIG_FILE}: no such file, expected a LeRobot checkpoint folder")


def _read_weights(
    path: Path, form: PolicyFormat, dims: ModelDims, max_action_dim: int, scan: bool
) -> tuple[dict[str, Tensor], Unscanned | None]:
    sizes = (
        DIMS_FILE if (path.parent / DIMS_FILE).exists() else f"the released variants named in {CONFIG_FILE}"
    )
    expected = form.tensors(dims, max_action_dim)
    tensors, twins = match(path, read_all(path), expected, form.canonical, sizes, scan)
    if not scan:
        return tensors, Unscanned(path, twins)
    check_finite(path, tensors)
    return tensors, None
