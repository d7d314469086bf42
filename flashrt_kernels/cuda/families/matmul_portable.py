# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The matmuls that run on every GPU: bf16 on mma.sync, and any types and sizes on the fp32 units.

Which of them a declared kernel takes, and the `Epilogue`, is decided in `matmul.py`; here is how they start.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from flashrt_kernels.cuda.families.elements import ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

FAMILY = "matmul"
DEPTH = 64  # columns of k in a stage of the pipeline
LONGEST_SPLIT = 16  # parts of k
PLAIN = 0  # EpilogueKind of epilogue.cuh


@dataclass(frozen=True)
class Tile:
    """A compiled tile of the tensor-core kernel; the list is that of matmul.cu."""

    rows: int
    outputs: int
    stages: int
    cost: float  # time of DEPTH columns of k on a multiprocessor, relative to 128×128; measured on an H200
    blocks: int  # on one multiprocessor
    threads: int = 128

    @property
    def name(self) -> str:
        return f"matmul_{self.rows}x{self.outputs}"

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.stages * (self.rows + self.outputs) * DEPTH * 2


TILES = (
    Tile(256, 128, 3, 1.91, 1, threads=256),
    Tile(128, 128, 3, 1.0, 2),
    Tile(128, 64, 4, 0.64, 2),
    Tile(64, 128, 4, 0.64, 2),
    Tile(64, 64, 4, 0.42, 3),
    Tile(32, 64, 6, 0.28, 3),
    Tile(16, 64, 6, 0.17, 3),
)
# in the unit of Tile.cost (0.6 µs on an H200)
STARTING = 5.0  # a launch, the first stages, the last sums
NEXT_WAVE = {1: 8.0, 2: 4.0, 3: 4.0}  # blocks after others, by how many share a multiprocessor
REDUCING = 2.4  # the second launch
REDUCING_PART = 0.3
REDUCED_BYTES = 37_600  # of a multiprocessor
REDUCE_THREADS = 128


@dataclass(frozen=True)
class Choice:
    """A tile, and how many parts k is split into."""

    tile: Tile
    parts: int


def fits_portable(x: torch.dtype, weight: torch.dtype, k: int) -> bool:
    """Whether the tensor-core kernel takes these operands (16-byte rows of bf16)."""
    return x == weight == torch.bfloat16 and k % 8 == 0


def choose(gpu: Gpu, rows: int, n: int, k: int) -> Choice:
    """Tile and split of least estimated time."""
    candidates = [
        Choice(tile, parts)
        for tile in TILES
        if tile.shared <= gpu.shared_memory
        for parts in range(1, LONGEST_SPLIT + 1)
        if parts == 1 or parts <= ceil_div(k, 4 * DEPTH)
    ]
    return min(candidates, key=lambda choice: estimate(gpu, choice, rows, n, k))


