# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A GPU that only takes notes: launches are made for it, on a machine without one."""

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_kernels import arena
from flashrt_kernels.backend import CpuBackend, Step
from flashrt_kernels.kernel import Kernel
from test.kernels.policies import CPU

SHARED = 232448  # bytes of shared memory for one block of an H200
OPTIONS = {"matmul": "own", "attention": "own", "pdl": True, "graph": True}


class Names:
    """Enumerations of the driver: every member is its own name."""

    CUDA_SUCCESS = 0

    def __getattr__(self, name: str) -> str:
        return name


class Driver(ModuleType):
    """The part of the driver that bound launches use."""

    CUresult = CUlaunchAttributeID = CUtensorMapDataType = CUtensorMapSwizzle = Names()
    CUtensorMapInterleave = CUtensorMapL2promotion = CUtensorMapFloatOOBfill = Names()
    CUfunction = CUstream = cuuint64_t = cuuint32_t = staticmethod(int)

    @staticmethod
    def structure() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    CUlaunchConfig = CUlaunchAttribute = structure

    @staticmethod
    def cuTensorMapEncodeTiled(*arguments: Any) -> tuple[int, SimpleNamespace]:
        memory = ctypes.create_string_buffer(128)
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(memory), memory=memory)


@dataclass
class NotedGpu:
    """A GPU of a capability; `asked` counts the kernels that launches were made of."""

    major: int
    minor: int
    options: Any
    multiprocessors: int = 132
    shared_memory: int = SHARED
    name: str = "noted"
    device: torch.device = CPU.device
    index: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def hopper(self) -> bool:
        return (self.major, self.minor) == (9, 0)

    @property
    def pdl(self) -> bool:
        return self.major >= 9

    def function(self, family: str, name: str, shared: int = 0) -> int:
        assert shared <= self.shared_memory, f"{name}: {shared} bytes of shared memory"
        self.asked[f"{family}.{name}"] += 1
        return 1


class NotedBackend(CpuBackend):
    """Composes, plans and binds as on a GPU; nothing can be replayed."""

    def __init__(self, gpu: NotedGpu) -> None:
        self.gpu, self.families = gpu, import_module("flashrt_kernels.cuda.families")
        self.families.load()
        self.made: list[Any] = []

    def workspace(self, kernel: Kernel, arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
        bytes: int = self.families.scratch(kernel, self.gpu, arguments, parameters)
        return bytes

    def bind(
        self, kernel: Kernel, tensors: Mapping[str, Any], parameters: Mapping[str, Any], workspace: Any
    ) -> Sequence[Any]:
        launches = self.families.maker(kernel)(self.gpu, tensors, parameters, workspace)
        assert launches, f"{kernel.name}: nothing is launched"
        self.made += launches
        return launches

    def program(
        self, name: str, steps: Sequence[Step], memory: arena.Memory, inputs: tuple[int, int], outputs: Any
    ) -> Any:
        return SimpleNamespace(close=lambda: None, timings={}, results={})


@pytest.fixture(scope="module")
def without_gpu() -> Iterator[None]:
    """flashrt_kernels.cuda over modules that are only installed where there is a GPU; gone afterwards."""
    bindings = ModuleType("cuda.bindings")
    bindings.driver = Driver("cuda.bindings.driver")  # type: ignore[attr-defined]
    stubs = {"cupy": ModuleType("cupy"), "cuda": ModuleType("cuda"), "cuda.bindings": bindings}
    forget()
    with pytest.MonkeyPatch.context() as patch:
        for name, module in stubs.items():
            patch.setitem(sys.modules, name, module)
        yield
    forget()


def forget() -> None:
    """Modules that import what is stubbed, as if they never had been imported."""
    package = import_module("flashrt_kernels.cuda")
    for child in ("backend", "families", "gpu", "launch", "program", "tensor_map"):
        name = f"{package.__name__}.{child}"
        for known in [known for known in sys.modules if known == name or known.startswith(name + ".")]:
            del sys.modules[known]
        vars(package).pop(child, None)


def check_launches(launches: Sequence[Any]) -> None:
    """What every GPU refuses."""
    for launch in launches:
        config = getattr(launch, "_config", None)
        if config is not None:  # else the library's
            assert config.blockDimX <= 1024
            assert config.sharedMemBytes <= SHARED
            assert config.gridDimY <= 65535
            assert config.gridDimZ <= 65535


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Memory that nobody touches: full-size weights cost nothing here."""
    return torch.empty(shape, dtype=dtype)
