# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One GPU: what it is capable of, and the compiled kernels loaded on it."""

from __future__ import annotations

import logging
from typing import Any

import cupy
import torch
from cuda.bindings import driver

from flashrt_kernels.cuda import manifest
from flashrt_kernels.cuda.launch import checked
from flashrt_kernels.cuda.options import CudaOptions
from flashrt_kernels.errors import DeviceError, GraphError, KernelBuildError

log = logging.getLogger(__name__)

# (device index, family) → module, loaded once in a process; a module holds code only, no policy's data
_MODULES: dict[tuple[int, str], Any] = {}
# (device index, family, kernel) → bytes of dynamic shared memory that it may use: a property of the loaded
# kernel, so of the process; a second policy that needs less must not take it from the first
_SHARED: dict[tuple[int, str, str], int] = {}


class Gpu:
    """A GPU as launches see it; paths are chosen by capability, never by a list of names."""

    def __init__(self, device: torch.device, options: CudaOptions) -> None:
        """Raises DeviceError without that GPU or with an old driver, KernelBuildError for an old GPU."""
        self.index = torch.cuda.current_device() if device.index is None else device.index
        if self.index >= torch.cuda.device_count():
            raise DeviceError(f"device {device}: there are {torch.cuda.device_count()} GPUs, counted from 0")
        manifest.check_driver(checked(driver.cuDriverGetVersion()))
        self.device, self.options = torch.device("cuda", self.index), options
        properties = torch.cuda.get_device_properties(self.index)
        self.name: str = properties.name
        self.major, self.minor = properties.major, properties.minor
        manifest.architecture_for((self.major, self.minor))  # raises for a GPU that is too old
        self.multiprocessors: int = properties.multi_processor_count
        most = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        # Bytes that one block may ask for.
        self.shared_memory: int = checked(driver.cuDeviceGetAttribute(most, self.index))
        self.hopper = (self.major, self.minor) == (9, 0)
        self.pdl = options.pdl and self.major >= 9
        self._functions: dict[tuple[str, str], Any] = {}

    def function(self, family: str, name: str, shared: int = 0) -> int:
        """Handle (CUfunction) of a kernel, allowed to use `shared` bytes of dynamic shared memory."""
        key = (family, name)
        if key not in self._functions:
            with cupy.cuda.Device(self.index):
                self._functions[key] = self._module(family).get_function(name)
        function = self._functions[key]
        allowed = (self.index, family, name)
        if shared > max(_SHARED.get(allowed, 0), 48 << 10):
            if shared > self.shared_memory:
                raise GraphError(
                    f"{name}: {shared} bytes of shared memory; {self.name} has {self.shared_memory}"
                )
            function.max_dynamic_shared_size_bytes = shared
            _SHARED[allowed] = shared
        handle: int = function.kernel.ptr
        return handle

    def _module(self, family: str) -> Any:
        key = (self.index, family)
        if key not in _MODULES:
            path = manifest.check(family)
            if not manifest.usable(family, (self.major, self.minor)):
                raise KernelBuildError(
                    f"kernels of family {family} are not built for {self.name}, capability "
                    f"{self.major}.{self.minor}; run: {manifest.COMMAND}"
                )
            if not manifest.covers(family, (self.major, self.minor)):
                log.warning(
                    "%s: family %s is not compiled for capability %d.%d: the driver translates it once",
                    self.name,
                    family,
                    self.major,
                    self.minor,
                )
            _MODULES[key] = cupy.RawModule(path=str(path))
        return _MODULES[key]
