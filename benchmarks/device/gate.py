# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Correctness before speed: every engine's numbers against an independent fp32 forward of the same weights.

Our engine must keep each layer's keys and values and each step's velocity within 1 %, and must not be blind:
another instruction, swapped cameras and another state must each move the actions by more than three times its
error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.device.inputs import STATE_RANGE, Observation
from benchmarks.device.ours import Ours
from benchmarks.device.peers import Task
from benchmarks.device.plain_torch import PlainPi05

LIMIT = 0.01
MARGIN = 3.0


@dataclass(frozen=True, eq=False)
class Reference:
    """fp32: keys and values of each layer [tokens, d], velocity of each step and actions [horizon, 32]."""

    keys: list[np.ndarray]
    values: list[np.ndarray]
    velocities: list[np.ndarray]
    actions: np.ndarray


class Fp32:
    """Plain PyTorch in fp32 without TF32."""

    def __init__(self, task: Task) -> None:
        self.task = task
        config = task.prompts.config
        self.model = PlainPi05(
            task.tensors,
            task.dims,
            torch.float32,
            config.num_inference_steps,
            config.min_period,
            config.max_period,
        )
        self._last: tuple[Observation, Reference] | None = None

    def forward(self, observation: Observation) -> Reference:
        """Of the last observation it is remembered: every engine is compared with it."""
        if self._last is None or self._last[0] is not observation:
            self._last = observation, self._forward(observation)
        return self._last[1]

    @torch.inference_mode()
    def _forward(self, observation: Observation) -> Reference:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        task, model = self.task, self.model
        cache = model.prefix(model.embed(task.images(observation), task.ids(observation)))
        actions, velocities = model.denoise(cache, task.noise(observation))
        keys, values = zip(*(((k[0], v[0])) for k, v in cache), strict=True)
        return Reference(arrays(keys), arrays(values), arrays(velocities), actions.cpu().numpy())


def arrays(tensors: Iterable[torch.Tensor]) -> list[np.ndarray]:
    return [tensor.cpu().numpy() for tensor in tensors]


def error(got: np.ndarray, want: np.ndarray) -> float:
    """‖got − want‖ / ‖want‖; infinity where anything is not finite."""
    if not np.isfinite(got).all():
        return float("inf")
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def disturbed(prompts_of: Task, observation: Observation, other: Observation) -> dict[str, Observation]:
    """One thing changed at a time."""
    names = list(observation.images)
    swapped = dict(zip(names, [observation.images[name] for name in reversed(names)], strict=True))
    state = np.where(observation.state > 0, -STATE_RANGE, STATE_RANGE).astype(np.float32)
    ids = prompts_of.prompts.ids
    limit = prompts_of.prompts.config.tokenizer_max_length
    return {
        "instruction": replace(
            observation,
            instruction=other.instruction,
            ids=ids(other.instruction, observation.state)[:limit],
        ),
        "cameras": replace(observation, images=swapped),
        "state": replace(observation, state=state, ids=ids(observation.instruction, state)[:limit]),
    }


def check(ours: Ours, fp32: Fp32, found: list[Observation]) -> dict[str, object]:
    """Errors and how far each disturbance moves the actions; `passed` says whether all limits hold."""
    observation = found[0]
    other = next(other for other in found if other.instruction != observation.instruction)
    want = fp32.forward(observation)
    layers, steps = len(want.keys), len(want.velocities)
    taps = [f"prefix.kv.{i}.{part}" for i in range(layers) for part in "kv"]
    taps += [f"v_t.step{i}" for i in range(steps)] + ["actions_normalized_padded"]
    got = ours.decide(observation, tuple(taps)).taps
    rows = want.keys[0].shape[0]
    errors = {
        "keys": [error(got[f"prefix.kv.{i}.k"][:rows], want.keys[i]) for i in range(layers)],
        "values": [error(got[f"prefix.kv.{i}.v"][:rows], want.values[i]) for i in range(layers)],
        "velocities": [error(got[f"v_t.step{i}"], want.velocities[i]) for i in range(steps)],
        "actions": [error(got["actions_normalized_padded"], want.actions)],
    }
    base = ours.actions(observation)
    moved = {
        name: error(ours.actions(changed), base)
        for name, changed in disturbed(fp32.task, observation, other).items()
    }
    if len(observation.images) == 1:
        moved.pop("cameras")  # nothing to swap
    worst = {name: max(values) for name, values in errors.items()}
    close = all(worst[name] <= LIMIT for name in ("keys", "values", "velocities"))
    seeing = all(change > MARGIN * worst["actions"] for change in moved.values())
    replayed = float(np.abs(base - got["actions_normalized_padded"]).max())
    return {
        "passed": close and seeing,
        "worst": {name: round(value, 6) for name, value in worst.items()},
        "errors": {name: [round(value, 6) for value in values] for name, values in errors.items()},
        "moved": {name: round(value, 5) for name, value in moved.items()},
        "repeat_difference": replayed,
    }
