# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Measurements on random checkpoints are only comparable when everybody has the same ones."""

import errno
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels.checkpoint import random_weights
from flashrt_kernels.checkpoint.layout import Kind, TensorSpec
from flashrt_kernels.checkpoint.random_weights import StoredTensor, random_values, round_to_bf16, write_random

SPECS = [
    TensorSpec("a.weight", (33, 7), "linear"),
    TensorSpec("b.bias", (5,), "bias"),
    TensorSpec("c.weight", (3, 3), "rms_norm"),
]


def stored(dtype: torch.dtype = torch.float32) -> list[StoredTensor]:
    return [StoredTensor("model." + spec.key, spec, dtype) for spec in SPECS]


def test_values_depend_on_seed_and_name_only(tmp_path: Path) -> None:
    """Adding a tensor to a policy must not change all the others."""
    write_random(tmp_path / "all", stored(), seed=3)
    write_random(tmp_path / "reversed", stored()[::-1], seed=3)
    write_random(tmp_path / "one", stored()[1:2], seed=3)
    write_random(tmp_path / "other", stored(), seed=4)
    everything, other = load_file(tmp_path / "all"), load_file(tmp_path / "other")
    for file in ("reversed", "one"):
        for key, tensor in load_file(tmp_path / file).items():
            assert torch.equal(tensor, everything[key])
    assert not any(torch.equal(tensor, other[key]) for key, tensor in everything.items())
    assert len({tensor.view(-1)[0].item() for tensor in everything.values()}) == len(SPECS)


def test_pieces_do_not_show_in_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The piece size is a matter of memory; changing it must not change a checkpoint."""
    whole = np.concatenate(list(random_values(SPECS[0], 0)))
    monkeypatch.setattr(random_weights, "_CHUNK", 10)
    pieces = list(random_values(SPECS[0], 0))
    assert len(pieces) == 24
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize(
    ("kind", "shape", "mean", "deviation"),
    [
        ("linear", (500, 64), 0.0, 1.2 / 8),
        ("linear", (500, 4, 4, 4), 0.0, 1.2 / 8),
        ("embedding", (500, 64), 0.0, 1 / 8),
        ("bias", (30_000,), 0.0, 0.1),
        ("rms_norm", (30_000,), 0.0, 0.1),
        ("layer_norm", (30_000,), 1.0, 0.1),
        ("attention_rms_norm", (30_000,), 0.3, 0.1),
        ("attention_layer_norm", (30_000,), 0.7, 0.1),
        ("mlp_rms_norm", (30_000,), -0.5, 0.1),
        ("mlp_norm", (30_000,), 0.8, 0.1),
        ("unit_embedding", (500, 64), 0.0, 1.0),
        ("state_token", (500, 64), 0.0, 48 / 8),
        ("state_mlp", (500, 64), 0.0, 4.8 / 8),
        ("action_tokens", (500, 64), 0.0, 5 / 8),
        ("quiet_branch", (500, 64), 0.0, 0.4 / 8),
        ("action_output", (500, 64), 0.0, 0.8 / 8),
    ],
)
def test_scale_follows_the_kind(kind: Kind, shape: tuple[int, ...], mean: float, deviation: float) -> None:
    """Too small and the actions ignore the cameras; too large and every layer saturates, or
    attention turns every rounding to bf16 into another answer."""
    values = np.concatenate(list(random_values(TensorSpec("x", shape, kind), 0)))
    assert values.mean() == pytest.approx(mean, abs=deviation / 20)
    assert values.std() == pytest.approx(deviation, rel=0.05)


def test_mixed_dtypes_are_aligned_and_told_to_progress(tmp_path: Path) -> None:
    """An odd number of bf16 values before float32 ones would make the file unreadable for others."""
    tensors = [
        StoredTensor(s.key, s, torch.bfloat16 if i % 2 else torch.float32) for i, s in enumerate(SPECS)
    ]
    written: list[int] = []
    write_random(tmp_path / "mixed", tensors, seed=0, advance=written.append)
    got = load_file(tmp_path / "mixed")
    assert {key: tensor.dtype for key, tensor in got.items()} == {t.key: t.dtype for t in tensors}
    exact = torch.from_numpy(np.concatenate(list(random_values(SPECS[1], 0))))
    assert torch.equal(got["b.bias"], exact.to(torch.bfloat16))
    data = (tmp_path / "mixed").read_bytes()
    length = int.from_bytes(data[:8], "little")
    for entry in (value for key, value in json.loads(data[8 : 8 + length]).items() if key != "__metadata__"):
        assert (8 + length + entry["data_offsets"][0]) % {"F32": 4, "BF16": 2}[entry["dtype"]] == 0
    assert sum(written) == sum(tensor.size for tensor in tensors)


def test_rounding_to_bf16_is_that_of_torch() -> None:
    """A checkpoint must not depend on who rounds it: ties, subnormals and the largest values included."""
    bits = np.arange(0, 1 << 32, 0x1001, dtype=np.uint64).astype(np.uint32)
    ties = np.arange(0x8000, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[np.isfinite(values)]
    want = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(round_to_bf16(values), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_and_their_pieces_do_not_show_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Checkpoints made on a laptop and on a server must be the same file."""
    write_random(tmp_path / "one", stored(dtype), seed=0)
    monkeypatch.setattr(random_weights, "_CHUNK", 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(7))
    write_random(tmp_path / "other", stored(dtype), seed=0)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_disk_that_fills_up_ends_every_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that go on for a minute after the error, or an error that gets lost: worse than none."""

    def full(file: int, piece: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        write_random(tmp_path / "out", stored(), seed=0)
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
