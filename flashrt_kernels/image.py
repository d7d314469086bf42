# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images as cameras deliver them → the patches a vision tower reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, INT32, UINT8, In, Out, kernel
from flashrt_kernels.pixels import BY_CODE, PixelFormat


@kernel(
    pixels=In("capacity", UINT8),
    info=In("4", INT32),
    out=Out(
        "(height//(patch*merge))*(width//(patch*merge))*merge*merge (3*patch*patch+7)//8*8", FLOAT
    ),  # sides that blocks of patches do not fill show as a wrong number of rows
    multiples=[("height", "patch"), ("width", "patch")],
)
def resize_to_patches(
    pixels: torch.Tensor,
    info: torch.Tensor,
    out: torch.Tensor,
    *,
    height: int,
    width: int,
    patch: int,
    filter: Literal["bilinear", "antialias", "none"] = "bilinear",
    place: Literal["centre", "end"] = "centre",
    merge: int = 1,
) -> None:
    """One image → patches in [−1, 1], features ordered (channel, y, x) as in a conv weight.

    Patches are ordered row by row, with `merge` > 1 by blocks of merge × merge: all patches of a block, row
    by row, then the next block of the same rows.
    Zeros fill each patch up to a multiple of 8 values: the matmul that reads them wants rows on 16 bytes,
    also in bf16, and 3 · 14² values are not.

    info = [rows, columns, bytes per row, format code] of `pixels`; rows = 0 is a missing camera: −1
    everywhere. The image keeps its aspect ratio and is placed on black: in the centre, or at the end of the
    rows and columns.

    filter: `bilinear` reads four pixels (half-pixel centres), as LeRobot's resize_with_pad for Pi0, Pi0.5 and
    SmolVLA. `antialias` weighs all that shrink into one and rounds to whole levels, as openpi's model does.
    `none` takes the pixels as they are; of a larger image the first rows and columns.
    """
    rows, columns, step, code = info.tolist()
    canvas = out.new_full((height, width, 3), -1.0, dtype=torch.float32)
    if rows:
        if filter == "none":
            new_height, new_width = min(rows, height), min(columns, width)
        else:
            new_height, new_width = fitted_size(rows, columns, height, width)
        share = 2 if place == "centre" else 1
        top, left = (height - new_height) // share, (width - new_width) // share
        source = pixels.as_strided((rows, columns * BY_CODE[code].channels), (step, 1))
        small = FILTERS[filter](source, new_height, new_width, code)  # [new_height, new_width·3] in 0 … 255
        canvas[top : top + new_height, left : left + new_width] = (
            small.view(new_height, new_width, 3).mul_(2 / 255).sub_(1)
        )
    blocks = height // (patch * merge), width // (patch * merge)
    grid = canvas.view(blocks[0], merge, patch, blocks[1], merge, patch, 3)
    features = 3 * patch**2
    target = out[:, :features].view(*blocks, merge, merge, 3, patch, patch)
    target.copy_(grid.permute(0, 3, 1, 4, 6, 2, 5))
    out[:, features:] = 0


def resize(source: torch.Tensor, height: int, width: int, code: int) -> torch.Tensor:
    """Bilinear resize of raw rows [rows, columns·channels] uint8 → [height, width·3] float32 in RGB order.

    Only the rows and columns that the result needs are touched: the cost follows the result, not the camera.
    """
    pixel = BY_CODE[code]
    device = str(source.device)
    upper, lower, down = row_taps(source.shape[0], height, device)
    left, right, across = column_taps(source.shape[1] // pixel.channels, width, pixel, device)
    lines = torch.lerp(source.index_select(0, upper).float(), source.index_select(0, lower).float(), down)
    return torch.lerp(lines.index_select(1, left), lines.index_select(1, right), across)


def resize_antialias(source: torch.Tensor, height: int, width: int, code: int) -> torch.Tensor:
    """As `resize`, weighted by a triangle as wide as the ratio where the image shrinks; whole levels."""
    if not height or not width:  # of a strip so thin that nothing remains
        return torch.empty((height, 3 * width), device=source.device)
    pixel = BY_CODE[code]
    planes = source.unflatten(1, (-1, pixel.channels)).permute(2, 0, 1)[list(pixel.rgb)].float()
    small = F.interpolate(planes[None], size=(height, width), mode="bilinear", antialias=True)[0]
    return small.round_().permute(1, 2, 0).reshape(height, 3 * width)


def unscaled(source: torch.Tensor, height: int, width: int, code: int) -> torch.Tensor:
    """The first rows and columns, in RGB order."""
    pixel = BY_CODE[code]
    part = source.unflatten(1, (-1, pixel.channels))[:height, :width, list(pixel.rgb)]
    return part.float().reshape(height, 3 * width)


FILTERS: dict[str, Callable[[torch.Tensor, int, int, int], torch.Tensor]] = {
    "bilinear": resize,
    "antialias": resize_antialias,
    "none": unscaled,
}


@lru_cache(maxsize=64)
def row_taps(count: int, size: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Upper row, lower row [size] and the weight of the lower one [size, 1] for each row of the result."""
    # torch's interpolate rounds the ratio to fp32 and then computes the position without rounding in between
    ratio = float(np.float32(count) / np.float32(size))
    at = ((torch.arange(size, dtype=torch.float64, device=device) + 0.5) * ratio - 0.5).float().clamp_(min=0)
    upper = at.long().clamp_(max=count - 1)
    return upper, (upper + 1).clamp_(max=count - 1), (at - upper)[:, None]


@lru_cache(maxsize=64)
def column_taps(
    count: int, size: int, pixel: PixelFormat, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Byte positions of the left and right neighbours, and the weight of the right one, each [size·3]."""
    left, right, weight = row_taps(count, size, device)
    rgb = torch.tensor(pixel.rgb, device=device)
    positions = [(side[:, None] * pixel.channels + rgb).flatten() for side in (left, right)]
    return positions[0], positions[1], weight.expand(-1, 3).flatten()


def fitted_size(rows: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """Largest size of the same aspect ratio inside height × width, cut to whole pixels as LeRobot does."""
    ratio = max(columns / width, rows / height)
    return int(rows / ratio), int(columns / ratio)


def patches_to_image(patches: np.ndarray, height: int, width: int, patch: int, merge: int = 1) -> np.ndarray:
    """Patches [n, ≥ 3·patch²] in [−1, 1] → uint8 [height, width, 3]: what the model saw."""
    blocks = height // (patch * merge), width // (patch * merge)
    grid = (
        patches[:, : 3 * patch**2]
        .reshape(*blocks, merge, merge, 3, patch, patch)
        .transpose(0, 2, 5, 1, 3, 6, 4)
    )
    return np.rint((grid.reshape(height, width, 3) + 1) * 127.5).clip(0, 255).astype(np.uint8)
