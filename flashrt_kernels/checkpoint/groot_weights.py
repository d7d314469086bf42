# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The weights of a GR00T folder, and the sizes that they show."""

from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint.fields import Fields
from flashrt_kernels.checkpoint.groot_dims import GrootDims, Version
from flashrt_kernels.checkpoint.groot_layout import canonical_keys, groot_tensors
from flashrt_kernels.checkpoint.groot_sizes import read_groot_dims
from flashrt_kernels.checkpoint.shards import read_weights
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, match


def read_groot_weights(
    folder: Path, version: Version, config: Fields, scan: bool
) -> tuple[GrootDims, dict[str, Tensor], Unscanned | None]:
    """(sizes, tensors by canonical key, what is left to verify without `scan`).

    Raises `CheckpointError` listing every missing, unexpected, mis-shaped or mis-typed tensor, and with
    `scan` every one that holds NaN or infinity.
    """
    path, found = read_weights(folder)
    canonical = canonical_keys(version, found)
    shapes = {name: tuple(tensor.shape) for key, tensor in found.items() if (name := canonical(key))}
    dims = read_groot_dims(version, config, path, shapes)
    tensors, twins = match(path, found, groot_tensors(dims), canonical, "the tensors themselves", scan)
    if not scan:
        return dims, tensors, Unscanned(path, twins)
    check_finite(path, tensors)
    return dims, tensors, None
