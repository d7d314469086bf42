# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Tensor maps: what Hopper's copy engine (TMA) has to know about an array in global memory.

A map holds an address, so it is made once the arena is planned, and is passed to the kernel by value
(`const __grid_constant__ CUtensorMap`). Sizes, strides and boxes are listed innermost dimension first, as the
driver wants them. Out of bounds elements read as zero and are not written. Limits: CUDA driver API,
cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from flashrt_kernels.errors import GraphError

ALIGNMENT = 64  # bytes, of the map itself
MAX_BOX = 256  # elements of one dimension
DTYPES = {
    torch.bfloat16: ("BFLOAT16", 2),
    torch.float32: ("FLOAT32", 4),
    torch.uint8: ("UINT8", 1),
}
SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class TensorMap(ctypes.Structure):
    """The 128 bytes of a CUtensorMap on a 64-byte boundary; `ctypes.addressof` gives where they lie."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)

    @classmethod
    def aligned(cls) -> TensorMap:
        """An empty map on the boundary that the driver asks for."""
        memory = ctypes.create_string_buffer(ctypes.sizeof(cls) + ALIGNMENT)
        return cls.from_buffer(memory, -ctypes.addressof(memory) % ALIGNMENT)


def tensor_map(
    tensor: torch.Tensor | int,
    sizes: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
    dtype: torch.dtype | None = None,
) -> TensorMap:
    """Map of an array of 1 … 5 dimensions, innermost first.

    `tensor`: a tensor or a device address. `strides_bytes`: of every dimension but the innermost, whose
    elements are neighbours. `box`: elements that one copy brings. `swizzle`: 0, 32, 64 or 128 bytes.
    `dtype`: of the elements, that of the tensor (bfloat16 for an address) when not given.
    Raises GraphError where the copy engine cannot address the array.
    """
    tensor_dtype = tensor.dtype if isinstance(tensor, torch.Tensor) else torch.bfloat16
    name, itemsize = DTYPES[dtype or tensor_dtype]
    address = tensor.data_ptr() if isinstance(tensor, torch.Tensor) else tensor
    _check(address, sizes, strides_bytes, box, swizzle, itemsize)
    return _encode(address, name, sizes, strides_bytes, box, swizzle)


def row_major_map(matrix: torch.Tensor, box_rows: int, box_columns: int, swizzle: int = 128) -> TensorMap:
    """Map of a contiguous matrix [rows, columns]; one copy brings [box_rows, box_columns]."""
    rows, columns = matrix.shape
    return tensor_map(matrix, (columns, rows), (columns * matrix.itemsize,), (box_columns, box_rows), swizzle)


def _check(
    address: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    itemsize: int,
) -> None:
    if not 1 <= len(sizes) <= 5 or len(box) != len(sizes) or len(strides) != len(sizes) - 1:
        raise GraphError(
            f"tensor map: {len(sizes)} sizes, {len(strides)} strides, box of {len(box)}; expected 1 … 5 "
            "sizes, one stride less and as many box sides"
        )
    if address % 16:
        raise GraphError(f"tensor map: address {address:#x}; expected a multiple of 16")
    if any(stride % 16 or stride <= 0 for stride in strides):
        raise GraphError(f"tensor map: strides {list(strides)} bytes; expected positive multiples of 16")
    if any(not 1 <= side <= MAX_BOX for side in box) or any(size < 1 for size in sizes):
        raise GraphError(
            f"tensor map: box {list(box)} of {list(sizes)}; expected box sides of 1 … {MAX_BOX}, sizes ≥ 1"
        )
    width = box[0] * itemsize
    if width % 16 or (swizzle and width > swizzle):
        raise GraphError(
            f"tensor map: a box row of {width} bytes; expected a multiple of 16, at most {swizzle or 'any'}"
        )


def _encode(
    address: int, name: str, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int
) -> TensorMap:
    # Imported here: the package is only installed where there is a GPU.
    from cuda.bindings import driver

    error, encoded = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}"),
        len(sizes),
        address,
        [driver.cuuint64_t(size) for size in sizes],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(side) for side in box],
        [driver.cuuint32_t(1)] * len(sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise GraphError(
            f"tensor map: the driver refuses {list(sizes)} with strides {list(strides)}, "
            f"box {list(box)}: {error}"
        )
    result = TensorMap.aligned()
    ctypes.memmove(ctypes.addressof(result), encoded.getPtr(), ctypes.sizeof(result))
    return result
