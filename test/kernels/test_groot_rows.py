# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rows of a GR00T prompt against a walk along it, token by token."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flashrt_kernels.models.groot_rows import grid_offsets, place, write_mask

prompts = st.lists(st.booleans(), min_size=1, max_size=12)
edges = st.integers(1, 3)


def walk(is_image: list[bool], rows: int, columns: int) -> tuple[list[list[int]], list[list[int]]]:
    """(place in the prompt, position on the three axes) of image tokens, then of text, each in order."""
    images: list[tuple[int, list[int]]] = []
    text: list[tuple[int, list[int]]] = []
    count = position = 0
    for image in is_image:
        if not image:
            text.append((count, [position] * 3))
            count, position = count + 1, position + 1
            continue
        for row in range(rows):
            for column in range(columns):
                images.append((count, [position, position + row, position + column]))
                count += 1
        position += max(rows, columns)
    found = images + text
    return [[order] for order, _ in found], [place for _, place in found]


@given(prompts, edges, edges, st.integers(0, 4))
def test_place_follows_the_prompt(is_image: list[bool], rows: int, columns: int, filling: int) -> None:
    """Wrong positions turn every query and key: the policy would see another picture, or another sentence."""
    marks, tokens = np.array(is_image), rows * columns
    order, positions = walk(is_image, rows, columns)
    total = len(order) + filling
    zeros = [[0]] * filling
    got = place(marks, tokens, np.arange(tokens, dtype=np.int32)[None], total)
    np.testing.assert_array_equal(got.T, order + zeros)
    got = place(marks, max(rows, columns), grid_offsets(rows, columns), total)
    np.testing.assert_array_equal(got.T, positions + [[0, 0, 0]] * filling)


@given(st.permutations(range(7)), st.integers(0, 3))
def test_mask_is_causal_along_the_prompt(order: list[int], filling: int) -> None:
    """A token that sees later ones, or what fills the prompt up, was never seen in training."""
    rows = len(order) + filling
    places = np.array(order + [0] * filling, np.int32)
    valid = np.arange(rows) < len(order)
    mask = np.empty((rows, rows), np.bool_)
    write_mask(places, valid, mask)
    for seer in range(len(order)):
        want = [seen < len(order) and places[seen] <= places[seer] for seen in range(rows)]
        np.testing.assert_array_equal(mask[seer], want)
    assert mask[len(order) :, : len(order)].all()  # filling stays finite
    assert not mask[:, len(order) :].any()
