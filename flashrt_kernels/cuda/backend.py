# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The GPU as a backend of StaticGraph, and eager calls of single kernels."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from cuda.bindings import driver

from flashrt_kernels import arena
from flashrt_kernels.backend import Launch, Step
from flashrt_kernels.cuda import families
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch as SingleLaunch
from flashrt_kernels.cuda.launch import checked
from flashrt_kernels.cuda.options import CudaOptions
from flashrt_kernels.cuda.program import CudaProgram
from flashrt_kernels.kernel import Array, Kernel

_IDLE: dict[torch.device, list[int]] = {}  # streams whose backends have gone, for the next ones


class CudaBackend:
    """One GPU with one private stream; the graphs of a policy share it."""

    ahead = 1  # a launch and a wait of the host take as long as some kernels

    def __init__(self, device: str = "cuda", options: CudaOptions | None = None) -> None:
        """Raises DeviceError without that GPU or with an old driver, KernelBuildError for an old GPU."""
        self.gpu = Gpu(torch.device(device), options or CudaOptions())
        self.device = self.gpu.device
        stream = private_stream(self.device)
        self.stream = torch.cuda.ExternalStream(stream, device=self.device)
        # Not with the torch object: after a weak reference to one of those the process crashes at its end.
        weakref.finalize(self, _IDLE[self.device].append, stream)
        families.load()

    def allocate(self, bytes: int, inputs: int) -> arena.Memory:
        """The arena, zeroed (garbage as token ids would be illegal reads), and page-locked inputs."""
        memory = arena.allocate(bytes, self.device)
        memory.arena.zero_()
        host = torch.zeros(max(inputs, 1), dtype=torch.uint8, pin_memory=True)
        torch.cuda.current_stream(self.device).synchronize()
        return arena.Memory(memory.arena, host)

    def workspace(
        self, kernel: Kernel, arguments: Mapping[str, Array | None], parameters: Mapping[str, Any]
    ) -> int:
        return families.scratch(kernel, self.gpu, arguments, parameters)

    def bind(
        self,
        kernel: Kernel,
        tensors: Mapping[str, torch.Tensor | None],
        parameters: Mapping[str, Any],
        workspace: torch.Tensor | None,
    ) -> Sequence[Launch]:
        with torch.cuda.device(self.device):
            return families.maker(kernel)(self.gpu, tensors, parameters, workspace)

    def program(
        self,
        name: str,
        steps: Sequence[Step],
        memory: arena.Memory,
        inputs: tuple[int, int],
        outputs: Mapping[str, torch.Tensor],
    ) -> CudaProgram:
        with torch.cuda.device(self.device):
            return CudaProgram(name, steps, memory, inputs, outputs, self.stream, self.gpu.options.graph)

    def release(self) -> None:
        """Torch keeps freed blocks for itself; a closed policy leaves them to others."""
        torch.cuda.empty_cache()


def private_stream(device: torch.device) -> int:
    """Handle of a stream that nobody else has.

    torch hands out 32 in turn: what one policy captures into its stream must not hold launches of another.
    """
    with suppress(IndexError):
        return _IDLE.setdefault(device, []).pop()
    with torch.cuda.device(device):
        # Or the first call of a process finds no context. Not the whole device: another thread may capture.
        torch.cuda.current_stream().synchronize()
        return int(checked(driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))))


def run(kernel: Kernel, gpu: Gpu, **given: Any) -> Any:
    """Launch one kernel now, on torch's current stream: for PyTorch hosts and tests.

    As calling the kernel, but on CUDA tensors and through its launches: outputs that are not given are
    allocated. Returns the output, or a tuple when the kernel writes several. Raises GraphError as
    `Kernel.validate`.
    """
    families.load()
    call = kernel.validate(given)
    arguments = dict(call.arguments)
    for name, (shape, dtype) in call.allocate.items():
        arguments[name] = torch.empty(shape, dtype=dtype, device=gpu.device)
    arguments = {name: arguments[name] for name in kernel.arguments}
    bytes = families.scratch(kernel, gpu, arguments, call.parameters)
    workspace = torch.empty(bytes, dtype=torch.uint8, device=gpu.device) if bytes else None
    with torch.cuda.device(gpu.device):
        launches = families.maker(kernel)(gpu, arguments, call.parameters, workspace)
        if launches and isinstance(launches[0], SingleLaunch):
            launches[0].wait_for_all()  # the kernel in front may be what computes the weights
        for launch in launches:
            launch()
    return kernel.results(arguments)
