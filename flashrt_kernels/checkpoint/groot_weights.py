# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The weights of a GR00T folder: one safetensors file, or shards and their index."""

from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint.fields import Fields, read_json
from flashrt_kernels.checkpoint.groot_dims import GrootDims, Version
from flashrt_kernels.checkpoint.groot_layout import canonical_keys, groot_tensors
from flashrt_kernels.checkpoint.groot_sizes import read_groot_dims
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, match, misfit, read_all
from flashrt_kernels.errors import CheckpointError

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def read_weights(
    folder: Path, version: Version, config: Fields, scan: bool
) -> tuple[GrootDims, dict[str, Tensor], Unscanned | None]:
    """(sizes, tensors by canonical key, what is left to verify without `scan`).

    Raises `CheckpointError` listing every missing, unexpected, mis-shaped or mis-typed tensor, and with
    `scan` every one that holds NaN or infinity.
    """
    path, found = _open(folder)
    canonical = canonical_keys(version, found)
    shapes = {name: tuple(tensor.shape) for key, tensor in found.items() if (name := canonical(key))}
    dims = read_groot_dims(version, config, path, shapes)
    tensors, twins = match(path, found, groot_tensors(dims), canonical, "the tensors themselves", scan)
    if not scan:
        return dims, tensors, Unscanned(path, twins)
    check_finite(path, tensors)
    return dims, tensors, None


def _open(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """(the file to name in errors, every tensor)."""
    index = folder / INDEX_FILE
    if (folder / WEIGHTS_FILE).exists() or not index.exists():
        return folder / WEIGHTS_FILE, read_all(folder / WEIGHTS_FILE)
    places = read_json(index).child("weight_map")
    shards: dict[str, list[str]] = {}
    for key in places:
        name = places.string(key)
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise places.error(key, f"is {name}, expected the plain name of a safetensors file in the folder")
        shards.setdefault(name, []).append(key)
    found: dict[str, Tensor] = {}
    for name, keys in shards.items():
        held = read_all(folder / name)
        missing = [key for key in keys if key not in held]
        stray = [key for key in held if key not in places or places.string(key) != name]
        if missing or stray:
            raise misfit(folder / name, {"missing, says the index": missing, "not in the index": stray})
        found |= held
    if not found:
        raise CheckpointError(f"{index}: weight_map is empty, expected tensors and their files")
    return index, found
