# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""StaticGraph: compose kernels once, plan one arena, replay into fixed buffers.

Composing validates every call and records it; planning turns lifetimes into offsets and binds every launch
to fixed views; replaying runs that list, or on a GPU the one graph that was captured from it. A launch
whose results reach no output is kept in the plan but runs only in replays with taps, so intermediates can
be inspected in the very plan that produces the outputs.

A graph may follow another: it borrows what the other keeps, and replays behind it on the same stream. What
does not depend on late inputs goes into the first, which can be started while the host prepares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from flashrt_kernels import arena
from flashrt_kernels.backend import Backend, Program, Step
from flashrt_kernels.buffer import Buffer, Storage, copy_out
from flashrt_kernels.composition import Composition, Node
from flashrt_kernels.errors import GraphError

# Bytes. Smaller inputs go to the device in every replay, in one copy, and smaller outputs come back in it;
# larger ones go when they are sent and come when they are read.
SMALL = 1 << 16


class StaticGraph(Composition):
    """A fixed sequence of kernel calls over fixed buffers in one arena."""

    def __init__(
        self,
        name: str,
        device: str | Backend = "cpu",
        after: StaticGraph | None = None,
        repeats: bool = False,
    ) -> None:
        """As `Composition`."""
        super().__init__(name, device, after, repeats)
        self._before: StaticGraph | None = after
        self._plan: arena.Plan | None = None
        self._arena: torch.Tensor | None = None
        self._program: Program | None = None
        self._layouts: dict[Any, arena.Plan] = {}  # the last layout, by what it was made from
        self._host: dict[str, np.ndarray] = {}
        self._started = False
        self._borrowed_from: Program | None = None

    # ---- plan ----

    def layout(self, reuse: bool = True) -> arena.Plan:
        """Offsets of every arena buffer for the calls so far.

        Inputs lie in front, the largest first: one copy brings all the small ones to a device.
        """
        recorded = (self._nodes, self._storages, self._outputs, self._kept, self._marks)
        state = (reuse, *map(len, recorded))
        if state not in self._layouts:
            self._layouts = {state: self._place(reuse)}
        return self._layouts[state]

    def _place(self, reuse: bool) -> arena.Plan:
        end = max(len(self._nodes) - 1, 0)
        kept = self._wanted()
        requests = []
        for s in self._storages.values():
            if s.kind in ("constant", "borrowed"):
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

        A graph that follows another is planned after it, in memory of its own.
        memory: from `arena.allocate` or the backend, at least `layout(reuse).bytes`; several graphs that
        never replay at the same time may share it. None allocates.
        """
        layout = self.layout(reuse)
        if memory is None:
            memory = self.backend.allocate(layout.bytes, layout.front)
        self._check_arena(memory, layout)
        if self._before is not None and memory.arena is self._before._arena:
            raise GraphError(f"{self.name}: plan() in the memory of {self._before.name!r}, which it follows")
        offsets = {placement.request.name: placement.offset for placement in layout.placements}
        self._find_borrowed()
        self._plan, self._arena, self._offsets = layout, memory.arena, offsets
        self._planned, self._started = True, False
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
        outputs = {name: self._view(b) for name, b in self._outputs.items() if b.bytes <= SMALL}
        self._program = self.backend.program(self.name, steps, memory, (first, last), outputs)

    def _find_borrowed(self) -> None:
        """Where the graph before keeps what this one borrows."""
        before = self._before
        if before is None:
            return
        if before._program is None:
            raise GraphError(f"{self.name}: plan() before that of {before.name!r}, which it follows")
        self._borrowed_from = before._program
        for storage in self._storages.values():
            if storage.kind == "borrowed":
                storage.tensor = before._view(before._kept[storage.name])

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
        """Launches that the outputs, and what is kept for other graphs, depend on."""
        wanted = self._wanted()
        needed: set[int] = set()
        for index in range(len(self._nodes) - 1, -1, -1):
            if any(storage in wanted for storage in self._nodes[index].storages(written=True)):
                needed.add(index)
                wanted.update(self._nodes[index].storages(written=False))
        return needed

    def _wanted(self) -> set[Storage]:
        return {buffer.storage for buffer in (*self._outputs.values(), *self._kept.values())}

    # ---- replay ----

    @property
    def _leader(self) -> StaticGraph | None:
        return None if self._repeats else self._before

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds of each section in the last replay, those of the graph before first.

        On a GPU also `gpu`: from the first launch, of the graph before, to the end of the last.
        """
        found = {} if self._leader is None else self._leader.timings
        found.pop("gpu", None)
        for section, ms in ({} if self._program is None else self._program.timings).items():
            found[section] = found.get(section, 0.0) + ms
        return found

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
        if self._program is None:
            raise GraphError(f"{self.name}: read({name!r}) before plan()")
        if name not in self._outputs:
            raise GraphError(f"{self.name}: no output {name!r}; it has {sorted(self._outputs)}")
        if self._started:
            raise GraphError(f"{self.name}: read({name!r}) before what was started has been waited for")
        result = self._program.results.get(name)
        return copy_out(self._view(self._outputs[name]) if result is None else result)

    def start(self) -> None:
        """Begin a replay: the inputs as they are now are on their way, and so are the launches.

        A graph that follows another starts that one too, unless it was started since the last replay ended.
        What fails has ended when it raises: the host may write the inputs again.
        """
        try:
            self._start()
        except BaseException:
            self.finish()
            raise

    def _start(self) -> None:
        program = self._planned_program("start()")
        before = self._leader
        if before is not None and not before._started:
            before._start()
        self._started = True
        program.start()

    def settle(self, behind: int = 0) -> None:
        """Wait until all but the newest `behind` (0 or 1) of what was started here has ended.

        What those have written can be read by `peek`, while the newest runs on.
        """
        self._planned_program("settle()").settle(behind)

    def peek(self, name: str) -> np.ndarray:
        """A copy of an output of at most SMALL bytes, as far as `settle` has waited for it.

        A replay that runs on may change what it writes otherwise, and nothing else.
        """
        results = self._planned_program("peek()").results
        if name not in results:
            raise GraphError(f"{self.name}: peek({name!r}); it has {sorted(results)}")
        return copy_out(results[name])

    def finish(self) -> Program | None:
        """Wait for the end of what was started, here and in the graph before. Returns what began it."""
        first = None if self._leader is None else self._leader.finish()
        self._started = False
        if self._program is not None:
            self._program.finish(first)
        return first or self._program

    def replay(self, taps: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Run the launches that outputs need, and wait; with taps run all of them. Returns copies of the
        tapped marks.

        A graph that follows another replays it first, unless that was started already; with taps always.
        Milliseconds by section are in `timings` afterwards.
        """
        self._planned_program("replay()")
        if taps:
            unknown = [tap for tap in taps if tap not in self.marks]
            if unknown:
                raise GraphError(f"{self.name}: no marks {unknown}; it has {list(self.marks)}")
            return self._replay_all(taps)
        try:
            self._start()
        finally:
            self.finish()
        return {}

    def _planned_program(self, what: str) -> Program:
        if self._program is None:
            raise GraphError(f"{self.name}: {what} before plan()")
        before = self._before
        if before is not None and before._program is not self._borrowed_from:
            event = "closed" if before._program is None else "planned again"
            raise GraphError(f"{self.name}: {what} after {before.name!r}, which it follows, was {event}")
        return self._program

    def _replay_all(self, taps: Sequence[str]) -> dict[str, np.ndarray]:
        program = self._planned_program("replay()")
        copies: dict[str, np.ndarray] = {}
        if self._leader is not None:
            copies |= self._leader._replay_all(taps)
        at: dict[int, list[Any]] = {}
        for tap in taps:
            if tap in self._marks:
                at.setdefault(self._marks[tap].position, []).append(partial(self._copy, tap, copies))
        self._started = False
        program.replay_all(at)
        return copies

    def _copy(self, tap: str, copies: dict[str, np.ndarray]) -> None:
        copies[tap] = copy_out(self._view(self._marks[tap].buffer))

    def close(self) -> None:
        """Let go of launches and arena; the graph cannot replay any more."""
        if self._program is not None:
            self._program.close()
        self._program, self._arena, self._host = None, None, {}
        self._storages, self._nodes, self._marks, self._outputs, self._kept = {}, [], {}, {}, {}
        self._borrowed_from, self._started = None, False


def host_view(memory: torch.Tensor, offset: int, storage: Storage) -> np.ndarray:
    """The part of host memory that belongs to an input."""
    return memory[offset : offset + storage.bytes].view(storage.dtype).view(storage.shape).numpy()
