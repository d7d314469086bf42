# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Bound steps → one captured CUDA graph: warm up, capture on a private stream, replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import torch
from cuda.bindings import driver

from flashrt_kernels import arena
from flashrt_kernels.backend import Program, Step, Tap, sections
from flashrt_kernels.cuda.launch import Launch, checked


def separate(steps: Sequence[Step]) -> None:
    """The first launch of every section waits for all before: its kernels may rely on what those wrote.

    Once for all steps, once for those that are needed: either are run.
    """
    for chosen in (lambda step: True, lambda step: step.needed):
        section, waits = None, False
        for step in steps:
            if step.section != section:
                section, waits = step.section, False
            first = next((x for x in step.launches if isinstance(x, Launch)), None)
            if not waits and first is not None and chosen(step):
                first.wait_for_all()
                waits = True


class CudaProgram:
    """The steps of one graph on one stream.

    Everything is launched once while this is made, which shows what does not run, and is captured then. A
    replay allocates nothing; several programs may be enqueued one behind the other. Sections are timed by
    events that belong to the captured graph.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        memory: arena.Memory,
        inputs: tuple[int, int],
        outputs: Mapping[str, torch.Tensor],
        stream: torch.cuda.Stream,
        graph: bool,
    ) -> None:
        """inputs: byte range of what every replay sends. outputs: what it brings back, on the device.

        graph: capture; otherwise launch one by one.
        """
        self.name, self.nodes = name, 0
        self.timings: dict[str, float] = {}
        self.results: Mapping[str, torch.Tensor] = {n: pinned_like(t) for n, t in outputs.items()}
        self._outputs = outputs
        self._memory: arena.Memory | None = memory
        self._steps, self._inputs, self._stream = tuple(steps), inputs, stream
        self._context = checked(driver.cuStreamGetCtx(stream.cuda_stream))
        self._runs = sections(steps)
        separate(steps)
        self._events: list[Any] = []
        self._ends: list[Any] = []  # of the last two starts, in turn
        self._starts = 0
        self._graph: Any = None
        self._executable: Any = None
        stream.wait_stream(torch.cuda.current_stream(stream.device))  # constants may still be on their way
        try:
            for _ in range(len(self._runs) + 1):
                self._events.append(checked(driver.cuEventCreate(0)))
            for _ in range(2):
                flag = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
                self._ends.append(checked(driver.cuEventCreate(int(flag))))
            self.replay_all({})
            if graph:
                self._capture()
            self.start()  # brings a captured graph onto the device
            self.finish(None)
        except BaseException:
            self.close()  # nobody else knows of it
            raise

    # ---- replay ----

    @contextmanager
    def _current(self) -> Iterator[int]:
        """The program's stream, with its GPU the current one of this thread, whichever that was.

        torch.cuda.stream does the same and restores more: with torch's copies, 0.2 ms more for three images.
        """
        checked(driver.cuCtxPushCurrent(self._context))
        try:
            yield self._stream.cuda_stream
        finally:
            checked(driver.cuCtxPopCurrent())

    def send(self, offset: int, bytes: int) -> None:
        """Start copying part of the page-locked inputs to the arena."""
        with self._current() as stream:
            self._send(offset, offset + bytes, stream)

    def _send(self, first: int, last: int, stream: int) -> None:
        assert self._memory is not None
        to, source = self._memory.arena.data_ptr() + first, self._memory.host.data_ptr() + first
        if last > first:
            checked(driver.cuMemcpyHtoDAsync(to, source, last - first, stream))

    def _fetch(self, stream: int) -> None:
        for name, tensor in self._outputs.items():
            to = self.results[name].data_ptr()
            checked(driver.cuMemcpyDtoHAsync(to, tensor.data_ptr(), tensor.nbytes, stream))

    def start(self) -> None:
        """Send the small inputs, enqueue every needed launch, bring the small outputs back."""
        with self._current() as stream:
            self._send(*self._inputs, stream)
            if self._executable is None:
                with torch.cuda.stream(self._stream):
                    self._launch(driver.CUevent_record_flags.CU_EVENT_RECORD_DEFAULT)
            else:
                checked(driver.cuGraphLaunch(self._executable, stream))
            self._fetch(stream)
            checked(driver.cuEventRecord(self._ends[self._starts % 2], stream))
            self._starts += 1

    def settle(self, behind: int) -> None:
        """Wait for the end of the newest start, or of the one in front of it."""
        with self._current():
            checked(driver.cuEventSynchronize(self._ends[(self._starts - 1 - behind) % 2]))

    def finish(self, first: Program | None) -> None:
        """Wait, and read the events; `gpu` counts from the first launch of `first`."""
        self._stream.synchronize()
        began = first._events[0] if isinstance(first, CudaProgram) else self._events[0]
        timings = dict.fromkeys((section for section, _ in self._runs), 0.0)
        with self._current():
            for (section, _), (start, end) in zip(self._runs, pairwise(self._events), strict=True):
                timings[section] += checked(driver.cuEventElapsedTime(start, end))
            timings["gpu"] = checked(driver.cuEventElapsedTime(began, self._events[-1]))
        self.timings = timings

    def replay_all(self, taps: Mapping[int, Sequence[Tap]]) -> None:
        """Launch every step one by one, also those that only taps need; not timed, for taps wait."""
        self.timings = {}
        with self._current(), torch.cuda.stream(self._stream):
            try:
                self._send(*self._inputs, self._stream.cuda_stream)
                for tap in taps.get(0, ()):
                    tap()
                for done, step in enumerate(self._steps, 1):
                    for launch in step.launches:
                        launch()
                    for tap in taps.get(done, ()):
                        tap()
                self._fetch(self._stream.cuda_stream)
            finally:
                self._stream.synchronize()

    # ---- capture ----

    def _launch(self, flags: driver.CUevent_record_flags) -> None:
        """Every needed launch on the current stream, with an event before, between and after the sections."""
        stream = self._stream.cuda_stream
        checked(driver.cuEventRecordWithFlags(self._events[0], stream, int(flags)))
        for (_, launches), event in zip(self._runs, self._events[1:], strict=True):
            for launch in launches:
                launch()
            checked(driver.cuEventRecordWithFlags(event, stream, int(flags)))

    def _capture(self) -> None:
        """Thread-local: another thread may allocate or launch meanwhile, on streams of its own."""
        stream = self._stream.cuda_stream
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(stream, mode))
        try:
            with torch.cuda.stream(self._stream):
                self._launch(driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
        except BaseException:
            # The stream is of use again; what was raised counts.
            _, unfinished = driver.cuStreamEndCapture(stream)
            if unfinished is not None and int(unfinished):
                driver.cuGraphDestroy(unfinished)
            raise
        self._graph = checked(driver.cuStreamEndCapture(stream))
        self._executable = checked(driver.cuGraphInstantiate(self._graph, 0))
        self.nodes = checked(driver.cuGraphGetNodes(self._graph, 0))[1]
        checked(driver.cuGraphUpload(self._executable, stream))

    def close(self) -> None:
        """Destroy the graph and its events; launches and arena are let go of.

        Waits for what was sent and never replayed: the arena's memory goes to others. Raises nothing: a GPU
        that has failed said so before, and the rest is to be freed all the same.
        """
        with suppress(RuntimeError):
            self._stream.synchronize()
        if self._executable is not None:
            driver.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            driver.cuGraphDestroy(self._graph)
        for event in (*self._events, *self._ends):
            driver.cuEventDestroy(event)
        self._graph = self._executable = None
        self._steps, self._runs, self._events, self._ends = (), [], [], []
        self._memory, self._outputs, self.results = None, {}, {}


def pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """Page-locked host memory for a tensor of the device."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
