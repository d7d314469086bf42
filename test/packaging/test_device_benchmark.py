# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The GPU benchmark's own parts, as far as they run without a GPU."""

import json
import re
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import performance_page, run
from benchmarks.device import gate, inputs
from benchmarks.device.cases import CASES, Case
from benchmarks.device.inputs import Prompts, device_tensors, observations, write_checkpoints
from benchmarks.device.kernel_calls import calls_of, random_arrays
from benchmarks.device.one_case import Options
from benchmarks.device.ours import OURS
from benchmarks.device.peers import Task
from benchmarks.device.peers.lerobot import TimeUp, time_limit
from benchmarks.device.timing import Sensors, interleaved
from flashrt_kernels import Policy, load_policy
from flashrt_kernels.checkpoint.groot_processing import GrootImages
from flashrt_kernels.checkpoint.recipe import SIZES
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.image_rules_groot import groot_n16

TINY = list(CASES.values())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_checkpoints(tmp_path_factory.mktemp("checkpoints"), TINY, "tiny")


def task_of(folder: Path, case: Case) -> Task:
    tensors = device_tensors(folder, "cpu")
    (observation,) = observations(folder, case, 1)
    return Task(case, SIZES["tiny"].dims, tensors, Prompts(folder), observation, device="cpu")


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.key)
def test_the_reference_of_the_gate_agrees_with_the_policy(folders: dict[str, Path], case: Case) -> None:
    """Else the gate lets wrong kernels through, or stops right ones."""
    folder = folders[case.key]
    task = task_of(folder, case)
    want = gate.Fp32(task).forward(task.example)
    policy = load_policy(folder)
    policy.bind(task.example.images)
    o = task.example
    taps = ["prefix.kv.1.k", "prefix.kv.1.v", "v_t.step9", "actions_normalized_padded"]
    got = policy.decide(o.images, o.state, o.instruction, noise=o.noise, taps=taps).taps
    rows = want["keys"][1].shape[0]
    assert rows == case.prefix(task.dims.vision.patches)
    assert gate.error(got["prefix.kv.1.k"][:rows], want["keys"][1]) < 1e-5
    assert gate.error(got["prefix.kv.1.v"][:rows], want["values"][1]) < 1e-5
    assert gate.error(got["v_t.step9"], want["velocities"][9]) < 1e-5
    assert gate.error(got["actions_normalized_padded"], want["actions"][0]) < 1e-5
    policy.close()


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.key)
def test_prompts_are_as_long_as_the_case_says(folders: dict[str, Path], case: Case) -> None:
    """Else `prompt 200` is the time of some other length."""
    found = observations(folders[case.key], case, 3)
    assert {len(observation.ids) for observation in found} == {case.prompt}
    assert len({observation.instruction + str(observation.state) for observation in found}) == 3
    assert all(len(observation.images) == case.views for observation in found)


def test_an_engine_that_gives_nan_has_an_infinite_error() -> None:
    """Else NaN compares as false and slips through the gate."""
    assert gate.error(np.array([np.nan, 1.0]), np.ones(2)) == float("inf")


def test_disturbances_change_one_thing(folders: dict[str, Path]) -> None:
    """Else `swapped cameras` measures a changed prompt."""
    case = CASES["3v-968-50"]
    task = task_of(folders[case.key], case)
    first, second = observations(folders[case.key], case, 2)
    changed = gate.disturbed(task, first, second)
    assert set(changed) == {"instruction", "cameras", "state"}
    assert changed["instruction"].images is first.images
    assert changed["cameras"].ids == first.ids
    assert changed["state"].instruction == first.instruction
    assert all(not np.array_equal(a, b) for a, b in zip(changed["state"].state, first.state, strict=True))


def test_every_launch_of_a_decision_is_counted(folders: dict[str, Path]) -> None:
    """Else a kernel is missing in the table of where the time goes."""
    policy: Policy = load_policy(folders["2v-532-10"])
    graphs = policy._opened()
    counted = calls_of(graphs.buckets[32].graph)
    plans = graphs.vision.describe_plan() + graphs.buckets[32].graph.describe_plan()
    assert sum(counted.values()) == sum(map(int, re.findall(r"launches: (\d+),", plans)))
    for call in counted:
        arrays = random_arrays(call, "cpu")
        call.kernel.validate({n: a for n, a in arrays.items() if a is not None} | dict(call.parameters))
        assert call.bytes > 0
    products = {call.product for call in counted if call.kernel.name == "matmul_gelu_mul"}
    assert (
        10,
        2 * SIZES["tiny"].dims.action_expert.mlp_dim,
        SIZES["tiny"].dims.action_expert.width,
    ) in products
    policy.close()


