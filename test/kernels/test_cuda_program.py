# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Captured programs where something fails, against a driver that only counts."""

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_kernels import arena
from flashrt_kernels.activation import silu
from flashrt_kernels.backend import CpuBackend, Step
from flashrt_kernels.graph import StaticGraph

STUBBED = ("flashrt_kernels.cuda.launch", "flashrt_kernels.cuda.program")


class Driver(ModuleType):
    """Every call succeeds and is counted, but for those in `fails`."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUevent_record_flags = SimpleNamespace(CU_EVENT_RECORD_DEFAULT=0, CU_EVENT_RECORD_EXTERNAL=1)
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    CUlaunchAttributeID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6
    )

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.calls: Counter[str] = Counter()
        self.fails: set[str] = set()
        results = {
            "cuEventCreate": 1,
            "cuStreamEndCapture": 2,
            "cuGraphInstantiate": 3,
            "cuGraphGetNodes": ([], 5),
            "cuEventElapsedTime": 0.5,
            "cuStreamGetCtx": 4,
            "cuCtxPopCurrent": 4,
        }
        names = """cuEventDestroy cuEventRecordWithFlags cuStreamBeginCapture cuGraphUpload cuGraphLaunch
                   cuGraphDestroy cuGraphExecDestroy cuLaunchKernelEx cuCtxPushCurrent cuMemcpyHtoDAsync
                   cuMemcpyDtoHAsync cuEventRecord cuEventSynchronize"""
        for name in [*results, *names.split()]:
            setattr(self, name, self.call(name, results.get(name)))
        self.CUlaunchConfig = self.CUlaunchAttribute = self.structure
        self.CUfunction = self.CUstream = int

    @staticmethod
    def structure() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def call(self, name: str, result: Any) -> Any:
        def called(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            if name in self.fails:
                return (1,) if result is None else (1, None)
            values = () if result is None else result if isinstance(result, tuple) else (result,)
            return (0, *values)

        return called

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, b"out of luck"


class Stream:
    """What a program asks of its private stream."""

    cuda_stream, device = 7, torch.device("cpu")

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1

    def wait_stream(self, other: object) -> None:
        pass


@pytest.fixture
def driver() -> Iterator[Driver]:
    """flashrt_kernels.cuda.{launch,program} over a driver that counts."""
    fake = Driver()
    bindings = ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (("cuda", ModuleType("cuda")), ("cuda.bindings", bindings)):
            patch.setitem(sys.modules, name, module)
        kept = {name: sys.modules.pop(name) for name in STUBBED if name in sys.modules}
        patch.setattr("torch.cuda.current_stream", lambda device=None: SimpleNamespace(cuda_stream=0))
        patch.setattr("torch.cuda.stream", lambda stream: pytest.MonkeyPatch.context())
        yield fake
    for name in STUBBED:
        sys.modules.pop(name, None)
    sys.modules.update(kept)


def program(launches: list[Any], graph: bool = True, stream: Stream | None = None) -> Any:
    """A program of one section over an arena of 256 bytes."""
    memory = arena.allocate(256)
    module = import_module("flashrt_kernels.cuda.program")
    steps = [Step("vision", tuple(launches), True)]
    return module.CudaProgram("g", steps, memory, (0, 64), {}, stream or Stream(), graph)


def test_closed_program_gives_everything_back(driver: Driver) -> None:
    """A policy that is loaded again and again must not fill the GPU with graphs and events."""
    made = program([lambda: None])
    assert (made.nodes, list(made.timings)) == (5, ["vision", "gpu"])
    made.close()
    assert driver.calls["cuEventDestroy"] == driver.calls["cuEventCreate"] == 4
    assert driver.calls["cuGraphDestroy"] == driver.calls["cuGraphExecDestroy"] == 1
    made.close()
    assert driver.calls["cuGraphDestroy"] == 1


@pytest.mark.parametrize(
    "fails", ["cuGraphInstantiate", "cuGraphLaunch", "cuEventElapsedTime", "cuStreamBeginCapture"]
)
def test_program_that_cannot_be_made_leaves_nothing(driver: Driver, fails: str) -> None:
    """Nobody holds it, so nobody would ever free its events and its graph."""
    driver.fails = {fails}
    with pytest.raises(RuntimeError, match="out of luck"):
        program([lambda: None])
    assert driver.calls["cuEventDestroy"] == driver.calls["cuEventCreate"]
    assert driver.calls["cuGraphDestroy"] == driver.calls["cuStreamEndCapture"]


def test_launch_that_fails_in_a_capture_ends_it_and_is_named(driver: Driver) -> None:
    """A stream that still captures refuses every later policy; an unnamed error cannot be reported."""
    launch = import_module("flashrt_kernels.cuda.launch").Launch(1, (1,), 32, [0], name="rms_norm")

    def only_eagerly() -> None:
        driver.fails = {"cuLaunchKernelEx"} if driver.calls["cuStreamBeginCapture"] else set()
        launch()

    with pytest.raises(RuntimeError, match="launch of rms_norm: CUDA: out of luck"):
        program([only_eagerly])
    assert driver.calls["cuStreamBeginCapture"] == driver.calls["cuStreamEndCapture"] == 1
    assert driver.calls["cuGraphDestroy"] == 1


def test_replay_that_fails_has_ended_when_it_raises(driver: Driver) -> None:
    """Else the next observation is written over inputs that are still being copied."""
    stream = Stream()

    class Backend(CpuBackend):
        def program(
            self, name: str, steps: Sequence[Step], memory: arena.Memory, inputs: Any, outputs: Any
        ) -> Any:
            return program([lambda: None], stream=stream)

    g = StaticGraph("g", Backend())
    g.output("y", g.call(silu, x=g.input("x", (2, 3), torch.float32)))
    g.plan()
    before, driver.fails = stream.waits, {"cuGraphLaunch"}
    with pytest.raises(RuntimeError, match="out of luck"):
        g.replay()
    assert stream.waits == before + 1


def test_time_on_the_gpu_counts_from_the_program_before(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a decision looks as if its vision tower took no time."""
    first, second = program([lambda: None]), program([lambda: None])
    asked: list[tuple[Any, Any]] = []

    def elapsed(start: Any, end: Any) -> tuple[int, float]:
        asked.append((start, end))
        return 0, 0.5

    monkeypatch.setattr(driver, "cuEventElapsedTime", elapsed)
    first._events, second._events = ["a", "b"], ["c", "d"]
    second.finish(first)
    assert asked == [("c", "d"), ("a", "d")]


