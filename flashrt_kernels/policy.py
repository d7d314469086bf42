# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The public API without ROS: `Policy.decide` → `Chunk`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flashrt_kernels.backend import Backend
from flashrt_kernels.checkpoint.checkpoint import Checkpoint
from flashrt_kernels.errors import ObservationError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models.model import Model
from flashrt_kernels.names import Names
from flashrt_kernels.observation import check_image, check_instruction, check_noise, check_state, seeded_noise
from flashrt_kernels.pixels import RawImage
from flashrt_kernels.policy_graphs import PolicyGraphs

MAX_IMAGE_BYTES = 1920 * 1200 * 4


@dataclass(frozen=True, eq=False)
class Chunk:
    """One decision.

    actions: float32 [horizon, D] in robot units.
    timings: milliseconds of prepare (host work and copies that no launch ran beside), vision, prefix, action,
    and total; on a GPU also gpu, from the first launch to the end of the last one with what it waited for
    between them, and with taps only total.
    taps: copies of the intermediates that were asked for.
    """

    actions: np.ndarray
    timings: dict[str, float]
    taps: dict[str, np.ndarray] = field(default_factory=dict)


class Policy:
    """A loaded policy: a planned graph for vision and some per prompt bucket. For one thread at a time."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: Model,
        backend: Backend,
        max_image_bytes: int,
        cameras: Iterable[str] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.origin = checkpoint.policy_type, checkpoint.origin
        self.cameras = checkpoint.cameras
        self.state_dim, self.action_dim = checkpoint.state_dim, checkpoint.action_dim
        self.horizon = checkpoint.horizon
        self.state_groups = dict(checkpoint.state_widths)
        self.action_names, self.not_positions = checkpoint.action_names, checkpoint.not_positions
        self.relative_actions = checkpoint.relative_actions
        self.state_stats = dict(checkpoint.state_stats)
        self.action_stats = dict(checkpoint.action_stats)
        self._unscanned = checkpoint.unscanned  # verified on the device, once it is uploaded
        self._checkpoint = replace(checkpoint, tensors={}, unscanned=None)  # the model holds what it needs
        self._model, self._backend = model, backend
        self.camera_rule = model.camera_rule
        self._max_image_bytes = max_image_bytes
        self._graphs: PolicyGraphs | None = None
        self._seen: dict[str, int] = {}  # slots with an image in the last decision → their place in the graph
        self.bound: tuple[str, ...] = ()
        try:
            self._names = Names(checkpoint, {} if rename is None else rename)
            self._plan(self.cameras if cameras is None else cameras)
        except BaseException:
            self.close()
            raise
        model.weights.release()

    # ---- planning ----

    def bind(self, cameras: Iterable[str]) -> None:
        """Plan for these camera slots only: the others are masked away and cost nothing.

        Raises ObservationError for unknown, repeated or no cameras.
        """
        self._opened()
        self._plan(cameras)

    def _plan(self, cameras: Iterable[str]) -> None:
        """Graphs for these cameras; the old ones stay where `cameras` cannot be bound.

        Their memory is let go before the new one is allocated: a GPU may have no room for both.
        """
        names = list(cameras)
        slots = [self.slot(name) for name in names]
        twice = sorted({slot for slot in slots if slots.count(slot) > 1})
        if twice or not slots:
            raise ObservationError(f"cameras {names}: expected at least one, each once; repeated: {twice}")
        bound = tuple(slot for slot in self.cameras if slot in slots)
        if self.camera_rule == "all" and bound != self.cameras:
            raise ObservationError(f"cameras {names}: {self.name} needs all of {', '.join(self.cameras)}")
        if bound == self.bound:
            return
        # Of a camera that the policy must see, if only as a black picture, the place stays.
        places = self.cameras if self.camera_rule == "fixed, seen" else bound
        graphs = PolicyGraphs(self.name, self._model, self._backend, len(places), self._max_image_bytes)
        self._model.weights.verify(self._unscanned)
        self._unscanned = None
        self._close_graphs()
        graphs.plan()
        self._graphs, self.bound, self._places = graphs, bound, places

    def _close_graphs(self) -> None:
        if self._graphs is not None:
            self._graphs.close()
        self._graphs, self.bound, self._places, self._seen = None, (), (), {}

    def slot(self, name: str) -> str:
        """Full slot name of a camera given by any accepted name. Raises ObservationError for others."""
        return self._names.slot(name)

    def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
        """Decide once through the largest graphs, which touches every weight and the whole arena."""
        graphs = self._opened()
        image = RawImage(bytes(1), 1, 1, 0, "mono8")  # fits below any max_image_bytes
        bucket = graphs.largest
        start = time.perf_counter()
        present = self._write_images(graphs.vision, dict.fromkeys(self.bound, image))
        state = np.zeros(self.state_dim, np.float32)
        ids = self._model.tokenise("warm up", state)  # some policies refuse to go without words
        self._model.write_inputs(bucket.graph, ids, present, state)
        if self._model.noise_shape is not None:
            bucket.graph.write("noise", seeded_noise(0, 0, self._model.noise_shape))
        bucket.graph.replay()
        if bucket.step is not None:
            bucket.step.replay()
        if progress is not None:
            progress(f"{bucket.graph.name}: {1e3 * (time.perf_counter() - start):.0f} ms")

    @property
    def marks(self) -> tuple[str, ...]:
        """Names of the intermediates that `decide(taps=…)` can copy."""
        return (*self._opened().largest.graph.marks, *self._model.marks)

    # ---- deciding ----

    def decide(
        self,
        images: Mapping[str, np.ndarray | RawImage],
        state: Sequence[float] | np.ndarray | Mapping[str, Any],
        instruction: str,
        seed: int = 0,
        sequence: int = 0,
        noise: np.ndarray | None = None,
        taps: Sequence[str] | None = None,
    ) -> Chunk:
        """One observation → one chunk of actions.

        images: by camera name, uint8 [H, W, 3] RGB or RawImage; missing cameras as in training.
        state: [D] in robot units, or by group of `state_groups`.
        seed, sequence: choose the start noise. Equal observation, seed and sequence: equal bits, on the same
        machine with the same number of torch threads.
        noise: float32 [horizon, max_action_dim] in place of the seeded one.
        taps: intermediates to copy, of `marks`.

        Raises ObservationError naming the camera or joint that does not fit.
        """
        start = time.perf_counter()
        graphs = self._opened()
        state = check_state(self._names.state(state), self.state_dim)
        frames = self._check_images(images)
        check_instruction(instruction)
        noise = self._noise(noise, seed, sequence)
        try:
            present = self._write_images(graphs.vision, frames)
            if not taps:
                graphs.vision.start()  # a GPU is busy with it while the prompt is made
            ids = self._model.tokenise(instruction, state)
            bucket = graphs.holding(len(ids))
            self._model.write_inputs(bucket.graph, ids, present, state)
            if noise is not None:
                bucket.graph.write("noise", noise)
        except BaseException:
            graphs.vision.finish()  # or the next pictures are written over those that are being copied
            raise
        own = [tap for tap in taps or () if tap in self._model.marks]
        copies = bucket.graph.replay([tap for tap in taps or () if tap not in own])
        outcome = self._model.finish(bucket, state, own)
        self._seen = {slot: i for i, slot in enumerate(self._filled(frames)) if slot in frames}
        parts = {**bucket.graph.timings, **outcome.timings}
        total = 1e3 * (time.perf_counter() - start)
        busy = sum(ms for part, ms in parts.items() if part != "gpu")
        timings = {"prepare": total - busy, **parts} if parts else {}
        return Chunk(outcome.actions, {**timings, "total": total}, {**copies, **outcome.taps})

    def model_images(self) -> dict[str, np.ndarray]:
        """What the model saw in the last decision, by full slot name: uint8 [h, w, 3]; no missing cameras."""
        vision = self._opened().vision
        return {
            slot: self._model.images.picture(vision.read(f"image{i}.patches"))
            for slot, i in self._seen.items()
        }

    def statistics_units(self, state: Sequence[float] | np.ndarray) -> np.ndarray:
        """[D] in robot units → float32 [D] in the units of `state_stats` (openpi's ALOHA turns joints)."""
        return self._checkpoint.statistics_units(check_state(state, self.state_dim))

    def normalise_state(self, state: Sequence[float] | np.ndarray) -> np.ndarray:
        """[D] in robot units → float32 [D] as the model sees it, before binning or padding."""
        return self._checkpoint.normalise_state(check_state(state, self.state_dim))

    def _noise(self, noise: np.ndarray | None, seed: int, sequence: int) -> np.ndarray | None:
        shape = self._model.noise_shape
        if shape is None:
            if noise is not None:
                raise ObservationError(f"noise is given, but {self.name} starts from none; leave it out")
            return None
        if noise is None:
            return seeded_noise(seed, sequence, shape)
        check_noise(noise, shape)
        return noise

    def _check_images(self, images: Mapping[str, np.ndarray | RawImage]) -> dict[str, RawImage]:
        """Frames by full slot name in the checkpoint's order, in which the model was trained to see them."""
        if not isinstance(images, Mapping):
            raise ObservationError(f"images is {type(images).__name__}; expected {{camera name: image}}")
        found: dict[str, RawImage] = {}
        for name, image in images.items():
            slot = self.slot(name)
            if slot not in self.bound:
                raise ObservationError(
                    f"camera {name!r} is not among the bound ones: {', '.join(self.bound)}"
                )
            if slot in found:
                raise ObservationError(f"camera {name!r}: {slot} is given twice")
            found[slot] = check_image(name, image, self._max_image_bytes, self._model.images)
        missing = [slot for slot in self.bound if slot not in found]
        if not found or (missing and self.camera_rule == "all"):
            least = "all" if self.camera_rule == "all" else "at least one"
            raise ObservationError(
                f"no image of camera {', '.join(missing)}; expected {least} of {', '.join(self.bound)}"
            )
        return {slot: found[slot] for slot in self.bound if slot in found}

    def _filled(self, frames: Mapping[str, RawImage]) -> list[str]:
        """Slots in the order of the graph's images, those without a frame among them or behind them."""
        if self.camera_rule == "present first":
            return [*frames, *(slot for slot in self._places if slot not in frames)]
        return list(self._places)

    def _write_images(self, vision: StaticGraph, frames: Mapping[str, RawImage]) -> list[bool]:
        """The pictures of one decision, on their way to the vision tower. Returns which are there."""
        self._seen = {}  # until the pictures of this decision are there
        present = []
        for i, slot in enumerate(self._filled(frames)):
            frame = frames.get(slot)
            present.append(frame is not None)
            if frame is None:
                vision.host(f"image{i}.info")[:] = 0
                continue
            frame.write(vision.host(f"image{i}.pixels"), vision.host(f"image{i}.info"))
            vision.send(f"image{i}.pixels", frame.bytes)
        return present

    # ---- reporting ----

    def describe(self) -> None:
        """Print `description`."""
        print(self.description())

    def description(self) -> str:
        """Origin, cameras, sizes, statistics and the memory plan, as text."""
        graphs = self._opened()
        c = self._checkpoint
        lines = [f"{self.name} from {c.folder} ({c.origin} format)"]
        lines += [f"note: {note}" for note in c.notes]
        lines += [
            f"camera: {slot}{'' if slot in self.bound else ' (not bound: masked)'}" for slot in self.cameras
        ]
        lines += [f"images: {self._model.images.describe()}, limit {self._max_image_bytes} bytes each"]
        lines += [f"chunk: {self.horizon} steps × {self.action_dim} actions; state: {self.state_dim}"]
        lines += [self._model.describe(), *c.describe(), graphs.describe()]
        return "\n".join(lines)

    def close(self) -> None:
        """Free weights, graphs and arena. The policy cannot decide any more."""
        try:
            self._close_graphs()
        finally:
            self._model.weights.clear()
            self._backend.release()

    def _opened(self) -> PolicyGraphs:
        """The planned graphs. Raises RuntimeError where the policy is closed."""
        if self._graphs is None:
            raise RuntimeError(f"policy {self.name} is closed")
        return self._graphs
