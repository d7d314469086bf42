# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images → smaller or larger images in whole levels, as Pillow and OpenCV resize them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F

from flashrt_kernels.image import fitted_size
from flashrt_kernels.image_taps import (
    ONE_BITS,
    Neighbours,
    Taps,
    area_taps,
    linear_neighbours,
    pillow_taps,
    shrinks_by,
)
from flashrt_kernels.kernel import INT32, UINT8, In, Out, kernel
from flashrt_kernels.pixels import BY_CODE, FORMATS

Filter = Literal["bilinear", "bicubic", "area"]
Fitting = Literal["stretch", "inside", "shortest"]
MOST_SHRINK = 60  # along one axis: the CUDA kernels keep the weights of a tile in shared memory


@kernel(
    pixels=In("capacity", UINT8),
    info=In("4", INT32),
    out=Out("3*height*width", UINT8),
    out_info=Out("4", INT32),
)
def resample(
    pixels: torch.Tensor,
    info: torch.Tensor,
    out: torch.Tensor,
    out_info: torch.Tensor,
    *,
    height: int,
    width: int,
    filter: Filter,
    fitting: Fitting = "stretch",
    edge: int = 0,
    square: bool = False,
    crop: float = 1.0,
    crop_size: Literal["round", "floor"] = "floor",
) -> None:
    """One image → a resized one in whole levels, packed rgb8, of at most height × width pixels.

    info, out_info = [rows, columns, bytes per row, format code]; behind the last row `out` is left as it was.
    rows = 0 is a missing camera and stays one; so is a result that has no pixel or does not fit.

    First `square` adds black to the shorter edge, then the middle `crop` of both edges is cut out, its size
    rounded as `crop_size` says. fitting: `stretch` to height × width; `inside` it with the aspect ratio kept;
    `shortest`: the shorter edge becomes `edge`.

    filter: `bilinear` and `bicubic` as Pillow does (antialiased, along the rows first, whole levels after
    each axis); `area` as OpenCV's INTER_AREA (the mean of what a pixel covers, rounded once; where either
    axis grows, linear in 11 bits).
    """
    rows, columns, step, code = info.tolist()
    out_info.zero_()
    if not rows:
        return
    window = window_of(rows, columns, square, crop, crop_size)
    size = result_size(window.rows, window.columns, fitting, edge, height, width)
    if min(size) < 1 or size[0] > height or size[1] > width:
        return
    pixel = BY_CODE[code]
    camera = pixels.as_strided((rows, columns, pixel.channels), (step, pixel.channels, 1))
    image = (area if filter == "area" else pillow)(view(camera, window), *size, filter)
    out[: 3 * size[0] * size[1]].view(*size, 3).copy_(image[..., list(pixel.rgb)])
    out_info.copy_(torch.tensor([*size, 3 * size[1], FORMATS["rgb8"].code], dtype=torch.int32))


# ---- which pixels, how many ----


class Window(NamedTuple):
    """Part of an image; what lies outside of the image is black."""

    top: int
    left: int
    rows: int
    columns: int


def window_of(rows: int, columns: int, square: bool, crop: float, crop_size: str) -> Window:
    """The part of an image that is resized."""
    size = (max(rows, columns),) * 2 if square else (rows, columns)
    part = size
    if crop < 1:
        cut = round if crop_size == "round" else int
        part = (max(1, cut(size[0] * crop)), max(1, cut(size[1] * crop)))
    top = (size[0] - part[0]) // 2 - (size[0] - rows) // 2
    left = (size[1] - part[1]) // 2 - (size[1] - columns) // 2
    return Window(top, left, *part)


def result_size(rows: int, columns: int, fitting: str, edge: int, height: int, width: int) -> tuple[int, int]:
    """Height and width that rows × columns become."""
    if fitting == "inside":
        return fitted_size(rows, columns, height, width)
    if fitting == "shortest":
        scale = edge / min(rows, columns)
        return max(1, round(rows * scale)), max(1, round(columns * scale))
    return height, width