def test_images_of_calls_lie_in_their_memory() -> None:
    """Between the stages of an image rule is no room for VGA: a kernel would read on behind it."""
    rule = groot_n16(
        GrootImages(shortest_edge=256, crop_fraction=0.95, albumentations=True, camera_size=(480, 640))
    )
    g = StaticGraph("rule", "cpu")
    pixels, info = g.input("pixels", (480 * 640 * 3,), torch.uint8), g.input("info", (4,), torch.int32)
    out = g.buffer("patches", (rule.rows, 592), torch.float32)
    rule.compose(g, pixels, info, out)
    g.output("patches", out)
    g.plan()
    calls = list(calls_of(g))
    assert len(calls) == 4
    for call in calls:
        arrays = {name: array for name, array in random_arrays(call, "cpu").items() if array is not None}
        rows, columns, step, _ = arrays["info"].tolist()
        assert min(rows, columns) > 100
        assert rows * step <= len(arrays["pixels"])
        call.kernel(**arrays, **dict(call.parameters))
        assert 0 < call.bytes <= sum(array.nbytes for array in arrays.values())


def busy(seconds: float) -> None:
    """Python code that goes on and catches what it can, as a compiler does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(Exception):
            sum(range(1000))


def test_compilation_is_interrupted() -> None:
    """Else a peer that compiles for minutes takes the whole run with it."""
    start = time.monotonic()
    with pytest.raises(TimeUp), time_limit(1):
        busy(20)
    assert time.monotonic() - start < 5


def test_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a GPU that warms up slows whoever comes last."""
    order: list[str] = []

    def engine(name: str) -> Any:
        def measure(observation: inputs.Observation) -> dict[str, float]:
            order.append(name)
            return {"gpu": 1.0}

        return SimpleNamespace(name=name, measure=measure)

    monkeypatch.setattr(Sensors, "read", lambda self: {})
    observation = inputs.Observation({}, np.zeros(1), "", [], np.zeros(1))
    samples = interleaved([engine("a"), engine("b")], [observation], 2, 0.0, Sensors())
    assert "".join(order) == 2 * ("aaaa" + "bbbb")  # the first of each turn warms up
    assert samples.turns == {"a": [3, 3], "b": [3, 3]}
    assert len(samples.values["a"]["gpu"]) == 6


def test_images_differ_between_cameras(folders: dict[str, Path]) -> None:
    """Else swapping cameras proves nothing."""
    (observation,) = observations(folders["3v-968-50"], CASES["3v-968-50"], 1)
    tensors = [torch.from_numpy(image).float() for image in observation.images.values()]
    for a, b in pairwise(tensors):
        assert (a - b).abs().mean() > 20


# The child of a run without a GPU: engines by name, each `fine` or with its own way to end.
CHILD = """
import os, sys
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from benchmarks.device import isolation, one_case

what, folder = sys.argv[-2:]
engines = dict(pair.split("=") for pair in sys.argv[1:-2])
broken = []


class Fake:
    what = "nothing"

    def __init__(self, name, task):
        self.name, self.fault, self.shape = name, engines[name], task.example.noise.shape
        self.reach("built")

    def reach(self, stage):
        if self.fault == f"{stage}:raises":
            raise ValueError("not for this size")
        if self.fault == f"{stage}:aborts":
            os.abort()
        if self.fault in (f"{stage}:breaks", f"{stage}:breaks and raises"):
            broken.append("CUDA error: an illegal memory access was encountered")
        if self.fault == f"{stage}:breaks and raises":
            raise RuntimeError(broken[0])

    def __del__(self):
        if broken:  # as freeing a tensor does
            os.abort()

    def measure(self, observation):
        self.reach("measured")
        return {"gpu": 1.0}

    def actions(self, observation):
        return np.ones(self.shape)

    def close(self):
        self.reach("closed")


class Fakes(one_case.OneCase):
    device = "cpu"

    def builders(self, task):
        return {name: lambda name=name: Fake(name, task) for name in engines}


if what == "--ceilings-only":
    found = {"hardware": {"gpu": "none"}, "versions": {}, "ceilings": {}}
    isolation.replace(Path(folder) / isolation.RESULT, found)
else:
    one_case.load = lambda seconds: None
    isolation.context_error = lambda: broken[0] if broken else None
    one_case.main(Path(folder), Console(), Fakes)
"""


