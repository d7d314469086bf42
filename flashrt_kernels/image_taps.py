# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which old lines a new line of an image is made of, and with which weights: along one axis, for each filter.

The CUDA kernels compute the same numbers (cuda/src/image_resample.cu).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

ONE_BITS = 22  # Pillow's weights of one line add up to 2²²
LINEAR_ONE = 1 << 11  # what the two weights of OpenCV's linear filter do


class Taps(NamedTuple):
    """Of each new line, one after the other: old lines [n] and their weights [n]; `starts` [size]: where.

    Whole weights come as digits of `bits` bits, the highest first: sums over one digit are exact in fp32.
    """

    lines: torch.Tensor
    starts: torch.Tensor
    digits: tuple[torch.Tensor, ...]
    bits: int = 0


class Neighbours(NamedTuple):
    """Two old lines for each new one, [size], and their weights, each int32 [size]."""

    first: torch.Tensor
    second: torch.Tensor
    weights: tuple[torch.Tensor, torch.Tensor]


def triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def cubic(x: np.ndarray, a: float = -0.5) -> np.ndarray:
    """The cubic convolution kernel of Keys (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x < 1, near, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


FILTERS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1.0, triangle),
    "bicubic": (2.0, cubic),
}


@lru_cache(maxsize=64)
def pillow_taps(count: int, size: int, filter: str, device: str) -> Taps:
    """The filter, as wide as the ratio where the image shrinks, cut at the border; in parts of ONE."""
    support, of = FILTERS[filter]
    ratio = count / size
    scale = max(ratio, 1.0)
    centre = (np.arange(size) + 0.5) * ratio
    first = np.maximum((centre - support * scale + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support * scale + 0.5).astype(np.int64), count)
    lines, inside = ragged(first, end)
    weights = np.where(inside, of((lines - centre[:, None] + 0.5) / scale), 0.0)
    weights *= (1 << ONE_BITS) / weights.sum(1, keepdims=True)
    whole = np.copysign(np.floor(np.abs(weights) + 0.5), weights).astype(np.int64)
    # levels have 8 bits, lower digits a sign: 7 + bits + log2(taps) must stay within the 24 bits of fp32
    bits, count = (11, 2) if inside.sum(1).max() <= 64 else (8, 3)
    return taps(lines, inside, digits_of(whole[inside], bits, count), device, bits)


def shrinks_by(count: int, size: int) -> float:
    """Old lines per new one, as OpenCV rounds it."""
    return 1 / (size / count)


@lru_cache(maxsize=64)
def area_taps(count: int, size: int, whole: bool, device: str) -> Taps:
    """How much of each old line a new one covers, as a part of the new one; `whole`: all of them 1."""
    ratio = shrinks_by(count, size)
    start = np.arange(size) * ratio
    end = start + ratio
    cell = np.minimum(ratio, count - start)
    last = np.minimum(np.floor(end), count - 1)
    first = np.minimum(np.ceil(start), last)  # [first, last) is covered completely
    before, behind = first - start, np.minimum(np.minimum(end - last, 1.0), cell)
    before, behind = (np.where(part > 1e-3, part, 0.0)[:, None] for part in (before, behind))
    lines, inside = ragged(first.astype(np.int64) - (before[:, 0] > 0), last.astype(np.int64) + 1)
    weights = np.where(lines < first[:, None], before, np.where(lines < last[:, None], 1.0, behind))
    if not whole:
        weights = weights / cell[:, None]
    inside &= weights > 0
    return taps(lines, inside, [weights[inside]], device)


@lru_cache(maxsize=64)
def linear_neighbours(count: int, size: int, device: str) -> Neighbours:
    """OpenCV's imitation of an area filter where an image grows: pixels stay flat, only their seams blend."""
    grows, ratio = size / count, 1 / (size / count)
    at = np.arange(size)
    first = np.floor(at * ratio)
    weight = ((at + 1) - (first + 1) * grows).astype(np.float32)
    weight = np.where(weight <= 0, np.float32(0), weight - np.floor(weight))
    weight = np.where(first >= count - 1, np.float32(0), weight)
    first = np.minimum(first, count - 1).astype(np.int64)
    second = np.minimum(first + 1, count - 1)
    both = (np.rint(part * np.float32(LINEAR_ONE)).astype(np.int32) for part in (1 - weight, weight))
    weights = tuple(torch.from_numpy(part).to(device) for part in both)
    return Neighbours(
        torch.from_numpy(first).to(device), torch.from_numpy(second).to(device), (weights[0], weights[1])
    )


def ragged(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lines [size, most taps] from `first` on, and which of them lie in front of `end`."""
    lines = first[:, None] + np.arange((end - first).max())
    return lines, lines < end[:, None]


def digits_of(weights: np.ndarray, bits: int, count: int) -> list[np.ndarray]:
    """weights = Σ digit · 2^(bits · its place), the lower digits within ± 2^(bits − 1), the highest first."""
    half, found = 1 << (bits - 1), []
    for _ in range(count - 1):
        digit = ((weights + half) & (2 * half - 1)) - half
        found.append(digit)
        weights = (weights - digit) >> bits
    return [weights, *reversed(found)]


def taps(lines: np.ndarray, inside: np.ndarray, digits: list[np.ndarray], device: str, bits: int = 0) -> Taps:
    """The lines that lie inside, one new line after the other, with the digits of their weights."""
    counts = inside.sum(1)
    starts = np.cumsum(counts) - counts
    places = [torch.from_numpy(part).to(device) for part in (lines[inside], starts)]
    parts = tuple(torch.from_numpy(digit.astype(np.float32)).to(device) for digit in digits)
    return Taps(places[0], places[1], parts, bits)
