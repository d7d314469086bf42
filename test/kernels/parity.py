# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Numbers of the public implementations, stored beside tiny checkpoints in test/data, and ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from flashrt_kernels import Chunk, Policy, load_policy
from flashrt_kernels.graph import StaticGraph

DATA = Path(__file__).resolve().parent.parent / "data"
TOLERANCE = 1e-4  # of the largest |reference| of each tensor


@dataclass(frozen=True)
class Oracle:
    """Stored tensors, and the raw observation that they belong to."""

    tensors: dict[str, np.ndarray]
    task: str

    @property
    def images(self) -> dict[str, np.ndarray]:
        raw = "raw."
        return {
            k.removeprefix(raw): v
            for k, v in self.tensors.items()
            if k.startswith(raw + "observation.images")
        }

    @property
    def valid(self) -> np.ndarray:
        """[prefix tokens]: rows of other tokens carry no meaning."""
        return self.tensors["prefix.pad_masks"][0]

    def intermediates(self, *elsewhere: str) -> list[str]:
        """Keys of what lies between inputs and results, without those that start with `elsewhere`."""
        left_out = ("raw.", "in.", *elsewhere)
        return [k for k in sorted(self.tensors) if not k.startswith(left_out) and not k.endswith("steps5")]


def read_oracle(folder: str, file: str = "oracle") -> Oracle:
    """The tensors of test/data/<folder>/<file>.safetensors."""
    with safe_open(DATA / folder / f"{file}.safetensors", framework="np") as opened:
        tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        return Oracle(tensors, (opened.metadata() or {}).get("task", ""))


def load(folder: str, **options: Any) -> Policy:
    """A tiny policy of the Pi family with the tiny tokenizers."""
    fast: dict[str, Any] = {"fast_tokenizer": DATA / "fast_tokenizer_tiny"} if "fast" in folder else {}
    return load_policy(DATA / folder, tokenizer=DATA / "tokenizer_tiny", **fast, **options)


def decide(policy: Policy, oracle: Oracle, taps: Sequence[str] = ()) -> Chunk:
    """The stored observation, through the public path."""
    noise: dict[str, Any] = {"noise": oracle.tensors["in.noise"][0]} if "in.noise" in oracle.tensors else {}
    return policy.decide(oracle.images, oracle.tensors["raw.state"], oracle.task, taps=taps, **noise)


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Equal but for `tolerance` of the largest |want|."""
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * float(np.abs(want).max()))


def as_image(patches: np.ndarray, patch: int = 14) -> np.ndarray:
    """Patches [n², ≥ 3·patch²] → [3, n·patch, n·patch] in [−1, 1]."""
    n = int(len(patches) ** 0.5)
    grid = patches[:, : 3 * patch**2].reshape(n, n, 3, patch, patch).transpose(2, 0, 3, 1, 4)
    return grid.reshape(3, n * patch, n * patch)


def assert_near(got: np.ndarray, want: np.ndarray, relative: float = 1e-2, cosine: float = 0.9999) -> None:
    """The gate of a policy in bf16: relative error of the whole, and the angle between the two."""
    a, b = (x.ravel().astype(np.float64) for x in (got, want))
    assert np.linalg.norm(a - b) <= relative * np.linalg.norm(b)
    assert a @ b >= cosine * np.linalg.norm(a) * np.linalg.norm(b)


def poison(graphs: Iterable[StaticGraph]) -> None:
    """Fill every arena with NaN, caches included."""
    for graph in graphs:
        assert graph._arena is not None
        graph._arena.fill_(0xFF)
