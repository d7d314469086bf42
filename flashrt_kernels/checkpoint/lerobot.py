# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""LeRobot checkpoint folders, read strictly: everything fits, or a `CheckpointError` says what does not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashrt_kernels.checkpoint.config import CONFIG_FILE, STATE, PolicyConfig, read_config
from flashrt_kernels.checkpoint.dims import DIMS_FILE, read_dims
from flashrt_kernels.checkpoint.fast import read_actions
from flashrt_kernels.checkpoint.formats import FORMATS, fit
from flashrt_kernels.checkpoint.pi import DecodingRule, PiCheckpoint, PromptRule
from flashrt_kernels.checkpoint.processors import PREPROCESSOR_FILE, Processors, read_processors
from flashrt_kernels.checkpoint.shards import WEIGHTS_FILE, read_weights
from flashrt_kernels.checkpoint.tokenizer import check_vocabulary, find_tokenizer, load_tokenizer
from flashrt_kernels.errors import CheckpointError

# LeRobot stops at `|`, and begins to write behind the padded prompt and another BOS.
DECODING = DecodingRule(bos_behind_padding=True, skipped_positions=0, ends_at_bar=True, lenient=True)
# Policy type → text of its prompt.
PROMPTS: Mapping[str, PromptRule] = {
    "pi05": PromptRule(clean=True, lower=False, state=True),
    "pi0": PromptRule(clean=False, lower=False, state=False),
    "pi0_fast": PromptRule(clean=True, lower=False, state=True),
}


@dataclass(frozen=True)
class Elsewhere:
    """What a folder may lack: a file or folder of the tokenizer, the folder of the FAST tokenizer."""

    tokenizer: str | Path | None = None
    fast_tokenizer: str | Path | None = None


def load_lerobot(
    folder: str | Path,
    tokenizer: str | Path | None = None,
    *,
    fast_tokenizer: str | Path | None = None,
    pad_prompt_state: bool | None = None,
    scan: bool = True,
) -> PiCheckpoint:
    """Reads and verifies the LeRobot checkpoint in `folder`.

    The tokenizers come from the folder, else from `tokenizer` (a file or a folder) and `fast_tokenizer`.
    pad_prompt_state: the prompt holds the state padded to max_state_dim, as LeRobot 0.4 wrote it; None: it
    does not, and a note says where it might have to. Without `scan` the values of the weights are not looked
    at: whoever brings them to a GPU passes `unscanned` to `Weights.verify`.

    Raises `CheckpointError` naming file and key for anything missing, unexpected, mis-shaped, non-finite,
    contradictory or unreadable; the small files are checked before the weights are opened.
    """
    try:
        return _load(Path(folder).expanduser(), Elsewhere(tokenizer, fast_tokenizer), pad_prompt_state, scan)
    except OSError as error:  # permissions, a disk that fails, names that are too long
        raise CheckpointError(f"{folder}: cannot be read: {error}") from error


def _load(folder: Path, elsewhere: Elsewhere, pad_prompt_state: bool | None, scan: bool) -> PiCheckpoint:
    _check_folder(folder)
    policy_type, config = read_config(folder, tuple(FORMATS))
    dims = read_dims(
        folder, config.paligemma_variant, config.action_expert_variant, config.image_resolution[0]
    )
    processors = read_processors(folder, policy_type, config)
    config = replace(
        config, tokenizer_max_length=processors.tokenizer_max_length, action_names=processors.action_names
    )
    prompt, notes = _prompt(folder, policy_type, config, processors, pad_prompt_state)
    text = load_tokenizer(find_tokenizer(folder, elsewhere.tokenizer))
    check_vocabulary(text, folder, dims.vocab)
    fast = action_tokens = None
    if config.fast is not None:
        place = elsewhere.fast_tokenizer
        fast, action_tokens = read_actions(folder, place, text, config.fast.skip_tokens)
    file, stored = read_weights(folder)
    expected = FORMATS[policy_type].tensors(dims, config.max_action_dim, config.max_state_dim)
    tensors, unscanned = fit(file, stored, policy_type, expected, _sizes(folder), scan)
    return PiCheckpoint(
        folder=folder,
        origin="lerobot",
        policy_type=policy_type,
        cameras=config.cameras,
        camera_names={name: slot for name, slot in processors.rename_map.items() if slot in config.cameras},
        state_name=STATE,
        state_dim=config.state_dim,
        action_dim=config.action_dim,
        horizon=config.chunk_size,
        denoising_steps=config.num_inference_steps,
        action_names=config.action_names,
        tensors=tensors,
        unscanned=unscanned,
        notes=(*notes, *processors.notes),
        config=config,
        dims=dims,
        tokenizer=text,
        state_norm=processors.state_norm,
        action_norm=processors.action_norm,
        relative_action_mask=processors.relative_action_mask,
        prompt=prompt,
        time="exact",
        image_filter="bilinear",
        camera_rule="present first",
        fast=fast,
        action_tokens=action_tokens,
        decoding=DECODING if fast else None,
        fast_skip_tokens=config.fast.skip_tokens if config.fast else 0,
        max_decoding_steps=config.fast.max_decoding_steps if config.fast else 0,
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise CheckpointError(
            f"{folder}: {what}, expected a checkpoint folder with {CONFIG_FILE} and {WEIGHTS_FILE}"
        )
    if not (folder / CONFIG_FILE).is_file():
        raise CheckpointError(f"{folder / CONFIG_FILE}: no such file, expected a LeRobot checkpoint folder")


def _sizes(folder: Path) -> str:
    """Where the sizes come from, for messages."""
    return DIMS_FILE if (folder / DIMS_FILE).exists() else f"the released variants named in {CONFIG_FILE}"


def _prompt(
    folder: Path, policy_type: str, config: PolicyConfig, processors: Processors, pad: bool | None
) -> tuple[PromptRule, list[str]]:
    """The rule of the prompt, and a note where the files leave open how the policy was trained."""
    rule = PROMPTS[policy_type]
    if not rule.state:
        if pad:
            raise CheckpointError(
                f"{folder}: pad_prompt_state is true, but the prompt of {policy_type} holds no state"
            )
        return rule, []
    if pad:
        return replace(rule, padded_state=config.max_state_dim), []
    if pad is None and processors.old and config.state_dim < config.max_state_dim:
        note = (
            f"{PREPROCESSOR_FILE}: no relative_actions_processor, so LeRobot 0.4 wrote it; if 0.4 also "
            f"trained the policy, its prompts held the state padded to {config.max_state_dim} numbers, ours "
            f"hold {config.state_dim}: expect worse actions; pad_prompt_state = true pads it"
        )
        return rule, [note]
    return rule, []
