# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Orbax checkpoints (OCDBT, zarr) through tensorstore alone: no jax, no flax, no orbax."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.errors import CheckpointError

MANIFEST = "manifest.ocdbt"
_ROOT = "params"
_SUFFIX = "/.zarray"
_TRAILING = "value"  # nnx.State ends every path with it
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# tensorstore raises these for files that are absent, cut or no OCDBT, and for sizes that no machine has.
_FAILURES = (ValueError, RuntimeError, OSError, MemoryError, KeyError, NotImplementedError, OverflowError)


@dataclass(frozen=True)
class Leaf:
    """An array of the file that was opened, but not read: its name, parts joined by `/`."""

    folder: Path
    name: str
    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> str:
        return str(self.array.dtype.name)

    def read(self) -> Tensor:
        """The values, in a dtype of `_DTYPES`. Raises `CheckpointError` where they cannot be read."""
        try:
            values = np.ascontiguousarray(self.array.read().result())
        except _FAILURES as error:
            raise CheckpointError(f"{self.folder}: {self.name} cannot be read: {_short(error)}") from error
        if self.dtype == "bfloat16":  # NumPy's own types do not have it
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(values)


def open_params(folder: Path) -> dict[str, Leaf]:
    """Every array below `params` in the checkpoint item `folder`, by name; nothing is read yet.

    Raises `CheckpointError` where tensorstore is not installed or the files are no checkpoint.
    """
    tensorstore = _tensorstore()
    # A chunk that is absent is an error: by default it would be zeros.
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder.resolve()}/"}}
    try:
        keys = tensorstore.KvStore.open(store).result().list().result()
        paths = [key.decode().removesuffix(_SUFFIX) for key in keys if key.endswith(_SUFFIX.encode())]
        opening = {path: tensorstore.open(_zarr(store, path), read=True) for path in paths}
        arrays = {path: future.result() for path, future in opening.items()}
    except _FAILURES as error:
        raise CheckpointError(
            f"{folder}: not a readable orbax checkpoint, expected {MANIFEST} and its data: {_short(error)}"
        ) from error
    strange = sorted(path for path in arrays if not path.startswith(f"{_ROOT}."))
    if strange or not arrays:
        problem = f"holds {listed(strange)}" if strange else "holds no arrays"
        raise CheckpointError(f"{folder}: {problem}, expected arrays below {_ROOT}")
    return _leaves(folder, arrays)


def _zarr(store: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {
        "driver": "zarr",
        "kvstore": {**store, "path": f"{path}/"},
        "fill_missing_data_reads": False,
        "recheck_cached_data": False,
    }


def _leaves(folder: Path, arrays: Mapping[str, Any]) -> dict[str, Leaf]:
    names = {path: tuple(path.split(".")[1:]) for path in arrays}
    # Only the last part, and only of all: the attention of SigLIP has a projection called `value`.
    if all(parts[-1] == _TRAILING for parts in names.values()):
        names = {path: parts[:-1] for path, parts in names.items()}
    leaves = {}
    for path, parts in names.items():
        name = "/".join(parts)
        leaves[name] = Leaf(folder, name, arrays[path])
    return leaves


def _tensorstore() -> Any:
    try:
        return importlib.import_module("tensorstore")
    except ImportError as error:
        raise CheckpointError(
            f"reading openpi's JAX checkpoints needs tensorstore ({error}); install it with "
            f"`pip install tensorstore` (pinned in requirements/jax-checkpoints.txt)"
        ) from error


def _short(error: BaseException) -> str:
    """The message without tensorstore's long list of source locations."""
    return (str(error) or type(error).__name__).split(" [source locations=")[0].splitlines()[0]


def known_dtype(name: str) -> bool:
    """Whether weights may have this dtype."""
    return name in _DTYPES
