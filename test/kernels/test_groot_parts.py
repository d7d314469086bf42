# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Parts of the GR00T models where the tiny policies are too square, or too short, to show a mistake."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt_kernels.checkpoint.groot_dims import GrootVisionDims
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models.dit import sinusoid
from flashrt_kernels.models.embodiment_mlp import Embodied
from flashrt_kernels.models.groot_n16 import by_patch
from flashrt_kernels.models.qwen3_vl import POSITIONS, ROTATION, VISION, fold_grid, in_blocks, mrope_axes
from flashrt_kernels.models.weights import Weights
from test.kernels.groot_rig import in_patches

DIMS = GrootVisionDims(width=16, depth=1, heads=2, mlp=16, patch=2, position_grid=5)
MERGE = DIMS.merge


def places(rows: int, columns: int) -> list[tuple[int, int]]:
    """Row and column of every patch, blocks one after another."""
    blocks = [(row, column) for row in range(0, rows, MERGE) for column in range(0, columns, MERGE)]
    inside = [(down, across) for down in range(MERGE) for across in range(MERGE)]
    return [(row + down, column + across) for row, column in blocks for down, across in inside]


@given(st.integers(1, 3), st.integers(1, 3))
def test_blocks_of_a_grid_that_is_not_square(down: int, across: int) -> None:
    """A camera that is wider than high: rows for columns would scramble the picture."""
    rows, columns = down * MERGE, across * MERGE
    grid = torch.arange(rows * columns).view(rows, columns, 1)
    want = [row * columns + column for row, column in places(rows, columns)]
    assert in_blocks(grid, MERGE).flatten().tolist() == want
    image = np.arange(rows * columns * DIMS.patch**2).reshape(1, rows * DIMS.patch, columns * DIMS.patch)
    corners = [int(image[0, DIMS.patch * row, DIMS.patch * column]) for row, column in places(rows, columns)]
    colours = np.repeat(image, 3, axis=0)
    assert in_patches(colours, DIMS.patch, MERGE)[:, 0].tolist() == corners


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (2, 8)])
def test_positions_of_a_grid_that_is_not_square(rows: int, columns: int) -> None:
    """N1.7 tells by them where in the picture something is."""
    edge, width = DIMS.position_grid, DIMS.width
    table = np.random.default_rng(0).standard_normal((edge, edge, width))
    w = Weights({VISION + "pos_embed.weight": torch.from_numpy(table).float().view(-1, width)}, torch.float32)
    fold_grid(w, DIMS, rows, columns)
    frequencies = 10_000.0 ** -(np.arange(2) / 2)  # a quarter of head_dim 8
    for found, turn, (row, column) in zip(
        w._made[POSITIONS], w._made[ROTATION], places(rows, columns), strict=True
    ):
        y, x = row * (edge - 1) / (rows - 1), column * (edge - 1) / (columns - 1)
        top, left = min(int(y), edge - 2), min(int(x), edge - 2)
        upper = (1 - (x - left)) * table[top, left] + (x - left) * table[top, left + 1]
        lower = (1 - (x - left)) * table[top + 1, left] + (x - left) * table[top + 1, left + 1]
        want = (1 - (y - top)) * upper + (y - top) * lower
        np.testing.assert_allclose(found.numpy(), want, rtol=0, atol=1e-6)
        angles = np.concatenate([row * frequencies, column * frequencies])
        np.testing.assert_allclose(turn.numpy(), [*np.cos(angles), *np.sin(angles)], rtol=0, atol=1e-6)


def test_axes_of_the_released_model() -> None:
    """24 + 20 + 20 frequencies; those behind 3 · 20 turn with time alone."""
    axes = mrope_axes((24, 20, 20)).tolist()
    assert axes[:6] == [0, 1, 2, 0, 1, 2]
    assert axes[57:] == [0, 1, 2, 0, 0, 0, 0]
    assert [axes.count(axis) for axis in range(3)] == [24, 20, 20]


def test_features_by_patch() -> None:
    """Channel 4 · c + p of the checkpoint is channel c of patch p; mixed up, the projector reads noise."""
    channels = torch.arange(12)  # three channels of four patches
    assert by_patch(channels, 2).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]


def test_sinusoids_of_large_times() -> None:
    """Of bucket 750 the angle is some hundred turns: fp32 would lose three digits of it."""
    found = sinusoid(torch.tensor([[750.0]], dtype=torch.float64), 3, 3)[0]
    angles = 750 * 10_000.0 ** -(np.arange(3) / 3)
    np.testing.assert_allclose(found.numpy(), [np.sin(angles), np.cos(angles)], rtol=0, atol=1e-7)


def test_embodied_layer_is_filled_up_with_zeros() -> None:
    """Inputs and outputs that a width of a multiple of 8 adds must not add anything to the result."""
    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((3, 5, 6)).astype(np.float32), rng.standard_normal((3, 6)).astype("f4")
    w = Weights({"k.W": torch.from_numpy(weight), "k.b": torch.from_numpy(bias)}, torch.float32)
    g = StaticGraph("g")
    x = g.input("x", (2, 8), torch.float32)
    g.output("y", Embodied(w, 1).linear(g, "k", x, outputs=8))
    g.plan()
    given = rng.standard_normal((2, 8)).astype(np.float32)
    g.write("x", given)
    g.replay()
    want = given[:, :5] @ weight[1] + bias[1]
    np.testing.assert_allclose(g.read("y"), np.pad(want, ((0, 0), (0, 2))), rtol=0, atol=1e-5)