def view(camera: torch.Tensor, window: Window) -> torch.Tensor:
    """The window of an image [rows, columns, channels]; a copy only where it reaches outside."""
    top, left, rows, columns = window
    bottom, right = top + rows - camera.shape[0], left + columns - camera.shape[1]
    border = [max(-left, 0), max(right, 0), max(-top, 0), max(bottom, 0)]
    inner = camera[max(top, 0) : top + rows, max(left, 0) : left + columns]
    return F.pad(inner, (0, 0, *border)) if any(border) else inner


# ---- the filters: [rows, columns, channels] uint8 → [height, width, channels] in whole levels ----


def pillow(image: torch.Tensor, height: int, width: int, filter: str) -> torch.Tensor:
    """Weights of 22 bits, summed exactly, rounded to levels after each axis; halves go up."""
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image
    device = str(image.device)
    lines = image.permute(1, 2, 0).reshape(columns, channels * rows)
    lines = levels(lines, pillow_taps(columns, width, filter, device))
    lines = levels(upright(lines, channels, rows), pillow_taps(rows, height, filter, device))
    return lines.view(height, channels, width).transpose(1, 2)


def upright(lines: torch.Tensor, channels: int, rows: int) -> torch.Tensor:
    """[width, channels·rows] → [rows, channels·width]."""
    return lines.view(-1, channels, rows).permute(2, 1, 0).reshape(rows, -1)


def levels(lines: torch.Tensor, taps: Taps) -> torch.Tensor:
    """[count, n] levels → [size, n] levels, uint8."""
    lines = lines.to(torch.float32)
    sums, *lower = (weighted(lines, taps, digit).int() for digit in taps.digits)
    for digit in lower:
        sums = sums.bitwise_left_shift_(taps.bits).add_(digit)
    half = 1 << (ONE_BITS - 1)
    return sums.add_(half).bitwise_right_shift_(ONE_BITS).clamp_(0, 255).to(torch.uint8)


def area(image: torch.Tensor, height: int, width: int, filter: str) -> torch.Tensor:
    """The mean over the area of each pixel; halves go to even, but up at exactly 2 : 1."""
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image
    ratios = shrinks_by(rows, height), shrinks_by(columns, width)
    if min(ratios) < 1:
        return linear(image, height, width)
    whole = all(ratio == int(ratio) for ratio in ratios)  # then OpenCV adds integers and divides once
    device = str(image.device)
    lines = image.permute(1, 2, 0).reshape(columns, channels * rows).to(torch.float32)
    across, down = area_taps(columns, width, whole, device), area_taps(rows, height, whole, device)
    lines = upright(weighted(lines, across, across.digits[0]), channels, rows)
    lines = weighted(lines, down, down.digits[0])
    sums = lines.view(height, channels, width).transpose(1, 2)
    if ratios == (2.0, 2.0):
        return sums.mul_(0.25).add_(0.5).floor_()
    return sums.mul_(1 / (ratios[0] * ratios[1]) if whole else 1.0).round_()


def weighted(lines: torch.Tensor, taps: Taps, weights: torch.Tensor) -> torch.Tensor:
    """[count, n] float32 → [size, n]: each new line is a weighted sum of old ones."""
    return F.embedding_bag(taps.lines, lines, taps.starts, mode="sum", per_sample_weights=weights)


def linear(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Between two neighbours along each axis, in the integers that OpenCV computes with."""
    rows, columns, _ = image.shape
    down: Neighbours = linear_neighbours(rows, height, str(image.device))
    across: Neighbours = linear_neighbours(columns, width, str(image.device))
    left, right = (image.index_select(1, side).int() for side in (across.first, across.second))
    lines = left.mul_(across.weights[0][:, None]).add_(right.mul_(across.weights[1][:, None])) >> 4
    upper, lower = (lines.index_select(0, side) for side in (down.first, down.second))
    upper = upper.mul_(down.weights[0][:, None, None]) >> 16
    return upper.add_(lower.mul_(down.weights[1][:, None, None]) >> 16).add_(2) >> 2
