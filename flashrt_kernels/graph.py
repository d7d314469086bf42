# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""StaticGraph: compose kernels once, plan one arena, replay into fixed buffers.

Composing validates every call and records it; planning turns lifetimes into offsets and binds every launch
to fixed views; replaying runs that list, or on a GPU the one graph that was captured from it. A launch
whose results reach no output is kept in the plan but runs only in replays with taps, so intermediates can
be inspected in the very plan that produces the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from flashrt_kernels import arena
from flashrt_kernels.backend import Backend, Program, Step, backend_of
from flashrt_kernels.buffer import Buffer, Storage, copy_out
from flashrt_kernels.errors import GraphError
from flashrt_kernels.kernel import Kernel

# Bytes. Smaller inputs go to the device in every replay, in one copy; larger ones when they are sent.
SMALL = 1 << 16


@dataclass(frozen=True)
class Node:
    """One recorded kernel call."""

    kernel: Kernel
    arguments: Mapping[str, Buffer | None]
    parameters: Mapping[str, Any]
    section: str
    workspace: Buffer | None = None

    def written(self) -> Iterator[Buffer]:
        """Buffers that the call writes."""
        return (b for name in self.kernel.outputs if (b := self.arguments[name]) is not None)

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


class StaticGraph:
    """A fixed sequence of kernel calls over fixed buffers in one arena."""

    def __init__(self, name: str, device: str | Backend = "cpu") -> None:
        """device: `cpu`, `cuda`, `cuda:1`, or the backend that several graphs share."""
        self.name = name
        self.backend = backend_of(device, name) if isinstance(device, str) else device
        self._storages: dict[str, Storage] = {}
        self._outputs: dict[str, Buffer] = {}
        self._marks: dict[str, Mark] = {}
        self._nodes: list[Node] = []
        self._section = ""
        self._plan: arena.Plan | None = None
        self._arena: torch.Tensor | None = None
        self._program: Program | None = None
        self._layouts: dict[Any, arena.Plan] = {}  # the last layout, by what it was made from
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
        input or a constant, lets an output share bytes with another argument, or may read early what its own
        section writes.
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
        self._check_early(kernel, arguments, call.parameters)
        scratch = self.backend.workspace(kernel, arguments, call.parameters)
        workspace = None
        if scratch:
            label = "/".join(part for part in (self._section, f"{index}.{kernel.name} workspace") if part)
            workspace = self.buffer(label, (scratch,), torch.uint8)
            workspace.storage.uses.append(index)
        node = Node(kernel, arguments, call.parameters, self._section, workspace)
        self._nodes.append(node)
        for storage in (*node.storages(written=False), *node.storages(written=True)):
            storage.uses.append(index)
        for name in kernel.outputs:
            written = arguments[name]
            if written is not None:
                written.mark_written()
        return kernel.results(arguments)

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

    def _check_early(
        self, kernel: Kernel, arguments: Mapping[str, Buffer | None], parameters: Mapping[str, Any]
    ) -> None:
        """What a launch may read before those in front of it have ended was complete when they began.

        The first launch of a section waits for all earlier sections, and the bytes of a buffer are nobody
        else's from its first use to its last.
        """
        for name, argument in kernel.arguments.items():
            rows, buffer = parameters.get(argument.early, 0), arguments[name]
            if not rows or buffer is None:
                continue
            if not 0 <= rows <= buffer.shape[0]:
                raise GraphError(
                    f"{kernel.name}: {argument.early}={rows} of {buffer.shape[0]} rows of {name}"
                )
            early = buffer[:rows]
            for node in reversed(self._nodes):
                if node.section != self._section:
                    break
                if any(early.overlaps(written) for written in node.written()):
                    raise GraphError(
                        f"{kernel.name}: {argument.early}={rows}, but {node.kernel.name} of the same section "
                        f"writes there in {buffer.storage.name!r}"
                    )

    # ---- plan ----

    def layout(self, reuse: bool = True) -> arena.Plan:
        """Offsets of every arena buffer for the calls so far.

        Inputs lie in front, the largest first: one copy brings all the small ones to a device, and images are
        at the same place in every graph that shares the arena, whatever the length of its prompt.
        """
        state = (reuse, len(self._nodes), len(self._storages), len(self._outputs), len(self._marks))
        if state not in self._layouts:
            self._layouts = {state: self._place(reuse)}
        return self._layouts[state]

    def _place(self, reuse: bool) -> arena.Plan:
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

    def plan(self, reuse: bool = True, memory: arena.Memory | None = None) -> None:
        """Fix the layout and bind every launch to views of one arena.

        memory: from `arena.allocate` or the backend, at least `layout(reuse).bytes`; several graphs that
        never replay at the same time may share it. None allocates.
        """
        layout = self.layout(reuse)
        if memory is None:
            memory = self.backend.allocate(layout.bytes, layout.front)
        self._check_arena(memory, layout)
        offsets = {placement.request.name: placement.offset for placement in layout.placements}
        self._plan, self._arena, self._offsets = layout, memory.arena, offsets
        if self._program is not None:
            self._program.close()  # planned before: a captured graph is freed by nobody else
        self._program = None
        needed = self._needed()
        steps = [Step(n.section, tuple(self._bind(n)), i in needed) for i, n in enumerate(self._nodes)]
        inputs = [s for s in self._storages.values() if s.kind == "input"]
        self._host = {s.name: host_view(memory.host, offsets[s.name], s) for s in inputs}
        small = [s for s in inputs if s.bytes <= SMALL]
        first = min((offsets[s.name] for s in small), default=0)
        last = max((offsets[s.name] + s.bytes for s in small), default=0)
        self._program = self.backend.program(self.name, steps, memory, (first, last))

    def _check_arena(self, memory: arena.Memory, layout: arena.Plan) -> None:
        if not isinstance(memory, arena.Memory) or memory.arena.dtype != torch.uint8:
            raise GraphError(f"{self.name}: arena is not aligned uint8; expected memory of arena.allocate()")
        if memory.arena.data_ptr() % arena.ALIGNMENT:
            raise GraphError(f"{self.name}: arena is not aligned uint8; expected memory of arena.allocate()")
        if memory.arena.numel() < layout.bytes:
            raise GraphError(
                f"{self.name}: arena of {memory.arena.numel()} bytes; the plan needs {layout.bytes}"
            )
        if memory.host.numel() < layout.front:
            raise GraphError(
                f"{self.name}: {memory.host.numel()} bytes of inputs; the plan needs {layout.front}"
            )

    def _bind(self, node: Node) -> Sequence[Any]:
        tensors = {name: None if b is None else self._view(b) for name, b in node.arguments.items()}
        workspace = None if node.workspace is None else self._view(node.workspace)
        return self.backend.bind(node.kernel, tensors, node.parameters, workspace)

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

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds of each section in the last replay."""
        return {} if self._program is None else self._program.timings

    def host(self, name: str) -> np.ndarray:
        """The input buffer as an array to write into, without a copy.

        What is written reaches the device with the next replay; inputs of more than SMALL bytes only when
        they are sent: see `send`.
        """
        if name not in self._host:
            raise GraphError(f"{self.name}: no input {name!r}; it has {sorted(self._host)}")
        return self._host[name]

    def send(self, name: str, bytes: int) -> None:
        """Start bringing the first `bytes` of an input to the device; needed for inputs of more than SMALL
        bytes.

        The host must not write there again before the next replay has ended.
        """
        if not 0 <= bytes <= self.host(name).nbytes:
            raise GraphError(f"{self.name}: {bytes} bytes of {name!r}; it has {self.host(name).nbytes}")
        assert self._program is not None
        self._program.send(self._offsets[name], bytes)

    def write(self, name: str, array: np.ndarray) -> None:
        """Copy into an input. Raises GraphError where shape or dtype differ."""
        target = self.host(name)
        if array.shape != target.shape or array.dtype != target.dtype:
            came = f"{list(array.shape)} {array.dtype}"
            raise GraphError(f"{self.name}: {name} is {came}; expected {list(target.shape)} {target.dtype}")
        np.copyto(target, array)
        if target.nbytes > SMALL:
            self.send(name, target.nbytes)

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
        if self._program is None:
            raise GraphError(f"{self.name}: replay() before plan()")
        if not taps:
            self._program.replay()
            return {}
        unknown = [tap for tap in taps if tap not in self._marks]
        if unknown:
            raise GraphError(f"{self.name}: no marks {unknown}; it has {list(self._marks)}")
        copies: dict[str, np.ndarray] = {}
        at: dict[int, list[Any]] = {}
        for tap in taps:
            at.setdefault(self._marks[tap].position, []).append(partial(self._copy, tap, copies))
        self._program.replay_all(at)
        return copies

    def _copy(self, tap: str, copies: dict[str, np.ndarray]) -> None:
        copies[tap] = copy_out(self._view(self._marks[tap].buffer))

    def close(self) -> None:
        """Let go of launches and arena; the graph cannot replay any more."""
        if self._program is not None:
            self._program.close()
        self._program, self._arena, self._host = None, None, {}
        self._storages, self._nodes, self._marks, self._outputs = {}, [], {}, {}


def host_view(memory: torch.Tensor, offset: int, storage: Storage) -> np.ndarray:
    """The part of host memory that belongs to an input."""
    return memory[offset : offset + storage.bytes].view(storage.dtype).view(storage.shape).numpy()
