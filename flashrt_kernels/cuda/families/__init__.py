# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""How each declared kernel becomes launches on a GPU: one module per family registers its kernels here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

from flashrt_kernels.buffer import Buffer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.errors import GraphError
from flashrt_kernels.kernel import Kernel

Tensors = Mapping[str, Any]  # by argument name: CUDA tensor, or None where an optional argument is not given
Parameters = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...] | None]
Dtypes = Mapping[str, torch.dtype | None]
Maker = Callable[[Gpu, Tensors, Parameters, torch.Tensor | None], Sequence[Callable[[], Any]]]
Sizer = Callable[[Gpu, Shapes, Dtypes, Parameters], int]

FAMILIES = (
    "norm",
    "activation",
    "rope",
    "quantise",
    "matmul",
    "attention",
    "image",
    "embedding",
    "flow",
    "scaling",
    "decoding",
)
_MAKERS: dict[str, Maker] = {}
_SIZERS: dict[str, Sizer] = {}


def launches(kernel: Kernel) -> Callable[[Maker], Maker]:
    """Register (gpu, tensors, parameters, workspace) → launches of a validated call."""

    def register(maker: Maker) -> Maker:
        _MAKERS[kernel.name] = maker
        return maker

    return register


def workspace(kernel: Kernel) -> Callable[[Sizer], Sizer]:
    """Register (gpu, shapes, dtypes, parameters) → bytes of scratch memory; by default none."""

    def register(sizer: Sizer) -> Sizer:
        _SIZERS[kernel.name] = sizer
        return sizer

    return register


def load() -> None:
    """Import every family."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")


def maker(kernel: Kernel) -> Maker:
    """What makes the launches of `kernel`. Raises GraphError where it has none."""
    if kernel.name not in _MAKERS:
        raise GraphError(f"{kernel.name}: no launch on a GPU; there are {sorted(_MAKERS)}")
    return _MAKERS[kernel.name]


def scratch(kernel: Kernel, gpu: Gpu, arguments: Mapping[str, Any], parameters: Parameters) -> int:
    """Bytes of scratch memory of a call, from arguments that have shape and dtype.

    Raises GraphError for a matmul weight that the graph computes: the kernels read weights before the kernel
    in front of them has ended (programmatic dependent launch).
    """
    weight = arguments.get("weight")
    product = kernel.name.startswith("matmul")
    if product and isinstance(weight, Buffer) and weight.storage.kind in ("buffer", "borrowed"):
        raise GraphError(
            f"{kernel.name}: weight {weight.storage.name!r} may be written by the graph itself; "
            "expected a constant or an input"
        )
    sizer = _SIZERS.get(kernel.name)
    if sizer is None:
        return 0
    shapes = {name: None if a is None else tuple(a.shape) for name, a in arguments.items()}
    dtypes = {name: None if a is None else a.dtype for name, a in arguments.items()}
    return sizer(gpu, shapes, dtypes, parameters)
