# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The weights of a folder: one safetensors file, or several with an index."""

from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint.fields import Fields, read_json
from flashrt_kernels.checkpoint.tensors import misfit, read_all

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def has_weights(folder: Path) -> bool:
    """Whether the folder has a file of weights or an index of several."""
    return (folder / WEIGHTS_FILE).is_file() or (folder / INDEX_FILE).is_file()


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """(the file or the index, for messages; every tensor by its key), memory-mapped.

    Where there are both, the single file is read, as other programs do. Raises `CheckpointError` for files
    that are absent, truncated or not what the index says.
    """
    index = folder / INDEX_FILE
    if (folder / WEIGHTS_FILE).is_file() or not index.is_file():
        return folder / WEIGHTS_FILE, read_all(folder / WEIGHTS_FILE)
    places = _places(read_json(index).child("weight_map"))
    tensors: dict[str, Tensor] = {}
    missing, unexpected = [], []
    for name in dict.fromkeys(places.values()):
        stored = read_all(folder / name)
        promised = {key for key, place in places.items() if place == name}
        missing += [f"{key} in {name}" for key in places if key in promised and key not in stored]
        unexpected += [f"{key} in {name}" for key in stored if key not in promised]
        tensors |= stored
    problems = {"missing, but in the index": missing, "unexpected, not in the index": unexpected}
    if any(problems.values()):
        raise misfit(index, problems)
    return index, tensors


def _places(weight_map: Fields) -> dict[str, str]:
    """Key → plain name of its file. Raises `CheckpointError` for names that lead elsewhere."""
    places = {key: weight_map.string(key) for key in weight_map}
    for key, name in places.items():
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise weight_map.error(
                key, f"is {name}, expected the plain name of a safetensors file in the checkpoint folder"
            )
    return places
