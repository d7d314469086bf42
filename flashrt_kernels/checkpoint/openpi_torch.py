# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Folders of openpi's PyTorch models: model.safetensors, assets/, and config.json where one was converted.

Source of the format: openpi 15a9616, examples/convert_jax_model_to_pytorch.py, scripts/train_pytorch.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint import layout
from flashrt_kernels.checkpoint.config import CONFIG_FILE, LONGEST
from flashrt_kernels.checkpoint.dims import DIMS_FILE, GEMMA_VARIANTS, read_dims
from flashrt_kernels.checkpoint.fields import read_json
from flashrt_kernels.checkpoint.formats import FORMATS, fit
from flashrt_kernels.checkpoint.openpi import Found, assemble
from flashrt_kernels.checkpoint.openpi_statistics import ASSETS
from flashrt_kernels.checkpoint.options import Options
from flashrt_kernels.checkpoint.pi import PiCheckpoint
from flashrt_kernels.checkpoint.shards import has_weights, read_weights
from flashrt_kernels.checkpoint.tensors import Unscanned
from flashrt_kernels.errors import CheckpointError

_PATCH = 14  # of SigLIP So400m/14
_POSITIONS = layout.VISION + "embeddings.position_embedding.weight"
_ADAPTIVE = layout.EXPERT + "norm.dense.weight"
_STATE = "state_proj.weight"


def recognise(folder: Path) -> bool:
    """Weights beside assets/ or openpi's config.json; never with that of another program."""
    if not has_weights(folder):
        return False
    if not (folder / CONFIG_FILE).is_file():
        return (folder / ASSETS).is_dir()
    config = read_json(folder / CONFIG_FILE)
    return "type" not in config and ((folder / ASSETS).is_dir() or "action_horizon" in config)


def load_openpi_torch(folder: Path, options: Options) -> PiCheckpoint:
    """Reads and verifies the folder. Raises `CheckpointError` naming file and key."""
    file, stored = read_weights(folder)
    policy_type = _policy_type(file, stored)
    variants, action_width, horizon = _config(folder)
    dims = read_dims(folder, *variants, image_size=_image_size(file, policy_type, stored))
    found = Found(folder, "openpi", policy_type, dims, action_width, horizon, variants)
    sizes = DIMS_FILE if (folder / DIMS_FILE).exists() else f"the variants {', '.join(variants)}"

    def weights() -> tuple[Mapping[str, Tensor], Unscanned | None]:
        expected = FORMATS[policy_type].tensors(dims, action_width, action_width)
        return fit(file, stored, policy_type, expected, sizes, options.scan)

    return assemble(found, options, weights)


def _policy_type(file: Path, stored: Mapping[str, Tensor]) -> str:
    """No file says which policy this is; the norms of the expert and the state's projection do."""
    keys = {FORMATS["pi0"].canonical(key) for key in stored}
    if _ADAPTIVE in keys:
        return "pi05"
    if _STATE in keys:
        return "pi0"
    raise CheckpointError(
        f"{file}: has neither {_ADAPTIVE} of Pi0.5 nor {_STATE} of Pi0, expected a policy of openpi"
    )


def _config(folder: Path) -> tuple[tuple[str, str], int, int | None]:
    """((variant of the VLM, of the expert), padded width of actions, horizon or None)."""
    path = folder / CONFIG_FILE
    if not path.is_file():  # openpi's own PyTorch training writes none
        return ("gemma_2b", "gemma_300m"), 32, None
    fields = read_json(path)
    known = tuple(GEMMA_VARIANTS)
    variants = tuple(
        fields.string(f"{part}_variant", choices=known) for part in ("paligemma", "action_expert")
    )
    width = fields.integer("action_dim", 1, LONGEST)
    return (variants[0], variants[1]), width, fields.integer("action_horizon", 1, LONGEST)


def _image_size(file: Path, policy_type: str, stored: Mapping[str, Tensor]) -> int:
    """Pixels along an edge, from the number of learned positions."""
    form = FORMATS[policy_type]
    rows = [
        len(tensor) for key, tensor in stored.items() if form.canonical(key) == _POSITIONS and tensor.ndim
    ]
    if not rows:
        return 16 * _PATCH  # the released size; that the table is missing is said with all other tensors
    grid = math.isqrt(rows[0])
    if grid * grid != rows[0] or not grid:
        raise CheckpointError(f"{file}: {_POSITIONS} has {rows[0]} rows, expected a square number of patches")
    return grid * _PATCH