def test_tapped_replay_does_not_show_the_times_of_another(driver: Driver) -> None:
    """Times of some earlier decision look like those of this one."""
    made = program([lambda: None])
    made.replay_all({})
    assert made.timings == {}


def test_argument_wider_than_int32_is_refused(driver: Driver) -> None:
    """ctypes cuts it in silence, and the kernel works on a part of the array."""
    as_argument = import_module("flashrt_kernels.cuda.launch").as_argument
    with pytest.raises(OverflowError, match=r"2147483648; expected an int32"):
        as_argument(1 << 31)
    kept, address = as_argument(-(1 << 31))
    assert ctypes.c_int32.from_address(address).value == kept.value == -(1 << 31)


def test_every_driver_call_of_a_replay_has_a_context(driver: Driver) -> None:
    """A decision in a new thread would fail, or go to another GPU."""
    made, bare, depth = program([lambda: None]), [], 0
    made._outputs, made.results = {"y": torch.ones(4)}, {"y": torch.zeros(4)}
    step = {"cuCtxPushCurrent": 1, "cuCtxPopCurrent": -1}

    def noted(name: str, real: Any) -> Any:
        def called(*given: Any) -> Any:
            nonlocal depth
            depth += step.get(name, 0)
            if name not in step and not depth:
                bare.append(name)
            return real(*given)

        return called

    copies = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuGraphLaunch", "cuEventElapsedTime")
    events = ("cuEventRecord", "cuEventSynchronize")
    for name in (*step, *copies, *events):
        setattr(driver, name, noted(name, getattr(driver, name)))
    made.send(0, 16)
    made.start()
    made.settle(0)
    made.finish(None)
    made.replay_all({})
    assert (depth, bare) == (0, [])


