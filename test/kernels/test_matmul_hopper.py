# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The tiles that the launches choose among are the tiles that are compiled.

Read as text: the launches import packages that are only there where a GPU is.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "flashrt_kernels" / "cuda"
FIELDS = ("rows", "columns", "stages", "share", "split")
SHARED_MEMORY = 227 << 10  # bytes that one block may have on Hopper
Tiles = set[tuple[str, ...]]


def launched() -> Tiles:
    """(kind, rows, columns, stages, share, split) of TILES."""
    tree = ast.parse((ROOT / "families" / "matmul_hopper.py").read_text(encoding="utf-8"))
    table = next(
        n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "TILES"
    )
    assert isinstance(table, ast.Dict)
    found = set()
    for kind, tiles in zip(table.keys, table.values, strict=True):
        assert isinstance(kind, ast.Constant)
        assert isinstance(tiles, ast.Dict)
        for call in tiles.keys:
            assert isinstance(call, ast.Call)
            given = dict(zip(FIELDS, call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
            values = (ast.unparse(given[name]) if name in given else "1" for name in FIELDS)
            found.add((str(kind.value), *values))
    return found


def compiled() -> Tiles:
    """The same of the list that matmul_hopper.cu includes."""
    text = (ROOT / "src" / "matmul_hopper_tiles.cuh").read_text(encoding="utf-8")
    entries = re.findall(r"^MATMUL\((\w+), (\w+), (\d+), (\d+), (\d+), (\d+), (\d+)\)$", text, re.MULTILINE)
    assert all(kind == name.upper() for kind, name, *_ in entries)
    return {tuple(entry[1:]) for entry in entries}


def test_every_tile_that_may_be_chosen_is_compiled_and_no_other() -> None:
    """Otherwise a shape nobody tried fails when its graph is planned, or the fatbin carries dead kernels."""
    assert launched() == compiled()


@pytest.mark.parametrize("tile", sorted(launched()))
def test_a_tile_fits_the_hardware(tile: tuple[str, ...]) -> None:
    """Otherwise its launch is refused by the driver."""
    _, *sizes = tile
    rows, columns, stages, share, split = (int(size) for size in sizes)
    sums = (split - 1) * rows * columns // split * 4
    assert stages * (rows + columns) * 128 + sums + 1024 <= SHARED_MEMORY
    assert rows % 64 == 0
    assert columns <= 256
    assert columns % (8 * share) == 0
    assert columns % 16 == 0  # two blocks of 8 are stored at once
    assert columns % (8 * split) == 0
    assert share * split <= 8
