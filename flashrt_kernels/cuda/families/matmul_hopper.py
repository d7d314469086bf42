# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of matmul_hopper.cu: products of many rows on wgmma, fed by the copy engine."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from flashrt_kernels.cuda.families.elements import ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.cuda.tensor_map import row_major_map
from flashrt_kernels.errors import GraphError

STEP = 64  # of k, one stage
ROW_BYTES = 2 * STEP
MOST_SHARED = 226 << 10  # bytes, MOST_SHARED of matmul_hopper_ring.cuh
KINDS = ("plain", "gelu_mul", "rope_qkv", "silu_mul")  # EpilogueKind of epilogue.cuh, in its order
GATED = ("gelu_mul", "silu_mul")


@dataclass(frozen=True)
class Tile:
    """One compiled kernel: what a block computes, and how many share its weights."""

    rows: int
    columns: int
    stages: int
    share: int = 1  # blocks of a cluster, neighbours along the rows, that load each weight tile once
    split: int = 1  # parts of k, summed within the cluster

    @property
    def threads(self) -> int:
        """A warpgroup for every 64 rows, and one that copies."""
        return 2 * self.rows + 128

    def shared(self, kind: int) -> int:
        """Bytes of the ring, and of the results that wait there for whole lines, where these fit."""
        ring = self.stages * (self.rows + self.columns) * ROW_BYTES
        if self.split > 1:
            return ring + (self.split - 1) * self.rows * (self.columns // self.split) * 4
        blocks = self.columns // (16 if KINDS[kind] in GATED else 8)
        staged = (self.rows * (blocks + 1) * size for size in ((32, 16) if KINDS[kind] == "plain" else (16,)))
        return ring + next((size for size in staged if ring + size <= MOST_SHARED), 0)

    def kernel(self, kind: int) -> str:
        """Name in matmul_hopper.cu."""
        size = f"{self.rows}x{self.columns}x{self.stages}"
        return f"matmul_{KINDS[kind]}_{size}_{self.share}_{self.split}"

    def row_groups(self, rows: int) -> int:
        """Clusters along the rows."""
        return ceil_div(rows, self.rows * self.share)

    def units(self, rows: int, n: int) -> int:
        """Pieces of work, each for one cluster."""
        return self.row_groups(rows) * ceil_div(n, self.columns)

    def clusters(self, gpu: Gpu, kind: int, rows: int, n: int) -> int:
        """Clusters to launch: persistent for gated kinds alone, whose many tiles hide each other's ends."""
        units = self.units(rows, n)
        return min(units, gpu.multiprocessors // self.share) if KINDS[kind] in GATED else units


# The compiled kernels (matmul_hopper_tiles.cuh; a test compares the two lists), each with what was measured
# on an H200 in µs: a step of k while most multiprocessors have a tile, and all that surrounds the steps.
TILES: dict[str, dict[Tile, tuple[float, float]]] = {
    "plain": {
        Tile(64, 64, 12): (0.18, 1.7),
        Tile(64, 96, 8): (0.21, 2.0),
        Tile(64, 128, 8): (0.25, 2.2),
        Tile(64, 128, 8, share=4): (0.20, 2.6),
        Tile(64, 144, 7): (0.28, 2.4),
        Tile(64, 160, 6): (0.30, 2.3),
        Tile(64, 192, 5): (0.30, 3.4),
        Tile(128, 64, 7): (0.25, 2.1),
        Tile(128, 96, 6): (0.33, 2.7),
        Tile(128, 128, 4): (0.38, 3.2),
        Tile(128, 160, 5): (0.41, 3.4),
        Tile(128, 208, 4): (0.53, 4.3),
        Tile(128, 256, 3, split=2): (0.69, 10.0),
    },
    "gelu_mul": {Tile(128, 256, 4): (0.65, 3.5), Tile(128, 256, 4, share=2): (0.64, 3.5)},
    # not measured: the times of gelu_mul
    "silu_mul": {Tile(128, 256, 4): (0.65, 3.5), Tile(128, 256, 4, share=2): (0.64, 3.5)},
    "rope_qkv": {
        Tile(64, 64, 12): (0.18, 1.9),
        Tile(64, 128, 8): (0.22, 2.3),
        Tile(64, 192, 5): (0.31, 4.2),
        Tile(128, 160, 5): (0.44, 3.7),
    },
}


def at_once(gpu: Gpu, tile: Tile) -> int:
    """Clusters that run side by side: more than two blocks leave multiprocessors over in some groups."""
    return gpu.multiprocessors * (10 if tile.share > 2 else 11) // 11 // (tile.share * tile.split)


def estimate(gpu: Gpu, tile: Tile, times: tuple[float, float], rows: int, n: int, k: int) -> float:
    """Expected time of a product with a tile in µs: waves of tiles · (steps of k and what surrounds them)."""
    step, around = times
    steps = ceil_div(ceil_div(k, STEP), tile.split)
    return ceil_div(tile.units(rows, n), at_once(gpu, tile)) * (steps * step + around)


def tile_for(gpu: Gpu, kind: int, rows: int, n: int, k: int) -> Tile:
    """The tile with the lowest estimate, among those whose parts of k are not empty."""
    steps = ceil_div(k, STEP)
    tiles = {tile: times for tile, times in TILES[KINDS[kind]].items() if tile.split <= steps}
    return min(tiles, key=lambda tile: estimate(gpu, tile, tiles[tile], rows, n, k))


def fits(gpu: Gpu, kind: int, rows: int, n: int, k: int) -> bool:
    """Whether these kernels can do a product: the copy engine wants rows in steps of 16 bytes."""
    return gpu.hopper and k % 8 == 0 and n % (8 if kind == 0 else 16) == 0


def workspace_bytes(gpu: Gpu, kind: int, rows: int, n: int, k: int) -> int:
    """Sums over parts of k stay in shared memory."""
    return 0


def launch(
    gpu: Gpu,
    epilogue: ctypes.Structure,
    kind: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: int,
    n: int,
    k: int,
    workspace: torch.Tensor | None = None,
) -> list[Launch]:
    """The launch of x [rows, k] · weight [n, k]ᵀ with the tile that suits the shape.

    Raises GraphError where an array of the epilogue does not lie on the boundary that wide accesses need.
    """
    check_alignment(epilogue)
    return [launch_tile(gpu, tile_for(gpu, kind, rows, n, k), epilogue, kind, x, weight)]


def launch_tile(
    gpu: Gpu, tile: Tile, epilogue: ctypes.Structure, kind: int, x: torch.Tensor, weight: torch.Tensor
) -> Launch:
    """The launch with a given tile: what `launch` uses, and what a search for the best tile times."""
    (rows, k), n = x.shape, weight.shape[0]
    name = tile.kernel(kind)
    arguments = [
        row_major_map(x, tile.rows, STEP),
        row_major_map(weight, tile.columns // tile.share, STEP),
        epilogue,
        ceil_div(k, STEP),
        tile.row_groups(rows),
        tile.units(rows, n),
    ]
    return Launch(
        gpu.function("matmul_hopper", name, shared=tile.shared(kind)),
        (tile.clusters(gpu, kind, rows, n) * tile.share * tile.split,),
        tile.threads,
        arguments,
        shared=tile.shared(kind),
        cluster=tile.share * tile.split,
        pdl=gpu.pdl,
        name=name,
    )


def check_alignment(epilogue: ctypes.Structure) -> None:
    """Raises GraphError: outputs and residual go in pieces of 16 bytes, the rest in pieces of 8."""
    for names, size in ((("out", "k_out", "v_out", "residual"), 16), (("bias", "gate", "table"), 8)):
        for name in names:
            address = getattr(epilogue, name) or 0
            if address % size:
                raise GraphError(
                    f"matmul on Hopper: {name} is {address % size} bytes off; expected a multiple of {size}"
                )
