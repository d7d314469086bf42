# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One entry for every checkpoint: which program wrote the folder is recognised from its files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flashrt_kernels.checkpoint import groot, openpi_jax, openpi_torch
from flashrt_kernels.checkpoint.checkpoint import Checkpoint
from flashrt_kernels.checkpoint.config import CONFIG_FILE
from flashrt_kernels.checkpoint.fields import listed, read_json
from flashrt_kernels.checkpoint.formats import FORMATS
from flashrt_kernels.checkpoint.lerobot import load_lerobot
from flashrt_kernels.checkpoint.options import Options
from flashrt_kernels.checkpoint.smolvla import load_smolvla
from flashrt_kernels.errors import CheckpointError


@dataclass(frozen=True)
class Origin:
    """A program that writes checkpoints.

    needs: the files by which its folders are known, in words. options: those that mean something in them.
    """

    name: str
    needs: str
    options: tuple[str, ...]
    recognises: Callable[[Path], bool]
    load: Callable[[Path, Options], Checkpoint]


def _is_lerobot(folder: Path) -> bool:
    config = folder / CONFIG_FILE
    return config.is_file() and "type" in read_json(config)


def _pi(folder: Path, options: Options) -> Checkpoint:
    return load_lerobot(
        folder,
        options.tokenizer,
        fast_tokenizer=options.fast_tokenizer,
        pad_prompt_state=options.pad_prompt_state,
        scan=options.scan,
    )


def _smolvla(folder: Path, options: Options) -> Checkpoint:
    options.check(folder, "LeRobot with a SmolVLA", ())
    return load_smolvla(folder, options.tokenizer, scan=options.scan)


# Type in LeRobot's config.json → its reader.
LEROBOT: Mapping[str, Callable[[Path, Options], Checkpoint]] = {
    **dict.fromkeys(FORMATS, _pi),
    "smolvla": _smolvla,
}


def _lerobot(folder: Path, options: Options) -> Checkpoint:
    policy_type = read_json(folder / CONFIG_FILE).string("type", choices=tuple(LEROBOT))
    if policy_type != "pi0_fast":
        options.refuse_fast_tokenizer(folder, policy_type)
    return LEROBOT[policy_type](folder, options)


def _groot(folder: Path, options: Options) -> Checkpoint:
    return groot.load_groot(folder, options.tokenizer, options.embodiment, options.scan, options.image_size)


_OPENPI = ("embodiment", "delta_actions", "chunk_size", "state_in_prompt", "adapt_to_pi")
# The first that recognises a folder reads it.
ORIGINS = (
    Origin(
        "GR00T",
        "config.json with model_type Gr00tN1d6 or Gr00tN1d7, or LeRobot's with type groot, and its weights",
        ("embodiment", "image_size"),
        groot.recognise,
        _groot,
    ),
    Origin(
        "LeRobot",
        f"config.json with a type ({', '.join(LEROBOT)}), model.safetensors, policy_preprocessor.json, "
        f"policy_postprocessor.json",
        ("fast_tokenizer", "pad_prompt_state"),
        _is_lerobot,
        _lerobot,
    ),
    Origin(
        "openpi (PyTorch)",
        "model.safetensors, assets/<asset id>/norm_stats.json",
        _OPENPI,
        openpi_torch.recognise,
        openpi_torch.load_openpi_torch,
    ),
    Origin(
        "openpi (JAX)",
        "params/manifest.ocdbt, assets/<asset id>/norm_stats.json",
        (*_OPENPI, "fast_tokenizer"),
        openpi_jax.recognise,
        openpi_jax.load_openpi_jax,
    ),
)


def load_checkpoint(
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    embodiment: str | None = None,
    fast_tokenizer: str | Path | None = None,
    pad_prompt_state: bool | None = None,
    delta_actions: str | None = None,
    chunk_size: int | None = None,
    state_in_prompt: bool | None = None,
    adapt_to_pi: bool | None = None,
    image_size: tuple[int, int] | None = None,
    scan: bool = True,
) -> Checkpoint:
    """Reads and verifies the checkpoint in `folder`, whichever of `ORIGINS` wrote it.

    tokenizer: file or folder, for folders without one. fast_tokenizer: folder, likewise, for Pi0-FAST.
    embodiment: which of a checkpoint's robots (GR00T: its tag; openpi: its asset id), where it has several.
    pad_prompt_state: LeRobot: the prompt holds the state padded to max_state_dim, as version 0.4 wrote it.
    What openpi keeps in its training configuration: delta_actions, which actions are offsets to the state, in
    the notation of make_bool_mask ("6,-1": six that are and one that is not); chunk_size, actions of a chunk;
    state_in_prompt, whether Pi0.5's prompt holds the state (discrete_state_input); adapt_to_pi, whether
    joints and grippers of ALOHA are turned into those of openpi's base models and back. None: as openpi's own
    training with the asset says.
    image_size: GR00T: (height, width) of every camera, where the number of tokens follows from it.
    scan: look at all values of the weights; without, `unscanned` says what is left to check.

    Raises `CheckpointError` naming file, key or option.
    """
    place = Path(folder).expanduser()
    options = Options(
        tokenizer,
        embodiment,
        fast_tokenizer,
        pad_prompt_state,
        delta_actions,
        chunk_size,
        state_in_prompt,
        adapt_to_pi,
        image_size,
        scan,
    )
    try:
        origin = _recognise(place)
        options.check(place, origin.name, origin.options)
        return origin.load(place, options)
    except OSError as error:  # permissions, a disk that fails, names that are too long
        raise CheckpointError(f"{folder}: cannot be read: {error}") from error


def _recognise(folder: Path) -> Origin:
    """Raises `CheckpointError` listing what each origin would need."""
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise CheckpointError(f"{folder}: {what}, expected a checkpoint folder")
    for origin in ORIGINS:
        if origin.recognises(folder):
            return origin
    needs = "\n".join(f"  {origin.name}: {origin.needs}" for origin in ORIGINS)
    found = listed(sorted(file.name for file in folder.iterdir())) or "nothing"
    raise CheckpointError(
        f"{folder}: not recognised as a checkpoint; it holds {found}; expected one of these:\n{needs}"
    )
