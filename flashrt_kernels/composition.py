# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a graph records while it is composed: its buffers, its kernel calls, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from flashrt_kernels.arena import ALIGNMENT
from flashrt_kernels.backend import Backend, backend_of
from flashrt_kernels.buffer import Buffer, Storage
from flashrt_kernels.errors import GraphError
from flashrt_kernels.kernel import Kernel


@dataclass(frozen=True)
class Node:
    """One recorded kernel call."""

    kernel: Kernel
    arguments: Mapping[str, Buffer | None]
    parameters: Mapping[str, Any]
    section: str
    workspace: Buffer | None = None

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


class Composition:
    """Kernel calls over named buffers, each validated when it is recorded."""

    def __init__(
        self,
        name: str,
        device: str | Backend = "cpu",
        after: Composition | None = None,
        repeats: bool = False,
    ) -> None:
        """device: `cpu`, `cuda`, `cuda:1`, or the backend that several graphs share.

        after: the graph that replays before this one, on the same backend; this one may borrow what it keeps.
        repeats: that graph is replayed once by whoever uses both, and this one then as often as needed: its
        replays never start the other, and its timings and marks are its own.
        """
        self.name = name
        self.backend = backend_of(device, name) if isinstance(device, str) else device
        if after is not None and after.backend is not self.backend:
            raise GraphError(f"{name}: after {after.name!r}, which has another backend; expected the same")
        if repeats and after is None:
            raise GraphError(f"{name}: repeats without a graph before; expected after=")
        self._before, self._repeats = after, repeats
        self._storages: dict[str, Storage] = {}
        self._outputs: dict[str, Buffer] = {}
        self._kept: dict[str, Buffer] = {}
        self._rewritable: set[str] = set()  # of what is kept
        self._marks: dict[str, Mark] = {}
        self._nodes: list[Node] = []
        self._section = ""
        # What the launches of the section so far have written: storage → (kernel, part of it).
        self._section_writes: dict[Storage, list[tuple[str, Buffer]]] = {}
        self._planned = False

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

    def borrow(self, name: str) -> Buffer:
        """What the graph before keeps under `name`: to read, and to write where that graph has not.

        Raises GraphError where it keeps nothing of that name, or keeps what no kernel could be sure of the
        alignment of.
        """
        kept = {} if self._before is None else self._before._kept
        if name not in kept:
            raise GraphError(f"{self.name}: borrow({name!r}): the graph before keeps {sorted(kept)}")
        buffer = kept[name]
        if buffer.offset % ALIGNMENT:
            raise GraphError(
                f"{self.name}: borrow({name!r}): it starts {buffer.offset} bytes into "
                f"{buffer.storage.name!r}; expected a multiple of {ALIGNMENT}"
            )
        storage = Storage(name, "borrowed", buffer.shape, buffer.dtype)
        storage.written = buffer.written_here()
        if self._before is not None and name not in self._before._rewritable:
            storage.fixed = list(storage.written)
        return self._add(storage)

    def call(self, kernel: Kernel, /, **given: Any) -> Any:
        """Record one call; outputs that are not given become arena buffers. Returns the output, or a tuple.

        Raises GraphError where the call breaks the declaration, reads what was never written, writes an
        input or a constant, lets an output share bytes with another argument, or may read early what its own
        section writes.
        """
        if self._planned:
            raise GraphError(f"{self.name}: {kernel.name} after plan()")
        call = kernel.validate(given)
        index = len(self._nodes)
        arguments: dict[str, Buffer | None] = dict(call.arguments)
        for name, (shape, dtype) in call.allocate.items():
            label = "/".join(part for part in (self._section, f"{index}.{kernel.name}.{name}") if part)
            arguments[name] = self.buffer(label, shape, dtype)
        arguments = {name: arguments[name] for name in kernel.arguments}
        if self._nodes and self._nodes[-1].section != self._section:
            self._section_writes = {}
        try:
            self._check_memory(kernel, arguments)
            self._check_early(kernel, arguments, call.parameters)
            scratch = self.backend.workspace(kernel, arguments, call.parameters)
        except BaseException:  # what is refused leaves nothing behind
            for name in call.allocate:
                del self._storages[arguments[name].storage.name]  # type: ignore[union-attr]
            raise
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
                self._section_writes.setdefault(written.storage, []).append((kernel.name, written))
        return kernel.results(arguments)

    @property
    def _leader(self) -> Composition | None:
        """The graph before, where every replay of this one begins with it."""
        return None if self._repeats else self._before

    @property
    def marks(self) -> tuple[str, ...]:
        """Names that `replay(taps=…)` accepts, those of the graphs before first."""
        return (*(() if self._leader is None else self._leader.marks), *self._marks)

    def _has(self, mark: str) -> bool:
        """Whether `mark` is one of `marks`, without making a list of them."""
        return mark in self._marks or (self._leader is not None and self._leader._has(mark))

    def mark(self, name: str, buffer: Buffer) -> None:
        """Name what `buffer` holds at this point, for taps."""
        self._check_named("mark", name, buffer, self._marks, taken=self._has(name))
        self._marks[name] = Mark(buffer, len(self._nodes))
        buffer.storage.uses.append(max(len(self._nodes) - 1, 0))

    def output(self, name: str, buffer: Buffer) -> None:
        """Keep `buffer` to the end of the replay, readable under `name`."""
        self._check_named("output", name, buffer, self._outputs)
        self._outputs[name] = buffer

    def keep(self, name: str, buffer: Buffer, rewritable: bool = False) -> None:
        """Keep `buffer` for the graphs after this one; they may write what this one has not, by now.

        rewritable: they may overwrite what it has written, too.
        """
        self._check_named("keep", name, buffer, self._kept, whole=False)
        twice = [other for other, kept in self._kept.items() if kept.overlaps(buffer)]
        if twice:
            raise GraphError(
                f"{self.name}: keep {name!r} shares bytes with {twice}: they would be borrowed apart"
            )
        self._kept[name] = buffer
        if rewritable:
            self._rewritable.add(name)

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
        if self._planned:
            raise GraphError(f"{self.name}: {storage.name!r} after plan()")
        if any(size < 0 for size in storage.shape):
            raise GraphError(f"{self.name}: {storage.name!r} has shape {list(storage.shape)}")
        self._storages[storage.name] = storage
        buffer = Buffer(storage, storage.shape)
        if storage.kind not in ("buffer", "borrowed"):
            buffer.mark_written()
        return buffer

    def _check_named(
        self,
        what: str,
        name: str,
        buffer: Buffer,
        known: Mapping[str, Any],
        whole: bool = True,
        taken: bool = False,
    ) -> None:
        if self._planned:
            raise GraphError(f"{self.name}: {what} {name!r} after plan(): its bytes may be in use again")
        if taken or name in known:
            raise GraphError(f"{self.name}: {what} {name!r} exists already")
        storage = buffer.storage
        if self._storages.get(storage.name) is not storage:
            raise GraphError(f"{self.name}: {what} {name!r} is {storage.name!r} of another graph")
        if whole and not buffer.written:
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
            if storage.kind not in ("buffer", "borrowed"):
                raise GraphError(f"{kernel.name}: {name} would overwrite the {storage.kind} {storage.name!r}")
            end = buffer.offset + buffer.bytes
            if any(start < end and buffer.offset < stop for start, stop in storage.fixed):
                raise GraphError(
                    f"{kernel.name}: {name} would overwrite what the graph before wrote into {storage.name!r}"
                )
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
            for writer, written in self._section_writes.get(buffer.storage, ()):
                if early.overlaps(written):
                    raise GraphError(
                        f"{kernel.name}: {argument.early}={rows}, but {writer} of the same section "
                        f"writes there in {buffer.storage.name!r}"
                    )
