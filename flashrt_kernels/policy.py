# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The public API without ROS: `load_policy` → `Policy.decide` → `Chunk`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from flashrt_kernels.backend import Backend, backend_of
from flashrt_kernels.checkpoint import PiCheckpoint, load_lerobot
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.errors import CheckpointError, ObservationError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.image import patches_to_image
from flashrt_kernels.models import MODELS
from flashrt_kernels.models.model import Model
from flashrt_kernels.observation import check_image, check_instruction, check_noise, check_state, seeded_noise
from flashrt_kernels.pixels import RawImage
from flashrt_kernels.policy_graphs import PolicyGraphs

log = logging.getLogger(__name__)

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
DEVICES = {"cpu": "fp32", "cuda": "bf16"}  # kind of device → default precision
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


def load_policy(
    folder: str | Path,
    device: str | Backend = "cpu",
    precision: str | None = None,
    tokenizer: str | Path | None = None,
    num_inference_steps: int | None = None,
    *,
    cameras: Iterable[str] | None = None,
    max_image_bytes: int = MAX_IMAGE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Policy:
    """Load a checkpoint folder, plan every graph, and return a policy that is ready to decide.

    device: `cpu`, `cuda`, `cuda:1`, or a backend (`flashrt_kernels.cuda.backend.CudaBackend` with options).
    precision: `fp32` or `bf16`; None is the device's default.
    tokenizer: file or folder, for checkpoints without one.
    num_inference_steps: denoising steps; None is the checkpoint's own.
    cameras: as `Policy.bind`, which would plan a second time; None: all.
    max_image_bytes: largest image that a camera may deliver; fixes the size of the input buffers.
    progress: called with (bytes of weights in place, bytes in all).

    Logs what the checkpoint's files contradict each other in. Raises CheckpointError naming file and key, or
    the option that cannot be used; ObservationError as `Policy.bind`; DeviceError where there is no such GPU;
    KernelBuildError where its kernels have to be built first.
    """
    backend = backend_of(device) if isinstance(device, str) else device
    kind = backend.device.type
    precision = precision or DEVICES[kind]
    if precision not in PRECISIONS:
        raise CheckpointError(f"precision={precision!r}; expected one of {', '.join(PRECISIONS)}")
    checkpoint = load_lerobot(Path(folder), tokenizer, scan=kind == "cpu")
    if checkpoint.policy_type not in MODELS:
        raise CheckpointError(f"{folder}: policy type {checkpoint.policy_type!r}; known: {', '.join(MODELS)}")
    steps = checkpoint.config.num_inference_steps if num_inference_steps is None else num_inference_steps
    for name, value in (("num_inference_steps", steps), ("max_image_bytes", max_image_bytes)):
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{name}={value!r}; expected an integer of at least 1")
    for note in checkpoint.notes:
        log.warning("%s: %s", folder, note)
    try:
        model = MODELS[checkpoint.policy_type](
            checkpoint, PRECISIONS[precision], steps, backend.device, progress
        )
    except BaseException:
        backend.release()
        raise
    return Policy(checkpoint, model, backend, max_image_bytes, cameras)


class Policy:
    """A loaded policy: a planned graph for vision and one per prompt bucket. For one thread at a time."""

    def __init__(
        self,
        checkpoint: PiCheckpoint,
        model: Model,
        backend: Backend,
        max_image_bytes: int,
        cameras: Iterable[str] | None = None,
    ) -> None:
        config = checkpoint.config
        self.name = checkpoint.policy_type
        self.cameras = config.cameras
        self.state_dim, self.action_dim, self.horizon = config.state_dim, config.action_dim, config.chunk_size
        self.action_names = config.action_names
        self.state_stats = dict(checkpoint.state_norm.stats)
        self.action_stats = dict(checkpoint.action_norm.stats)
        self._unscanned = checkpoint.unscanned  # verified on the device, once it is uploaded
        self._checkpoint = replace(checkpoint, tensors={}, unscanned=None)  # the model holds what it needs
        self._model, self._backend = model, backend
        self._max_image_bytes = max_image_bytes
        self._noise_shape = (config.chunk_size, config.max_action_dim)
        self._slots = slots_by_name(config.cameras, checkpoint.camera_names)
        self._graphs: PolicyGraphs | None = None
        self._last: tuple[str, ...] | None = None  # cameras of the last decision
        self._warned = False
        self.bound: tuple[str, ...] = ()
        try:
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
        if bound == self.bound:
            return
        graphs = PolicyGraphs(
            self.name,
            self._model,
            self._backend,
            len(bound),
            self._checkpoint.config.tokenizer_max_length,
            self._max_image_bytes,
        )
        self._model.weights.verify(self._unscanned)
        self._unscanned = None
        self._close_graphs()
        graphs.plan()
        self._graphs, self.bound = graphs, bound

    def _close_graphs(self) -> None:
        if self._graphs is not None:
            self._graphs.close()
        self._graphs, self.bound, self._last = None, (), None

    def slot(self, name: str) -> str:
        """Full slot name of a camera given by any accepted name. Raises ObservationError for others."""
        if name not in self._slots:
            raise ObservationError(f"unknown camera {name!r}; the checkpoint has {', '.join(self.cameras)}")
        return self._slots[name]

    def warm_up(self, progress: Callable[[str], None] | None = None) -> None:
        """Decide once through the largest graph, which touches every weight and the whole arena."""
        graphs = self._opened()
        image = RawImage(bytes(1), 1, 1, 0, "mono8")  # fits below any max_image_bytes
        graph = graphs.largest
        start = time.perf_counter()
        self._write_images(graphs.vision, dict.fromkeys(self.bound, image))
        state = np.zeros(self.state_dim, np.float32)
        self._model.write_inputs(graph, [self._checkpoint.tokenizer.bos_id], len(self.bound), state)
        graph.write("noise", seeded_noise(0, 0, self._noise_shape))
        graph.replay()
        if progress is not None:
            progress(f"{graph.name}: {1e3 * (time.perf_counter() - start):.0f} ms")

    @property
    def marks(self) -> tuple[str, ...]:
        """Names of the intermediates that `decide(taps=…)` can copy."""
        return self._opened().largest.marks

    # ---- deciding ----

    def decide(
        self,
        images: Mapping[str, np.ndarray | RawImage],
        state: Sequence[float] | np.ndarray,
        instruction: str,
        seed: int = 0,
        sequence: int = 0,
        noise: np.ndarray | None = None,
        taps: Sequence[str] | None = None,
    ) -> Chunk:
        """One observation → one chunk of actions.

        images: by camera name, uint8 [H, W, 3] RGB or RawImage; missing cameras are masked as in training.
        state: [D] in robot units.
        seed, sequence: choose the start noise. Equal observation, seed and sequence: equal bits, on the same
        machine with the same number of torch threads.
        noise: float32 [horizon, max_action_dim] in place of the seeded one.
        taps: intermediates to copy, of `marks`.

        Raises ObservationError naming the camera or joint that does not fit.
        """
        start = time.perf_counter()
        graphs = self._opened()
        state = check_state(state, self.state_dim)
        frames = self._check_images(images)
        check_instruction(instruction)
        if noise is None:
            noise = seeded_noise(seed, sequence, self._noise_shape)
        check_noise(noise, self._noise_shape)
        try:
            self._write_images(graphs.vision, frames)
            if not taps:
                graphs.vision.start()  # a GPU is busy with it while the prompt is made
            ids = self._tokenise(instruction, state)
            graph = graphs.holding(len(ids))
            self._model.write_inputs(graph, ids, len(frames), state)
            graph.write("noise", noise)
        except BaseException:
            graphs.vision.finish()  # or the next pictures are written over those that are being copied
            raise
        copies = graph.replay(taps or ())
        self._last = tuple(frames)
        actions, parts = graph.read("actions"), graph.timings
        total = 1e3 * (time.perf_counter() - start)
        busy = sum(ms for part, ms in parts.items() if part != "gpu")
        timings = {"prepare": total - busy, **parts} if parts else {}
        return Chunk(actions, {**timings, "total": total}, copies)

    def model_images(self) -> dict[str, np.ndarray]:
        """What the model saw in the last decision, by full slot name: uint8 [h, w, 3]; no missing cameras."""
        if self._last is None:
            return {}
        vision = self._opened().vision
        height, width = self._checkpoint.config.image_resolution
        patch = self._checkpoint.dims.vision.patch_size
        return {
            slot: patches_to_image(vision.read(f"image{i}.patches"), height, width, patch)
            for i, slot in enumerate(self._last)
        }

    def normalise_state(self, state: Sequence[float] | np.ndarray) -> np.ndarray:
        """[D] in robot units → float32 [D] as the prompt writes it, before binning."""
        return self._checkpoint.state_norm.normalise(check_state(state, self.state_dim))

    def _tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        text = self._model.prompt(instruction, self._checkpoint.state_norm.normalise(state))
        ids = self._checkpoint.tokenizer.encode(text)
        limit = self._checkpoint.config.tokenizer_max_length
        if len(ids) > limit and not self._warned:
            self._warned = True
            log.warning("prompt of %d tokens is cut to %d, as in training: %r…", len(ids), limit, text[:80])
        return ids[:limit]

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
            found[slot] = check_image(
                name, image, self._max_image_bytes, self._checkpoint.config.image_resolution
            )
        if not found:
            raise ObservationError(f"no camera image; expected at least one of {', '.join(self.bound)}")
        return {slot: found[slot] for slot in self.bound if slot in found}

    def _write_images(self, vision: StaticGraph, frames: Mapping[str, RawImage]) -> None:
        """The pictures of one decision, on their way to the graph of the vision tower."""
        self._last = None  # until the pictures of this decision are there
        for i, frame in enumerate(frames.values()):
            frame.write(vision.host(f"image{i}.pixels"), vision.host(f"image{i}.info"))
            vision.send(f"image{i}.pixels", frame.bytes)
        for i in range(len(frames), len(self.bound)):
            vision.host(f"image{i}.info")[:] = 0

    # ---- reporting ----

    def describe(self) -> None:
        """Print `description`."""
        print(self.description())

    def description(self) -> str:
        """Origin, cameras, sizes, statistics and the memory plan, as text."""
        graphs = self._opened()
        c = self._checkpoint
        lines = [f"{self.name} from {c.folder} ({c.origin} format), tokenizer {c.tokenizer.source}"]
        lines += [f"note: {note}" for note in c.notes]
        lines += [
            f"camera: {slot}{'' if slot in self.bound else ' (not bound: masked)'}" for slot in self.cameras
        ]
        height, width = c.config.image_resolution
        lines += [
            f"images: resized with padding to {width}×{height}, limit {self._max_image_bytes} bytes each"
        ]
        lines += [f"chunk: {self.horizon} steps × {self.action_dim} actions; state: {self.state_dim}"]
        lines += [self._model.describe()]
        lines += describe_statistics("state", c.state_norm, None)
        lines += describe_statistics("action", c.action_norm, self.action_names)
        if c.relative_action_mask is not None:
            relative = np.flatnonzero(c.relative_action_mask).tolist()
            lines += [f"actions {relative} are relative to the state of the observation"]
        lines += [graphs.describe()]
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


def slots_by_name(cameras: Sequence[str], rename_map: Mapping[str, str]) -> dict[str, str]:
    """Every accepted camera name → full slot name.

    The full name; its last component and `video.<last>` where only one slot has it; and the names that the
    checkpoint's preprocessor renames.
    """
    last = [slot.rpartition(".")[2] for slot in cameras]
    names = {slot: slot for slot in cameras}
    for slot, short in zip(cameras, last, strict=True):
        if last.count(short) == 1:
            names.setdefault(short, slot)
            names.setdefault(f"video.{short}", slot)
    for robot_name, slot in rename_map.items():
        if slot in cameras:
            names.setdefault(robot_name, slot)
    return names


def describe_statistics(what: str, norm: Normaliser, names: Sequence[str] | None) -> list[str]:
    """One line for the mode, one for each dimension; a dimension without range is pointed out."""
    labels = list(names) if names else [str(i) for i in range(len(norm.offset))]
    rows = [
        f"  {label}: "
        + ", ".join(f"{key} {values[i]:.4g}" for key, values in norm.stats.items())
        + (", ZERO RANGE: never moved in training" if i in norm.zero_range else "")
        for i, label in enumerate(labels)
        if norm.stats
    ]
    return [f"{what} statistics: {norm.mode}", *rows]