def run_of(tmp_path: Path, cases: list[Case], **faults: str) -> dict[str, Any]:
    """The JSON of a run with fake engines on a tiny model."""
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    engines = [f"{name}={fault}" for name, fault in faults.items()]
    (tmp_path / "work").mkdir()
    out = tmp_path / "device.json"
    start = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv.pop(1))"
    child = (sys.executable, "-c", start, str(performance_page.ROOT), str(script), *engines)
    options = Options(rounds=1, turn_s=0.0, ours=False, size="tiny")
    run.measure(options, cases, tmp_path / "work", out, Console(), child)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


REPEATED = "; the case was repeated without it"


def test_a_peer_that_ends_the_process_takes_nothing_with_it(tmp_path: Path) -> None:
    """Else one broken peer costs every figure of its case, ours included, and the cases after it."""
    cases = TINY[1:]
    found = run_of(tmp_path, cases, fine="no", raising="built:raises", aborting="built:aborts")
    assert list(found["cases"]) == [case.key for case in cases]
    for case in found["cases"].values():
        assert list(case["engines"]) == ["fine"]
        assert case["engines"]["fine"]["samples"]["gpu"] == [1.0, 1.0, 1.0]
        assert case["left_out"]["raising"] == "ValueError: not for this size"
        assert case["left_out"]["aborting"] == "killed the process (SIGABRT) while it was built" + REPEATED
    assert found["failed"] == {}
    assert not (tmp_path / run.TESTED).exists()  # our kernels did not run


def test_every_peer_that_breaks_something_is_named_with_its_deed(tmp_path: Path) -> None:
    """Else an engine is blamed for what the one before it broke, or vanishes without a reason."""
    found = run_of(
        tmp_path,
        TINY[2:],
        breaking="built:breaks and raises",
        late="measured:breaks",
        raising="measured:raises",
        closing="closed:aborts",
        fine="no",
    )
    (case,) = found["cases"].values()
    assert list(case["engines"]) == ["closing", "fine"]
    reasons = {name: case["left_out"][name] for name in ("breaking", "late", "raising")}
    assert reasons == {
        "breaking": "made an illegal memory access while it was built" + REPEATED,
        "late": "made an illegal memory access while it was measured" + REPEATED,
        "raising": "raised ValueError: not for this size while it was measured" + REPEATED,
    }


@pytest.mark.parametrize("fault", ["built:raises", "built:aborts", "measured:breaks"])
def test_our_own_engine_dying_fails_the_run(tmp_path: Path, fault: str) -> None:
    """Else the table shows the peers alone, as if we had not been asked."""
    with pytest.raises(SystemExit, match=rf"FAILED in 1v-276-10: {OURS.name}: "):
        run_of(tmp_path, TINY[2:], **{"fine": "no", OURS.name: fault})


def test_what_was_measured_before_our_engine_died_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else minutes of GPU time are lost, and the page does not say that a case failed."""
    answers: list[Any] = [{"hardware": {}, "versions": {}, "ceilings": {}}, {"words": "", "engines": {}}]

    def measured(command: Any, job: Any, *rest: Any) -> Any:
        if not answers:
            raise run.isolation.Failure(f"{OURS.name}: made an illegal memory access while it was built")
        return answers.pop(0)

    monkeypatch.setattr(run.isolation, "measured", measured)
    monkeypatch.setattr(run, "show_case", lambda *_: None)
    with pytest.raises(SystemExit):
        run_of(tmp_path, TINY[:2])
    found = json.loads((tmp_path / "device.json").read_text(encoding="utf-8"))
    assert list(found["cases"]) == [TINY[0].key]
    assert not (tmp_path / run.TESTED).exists()
    lines = performance_page.missing(found)
    assert lines[0].startswith(f"Failed: {TINY[1].words}: {OURS.name}: made an illegal memory access")
    assert lines[2] == f"Not in this run: {TINY[2].words}."


def test_the_page_shows_the_hosts_share() -> None:
    """Else nobody sees whether the host or the GPU makes a decision slow."""
    stages = {"vision": [0.5, 0.5], "prefix": [1.0, 1.0], "action": [0.5, 0.5]}
    samples = {"gpu": [2.4, 2.4], "wall": [3.0, 3.5], **stages}  # 0.4 of gpu is the host's: it made it wait
    case = {"words": "w", "engines": {OURS.name: {"samples": samples}}}
    row = performance_page.end_to_end({"cases": {"w": case}})[2]
    assert row.startswith("| w | 3.25 |")
    assert row.endswith("| 1.25 | 1.50 |")
