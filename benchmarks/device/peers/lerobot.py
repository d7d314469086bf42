# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""LeRobot's Pi0.5 (`pip install lerobot`), eager and through torch.compile."""

from __future__ import annotations

import inspect
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

from benchmarks.device.inputs import Observation
from benchmarks.device.peers import LeftOut, Task
from benchmarks.device.timing import Sample, gpu_milliseconds
from flashrt_kernels.checkpoint.lerobot import FORMATS

COMPILE_LIMIT_S = 60
WHAT = (
    "gpu: normalised images on the device → normalised actions on the device; wall: VGA images and token ids "
    "in host memory → actions in host memory, without tokenising; prompts padded to 200 tokens"
)


class LeRobotEager:
    """`PI05Policy` as it is installed, with the weights of the same file."""

    name, what = "LeRobot Pi0.5 bf16, eager", WHAT
    precision = "highest"  # of its fp32 parts: torch's default

    def __init__(self, task: Task) -> None:
        try:
            from lerobot.policies.pi05.modeling_pi05 import PI05Policy
        except ImportError as error:
            raise LeftOut(f"not installed: {error}") from None
        ignore_unknown_arguments("lerobot.policies.pi_gemma", "create_causal_mask")
        self.task = task
        with torch.device(task.device):
            self.policy: Any = PI05Policy(self.config(task))
        self.policy.eval().requires_grad_(False)
        self.copy_weights(task)
        self.sample = self.policy.model.sample_actions

    @staticmethod
    def config(task: Task) -> Any:
        from lerobot.configs import FeatureType, PolicyFeature
        from lerobot.policies.pi05.configuration_pi05 import PI05Config

        case, size = task.case, task.prompts.config.image_resolution
        cameras = {
            f"observation.images.{name}": PolicyFeature(type=FeatureType.VISUAL, shape=(3, *size))
            for name in task.example.images
        }
        return PI05Config(
            device=task.device,
            dtype="bfloat16",
            chunk_size=case.horizon,
            n_action_steps=case.horizon,
            input_features=cameras,
            output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(7,))},
        )

    def copy_weights(self, task: Task) -> None:
        """Names of any LeRobot version through our key map. Raises LeftOut for a tensor that has no match."""
        with torch.no_grad():
            for name, parameter in self.policy.named_parameters():
                key = FORMATS["pi05"].canonical(name)
                if key is None:
                    continue
                if key not in task.tensors:
                    raise LeftOut(f"its parameter {name} is unknown here")
                parameter.copy_(task.tensors[key])

    def inputs(self, observation: Observation) -> tuple[list[torch.Tensor], list[torch.Tensor], Any, Any]:
        """Images, their masks, token ids and mask, with a batch axis."""
        images = list(self.task.images(observation)[:, None])  # [1, 3, h, w] each
        masks = [torch.ones(1, dtype=torch.bool, device=self.task.device) for _ in images]
        ids, valid = (part.to(self.task.device) for part in padded(observation, self.task))
        return images, masks, ids, valid

    def decide(self, observation: Observation) -> torch.Tensor:
        noise = self.task.noise(observation)[None]
        with matmul_precision(self.precision):
            return self.sample(*self.inputs(observation), noise=noise)[0]

    def measure(self, observation: Observation) -> Sample:
        inputs, noise = self.inputs(observation), self.task.noise(observation)[None]
        torch.cuda.synchronize()
        with matmul_precision(self.precision):
            gpu = gpu_milliseconds(lambda: self.sample(*inputs, noise=noise))
            start = time.perf_counter()
            self.policy.predict_action_chunk(self.batch(observation), noise=noise).cpu()
        return {"gpu": gpu, "wall": 1e3 * (time.perf_counter() - start)}

    def batch(self, observation: Observation) -> dict[str, torch.Tensor]:
        device = self.task.device
        images = {
            f"observation.images.{name}": torch.from_numpy(image).to(device).permute(2, 0, 1)[None].float()
            / 255
            for name, image in observation.images.items()
        }
        ids, valid = (part.to(device) for part in padded(observation, self.task))
        names = ("observation.language.tokens", "observation.language.attention_mask")
        return {**images, names[0]: ids, names[1]: valid}

    def actions(self, observation: Observation) -> np.ndarray:
        return self.decide(observation).float().cpu().numpy()

    def close(self) -> None:
        self.policy = self.sample = None


class LeRobotCompiled(LeRobotEager):
    """The same through torch.compile, if it is ready within a minute."""

    name = "LeRobot Pi0.5 bf16, torch.compile"
    precision = "high"  # TF32, as its own option `compile_model` sets

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.sample = torch.compile(self.sample, mode="reduce-overhead")
        self.policy.model.sample_actions = self.sample
        try:
            with time_limit(COMPILE_LIMIT_S):
                for _ in range(3):  # traces, then records its own CUDA graph
                    self.decide(task.example)
                torch.cuda.synchronize()
        except TimeUp:
            raise LeftOut(f"had not compiled after {COMPILE_LIMIT_S} s") from None


def padded(observation: Observation, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and their mask [1, tokenizer_max_length], as LeRobot's processor writes them."""
    length = task.prompts.config.tokenizer_max_length
    ids, valid = torch.zeros(1, length, dtype=torch.long), torch.zeros(1, length, dtype=torch.bool)
    ids[0, : len(observation.ids)] = torch.tensor(observation.ids)
    valid[0, : len(observation.ids)] = True
    return ids, valid


def ignore_unknown_arguments(module: str, function: str) -> None:
    """LeRobot passes an argument that newer transformers have dropped; without this it stops there."""
    namespace: Any = __import__(module, fromlist=[function])
    original: Callable[..., Any] = getattr(namespace, function)
    known = inspect.signature(original).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return

    def call(**given: Any) -> Any:
        return original(**{name: value for name, value in given.items() if name in known})

    setattr(namespace, function, call)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """torch's precision of fp32 products, inside the block only."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class TimeUp(BaseException):
    """Not an Exception: the compiler catches those and carries on."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Interrupt the block from the outside once its time is over."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
