# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A whole policy on a GPU: parity with the CPU, one captured graph, memory, determinism."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import CheckpointError, Policy, load_policy
from flashrt_kernels.make_checkpoint import Recipe, make_checkpoint
from test.cuda.support import requires_cuda
from test.kernels.policies import STATE, TINY, TOKENIZER, TOP, WRIST, picture

pytestmark = requires_cuda
KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "portable": {"matmul": "portable", "attention": "portable"},
    "library": {"matmul": "cublaslt"},
    "no PDL": {"pdl": False},
    "no graph": {"graph": False},
}


def load(precision: str, folder: Path = TINY, tokenizer: Path | None = TOKENIZER, **options: Any) -> Policy:
    from flashrt_kernels.cuda.backend import CudaBackend
    from flashrt_kernels.cuda.options import CudaOptions

    backend = CudaBackend("cuda", CudaOptions(**options))
    return load_policy(
        folder, device=backend, precision=precision, tokenizer=tokenizer, num_inference_steps=2
    )


def decide(policy: Policy, instruction: str = "pick up the red block", **changes: Any) -> np.ndarray:
    images = {slot: picture(i) for i, slot in enumerate(policy.cameras[:2])}
    given = {"images": images, "state": [0.1] * policy.state_dim, "instruction": instruction}
    return policy.decide(**(given | changes)).actions


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with heads of 32 and odd widths."""
    folder = tmp_path_factory.mktemp("checkpoints") / "small"
    return make_checkpoint(folder, Recipe(size="small", seed=3, cameras=("a", "b", "c")))


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("precision", "limit"), [("fp32", 2e-5), ("bf16", 2e-2)])
def test_actions_are_those_of_the_cpu(kind: str, precision: str, limit: float, small: Path) -> None:
    """Else the arm moves by the GPU, and the tests watch the CPU."""
    for folder in (TINY, small):
        cpu = load_policy(folder, precision=precision, tokenizer=TOKENIZER, num_inference_steps=2)
        gpu = load(precision, folder, **KINDS[kind])
        wanted, came = decide(cpu), decide(gpu)
        spread = np.abs(wanted).max()
        np.testing.assert_allclose(came, wanted, rtol=0, atol=limit * spread)
        gpu.close()


def test_every_intermediate_is_that_of_the_cpu() -> None:
    """One wrong layer can hide behind small weights in the actions, and show on the next checkpoint."""
    cpu = load_policy(TINY, tokenizer=TOKENIZER, num_inference_steps=2)
    gpu = load("fp32")
    given: dict[str, Any] = {
        "images": {TOP: picture(1), WRIST: picture(2)},
        "state": STATE,
        "instruction": "pick up the red block",
    }
    marks = [mark for mark in cpu.marks if mark not in ("tokens", "prefix.pad_masks")]
    wanted, came = (policy.decide(**given, taps=marks).taps for policy in (cpu, gpu))
    for mark in marks:
        scale = max(np.abs(wanted[mark]).max(), 1e-6)
        np.testing.assert_allclose(came[mark], wanted[mark], rtol=0, atol=5e-5 * scale, err_msg=mark)
    replayed = gpu.decide(**given).actions
    np.testing.assert_array_equal(replayed, gpu.decide(**given, taps=("actions_normalized_padded",)).actions)
    gpu.close()


def test_same_observation_and_seed_give_the_same_bits_100_times(small: Path) -> None:
    """A robot whose faults cannot be repeated cannot be debugged."""
    policy = load("bf16", small)
    wanted = decide(policy, seed=7)
    for _ in range(100):
        decide(policy, "something else", seed=8)  # the arena is full of other numbers
        np.testing.assert_array_equal(decide(policy, seed=7), wanted)
    assert not np.array_equal(decide(policy, seed=8), wanted)
    policy.close()


def test_the_same_bits_after_a_restart(small: Path) -> None:
    """The replay of a recorded decision must give what the robot did, in another process too."""
    program = (
        "import sys, json; from pathlib import Path; from test.cuda.test_policy import load, decide\n"
        "print(json.dumps(decide(load('bf16', Path(sys.argv[1])), seed=7).tobytes().hex()))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, str(small)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert json.loads(runs[0]) == json.loads(runs[1])


@pytest.mark.serial  # other processes on the GPU would change what is free
def test_1000_decisions_allocate_and_capture_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation in the loop is a stall now and then, and one day an out-of-memory in motion."""
    from flashrt_kernels.cuda.program import CudaProgram

    policy = load("bf16", small)
    rng = np.random.default_rng(0)
    words = ["pick", "place", "push", "the", "red", "green", "block", "cup", "lid", "then", "to", "left"]
    for _ in range(3):
        decide(policy)
    captures: list[str] = []
    monkeypatch.setattr(CudaProgram, "_capture", lambda program: captures.append(program.name))
    torch.cuda.synchronize()
    before, free = torch.cuda.memory_stats(), torch.cuda.mem_get_info()[0]
    lengths = set()
    for sequence in range(1000):
        text = " ".join(rng.choice(words, rng.integers(1, 30)))
        decide(policy, text, state=rng.uniform(-1, 1, policy.state_dim), sequence=sequence)
        lengths.add(len(text))
    after = torch.cuda.memory_stats()
    for counter in ("allocation.all.allocated", "segment.all.allocated", "num_alloc_retries"):
        assert after[counter] == before[counter], counter
    assert torch.cuda.mem_get_info()[0] == free
    assert not captures
    assert len(lengths) > 100
    policy.close()