def estimate(gpu: Gpu, choice: Choice, rows: int, n: int, k: int) -> float:
    """Time of a product in the unit of Tile.cost: on an H200 about a fifth off for Pi0.5's products."""
    tile, parts = choice.tile, choice.parts
    blocks = ceil_div(rows, tile.rows) * ceil_div(n, tile.outputs) * parts
    busiest = ceil_div(blocks, gpu.multiprocessors)  # blocks that one multiprocessor gets
    resident = min(tile.blocks, (gpu.shared_memory + 1024) // (tile.shared + 1024))
    time = STARTING + busiest * tile.cost * part_length(k, parts) / DEPTH
    time += (ceil_div(busiest, resident) - 1) * NEXT_WAVE[resident]
    if parts > 1:
        moved = (2 * parts + 2) * rows * n * 4
        time += REDUCING + parts * REDUCING_PART + moved / (gpu.multiprocessors * REDUCED_BYTES)
    return time


def part_length(k: int, parts: int) -> int:
    """Columns of k in each part (the last may be shorter)."""
    return ceil_div(ceil_div(k, parts), DEPTH) * DEPTH


def workspace_portable(gpu: Gpu, rows: int, n: int, k: int) -> int:
    """Bytes that `launch_portable` needs for this product."""
    return workspace_of(choose(gpu, rows, n, k), rows, n)


def workspace_of(choice: Choice, rows: int, n: int) -> int:
    return choice.parts * rows * ceil_div(n, 16) * 16 * 4 if choice.parts > 1 else 0


def launch_portable(
    gpu: Gpu,
    epilogue: ctypes.Structure,
    kind: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: int,
    n: int,
    k: int,
    workspace: torch.Tensor | None,
    choice: Choice | None = None,
) -> list[Launch]:
    """x [rows, k] · weight [n, k]ᵀ in bf16 on mma.sync, then the epilogue (struct and kind of epilogue.cuh).

    workspace: at least `workspace_portable` bytes. choice: None takes the estimated best.
    """
    choice = choice or choose(gpu, rows, n, k)
    tile, parts = choice.tile, choice.parts
    partial = workspace if parts > 1 else None
    grid = (ceil_div(rows, tile.rows), ceil_div(n, tile.outputs), parts)
    arguments = (x, weight, k, part_length(k, parts), partial, kind, epilogue)
    function = gpu.function(FAMILY, tile.name, shared=tile.shared)
    launches = [
        Launch(function, grid, tile.threads, arguments, shared=tile.shared, pdl=gpu.pdl, name=tile.name)
    ]
    if partial is not None:
        launches.append(launch_reduce(gpu, epilogue, kind, partial, parts, rows, n))
    return launches


def launch_reduce(
    gpu: Gpu, epilogue: ctypes.Structure, kind: int, sums: torch.Tensor, parts: int, rows: int, n: int
) -> Launch:
    """The epilogue of fp32 sums [parts, rows, n rounded up to a multiple of 16], added in order."""
    blocks = ceil_div(rows * ceil_div(n, 16) * 2, REDUCE_THREADS)
    function = gpu.function(FAMILY, "matmul_reduce")
    return Launch(
        function, (blocks,), REDUCE_THREADS, (sums, parts, kind, epilogue), pdl=gpu.pdl, name="matmul_reduce"
    )


class Operands(ctypes.Structure):
    """Mirror of Operands in matmul_generic.cuh."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("x_bf16", ctypes.c_int32),
        ("weight_bf16", ctypes.c_int32),
        ("k", ctypes.c_int32),
    )


def launch_generic(
    gpu: Gpu,
    epilogue: ctypes.Structure,
    kind: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: int,
    n: int,
    k: int,
) -> list[Launch]:
    """The same product for fp32 and bf16 operands of any sizes, on the fp32 units; no workspace.

    Products too small to fill the GPU with tiles are dot products: 4 lanes to one where k is short, else 32.
    """
    bf16 = [tensor.dtype == torch.bfloat16 for tensor in (x, weight)]
    operands = Operands(x.data_ptr(), weight.data_ptr(), *bf16, k)
    tile_rows = 128 if ceil_div(rows, 128) * ceil_div(n, 128) >= gpu.multiprocessors else 32
    tiles = ceil_div(rows, tile_rows) * ceil_div(n, 128)
    if 4 * tiles >= gpu.multiprocessors:
        name, grid, threads = (
            f"matmul_generic_{tile_rows}x128",
            (ceil_div(rows, tile_rows), ceil_div(n, 128)),
            256,
        )
    else:
        lanes = 4 if k <= 64 else 32
        name, threads = f"matmul_generic_{lanes}_lanes", 128
        grid = (ceil_div(rows * ceil_div(n, 16) * 2 * lanes, threads), 1)
    function = gpu.function(FAMILY, name)
    return [Launch(function, grid, threads, (operands, kind, epilogue), pdl=gpu.pdl, name=name)]
