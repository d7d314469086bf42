# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""StaticGraph: compose kernels once, plan one arena, replay into fixed buffers.

Composing validates every call and records it; planning turns lifetimes into offsets and binds every launch
to fixed views; replaying runs that list. A launch whose results reach no output is kept in the plan but
runs only in replays with taps, so intermediates can be inspected in the very plan that produces the outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from flashrt_kernels import arena
from flashrt_kernels.buffer import Buffer, Storage, copy_out
from flashrt_kernels.errors import GraphError
from flashrt_kernels.kernel import Kernel

Launch = Callable[[], Any]


@dataclass(frozen=True)
class Node:
    """One recorded kernel call."""

    kernel: Kernel
    arguments: Mapping[str, Buffer | None]
    parameters: Mapping[str, Any]
    section: str

    def storages(self, written: bool) -> Iterator[Storage]:
        """Storages that the call writes, or those that it reads."""
        for name, buffer in self.arguments.items():
            role = self.kernel.arguments[name].role
            if buffer is not None and (role != "in" if written else role != "out"):
                yield buffer.storage


@dataclass(frozen=True)
class Mark:
    """A named intermediate: the content of `buffer` after `position` launches."""

    buffer: Buffer
    position: int


def reference_launch(kernel: Kernel, tensors: Mapping[str, Any], parameters: Mapping[str, Any]) -> Launch:
    """A launch on the CPU is the reference itself."""
    return partial(kernel.reference, *tensors.values(), **parameters)


# How a node becomes a launch, by device. Models and kernels never look at this.
LAUNCHES: dict[str, Callable[[Kernel, Mapping[str, Any], Mapping[str, Any]], Launch]] = {
    "cpu": reference_launch
}


