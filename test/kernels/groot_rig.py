# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The tiny GR00T policies as graphs, fed with the inputs that the public implementations were fed with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from flashrt_kernels.backend import CpuBackend
from flashrt_kernels.checkpoint.groot import GrootCheckpoint, load_groot
from flashrt_kernels.checkpoint.groot_dims import GrootVisionDims
from flashrt_kernels.composition import Node
from flashrt_kernels.embedding import embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.models.groot import Groot
from flashrt_kernels.models.groot_n16 import GrootN16
from flashrt_kernels.models.groot_n17 import GrootN17
from flashrt_kernels.models.model import Bucket

DATA = Path(__file__).resolve().parent.parent / "data"
MODELS: dict[str, type[Groot]] = {"n16": GrootN16, "n17": GrootN17}
CAMERAS, STEPS = 2, 4
Tensors = dict[str, np.ndarray]


def oracle(version: str, name: str = "oracle") -> Tensors:
    """Inputs, intermediates and outputs of the public implementation."""
    return load_file(DATA / f"tiny_groot_{version}" / f"{name}.safetensors")


class Given:
    """An image rule that takes patches as they are, from inputs `patches<i>` of the graph."""

    def __init__(self, vision: GrootVisionDims, edge: int) -> None:
        self.height = self.width = edge
        self.patch, self.rows = vision.patch, (edge // vision.patch) ** 2

    def compose(self, g: StaticGraph, pixels: Buffer, info: Buffer, out: Buffer) -> None:
        name = pixels.storage.name.replace("image", "patches").removesuffix(".pixels")
        every = g.constant(f"rows of {name}", torch.arange(self.rows, dtype=torch.int32))
        g.call(embedding, ids=every, table=g.input(name, out.shape, torch.float32), out=out)

    def problem(self, height: int, width: int) -> str | None:
        return None

    def picture(self, patches: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def describe(self) -> str:
        return "patches as given"


@dataclass
class Rig:
    """The graphs of one model for two cameras and prompts of at most `tokens` tokens."""

    model: Groot
    vision: StaticGraph
    bucket: Bucket

    @property
    def graphs(self) -> tuple[StaticGraph, StaticGraph]:
        return self.vision, self.bucket.graph

    @property
    def nodes(self) -> list[Node]:
        return self.vision._nodes + self.bucket.graph._nodes

    def write(self, given: Tensors) -> None:
        """The inputs of an oracle."""
        for i, patches in enumerate(patches_of(given, self.model)):
            target = self.vision.host(f"patches{i}")
            target[:, : patches.shape[1]], target[:, patches.shape[1] :] = patches, 0
        graph = self.bucket.graph
        ids, state = prompt_of(given, self.model), np.zeros(self.model.checkpoint.state_dim, np.float32)
        self.model.write_inputs(graph, ids, [True] * CAMERAS, state)
        normalised = given["in.state"][0, 0]
        graph.host("state")[0, : len(normalised)] = normalised
        graph.write("noise", given["in.noise"][0])

    def act(self, given: Tensors, taps: Sequence[str] = ()) -> tuple[np.ndarray, Tensors]:
        """Normalised actions [horizon, max_action] and what was tapped."""
        self.write(given)
        copies = self.bucket.graph.replay(taps)
        return self.bucket.graph.read("actions")[:, : self.model.dims.head.max_action], copies


def checkpoint_of(version: str) -> GrootCheckpoint:
    return load_groot(DATA / f"tiny_groot_{version}")


def rig(
    version: str,
    dtype: torch.dtype = torch.float32,
    tokens: int = 32,
    checkpoint: GrootCheckpoint | None = None,
    steps: int = STEPS,
) -> Rig:
    """Graphs of the tiny checkpoint, or of a changed one, on the CPU."""
    checkpoint = checkpoint or checkpoint_of(version)
    edge = {"n16": 56, "n17": 48}[version]
    images: Any = Given(checkpoint.dims.vision, edge)
    backend = CpuBackend()
    model = MODELS[version](checkpoint, dtype, steps, backend.device, images=images)
    vision = StaticGraph("vision", backend)
    model.compose_vision(vision, CAMERAS, max(tokens, 64), image_bytes=16)
    graph = StaticGraph(f"{tokens} tokens", backend, after=vision)
    model.compose(graph, CAMERAS, tokens)
    vision.plan()
    graph.plan()
    return Rig(model, vision, Bucket(tokens, graph))


def patches_of(given: Tensors, model: Groot) -> list[np.ndarray]:
    """What the vision tower reads, [patches, (channel, y, x)] in blocks, of every image."""
    vision, rows = model.dims.vision, model.images.rows
    if "in.pixel_values" in given:  # with two equal frames
        frames = given["in.pixel_values"].reshape(CAMERAS, rows, 3, 2, vision.patch**2)
        return list(frames[:, :, :, 0].reshape(CAMERAS, rows, -1))
    return [in_patches(given[f"in.image{i}"][0], vision.patch, vision.merge) for i in range(CAMERAS)]


def in_patches(image: np.ndarray, patch: int, merge: int) -> np.ndarray:
    """[3, height, width] → [patches, 3·patch²], merge × merge blocks one after another."""
    _, height, width = image.shape
    down, across = height // patch // merge, width // patch // merge
    split = image.reshape(3, down, merge, patch, across, merge, patch)
    return split.transpose(1, 4, 2, 5, 0, 3, 6).reshape(down * across * merge**2, -1)


def prompt_of(given: Tensors, model: Groot) -> list[int]:
    """Ids with one image token for each image."""
    ids = given["in.input_ids"][0]
    first = np.append(True, ids[1:] != ids[:-1])
    return ids[(ids != model.image_token) | first].tolist()


def rows_of(given: Tensors, model: Groot) -> np.ndarray:
    """For every row of the prompt in our buffer, images first: its place in the original's order."""
    is_image = given["in.input_ids"][0] == model.image_token
    return np.concatenate([np.flatnonzero(is_image), np.flatnonzero(~is_image)])
