# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The GPU benchmark's own parts, as far as they run without a GPU."""

import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.device import gate, inputs
from benchmarks.device.cases import CASES, Case
from benchmarks.device.inputs import Prompts, device_tensors, observations, write_checkpoints
from benchmarks.device.kernel_calls import calls_of, random_arrays
from benchmarks.device.peers import Task
from benchmarks.device.peers.lerobot import TimeUp, time_limit
from benchmarks.device.timing import Sensors, interleaved
from flashrt_kernels import Policy, load_policy
from flashrt_kernels.checkpoint.recipe import SIZES

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
    graph = policy._graphs[32]
    counted = calls_of(graph)
    assert f"launches: {sum(counted.values())}," in graph.describe_plan()
    for call in counted:
        arrays = random_arrays(call, "cpu")
        call.kernel.validate({n: a for n, a in arrays.items() if a is not None} | dict(call.parameters))
        assert call.bytes > 0
    products = {call.product for call in counted if call.kernel.name == "matmul_gelu_mul"}
    assert (10, 2 * SIZES["tiny"].dims.expert.mlp_dim, SIZES["tiny"].dims.expert.width) in products
    policy.close()


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