class StaticGraph:
    """A fixed sequence of kernel calls over fixed buffers in one arena."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        if device not in LAUNCHES:
            raise GraphError(
                f"{name}: no launches for device {device!r}; this version has {sorted(LAUNCHES)}"
            )
        self.name, self.device = name, device
        self.timings: dict[str, float] = {}  # milliseconds of each section in the last replay
        self._storages: dict[str, Storage] = {}
        self._outputs: dict[str, Buffer] = {}
        self._marks: dict[str, Mark] = {}
        self._nodes: list[Node] = []
        self._section = ""
        self._plan: arena.Plan | None = None
        self._arena: torch.Tensor | None = None
        self._launches: list[Launch] = []
        self._program: list[tuple[str, list[Launch]]] = []
        self._host: dict[str, np.ndarray] = {}

    # ---- compose ----

    def input(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Buffer:
        """A fixed buffer that the caller writes; alive for the whole graph, never written by a launch."""
        return self._add(Storage(name, "input", tuple(shape), dtype))

    def buffer(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Buffer:
        """An arena buffer that calls write through `<output>=` arguments, whole or by slices."""
        return self._add(Storage(name, "buffer", tuple(shape), dtype))

    def constant(self, name: str, tensor: torch.Tensor) -> Buffer:
        """Weights: not in the arena. The same tensor may be added again under its name.

        A kernel's alignment holds relative to the tensor's start: a memory-mapped file starts where it does,
        and a device that cares copies its weights anyway.
        """
        known = self._storages.get(name)
        if known is not None and known.tensor is tensor:
            return Buffer(known, known.shape)
        if not tensor.is_contiguous():
            raise GraphError(
                f"{self.name}: constant {name} has strides {tensor.stride()}; expected contiguous"
            )
        return self._add(Storage(name, "constant", tuple(tensor.shape), tensor.dtype, tensor))

    def call(self, kernel: Kernel, /, **given: Any) -> Any:
        """Record one call; outputs that are not given become arena buffers. Returns the output, or a tuple.

        Raises GraphError where the call breaks the declaration, reads what was never written, writes an
        input or a constant, or lets an output share bytes with another argument.
        """
        if self._arena is not None:
            raise GraphError(f"{self.name}: {kernel.name} after plan()")
        call = kernel.validate(given)
        index = len(self._nodes)
        arguments: dict[str, Buffer | None] = dict(call.arguments)
        for name, (shape, dtype) in call.allocate.items():
            label = "/".join(part for part in (self._section, f"{index}.{kernel.name}.{name}") if part)
            arguments[name] = self.buffer(label, shape, dtype)
        arguments = {name: arguments[name] for name in kernel.arguments}
        self._check_memory(kernel, arguments)
        node = Node(kernel, arguments, call.parameters, self._section)
        self._nodes.append(node)
        for storage in (*node.storages(written=False), *node.storages(written=True)):
            storage.uses.append(index)
        for name in kernel.outputs:
            written = arguments[name]
            if written is not None:
                written.mark_written()
        results = tuple(arguments[name] for name in kernel.outputs)
        return results[0] if len(results) == 1 else results

    def mark(self, name: str, buffer: Buffer) -> None:
        """Name what `buffer` holds at this point, for taps."""
        self._check_named("mark", name, buffer, self._marks)
        self._marks[name] = Mark(buffer, len(self._nodes))
        buffer.storage.uses.append(max(len(self._nodes) - 1, 0))

    def output(self, name: str, buffer: Buffer) -> None:
        """Keep `buffer` to the end of the replay, readable under `name`."""
        self._check_named("output", name, buffer, self._outputs)
        self._outputs[name] = buffer

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Launches composed inside are timed together under `name`."""
        if self._section:
            raise GraphError(f"{self.name}: section {name!r} inside section {self._section!r}")
        self._section = name
        try:
            yield
        finally:
            self._section = ""

    def _add(self, storage: Storage) -> Buffer:
        if storage.name in self._storages:
            raise GraphError(f"{self.name}: {storage.name!r} exists already")
        if self._arena is not None:
            raise GraphError(f"{self.name}: {storage.name!r} after plan()")
        if any(size < 0 for size in storage.shape):
            raise GraphError(f"{self.name}: {storage.name!r} has shape {list(storage.shape)}")
        self._storages[storage.name] = storage
        buffer = Buffer(storage, storage.shape)
        if storage.kind != "buffer":
            buffer.mark_written()
        return buffer

    def _check_named(self, what: str, name: str, buffer: Buffer, known: Mapping[str, Any]) -> None:
        if self._arena is not None:
            raise GraphError(f"{self.name}: {what} {name!r} after plan(): its bytes may be in use again")
        if name in known:
            raise GraphError(f"{self.name}: {what} {name!r} exists already")
        storage = buffer.storage
        if self._storages.get(storage.name) is not storage:
            raise GraphError(f"{self.name}: {what} {name!r} is {storage.name!r} of another graph")
        if not buffer.written:
            raise GraphError(
                f"{self.name}: {what} {name!r} is {storage.name!r}, which is never written there"
            )

    def _check_memory(self, kernel: Kernel, arguments: Mapping[str, Any]) -> None:
        given = {name: buffer for name, buffer in arguments.items() if buffer is not None}
        for name, buffer in given.items():
            if not isinstance(buffer, Buffer):
                came = type(buffer).__name__
                raise GraphError(f"{kernel.name}: {name} is a {came}; expected a buffer of {self.name!r}")
            storage = buffer.storage
            if self._storages.get(storage.name) is not storage:
                raise GraphError(
                    f"{kernel.name}: {name} ({storage.name!r}) is not a buffer of graph {self.name!r}"
                )
            role = kernel.arguments[name].role
            if role != "out" and not buffer.written:
                raise GraphError(
                    f"{kernel.name}: {name} reads {storage.name!r}, which no earlier call wrote there"
                )
            if role == "in":
                continue
            if storage.kind != "buffer":
                raise GraphError(f"{kernel.name}: {name} would overwrite the {storage.kind} {storage.name!r}")
            shared = [n for n, b in given.items() if n != name and b.overlaps(buffer)]
            if shared:
                raise GraphError(f"{kernel.name}: {name} shares bytes of {storage.name!r} with {shared}")

    # ---- plan ----

    def layout(self, reuse: bool = True) -> arena.Plan:
        """Offsets of every arena buffer for the calls so far.

        Inputs lie in front, the largest first: one copy brings all the small ones to a device, and images are
        at the same place in every graph that shares the arena, whatever the length of its prompt.
        """
        end = max(len(self._nodes) - 1, 0)
        kept = {buffer.storage for buffer in self._outputs.values()}
        requests = []
        for s in self._storages.values():
            if s.kind == "constant":
                continue
            if s.kind == "buffer" and not s.uses:
                raise GraphError(f"{self.name}: buffer {s.name!r} is never used")
            is_input = s.kind == "input"
            first = 0 if is_input else min(s.uses)
            last = end if is_input or s in kept else max(s.uses)
            requests.append(arena.Request(s.name, s.shape, s.dtype, first, last, in_front=is_input))
        return arena.plan(requests, reuse)

    def plan(self, reuse: bool = True, memory: torch.Tensor | None = None) -> None:
        """Fix the layout and bind every launch to views of one arena.

        memory: uint8 from `arena.allocate`, at least `layout(reuse).bytes`; several graphs that never
        replay at the same time may share it. None allocates.
        """
        layout = self.layout(reuse)
        if memory is None:
            memory = arena.allocate(layout.bytes, self.device)
        if memory.numel() < layout.bytes:
            raise GraphError(f"{self.name}: arena of {memory.numel()} bytes; the plan needs {layout.bytes}")
        if memory.dtype != torch.uint8 or memory.data_ptr() % arena.ALIGNMENT:
            raise GraphError(f"{self.name}: arena is not aligned uint8; expected memory of arena.allocate()")
        offsets = {placement.request.name: placement.offset for placement in layout.placements}
        self._plan, self._arena, self._offsets = layout, memory, offsets
        self._launches = [
            LAUNCHES[self.device](
                node.kernel,
                {name: None if b is None else self._view(b) for name, b in node.arguments.items()},
                node.parameters,
            )
            for node in self._nodes
        ]
        needed = self._needed()
        self._program = []
        for index, node in enumerate(self._nodes):
            if index not in needed:
                continue
            if not self._program or self._program[-1][0] != node.section:
                self._program.append((node.section, []))
            self._program[-1][1].append(self._launches[index])
        self._host = {
            s.name: self._view(Buffer(s, s.shape)).numpy()
            for s in self._storages.values()
            if s.kind == "input"
        }

    def describe_plan(self, limit: int | None = None) -> str:
        """Table of buffers with offsets and lifetimes, and the totals with and without reuse."""
        if self._plan is None:
            raise GraphError(f"{self.name}: describe_plan() before plan()")
        needed = len(self._needed())
        launches = f"launches: {needed}, and {len(self._nodes) - needed} that run only for taps"
        return f"{self.name}\n{self._plan.describe(limit)}\n{launches}"

    @property
    def marks(self) -> tuple[str, ...]:
        """Names that `replay(taps=…)` accepts."""
        return tuple(self._marks)

    def _view(self, buffer: Buffer) -> torch.Tensor:
        storage = buffer.storage
        if storage.tensor is not None:
            start = buffer.offset // buffer.dtype.itemsize
            count = buffer.bytes // buffer.dtype.itemsize
            return storage.tensor.view(-1)[start : start + count].view(buffer.shape)
        assert self._arena is not None
        start = self._offsets[storage.name] + buffer.offset
        return self._arena[start : start + buffer.bytes].view(buffer.dtype).view(buffer.shape)

    def _needed(self) -> set[int]:
        """Launches that the outputs depend on."""
        wanted = {buffer.storage for buffer in self._outputs.values()}
        needed: set[int] = set()
        for index in range(len(self._nodes) - 1, -1, -1):
            if any(storage in wanted for storage in self._nodes[index].storages(written=True)):
                needed.add(index)
                wanted.update(self._nodes[index].storages(written=False))
        return needed

    # ---- replay ----

    def host(self, name: str) -> np.ndarray:
        """The input buffer as an array to write into, without a copy."""
        if name not in self._host:
            raise GraphError(f"{self.name}: no input {name!r}; it has {sorted(self._host)}")
        return self._host[name]

    def write(self, name: str, array: np.ndarray) -> None:
        """Copy into an input. Raises GraphError where shape or dtype differ."""
        target = self.host(name)
        if array.shape != target.shape or array.dtype != target.dtype:
            came = f"{list(array.shape)} {array.dtype}"
            raise GraphError(f"{self.name}: {name} is {came}; expected {list(target.shape)} {target.dtype}")
        np.copyto(target, array)

    def read(self, name: str) -> np.ndarray:
        """A copy of an output; bf16 comes as float32."""
        if self._arena is None:
            raise GraphError(f"{self.name}: read({name!r}) before plan()")
        if name not in self._outputs:
            raise GraphError(f"{self.name}: no output {name!r}; it has {sorted(self._outputs)}")
        return copy_out(self._view(self._outputs[name]))

    def replay(self, taps: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Run the launches that outputs need; with taps run all of them. Returns copies of the tapped marks.

        Milliseconds by section are in `timings` afterwards.
        """
        if self._arena is None:
            raise GraphError(f"{self.name}: replay() before plan()")
        if taps:
            return self._replay_tapped(taps)
        timings = self.timings
        for section, _ in self._program:
            timings[section] = 0.0
        with torch.inference_mode():  # no autograd bookkeeping: a tenth of the time of a small policy
            start = time.perf_counter()
            for section, launches in self._program:
                for launch in launches:
                    launch()
                now = time.perf_counter()
                timings[section] += 1e3 * (now - start)
                start = now
        return {}

    def _replay_tapped(self, taps: Sequence[str]) -> dict[str, np.ndarray]:
        unknown = [tap for tap in taps if tap not in self._marks]
        if unknown:
            raise GraphError(f"{self.name}: no marks {unknown}; it has {list(self._marks)}")
        at: dict[int, list[str]] = {}
        for tap in taps:
            at.setdefault(self._marks[tap].position, []).append(tap)
        copies = {tap: self._copy(tap) for tap in at.get(0, ())}
        self.timings.update({node.section: 0.0 for node in self._nodes})
        with torch.inference_mode():
            for index, node in enumerate(self._nodes):
                start = time.perf_counter()
                self._launches[index]()
                self.timings[node.section] += 1e3 * (time.perf_counter() - start)
                copies.update({tap: self._copy(tap) for tap in at.get(index + 1, ())})
        return copies

    def _copy(self, tap: str) -> np.ndarray:
        return copy_out(self._view(self._marks[tap].buffer))
