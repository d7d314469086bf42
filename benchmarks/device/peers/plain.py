# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch in bf16: eager, and the whole decision in one CUDA graph."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.device.ceilings import captured
from benchmarks.device.inputs import Observation
from benchmarks.device.peers import Task
from benchmarks.device.plain_torch import PlainPi05
from benchmarks.device.timing import Sample, gpu_milliseconds

WHAT = "normalised images on the device → normalised actions on the device"


class PlainEager:
    """Kernel by kernel from Python."""

    name, what = "plain PyTorch bf16, eager", WHAT

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model: PlainPi05 | None = PlainPi05(task.tensors, task.dims, torch.bfloat16, task.prompts.steps)
        self.images, self.ids, self.noise = (
            part(task.example).clone() for part in (task.images, task.ids, task.noise)
        )
        self.out = self.noise
        self.run()

    def run(self) -> None:
        assert self.model is not None
        self.out = self.model.actions(self.images, self.ids, self.noise)

    def write(self, observation: Observation) -> None:
        self.images.copy_(self.task.images(observation))
        self.ids.copy_(self.task.ids(observation))
        self.noise.copy_(self.task.noise(observation))
        torch.cuda.synchronize()

    def measure(self, observation: Observation) -> Sample:
        self.write(observation)
        return {"gpu": gpu_milliseconds(self.run)}

    def actions(self, observation: Observation) -> np.ndarray:
        self.write(observation)
        self.run()
        return self.out.float().cpu().numpy()

    def close(self) -> None:
        self.model = None


class PlainGraph(PlainEager):
    """The same launches, replayed."""

    name = "plain PyTorch bf16, one CUDA graph"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.graph = captured(super().run)

    def run(self) -> None:
        if hasattr(self, "graph"):
            self.graph.replay()
        else:
            super().run()

    def close(self) -> None:
        super().close()
        self.graph.reset()