def test_what_is_sent_launched_and_fetched(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies host memory for real: what goes where, how much of it, and in which order."""
    order: list[str] = []

    def copy(name: str) -> Any:
        def called(to: int, source: int, bytes: int, stream: int) -> tuple[int]:
            order.append(f"{name} {bytes}")
            ctypes.memmove(to, source, bytes)
            return (0,)

        return called

    module = import_module("flashrt_kernels.cuda.program")
    monkeypatch.setattr(module, "pinned_like", torch.zeros_like)
    device, host = arena.allocate(256).arena.zero_(), torch.arange(1, 129, dtype=torch.uint8)
    output = device[192:200].view(torch.float32)
    monkeypatch.setattr(driver, "cuMemcpyHtoDAsync", copy("to"))
    monkeypatch.setattr(driver, "cuMemcpyDtoHAsync", copy("from"))

    def launch() -> None:
        order.append("launch")
        output.copy_(device[64:66])

    stream = Stream()
    stream.synchronize = lambda: order.append("wait")  # type: ignore[method-assign]
    steps = [Step("vision", (launch,), True)]
    memory = arena.Memory(device, host)
    made = module.CudaProgram("g", steps, memory, (64, 128), {"y": output}, stream, False)
    order.clear()
    device.zero_()
    made.send(16, 8)
    assert device[16:24].tolist() == host[16:24].tolist()
    assert device.count_nonzero() == 8
    made.start()
    made.finish(None)
    assert order == ["to 8", "to 64", "launch", "from 8", "wait"]
    assert made.results["y"].tolist() == [65, 66]
    order.clear()
    host[64:66] = 7
    made.replay_all({})
    assert order == ["to 64", "launch", "from 8", "wait"]
    assert made.results["y"].tolist() == [7, 7]
    order.clear()
    made.close()
    assert order == ["wait"]


def test_sections_wait_for_all_before_them(driver: Driver) -> None:
    """Else a kernel that reads early what an earlier section writes finds it half written."""
    made = import_module("flashrt_kernels.cuda.launch").Launch
    launches = [made(1, (1,), 32, [], cluster=2, name=f"{i}") for i in range(7)]
    sections = (("vision", True), ("prefix", False), ("prefix", True), ("prefix", True), ("", False))
    steps = [Step(name, (lambda: None, launches[i]), needed) for i, (name, needed) in enumerate(sections)]
    steps += [Step("prefix", tuple(launches[5:]), True)]
    module = import_module("flashrt_kernels.cuda.program")
    module.CudaProgram("g", steps, arena.allocate(256), (0, 64), {}, Stream(), True)
    assert [launch._config.numAttrs for launch in launches] == [1, 1, 1, 2, 1, 1, 2]


def test_settling_waits_for_the_right_start(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host reads a token whose replay has ended, while the one behind it runs: not too early, not too
    late."""
    made, notes = program([lambda: None]), list[str]()
    made._ends = ["even", "odd"]

    def noted(what: str) -> Any:
        def called(event: str, *stream: int) -> tuple[int]:
            notes.append(f"{what} {event}")
            return (0,)

        return called

    monkeypatch.setattr(driver, "cuEventRecord", noted("record"))
    monkeypatch.setattr(driver, "cuEventSynchronize", noted("synchronize"))
    made._starts = 0
    for behind in (0, 1, 1):
        made.start()
        made.settle(behind)
    made.settle(0)
    assert notes == [
        "record even",
        "synchronize even",
        "record odd",
        "synchronize even",
        "record even",
        "synchronize odd",
        "synchronize even",
    ]
