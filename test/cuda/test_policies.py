# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every policy on a GPU: its actions and intermediates are those of the CPU, which the parity tests watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import Policy, load_policy
from test.cuda.support import requires_cuda
from test.kernels.parity import DATA, decide, read_oracle
from test.kernels.policies import picture

pytestmark = requires_cuda
TOKENIZER = {"tokenizer": DATA / "tokenizer_tiny"}
FAST = {**TOKENIZER, "fast_tokenizer": DATA / "fast_tokenizer_tiny"}
# Folder → what it takes to load it. Pi0.5 has tests of its own.
FOLDERS: dict[str, dict[str, Any]] = {
    "tiny_pi0": TOKENIZER,
    "tiny_pi0_fast_e2e": FAST,
    "tiny_openpi_jax_pi0": {**TOKENIZER, "chunk_size": 6},
    "tiny_openpi_jax_pi05": {**TOKENIZER, "chunk_size": 6},
    "tiny_groot_n16": {"image_size": None},
    "tiny_groot_n17": {"embodiment": "tiny_arm"},
    "tiny_smolvla": {},
}
# Marks that hold no numbers of the model.
NOT_NUMBERS = ("tokens", "prefix.pad_masks")


def load(folder: str, device: str, precision: str) -> Policy:
    return load_policy(DATA / folder, device=device, precision=precision, **FOLDERS[folder])


def given(policy: Policy, seed: int = 0) -> dict[str, Any]:
    """An observation with an image for every camera."""
    rng = np.random.default_rng(seed)
    edge = {"groot_n16": (56, 56)}.get(policy.name, (40, 64))
    images = {slot: rng.integers(0, 256, (*edge, 3), np.uint8) for slot in policy.cameras}
    return {"images": images, "state": rng.uniform(-0.5, 0.5, policy.state_dim), "instruction": "pick it up"}


def observed(policy: Policy, folder: str) -> dict[str, Any]:
    """As `given`; of the policy that was trained, one that it knows, or it writes no actions."""
    if "fast" not in folder:
        return given(policy)
    oracle = read_oracle(folder)
    return {"images": oracle.images, "state": oracle.tensors["raw.state"], "instruction": oracle.task}


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("precision", "limit"), [("fp32", 5e-5), ("bf16", 3e-2)])
def test_actions_are_those_of_the_cpu(folder: str, precision: str, limit: float) -> None:
    """Else the arm moves by the GPU, and the tests watch the CPU."""
    cpu, gpu = load(folder, "cpu", precision), load(folder, "cuda", precision)
    for policy in (cpu, gpu):
        policy.warm_up()
    wanted, came = (policy.decide(**observed(policy, folder)).actions for policy in (cpu, gpu))
    np.testing.assert_allclose(came, wanted, rtol=0, atol=limit * np.abs(wanted).max())
    gpu.close()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_intermediate_is_that_of_the_cpu(folder: str) -> None:
    """One wrong layer can hide behind small weights in the actions, and show on the next checkpoint."""
    cpu, gpu = load(folder, "cpu", "fp32"), load(folder, "cuda", "fp32")
    marks = [mark for mark in cpu.marks if mark not in NOT_NUMBERS]
    wanted, came = (policy.decide(**observed(policy, folder), taps=marks).taps for policy in (cpu, gpu))
    assert set(wanted) == set(came)
    for mark in wanted:
        scale = max(np.abs(wanted[mark]).max(), 1e-6)
        np.testing.assert_allclose(came[mark], wanted[mark], rtol=0, atol=1e-4 * scale, err_msg=mark)
    gpu.close()


@pytest.mark.parametrize("folder", FOLDERS)
def test_same_observation_gives_the_same_bits(folder: str) -> None:
    """Other observations in between fill arena and caches with other numbers."""
    gpu = load(folder, "cuda", "bf16")
    wanted = gpu.decide(**observed(gpu, folder)).actions
    for seed in range(1, 6):
        if "fast" not in folder:
            gpu.decide(**given(gpu, seed))
        np.testing.assert_array_equal(gpu.decide(**observed(gpu, folder)).actions, wanted)
    gpu.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("file", ["oracle", "oracle_2"])
def test_pi0_fast_writes_the_text_of_the_public_implementation(precision: str, file: str) -> None:
    """A token that differs changes all that follow."""
    folder = "tiny_pi0_fast_e2e"
    gpu, oracle = load(folder, "cuda", precision), read_oracle(folder, file)
    model: Any = gpu._model
    decide(gpu, oracle)
    ids = model.tokenise(oracle.task, oracle.tensors["raw.state"].astype(np.float32))
    assert model.write(gpu._opened().holding(len(ids)))[0] == oracle.tensors["gen.tokens_kv"][0].tolist()
    gpu.close()


def test_images_that_the_model_saw_come_back_from_the_gpu() -> None:
    """Resized in stages, in blocks of patches: a wrong order shows here first."""
    cpu, gpu = (load("tiny_groot_n17", device, "fp32") for device in ("cpu", "cuda"))
    images = {slot: picture(i) for i, slot in enumerate(cpu.cameras)}
    for policy in (cpu, gpu):
        policy.decide(images, np.zeros(policy.state_dim), "pick it up")
    for slot, image in cpu.model_images().items():
        assert np.abs(gpu.model_images()[slot].astype(int) - image).max() <= 1
    gpu.close()