def test_two_policies_in_one_process(small: Path) -> None:
    """A robot with two arms runs two of them."""
    first, second = load("bf16", small), load("bf16", TINY)
    wanted = decide(first), decide(second)
    for _ in range(5):
        np.testing.assert_array_equal(decide(first), wanted[0])
        np.testing.assert_array_equal(decide(second), wanted[1])
    first.close()
    np.testing.assert_array_equal(decide(second), wanted[1])
    second.close()


def test_every_policy_has_a_stream_of_its_own() -> None:
    """torch's 33rd stream is its first again: one policy's capture there would hold launches of another."""
    from flashrt_kernels.cuda.backend import CudaBackend

    backends = [CudaBackend() for _ in range(40)]
    assert len({backend.stream.cuda_stream for backend in backends}) == 40


@pytest.mark.serial
def test_close_gives_all_memory_back(small: Path) -> None:
    """Configure and cleanup, a hundred times a day, must not fill the GPU."""
    load("bf16", small).close()  # modules and cuBLAS stay
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        policy = load("bf16", small)
        decide(policy)
        policy.close()
    lost = free - torch.cuda.mem_get_info()[0]
    assert lost < 64 << 20, f"{lost / 2**20:.0f} MB are gone after 20 cycles"


def test_other_cameras_are_bound_without_a_new_load(small: Path) -> None:
    """A camera that breaks is taken out of the plan; the next decision is right."""
    policy = load("bf16", small)
    both = decide(policy)
    policy.bind(policy.cameras[:2])
    np.testing.assert_allclose(decide(policy), both, rtol=0, atol=2e-2 * np.abs(both).max())
    policy.close()


def test_images_that_the_model_saw_come_back_from_the_gpu() -> None:
    """The operator compares them with the camera: a swapped channel shows here first."""
    cpu, gpu = load_policy(TINY, tokenizer=TOKENIZER, num_inference_steps=2), load("fp32")
    decide(cpu), decide(gpu)
    for slot, image in cpu.model_images().items():
        np.testing.assert_array_equal(gpu.model_images()[slot], image)
    gpu.close()


def test_a_checkpoint_with_nan_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Nothing is half loaded: neither a policy nor gigabytes on the GPU."""
    from safetensors.torch import load_file, save_file

    for file in TINY.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(TINY / "model.safetensors")
    key = next(key for key in tensors if "layers.1.mlp.up_proj" in key)
    tensors[key][3, 5] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj"):
        load("bf16", tmp_path)
    assert torch.cuda.memory_allocated() == before
