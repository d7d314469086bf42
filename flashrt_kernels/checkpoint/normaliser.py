# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Normalisation as LeRobot and openpi have it: one affine map per feature, in float32."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.scaling import normalise, unnormalise

Floats = NDArray[np.float32]

# Mode → the statistics it needs. Source of the formulas: lerobot 0.6.1, processor/normalize_processor.py.
MODES: dict[str, tuple[str, ...]] = {
    "IDENTITY": (),
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
OPENPI_EPS = 1e-6
STATISTICS = ("mean", "std", "min", "max", "q01", "q10", "q50", "q90", "q99")


def as_float32(values: NDArray[Any]) -> Floats:
    """Beyond float32: infinite, without a warning; statistics that are used are refused elsewhere."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Normaliser:
    """One feature of D dimensions.

    normalised = mul · (x − offset) / divisor − sub
    x          = (normalised + sub) / mul · span + offset

    evaluated left to right in float32, which gives LeRobot's values bit for bit. `divisor` and `span` differ
    only for LeRobot's MEAN_STD, which adds eps on the way in and not on the way out. No clipping.
    `zero_range` lists the dimensions whose statistics span nothing; there eps stands for the span.
    """

    mode: str
    stats: Mapping[str, Floats]  # each [D]
    mul: float
    sub: float
    offset: Floats  # [D]
    divisor: Floats  # [D]
    span: Floats  # [D]
    zero_range: tuple[int, ...]

    def normalise(self, x: Floats) -> Floats:
        """[..., D] in robot units → [..., D], by the reference of the kernel `normalise`.

        Called in every decision: the shapes were validated with the statistics, once.
        """
        rows, offset, divisor = map(torch.from_numpy, (self._rows(x), self.offset, self.divisor))
        out = torch.empty_like(rows)
        normalise.reference(rows, offset, divisor, out, mul=self.mul, sub=self.sub)
        return np.asarray(out.numpy().reshape(np.shape(x)), np.float32)

    def unnormalise(self, y: Floats) -> Floats:
        """[..., D] normalised → [..., D] in robot units, by the kernel `unnormalise`."""
        rows, offset, span = map(torch.from_numpy, (self._rows(y), self.offset, self.span))
        out = unnormalise(x=rows, offset=offset, span=span, mul=self.mul, sub=self.sub)
        return np.asarray(out.numpy().reshape(np.shape(y)), np.float32)

    def describe(self, what: str, names: Sequence[str] | None) -> list[str]:
        """A line for the mode and one for each dimension; a dimension without range is pointed out."""
        labels = list(names) if names else [str(i) for i in range(len(self.offset))]
        rows = [
            f"  {label}: "
            + ", ".join(f"{key} {values[i]:.4g}" for key, values in self.stats.items())
            + (", ZERO RANGE: never moved in training" if i in self.zero_range else "")
            for i, label in enumerate(labels)
            if self.stats
        ]
        return [f"{what} statistics: {self.mode}", *rows]

    def _rows(self, values: Floats) -> Floats:
        """A copy as [rows, D]. Raises ValueError where the last dimension is not D."""
        return np.array(values, np.float32).reshape(-1, len(self.offset))


def make_openpi_normaliser(
    file: Path, feature: str, mode: str, stats: Mapping[str, NDArray[np.float64]], width: int
) -> Normaliser:
    """As `make_normaliser`, with the formulas of openpi: eps is added to every span, both ways.

    Source: openpi 15a9616, transforms.py, Normalize and Unnormalize.
    """
    low, span, zero_range = _checked(file, feature, mode, stats, width, f"{feature}.mean")
    mul, sub = (1.0, 0.0) if mode == "MEAN_STD" else (2.0, 1.0)
    kept = {name: as_float32(values) for name, values in stats.items()}
    widened = (span + OPENPI_EPS).astype(np.float32)
    return Normaliser(mode, kept, mul, sub, low.astype(np.float32), widened, widened, zero_range)


def make_normaliser(
    file: Path, feature: str, mode: str, stats: Mapping[str, Floats], width: int, eps: float
) -> Normaliser:
    """The normaliser of `feature` from the statistics in `file`.

    Raises `CheckpointError` for statistics that are missing, not [width], non-finite or the wrong way round.
    """
    kept = {name: stats[name] for name in STATISTICS if name in stats and stats[name].shape == (width,)}
    epsilon = np.float32(eps)
    if mode == "IDENTITY":
        zeros, ones = np.zeros(width, np.float32), np.ones(width, np.float32)
        return Normaliser(mode, kept, 1.0, 0.0, zeros, ones, ones, ())
    low, span, zero_range = _checked(file, feature, mode, stats, width, "config.json")
    if mode == "MEAN_STD":
        return Normaliser(mode, kept, 1.0, 0.0, low, span + epsilon, span, zero_range)
    span = np.where(span == 0, epsilon, span)
    return Normaliser(mode, kept, 2.0, 1.0, low, span, span, zero_range)


def _checked(
    file: Path, feature: str, mode: str, stats: Mapping[str, NDArray[Any]], width: int, width_from: str
) -> tuple[NDArray[Any], NDArray[Any], tuple[int, ...]]:
    """(offset [width], span [width], dimensions without one), of a mode with statistics."""
    needed = MODES[mode]
    missing = [f"{feature}.{name}" for name in needed if name not in stats]
    if missing:
        have = listed(sorted(f"{feature}.{name}" for name in stats)) or f"nothing for {feature}"
        raise CheckpointError(f"{file}: {listed(missing)} missing, needed for {mode}; the file has {have}")
    for name in needed:
        _check_statistic(file, f"{feature}.{name}", stats[name], width, width_from)
    low, second = stats[needed[0]], stats[needed[1]]
    with np.errstate(over="ignore"):
        span = second if mode == "MEAN_STD" else second - low
    _check_finite(file, f"the span up to {feature}.{needed[1]}", span)
    reversed_dims = [str(i) for i in np.flatnonzero(span < 0)]
    if reversed_dims:
        problem = "negative" if mode == "MEAN_STD" else f"below {feature}.{needed[0]}"
        raise CheckpointError(
            f"{file}: {feature}.{needed[1]} is {problem} in dimension(s) {listed(reversed_dims)}"
        )
    return low, span, tuple(int(i) for i in np.flatnonzero(span == 0))


def _check_statistic(file: Path, key: str, value: NDArray[Any], width: int, width_from: str) -> None:
    if value.shape != (width,):
        raise CheckpointError(
            f"{file}: {key} has shape {list(value.shape)}, expected [{width}] as in {width_from}"
        )
    _check_finite(file, key, value)


def _check_finite(file: Path, key: str, value: NDArray[Any]) -> None:
    """As float32, in which they are used: JSON holds larger numbers."""
    bad = [str(i) for i in np.flatnonzero(~np.isfinite(as_float32(value)))]
    if bad:
        raise CheckpointError(f"{file}: {key} is NaN or infinite in dimension(s) {listed(bad)}")
