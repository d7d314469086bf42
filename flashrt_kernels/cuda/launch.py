# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One kernel launch with everything bound: what is left to do at run time is one driver call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from cuda.bindings import driver


class CudaError(RuntimeError):
    """A call of the CUDA driver failed."""


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call, None or a tuple where it has none or several. Raises CudaError."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        text = driver.cuGetErrorString(status)[1]
        raise CudaError(f"CUDA: {text.decode() if isinstance(text, bytes) else status}")
    return values[0] if len(values) == 1 else tuple(values) if values else None


def as_argument(value: Any) -> tuple[Any, int]:
    """What keeps an argument alive, and the address of its value.

    Tensors become device pointers, None a null pointer, ints int32, floats float32; ctypes values are taken
    as they are, and a TensorMap by its `address`. Raises OverflowError for an int that is wider.
    """
    if isinstance(value, torch.Tensor):
        value = ctypes.c_void_p(value.data_ptr())
    elif value is None:
        value = ctypes.c_void_p(0)
    elif isinstance(value, bool | int):
        if not -(1 << 31) <= value < 1 << 31:  # ctypes would cut it
            raise OverflowError(f"kernel argument {value}; expected an int32")
        value = ctypes.c_int32(value)
    elif isinstance(value, float):
        value = ctypes.c_float(value)
    address = value.address if hasattr(value, "address") else ctypes.addressof(value)
    return value, address


class Launch:
    """cuLaunchKernelEx of one kernel on torch's current stream."""

    def __init__(
        self,
        function: int,
        grid: Sequence[int],
        block: int,
        arguments: Sequence[Any],
        shared: int = 0,
        cluster: int = 1,
        pdl: bool = True,
        name: str = "",
    ) -> None:
        """function: a CUfunction. grid: one to three numbers of blocks. block: threads. shared: bytes.

        cluster: blocks of a cluster along x. pdl: the kernel waits for its predecessor itself.
        """
        self.name = name
        grid = [*grid, 1, 1][:3]
        if min(grid) < 1:
            raise ValueError(f"{name}: grid {grid}")
        kept = [as_argument(value) for value in arguments]
        self._kept = [value for value, _ in kept]
        self._pointers = (ctypes.c_void_p * max(len(kept), 1))(*(address for _, address in kept))
        self._function = driver.CUfunction(function)
        config = self._config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.sharedMemBytes = shared
        attributes = []
        if cluster > 1:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = cluster, 1, 1
            attributes.append(attribute)
        if pdl:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        config.attrs, config.numAttrs = attributes, len(attributes)
        self._own_attributes = attributes[: len(attributes) - pdl]
        self._address = ctypes.addressof(self._pointers)

    def wait_for_all(self) -> None:
        """Start only when everything in front has ended: no programmatic dependent launch."""
        self._config.attrs, self._config.numAttrs = self._own_attributes, len(self._own_attributes)

    def __call__(self) -> None:
        self._config.hStream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        (status,) = driver.cuLaunchKernelEx(self._config, self._function, self._address, 0)
        if status != driver.CUresult.CUDA_SUCCESS:
            try:
                checked((status,))
            except CudaError as error:
                raise CudaError(f"launch of {self.name}: {error}") from None
