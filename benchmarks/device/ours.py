# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""This project's engine through its public interface, and its variants for the ablation rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.device.cases import Case
from benchmarks.device.inputs import Observation, Prompts
from benchmarks.device.peers import LeftOut
from benchmarks.device.timing import Sample
from flashrt_kernels import Chunk, Policy, load_policy

WHAT = (
    "gpu: VGA pixels, ids and noise on the device → actions in robot units on the device; wall: VGA images, "
    "state and instruction in pageable host memory → actions in host memory, tokenising included"
)


@dataclass(frozen=True)
class Variant:
    """A way to run the engine: `options` of `CudaOptions`, and what the row is there to show."""

    name: str
    shows: str
    options: dict[str, Any] = field(default_factory=dict)


OURS = Variant("flashrt_ros bf16", "as installed")


def is_ours(name: str) -> bool:
    """Whether an engine of this name is ours, as installed or a variant."""
    return name.startswith(OURS.name)


ABLATIONS = (
    Variant("flashrt_ros bf16, cuBLASLt matmuls", "the library in every product", {"matmul": "cublaslt"}),
    Variant("flashrt_ros bf16, no PDL", "every kernel waits for the end of the one before", {"pdl": False}),
    Variant("flashrt_ros bf16, no graph", "every kernel launched from Python", {"graph": False}),
    Variant(
        "flashrt_ros bf16, portable kernels",
        "mma.sync matmuls and attention, as on GPUs that are not Hopper",
        {"matmul": "portable", "attention": "portable"},
    ),
)
PARTS = ("vision", "prefix", "action")  # of `Chunk.timings`; "prepare" there is what the wall clock has more


class Ours:
    """A loaded policy, bound to the cameras of the case."""

    what = WHAT

    def __init__(self, folder: Path, case: Case, example: Observation, variant: Variant = OURS) -> None:
        """Raises LeftOut where the package cannot run on this GPU."""
        self.name = variant.name
        try:
            from flashrt_kernels.cuda.backend import CudaBackend
            from flashrt_kernels.cuda.options import CudaOptions
        except ImportError as error:
            raise LeftOut(f"no CUDA part: {error}") from None
        start = time.perf_counter()
        backend = CudaBackend("cuda", CudaOptions(**variant.options))
        self.policy: Policy = load_policy(folder, device=backend, cameras=example.images)
        torch.cuda.synchronize()
        self.load_s = time.perf_counter() - start

    def measure(self, observation: Observation) -> Sample:
        o = observation
        start = time.perf_counter()
        chunk = self.policy.decide(o.images, o.state, o.instruction, noise=o.noise)
        wall = 1e3 * (time.perf_counter() - start)
        stages: Sample = {name: chunk.timings[name] for name in PARTS}
        return {"gpu": chunk.timings["gpu"], "wall": wall, **stages}

    def decide(self, observation: Observation, taps: tuple[str, ...] = ()) -> Chunk:
        """The chunk, with intermediates."""
        o = observation
        return self.policy.decide(o.images, o.state, o.instruction, noise=o.noise, taps=taps)

    def actions(self, observation: Observation) -> np.ndarray:
        mark = "actions_normalized_padded"
        found: np.ndarray = self.decide(observation, (mark,)).taps[mark]
        return found

    def close(self) -> None:
        self.policy.close()


class PaddedPrompt:
    """The same policy in its largest bucket: what padding every prompt to the limit would cost."""

    name = f"{OURS.name}, prompt padded to the limit"
    what = WHAT

    def __init__(self, ours: Ours, prompts: Prompts) -> None:
        self.ours = ours
        limit = prompts.config.tokenizer_max_length
        self.instruction, self.state, self.ids = prompts.draw(np.random.default_rng(0), limit)

    def measure(self, observation: Observation) -> Sample:
        return self.ours.measure(self.longer(observation))

    def actions(self, observation: Observation) -> np.ndarray:
        return self.ours.actions(self.longer(observation))

    def longer(self, observation: Observation) -> Observation:
        """A graph does the same work for every prompt of its bucket; this one fills it."""
        return replace(observation, instruction=self.instruction, state=self.state, ids=self.ids)

    def close(self) -> None:
        """The policy belongs to `ours`."""
