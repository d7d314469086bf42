# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One seeded random checkpoint and observations for it, the same for every engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

from benchmarks.device.cases import ACTION_WIDTH, Case
from flashrt_kernels.checkpoint.config import CONFIG_FILE, read_config
from flashrt_kernels.checkpoint.lerobot import FORMATS, WEIGHTS_FILE
from flashrt_kernels.checkpoint.pi import PromptRule
from flashrt_kernels.checkpoint.processors import POSTPROCESSOR_FILE, PREPROCESSOR_FILE, read_processors
from flashrt_kernels.checkpoint.recipe import (
    Recipe,
    config_json,
    postprocessor_json,
    preprocessor_json,
    statistics,
)
from flashrt_kernels.checkpoint.tokenizer import find_tokenizer, load_tokenizer
from flashrt_kernels.make_checkpoint import make_checkpoint
from flashrt_kernels.models.prompt import PromptWriter
from flashrt_kernels.observation import seeded_noise

CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
IMAGE = (480, 640, 3)
STATE_RANGE = 1.4  # robot units; the recipe's quantiles lie at ±1.5
TEXT = "pick up the red cube and put it into the blue box on the left side of the table then stop"
LETTERS = tuple("aeiourst")


def recipe_of(case: Case, size: str = "full", seed: int = 7) -> Recipe:
    """bf16 as LeRobot stores it, with gates, biases and embeddings that carry a signal."""
    return Recipe(
        size=size, seed=seed, cameras=CAMERAS, chunk_size=case.horizon, state_dim=case.state_dim, action_dim=7
    )


def write_checkpoints(
    folder: Path, cases: list[Case], size: str, progress: Callable[[int, int], None] | None = None
) -> dict[str, Path]:
    """Case key → checkpoint folder. Weights are written once; other folders link to them."""
    first = make_checkpoint(folder / cases[0].key, recipe_of(cases[0], size), progress)
    folders = {cases[0].key: first}
    for case in cases[1:]:
        path = folders[case.key] = folder / case.key
        shutil.copytree(first, path, ignore=shutil.ignore_patterns(WEIGHTS_FILE))
        (path / WEIGHTS_FILE).symlink_to(first / WEIGHTS_FILE)
        write_settings(path, recipe_of(case, size))
    return folders


def write_settings(path: Path, recipe: Recipe) -> None:
    """Another chunk length or state width for the same weights."""
    (path / CONFIG_FILE).write_text(dumps(config_json(recipe)), encoding="utf-8")
    for name, document in ((PREPROCESSOR_FILE, preprocessor_json), (POSTPROCESSOR_FILE, postprocessor_json)):
        (stored,) = path.glob(name.removesuffix(".json") + "_step_*.safetensors")
        stored.write_bytes(save(statistics(recipe)))
        (path / name).write_text(dumps(document(recipe, stored.name)), encoding="utf-8")


def device_tensors(folder: Path, device: str) -> dict[str, torch.Tensor]:
    """All weights by canonical key, on `device`, as the file has them.

    SigLIP is fp32 there. Every bf16 engine rounds it once while loading, which the gate counts as its error.
    """
    form = FORMATS["pi05"]
    tensors = {}
    with safe_open(folder / WEIGHTS_FILE, framework="pt", device=device) as file:
        for key in file.keys():  # noqa: SIM118
            name = form.canonical(key)
            if name is not None:
                tensors[name] = file.get_tensor(key)
    return tensors


@dataclass(frozen=True, eq=False)
class Observation:
    """One decision's inputs. images uint8 [480, 640, 3] by camera; noise float32 [horizon, 32]."""

    images: dict[str, np.ndarray]
    state: np.ndarray
    instruction: str
    ids: list[int]
    noise: np.ndarray

    def fresh(self) -> Observation:
        """The same in new memory, as a camera driver would deliver it."""
        return replace(self, images={name: image.copy() for name, image in self.images.items()})


class Prompts:
    """Instructions and states whose prompt has an exact number of tokens."""

    def __init__(self, folder: Path) -> None:
        policy_type, config = read_config(folder, tuple(FORMATS))
        self.config, self.steps = config, config.num_inference_steps or 0
        self._norm = read_processors(folder, policy_type, config).state_norm
        rule = PromptRule(clean=True, lower=False, state=True)
        self._prompts = PromptWriter(load_tokenizer(find_tokenizer(folder, None)), rule, policy_type)

    def ids(self, instruction: str, state: np.ndarray) -> list[int]:
        return self._prompts.ids(instruction, self._norm.normalise(state))

    def draw(self, rng: np.random.Generator, tokens: int) -> tuple[str, np.ndarray, list[int]]:
        """(instruction, state, ids), the prompt `tokens` long."""
        for _ in range(1000):
            state = rng.uniform(-STATE_RANGE, STATE_RANGE, self.config.state_dim).astype(np.float32)
            words = self.fill([], state, tokens, TEXT.split(), rng)[:-1]  # one word less than too long
            instruction = " ".join(self.fill(words, state, tokens, LETTERS, rng))
            ids = self.ids(instruction, state)
            if len(ids) == tokens:
                return instruction, state, ids
        raise ValueError(f"no prompt of {tokens} tokens with {self.config.state_dim} joints was found")

    def fill(
        self,
        words: list[str],
        state: np.ndarray,
        tokens: int,
        vocabulary: Sequence[str],
        rng: np.random.Generator,
    ) -> list[str]:
        """`words` and more of `vocabulary`, until the prompt has at least `tokens`."""
        found = list(words)
        while (missing := tokens - len(self.ids(" ".join(found), state))) > 0:
            found += [str(word) for word in rng.choice(vocabulary, max(1, missing // 6))]
        return found


def observations(folder: Path, case: Case, count: int, seed: int = 0) -> list[Observation]:
    """`count` different observations with prompts of exactly `case.prompt` tokens."""
    rng = np.random.default_rng(seed)
    prompts = Prompts(folder)
    shape = (case.horizon, ACTION_WIDTH)
    found = []
    for index in range(count):
        instruction, state, ids = prompts.draw(rng, case.prompt)
        images = {name: picture(rng) for name in CAMERAS[: case.views]}
        found.append(Observation(images, state, instruction, ids, seeded_noise(seed, index, shape)))
    return found


def picture(rng: np.random.Generator) -> np.ndarray:
    """A smooth random scene with noise on it: pure noise would look the same from every camera."""
    coarse = torch.from_numpy(rng.uniform(0, 230, (1, 3, 6, 8)).astype(np.float32))
    smooth = torch.nn.functional.interpolate(coarse, IMAGE[:2], mode="bicubic").clamp_(0, 230)[0]
    grain = rng.integers(0, 25, IMAGE, np.uint8)
    return np.ascontiguousarray(smooth.permute(1, 2, 0).numpy().astype(np.uint8) + grain)


def cycle(found: list[Observation]) -> Iterator[Observation]:
    """Observations one after another, for ever, each in new memory."""
    while True:
        for observation in found:
            yield observation.fresh()
