# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a policy holds after something failed half-way: what is left on a GPU is gone until the restart."""

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from flashrt_kernels import ObservationError, arena
from flashrt_kernels.activation import silu
from flashrt_kernels.backend import CpuBackend, CpuProgram, Step
from flashrt_kernels.graph import StaticGraph
from test.kernels.policies import STATE, TOP, act, load, picture


class Counting(CpuBackend):
    """Programs that say when they are closed; making one fails when `left` have been made."""

    def __init__(self, left: int = 100) -> None:
        self.left, self.open, self.released = left, 0, 0

    def program(
        self, name: str, steps: Sequence[Step], memory: arena.Memory, inputs: tuple[int, int], outputs: Any
    ) -> CpuProgram:
        backend = self
        if not self.left:
            raise MemoryError(name)

        class Program(CpuProgram):
            def close(self) -> None:
                super().close()
                backend.open -= 1

            def start(self) -> None:
                if backend.left < 0:
                    raise RuntimeError("the GPU fell off the bus")
                super().start()

        self.left -= 1
        self.open += 1
        return Program(steps, outputs)

    def release(self) -> None:
        self.released += 1


def test_load_that_fails_half_way_frees_what_it_made() -> None:
    """A node that is configured again after a failure must find the memory of the first try."""
    backend = Counting(left=1)
    with pytest.raises(MemoryError):
        load(device=backend)
    assert (backend.open, backend.released) == (0, 1)


def test_names_that_lead_nowhere_free_the_weights() -> None:
    """They are on the GPU already when the mistake shows; the corrected try must find room."""
    backend = Counting()
    with pytest.raises(ObservationError, match="rename: 'head' → 'none'"):
        load(device=backend, rename={"head": "none"})
    assert (backend.open, backend.released) == (0, 1)


def test_memory_of_a_plan_that_failed_is_free_when_the_backend_is_told() -> None:
    """A traceback holds it otherwise, and the GPU has no room for the next try."""
    arenas: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    class Backend(Counting):
        def allocate(self, bytes: int, inputs: int) -> arena.Memory:
            memory = super().allocate(bytes, inputs)
            arenas.append(weakref.ref(memory.arena))
            return memory

        def release(self) -> None:
            alive.append(sum(found() is not None for found in arenas))

    with pytest.raises(MemoryError):
        load(device=Backend(left=2))
    assert (len(arenas), alive[-1]) == (2, 0)


def test_cameras_known_at_load_are_planned_for_once() -> None:
    """A robot with fewer cameras than the checkpoint would be configured seconds later, and plan in vain."""
    backend = Counting()
    policy = load(device=backend, cameras=[TOP])
    planned = backend.left
    policy.bind([TOP])
    assert (policy.bound, backend.left) == ((TOP,), planned)
    policy.bind(policy.cameras)
    assert backend.left < planned
    policy.close()
    assert backend.open == 0
    with pytest.raises(ObservationError, match="unknown camera 'left'"):
        load(device=backend, cameras=["left"])
    assert backend.open == 0


def test_binding_that_fails_half_way_frees_what_it_made() -> None:
    """The policy is closed then, and says so; its graphs are not left on the GPU."""
    backend = Counting()
    policy = load(device=backend)
    backend.left = 1
    with pytest.raises(MemoryError):
        policy.bind([TOP])
    assert backend.open == 0
    with pytest.raises(RuntimeError, match="closed"):
        act(policy)
    policy.close()


def test_no_pictures_of_a_decision_that_failed() -> None:
    """Else those of an earlier decision pass for what the model saw when it failed."""
    backend = Counting()
    policy = load(device=backend)
    act(policy)
    assert policy.model_images()
    with pytest.raises(ObservationError):
        policy.decide(images={TOP: picture(1)}, state=STATE[:2], instruction="go")
    assert policy.model_images()  # nothing was written yet
    backend.left = -1
    with pytest.raises(RuntimeError, match="fell off"):
        act(policy)
    assert policy.model_images() == {}
    policy.close()


def test_graph_that_is_planned_again_lets_go_of_the_first_plan() -> None:
    """Its captured graph would stay on the GPU, and nobody could free it."""
    backend = Counting()
    g = StaticGraph("g", backend)
    g.output("y", g.call(silu, x=g.input("x", (2, 3), torch.float32)))
    g.plan()
    g.plan(reuse=False)
    assert backend.open == 1
    g.close()
    assert backend.open == 0


class Noting(CpuBackend):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def program(self, name: str, steps: Any, memory: Any, inputs: Any, outputs: Any) -> CpuProgram:
        notes, kind = self.notes, "vision" if name.endswith("vision") else "bucket"

        class Program(CpuProgram):
            def send(self, offset: int, bytes: int) -> None:
                notes.append(f"send {bytes}")

            def start(self) -> None:
                notes.append(f"start {kind}")
                super().start()

            def finish(self, first: Any) -> None:
                notes.append(f"finish {kind}")

            def replay_all(self, taps: Any) -> None:
                notes.append(f"all {kind}")
                super().replay_all(taps)

        return Program(steps, outputs)


def test_vision_starts_before_the_prompt_and_ends_where_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millisecond of every decision, and pictures overwritten while they are copied."""
    backend = Noting()
    policy = load(device=backend)
    notes, real = backend.notes, policy._model.tokenise

    def tokenise(*given: Any) -> list[int]:
        notes.append("tokenise")
        return real(*given)

    monkeypatch.setattr(policy._model, "tokenise", tokenise)
    notes.clear()
    act(policy)
    sends = [note for note in notes if note.startswith("send")]
    assert sends
    assert all(int(note.split()[1]) > 1 for note in sends)
    rest = notes[len(sends) :]
    assert rest == ["start vision", "tokenise", "start bucket", "finish vision", "finish bucket"]
    notes.clear()
    act(policy, taps=policy.marks[:1])
    assert [n for n in notes if not n.startswith("send")] == ["tokenise", "all vision", "all bucket"]
    notes.clear()

    def broken(*given: Any) -> list[int]:
        raise ValueError("no such words")

    monkeypatch.setattr(policy._model, "tokenise", broken)
    with pytest.raises(ValueError, match="no such words"):
        act(policy)
    assert notes[-2:] == ["start vision", "finish vision"]
