# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Other engines for the same task, each behind an adapter; one that is not installed is left out by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from benchmarks.device.cases import Case
from benchmarks.device.inputs import Observation, Prompts
from benchmarks.device.plain_torch import normalised_images
from flashrt_kernels.checkpoint.dims import ModelDims


class LeftOut(RuntimeError):
    """The engine cannot take part; the message says why."""


@dataclass(frozen=True, eq=False)
class Task:
    """What every adapter is built from: `tensors` by canonical key on the device, as stored in the file."""

    case: Case
    dims: ModelDims
    tensors: Mapping[str, torch.Tensor]
    prompts: Prompts
    example: Observation
    device: str = "cuda"

    def images(self, observation: Observation) -> torch.Tensor:
        """[views, 3, h, w] in [−1, 1] on the device."""
        raw = [torch.from_numpy(image).to(self.device) for image in observation.images.values()]
        return normalised_images(raw, *self.prompts.config.image_resolution)

    def ids(self, observation: Observation) -> torch.Tensor:
        return torch.tensor(observation.ids, device=self.device)

    def noise(self, observation: Observation) -> torch.Tensor:
        return torch.from_numpy(observation.noise).to(self.device)


Build = Callable[[Task], object]
