# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joint values scaled otherwise than in training make the robot move to other places."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.normaliser import MODES, Floats, make_normaliser
from flashrt_kernels.errors import CheckpointError

from .conftest import ACTION_FILE, STATE_FILE, Folder

FILE = Path("stats.safetensors")
EPS = 1e-8
FEATURE = "observation.state"


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


def some_stats(width: int, seed: int = 0) -> dict[str, Floats]:
    generator = np.random.default_rng(seed)
    low, span = generator.normal(size=width), generator.uniform(0.1, 3, size=width)
    fractions = {
        "min": 0.0,
        "q01": 0.1,
        "q10": 0.2,
        "mean": 0.5,
        "q50": 0.6,
        "q90": 0.8,
        "q99": 0.9,
        "max": 1.0,
    }
    stats = {name: (low + fraction * span).astype(np.float32) for name, fraction in fractions.items()}
    return stats | {"std": (span / 4).astype(np.float32)}


# LeRobot's two formulas, restated in torch from its documentation and evaluated in float32, as LeRobot does.
Formula = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def spread(low: torch.Tensor, high: torch.Tensor, eps: float) -> torch.Tensor:
    span = high - low
    return torch.where(span == 0, torch.tensor(eps), span)


RANGE: tuple[Formula, Formula] = (
    lambda x, low, high, eps: 2 * (x - low) / spread(low, high, eps) - 1,
    lambda y, low, high, eps: (y + 1) / 2 * spread(low, high, eps) + low,
)
FORMULAS: dict[str, tuple[Formula, Formula]] = {
    "MEAN_STD": (
        lambda x, mean, std, eps: (x - mean) / (std + eps),
        lambda y, mean, std, eps: y * std + mean,
    ),
    "MIN_MAX": RANGE,
    "QUANTILES": RANGE,
    "QUANTILE10": RANGE,
}


@settings(deadline=None)
@given(
    mode=st.sampled_from(list(FORMULAS)),
    seed=st.integers(0, 2**16),
    eps=st.sampled_from([1e-8, 1e-6, 1e-2]),
    zero=st.booleans(),
)
def test_every_mode_gives_lerobots_values_bit_for_bit(mode: str, seed: int, eps: float, zero: bool) -> None:
    """A last-bit difference moves a state over the edge of a prompt bin: another token, another action."""
    stats = some_stats(5, seed)
    if zero and mode != "MEAN_STD":
        stats[MODES[mode][1]][2] = stats[MODES[mode][0]][2]
    norm = make_normaliser(FILE, FEATURE, mode, stats, 5, eps)
    x = np.random.default_rng(seed + 1).normal(size=(7, 5)).astype(np.float32) * 3
    first, second = (torch.from_numpy(stats[name]) for name in MODES[mode])
    forward, backward = FORMULAS[mode]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            norm.normalise(x), forward(torch.from_numpy(x), first, second, eps).numpy()
        )
        np.testing.assert_array_equal(
            norm.unnormalise(x), backward(torch.from_numpy(x), first, second, eps).numpy()
        )


def test_no_clipping_and_exact_ends() -> None:
    """A state outside the training range must stay visible to the policy."""
    norm = make_normaliser(FILE, FEATURE, "QUANTILES", some_stats(3), 3, EPS)
    np.testing.assert_array_equal(norm.normalise(norm.offset), floats(-1, -1, -1))
    assert (norm.normalise(norm.offset + 10 * norm.span) > 5).all()


def test_identity_changes_nothing() -> None:
    """IDENTITY is a legal mode; any scaling would be invented."""
    norm = make_normaliser(FILE, FEATURE, "IDENTITY", {}, 4, EPS)
    x = floats(-3, 0, 1e-3, 7)
    np.testing.assert_array_equal(norm.normalise(x), x)
    np.testing.assert_array_equal(norm.unnormalise(x), x)


