# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Writes a seeded random checkpoint, to measure hardware before there are weights.

Pi policies in LeRobot's format, GR00T in Isaac-GR00T's.

python -m flashrt_kernels.make_checkpoint pi05 OUT --size small --action-dim 7 --state-dim 7 --cameras a,b
"""

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from safetensors.torch import save

from flashrt_kernels.checkpoint import groot_recipe, layout
from flashrt_kernels.checkpoint.config import CONFIG_FILE
from flashrt_kernels.checkpoint.dims import DIMS_FILE
from flashrt_kernels.checkpoint.fast import FAST_FOLDER
from flashrt_kernels.checkpoint.formats import FORMATS
from flashrt_kernels.checkpoint.processors import POSTPROCESSOR_FILE, PREPROCESSOR_FILE
from flashrt_kernels.checkpoint.random_weights import StoredTensor, write_random
from flashrt_kernels.checkpoint.recipe import (
    FAST_IDS,
    MAX_DIM,
    SIZES,
    WIDEST,
    Recipe,
    config_json,
    dims_json,
    postprocessor_json,
    preprocessor_json,
    statistics,
)
from flashrt_kernels.checkpoint.shards import WEIGHTS_FILE
from flashrt_kernels.errors import CheckpointError

_SPARE = 64 << 20  # bytes left free on the disk
_PRE_STATE = "policy_preprocessor_step_3_normalizer_processor.safetensors"
_POST_STATE = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"


def make_checkpoint(
    out: str | Path, recipe: Recipe, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Writes the checkpoint to the folder `out`, which must be absent or empty, and returns it.

    Everything goes to a folder beside it first, renamed at the end: a half-written checkpoint never bears the
    name. `progress` is told (bytes just written, bytes in all). Raises `CheckpointError` if `out` is in use
    or cannot be written, or the disk lacks room.
    """
    try:
        return _make(Path(out).expanduser().resolve(), recipe, progress)
    except OSError as error:  # permissions, a disk that fills up meanwhile
        raise CheckpointError(f"{out}: cannot be written: {error}") from error


def _make(out: Path, recipe: Recipe, progress: Callable[[int, int], None] | None) -> Path:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out}: exists and is not an empty folder; name a new folder or empty it")
    tensors = stored_tensors(recipe)
    total = sum(tensor.size for tensor in tensors)
    out.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out.parent).free
    if free < total + _SPARE:
        raise CheckpointError(
            f"{out.parent}: {free / 1e9:.1f} GB free, the checkpoint needs {(total + _SPARE) / 1e9:.1f} GB"
        )
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        _write_small_files(partial, recipe)
        advance = None if progress is None else lambda count: progress(count, total)
        write_random(partial / WEIGHTS_FILE, tensors, recipe.seed, advance)
        partial.rename(out)  # replaces an empty folder
    except BaseException:
        shutil.rmtree(partial)
        raise
    return out


def stored_tensors(recipe: Recipe) -> list[StoredTensor]:
    """The tensors of the file: its writer's names and dtypes, one copy of the tied embedding."""
    if recipe.policy in groot_recipe.VERSIONS:
        return groot_recipe.groot_stored(recipe)
    dims = SIZES[recipe.size].dims
    mixed = recipe.stored_dtype == "bfloat16"
    stored = []
    for spec in FORMATS[recipe.policy].tensors(dims, MAX_DIM, MAX_DIM):
        if recipe.policy == "pi0_fast" and spec.key == layout.EMBEDDING:
            spec = replace(spec, loud=FAST_IDS)
        key = layout.LM_HEAD if spec.key == layout.EMBEDDING else spec.key
        stored.append(
            StoredTensor("model." + key, spec, torch.bfloat16 if mixed and spec.bf16 else torch.float32)
        )
    return stored


def _write_small_files(folder: Path, recipe: Recipe) -> None:
    if recipe.policy in groot_recipe.VERSIONS:
        for name, content in groot_recipe.groot_files(recipe).items():
            (folder / name).write_bytes(content)
        return
    documents = {
        CONFIG_FILE: config_json(recipe),
        DIMS_FILE: dims_json(recipe),
        PREPROCESSOR_FILE: preprocessor_json(recipe, _PRE_STATE),
        POSTPROCESSOR_FILE: postprocessor_json(recipe, _POST_STATE),
    }
    for name, document in documents.items():
        if document is not None:
            (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for name in (_PRE_STATE, _POST_STATE):
        (folder / name).write_bytes(save(statistics(recipe)))
    _copy("tokenizer_tiny", folder)
    if recipe.policy == "pi0_fast":
        _copy("fast_tokenizer_tiny", folder / FAST_FOLDER)


def _copy(data: str, folder: Path) -> None:
    """The files of a tokenizer that comes with the package."""
    folder.mkdir(exist_ok=True)
    for file in resources.files("flashrt_kernels").joinpath(f"data/{data}").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _parser() -> argparse.ArgumentParser:
    default = Recipe()
    parser = argparse.ArgumentParser(
        prog="python -m flashrt_kernels.make_checkpoint", description=__doc__.split("\n")[0]
    )
    parser.add_argument("policy", choices=tuple(WIDEST))
    parser.add_argument("out", type=Path, help="folder to write, absent or empty")
    table: tuple[tuple[str, Callable[[str], Any], str], ...] = (
        ("size", str, f"{', '.join(SIZES)}"),
        ("seed", int, "same seed, same file"),
        ("action-dim", int, f"joints of the action, at most {MAX_DIM}; GR00T: {WIDEST['groot_n16']}"),
        ("state-dim", int, "joints of the state, likewise"),
        ("cameras", _names, "slots, joined by commas: a becomes observation.images.a, in GR00T a"),
        ("chunk-size", int, "steps of one chunk; default: the size's own"),
        ("dtype", str, "float32 or bfloat16 (Gemma's matrices only); default: the size's own"),
        ("action-names", _names, "one per action dimension, joined by commas"),
        (
            "action-low",
            _numbers,
            "q01 of the action in robot units, for all or each dimension: --action-low=-1,0",
        ),
        ("action-high", _numbers, "q99 of the action"),
        ("state-low", _numbers, "q01 of the state"),
        ("state-high", _numbers, "q99 of the state"),
    )
    for name, convert, text in table:
        value = getattr(default, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=convert, default=value, help=text)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    options = vars(_parser().parse_args(arguments))
    out = options.pop("out")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # SIGTERM like Ctrl-C: what is half written, gigabytes at full size, is removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(f"{options['policy']} {options['size']}", total=None)
            folder = make_checkpoint(
                out, Recipe(**options), lambda count, total: bar.update(task, advance=count, total=total)
            )
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; nothing is left at {out}", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
