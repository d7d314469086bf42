# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where a GR00T prompt's tokens lie in the graph, and what their true order is.

In the buffer the tokens of all images come first, whatever the prompt says: the vision tower writes them
there, and who wants images only, or text only, reads one range. Text follows, then filling. What depends on
order, which token sees which and the positions, goes by the order in the prompt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]


def grid_offsets(rows: int, columns: int) -> Ints:
    """Positions of an image's tokens from its first one: [time, row, column], int32 [3, rows · columns]."""
    row, column = np.divmod(np.arange(rows * columns, dtype=np.int32), np.int32(columns))
    return np.stack([np.zeros_like(row), row, column])


def place(is_image: Bools, advance: int, offsets: Ints, rows: int) -> Ints:
    """A number that grows along the prompt, for every row of the buffer and every axis: int32 [axes, rows].

    is_image: [prompt], True where a whole image stands. A token of text moves the number on by one, an image
    by `advance`; offsets [axes, tokens of an image] are added to its start. 0 for rows that fill the buffer.
    """
    step = np.where(is_image, advance, 1)
    start = (np.cumsum(step) - step).astype(np.int32)
    images = (start[is_image][None, :, None] + offsets[:, None, :]).reshape(len(offsets), -1)
    text = np.broadcast_to(start[~is_image], (len(offsets), len(is_image) - is_image.sum()))
    placed = np.zeros((len(offsets), rows), np.int32)
    placed[:, : images.shape[1]] = images
    placed[:, images.shape[1] : images.shape[1] + text.shape[1]] = text
    return placed


def write_mask(order: Ints, valid: Bools, mask: Bools) -> None:
    """mask [rows, rows] = which row (second axis) each one sees: itself and valid ones that come before it.

    order: int32 [rows] along the prompt. Filling sees all that is valid, so that it stays finite.
    """
    last = np.iinfo(np.int32).max
    seen, seer = np.where(valid, order, last), np.where(valid, order, last - 1)
    np.less_equal(seen[None, :], seer[:, None], out=mask)