@pytest.mark.parametrize("mode", FORMULAS)
def test_R54_zero_range_is_recorded_and_finite(mode: str) -> None:
    """A joint that never moved in training divides by zero unless eps stands in; users ask which one."""
    stats = some_stats(4)
    first, second = MODES[mode]
    for i in (1, 3):
        stats[second][i] = 0 if mode == "MEAN_STD" else stats[first][i]
    norm = make_normaliser(FILE, FEATURE, mode, stats, 4, EPS)
    assert norm.zero_range == (1, 3)
    x = stats[first]
    assert np.isfinite(norm.normalise(x)).all()
    expected = 0 if mode == "MEAN_STD" else -1
    assert norm.normalise(x)[1] == expected


def edit(**changes: object) -> dict[str, Floats]:
    stats = some_stats(4)
    for name, value in changes.items():
        if value is None:
            del stats[name]
        else:
            stats[name] = np.asarray(value, np.float32)
    return stats


NAN, INF = float("nan"), float("inf")
BAD: dict[str, tuple[str, dict[str, Floats], list[str]]] = {
    "q99 missing": (
        "QUANTILES",
        edit(q99=None),
        ["observation.state.q99 missing", "QUANTILES", "observation.state.q01"],
    ),
    "all missing": ("MEAN_STD", {}, ["observation.state.mean, observation.state.std missing", "nothing for"]),
    "width": ("MIN_MAX", edit(max=[1, 1, 1]), ["observation.state.max has shape [3], expected [4]"]),
    "scalar": ("MEAN_STD", edit(std=1.0), ["observation.state.std has shape [], expected [4]"]),
    "NaN": (
        "QUANTILES",
        edit(q01=[0, NAN, 0, NAN]),
        ["observation.state.q01 is NaN or infinite in dimension(s) 1, 3"],
    ),
    "infinite": ("QUANTILE10", edit(q90=[INF, 9, 9, 9]), ["observation.state.q90", "dimension(s) 0"]),
    "reversed": (
        "QUANTILES",
        edit(q99=[9, 9, -9, 9]),
        ["q99 is below observation.state.q01 in dimension(s) 2"],
    ),
    "negative std": (
        "MEAN_STD",
        edit(std=[1, -1, 1, 1]),
        ["observation.state.std is negative in dimension(s) 1"],
    ),
}


@pytest.mark.parametrize(("mode", "stats", "words"), BAD.values(), ids=BAD)
def test_R54_bad_statistics_are_named(mode: str, stats: dict[str, Floats], words: list[str]) -> None:
    """Wrong statistics send every joint to a wrong place without any other sign."""
    with pytest.raises(CheckpointError) as caught:
        make_normaliser(FILE, FEATURE, mode, stats, 4, EPS)
    for word in [str(FILE), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(("file", "feature"), [(STATE_FILE, "observation.state"), (ACTION_FILE, "action")])
def test_R54_files_with_bad_statistics_refuse_to_load(folder: Folder, file: str, feature: str) -> None:
    """The checks above must also guard what is read from disk."""
    folder.edit_tensors(file, lambda t: t.pop(f"{feature}.q99"))
    with pytest.raises(CheckpointError, match=rf"{file}: {feature}\.q99 missing"):
        load_lerobot(folder.path)


def test_state_and_action_statistics_come_from_their_own_files(folder: Folder) -> None:
    """Swapped statistics are the right width and therefore the hardest error to see on a robot."""

    def shift(tensors: dict[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            tensors[name] = tensor + (10 if name.startswith("action") else 20)

    folder.edit_tensors(ACTION_FILE, shift)
    loaded = load_lerobot(folder.path)
    q01 = floats(-0.9, -0.8, -0.95, -1.9, 0.02)
    np.testing.assert_array_equal(loaded.state_norm.offset, q01)
    np.testing.assert_allclose(loaded.action_norm.offset, floats(9.3, 9.1, 9.2, 8.5, 10), rtol=1e-6)
    assert set(loaded.action_norm.stats) == {"mean", "std", "min", "max", "q01", "q99"}
