# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The normalisation statistics beside openpi's checkpoints: assets/<asset id>/norm_stats.json."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.fields import Fields, listed, read_json
from flashrt_kernels.checkpoint.normaliser import Normaliser, make_openpi_normaliser
from flashrt_kernels.errors import CheckpointError

STATISTICS_FILE = "norm_stats.json"
ASSETS = "assets"
_NAMES = ("mean", "std", "q01", "q99")


@dataclass(frozen=True, eq=False)
class Statistics:
    """asset: its id. state, actions: their normalisers, of as many dimensions as the robot has."""

    asset: str
    state: Normaliser
    actions: Normaliser
    notes: tuple[str, ...]


def asset_ids(folder: Path) -> list[str]:
    """Ids of the assets in the checkpoint `folder`: one name, or two joined by a slash."""
    assets = folder / ASSETS
    files = (file for pattern in ("*", "*/*") for file in assets.glob(f"{pattern}/{STATISTICS_FILE}"))
    return sorted(file.parent.relative_to(assets).as_posix() for file in files)


def read_statistics(folder: Path, asset: str | None, mode: str) -> Statistics:
    """The statistics of one asset. mode: MEAN_STD or QUANTILES.

    asset: its id; None where there is one only. Raises `CheckpointError` naming file and key.
    """
    asset = _choose(folder, asset)
    fields = read_json(folder / ASSETS / asset / STATISTICS_FILE).child("norm_stats")
    notes: list[str] = []
    state, actions = (_normaliser(fields, feature, mode, notes) for feature in ("state", "actions"))
    return Statistics(asset, state, actions, tuple(notes))


def _choose(folder: Path, asset: str | None) -> str:
    known = asset_ids(folder)
    if not known:
        place = folder / ASSETS / "<asset id>" / STATISTICS_FILE
        raise CheckpointError(
            f"{place}: no such file, expected the statistics that openpi stores with every training"
        )
    if asset is None and len(known) == 1:
        return known[0]
    if asset not in known:
        what = "none was chosen" if asset is None else f"{asset} is none of them"
        raise CheckpointError(
            f"{folder / ASSETS}: holds {listed(known)}, and {what}; give one of them as `embodiment`"
        )
    return asset


def _normaliser(fields: Fields, feature: str, mode: str, notes: list[str]) -> Normaliser:
    entry = fields.child(feature)
    stats: dict[str, NDArray[np.float64]] = {
        name: np.array(entry.numbers(name)) for name in _NAMES if entry.given(name)
    }
    if "mean" not in stats:
        raise entry.error("mean", "is missing, expected a list of numbers")
    stored = len(stats["mean"])
    width = _used(stats)
    if not width:
        raise entry.error("mean", f"and std are zero in all of {stored} dimensions, expected statistics")
    if width < stored:
        notes.append(
            f"{fields.file.name}: {entry.key} has {stored} dimensions, of which the last {stored - width} "
            f"hold nothing but zeros; they are taken for padding, and {width} for the robot's own"
        )
        stats = {name: values[:width] if len(values) == stored else values for name, values in stats.items()}
    return make_openpi_normaliser(fields.file, entry.key, mode, stats, width)


def _used(stats: dict[str, NDArray[np.float64]]) -> int:
    """Dimensions up to the last one that any statistic is not zero in.

    Early versions of openpi stored the statistics of the padded state.
    """
    stored = len(stats["mean"])
    used = np.zeros(stored, np.bool_)
    for values in stats.values():
        if len(values) == stored:
            used |= values != 0  # NaN is used
    return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0
