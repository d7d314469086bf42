# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every policy at full size: which one, how its correctness is judged, how its decisions are timed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.device.gate import LIMIT, MARGIN, error
from benchmarks.device.inputs import CAMERAS, picture
from benchmarks.device.reference import ReferenceBackend
from flashrt_kernels import Policy, load_policy
from flashrt_kernels.backend import Backend
from flashrt_kernels.checkpoint.recipe import SIZES, Recipe
from flashrt_kernels.models.pi0_fast import LOGITS

FIRST = "prefix.logits"  # of the first word that Pi0-FAST writes
CHUNK = "actions_normalized_padded"  # of Pi0 and Pi0.5: all numbers that the expert predicts, as in `gate`
PREDICTION = "action_pred"  # of GR00T: its actions are clipped, and show neither error nor change at ±1
CHECKED = 3  # observations that the gate looks at
INSTRUCTIONS = (
    "pick up the red block and put it into the box on the left",
    "open the upper drawer of the cabinet",
    "fold the towel in half and push it to the edge of the table",
    "pour water from the bottle into the glass",
)


@dataclass(frozen=True)
class PolicyCase:
    """One policy. published: (who, milliseconds of a decision), measured elsewhere. limit_ms, aim_ms: of GPU
    time of a decision, or of one token where the policy writes tokens.

    compared: kinds of intermediates → pattern of their marks. result: mark of what an observation leads to.
    """

    key: str
    policy: str
    views: int
    compared: Mapping[str, str]
    result: str
    published: tuple[tuple[str, float], ...] = ()
    limit_ms: float | None = None
    aim_ms: float | None = None
    options: Mapping[str, Any] | None = None


FLOW = {"keys": r"prefix\.kv\.\d+\.k", "values": r"prefix\.kv\.\d+\.v", "velocities": r"v_t\.step\d+"}
GROOT = {"language layers": r"llm\.layer\d+", "velocities": r"head\.step\d+\.pred"}
POLICIES = {
    case.key: case
    for case in (
        PolicyCase("pi0-3v", "pi0", 3, FLOW, result=CHUNK),
        PolicyCase(
            "pi05-3v",
            "pi05",
            3,
            FLOW,
            published=(("openpi JAX, H100", 53.0), ("SGLang, H200", 43.1)),
            result=CHUNK,
        ),
        PolicyCase("pi0_fast-3v", "pi0_fast", 3, {"logits": LOGITS}, limit_ms=1.3, aim_ms=1.2, result=FIRST),
        PolicyCase(
            "groot_n17-1v",
            "groot_n17",
            1,
            GROOT,
            published=(("Isaac-GR00T with TensorRT, H100", 27.9),),
            limit_ms=6.0,
            aim_ms=4.0,
            result=PREDICTION,
        ),
        PolicyCase(
            "groot_n16-2v",
            "groot_n16",
            2,
            GROOT,
            published=(("Isaac-GR00T with TensorRT, H100", 36.0),),
            limit_ms=6.0,
            aim_ms=4.0,
            result=PREDICTION,
        ),
    )
}


def recipe_of(case: PolicyCase, size: str) -> Recipe:
    """As its writer would store a full size: weights that are rounded anyway must not count as an error."""
    return Recipe(
        policy=case.policy, size=size, seed=7, cameras=CAMERAS[: case.views], dtype=SIZES["full"].dtype
    )


@dataclass(frozen=True, eq=False)
class Observed:
    """One observation. images uint8 [480, 640, 3] by camera; state [D] in robot units."""

    images: dict[str, np.ndarray]
    state: np.ndarray
    instruction: str
    sequence: int

    def given(self) -> dict[str, Any]:
        """Arguments of `Policy.decide`, in new memory as a driver would deliver it."""
        images = {name: image.copy() for name, image in self.images.items()}
        return {
            "images": images,
            "state": self.state,
            "instruction": self.instruction,
            "sequence": self.sequence,
        }


def observations(policy: Policy, count: int, seed: int = 0) -> list[Observed]:
    """`count` different observations within what the policy's statistics call usual."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(count):
        images = {name: square(picture(rng), policy.name) for name in policy.cameras}
        state = rng.uniform(-0.9, 0.9, policy.state_dim).astype(np.float32)
        found.append(Observed(images, state, INSTRUCTIONS[index % len(INSTRUCTIONS)], index))
    return found


def square(image: np.ndarray, policy: str) -> np.ndarray:
    """GR00T N1.6 sees as many patches as the camera is wide: its published figures are of square ones."""
    if policy != "groot_n16":
        return image
    edge = min(image.shape[:2])
    return np.ascontiguousarray(image[:edge, :edge])


class Gate:
    """A policy in bf16 beside the same graphs in fp32 through the kernels' references."""

    def __init__(self, case: PolicyCase, ours: Policy, folder: Path, device: torch.device) -> None:
        self.case, self.ours = case, ours
        self.fp32 = load_policy(folder, device=ReferenceBackend(device), precision="fp32")

    def check(self, found: Sequence[Observed]) -> dict[str, Any]:
        """Errors by kind, how far disturbances move the result, and whether all limits hold."""
        errors: dict[str, list[float]] = {kind: [] for kind in (*self.case.compared, "result")}
        same = True
        for observed in found[:CHECKED]:
            ours, want = self._outputs(observed)
            alone = self.ours.decide(**observed.given()).actions
            same = same and np.array_equal(ours["actions"][0], alone)
            for kind, found_errors in errors.items():
                found_errors += [error(a, b) for a, b in zip(ours[kind], want[kind], strict=True)]
        worst = {kind: max(values) for kind, values in errors.items()}
        moved = self._moved(found)
        return {
            "passed": all(worst[kind] <= LIMIT for kind in self.case.compared)
            and all(change > MARGIN * worst["result"] for change in moved.values())
            and same,
            "worst": {kind: round(value, 6) for kind, value in worst.items()},
            "moved": {name: round(value, 5) for name, value in moved.items()},
            "graph_gives_the_same_bits": same,
            "observations": min(CHECKED, len(found)),
        }

    def close(self) -> None:
        self.fp32.close()

    def _result(self, policy: Policy, observed: Observed) -> np.ndarray:
        """What an observation leads to."""
        return policy.decide(**observed.given(), taps=[self.case.result]).taps[self.case.result]

    def _outputs(self, observed: Observed) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]]]:
        """(ours, the reference's) by kind, from a replay with taps."""
        if self.case.policy == "pi0_fast":
            return self._texts(observed)
        outputs = []
        for policy in (self.ours, self.fp32):
            marks = {
                kind: [mark for mark in policy.marks if re.fullmatch(pattern, mark)]
                for kind, pattern in self.case.compared.items()
            }
            marks["result"] = [self.case.result]
            chunk = policy.decide(**observed.given(), taps=[m for found in marks.values() for m in found])
            taken = {kind: [chunk.taps[mark] for mark in found] for kind, found in marks.items()}
            outputs.append({**taken, "actions": [chunk.actions]})
        return outputs[0], outputs[1]

    def _texts(self, observed: Observed) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]]]:
        """Logits of both, as far as they write the same text: one other token changes all that follow."""
        outputs, texts = [], []
        for policy in (self.ours, self.fp32):
            model: Any = policy._model
            chunk = policy.decide(**observed.given(), taps=[FIRST])
            first = chunk.taps[FIRST]
            ids = model.tokenise(observed.instruction, observed.state)
            written, found = model.write(policy._opened().holding(len(ids)), tap=True)
            texts.append(written)
            outputs.append({"logits": [first, *found], "result": [first], "actions": [chunk.actions]})
        pairs = zip(*texts, strict=False)
        same = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(map(len, texts)))
        return tuple({**output, "logits": output["logits"][: same + 1]} for output in outputs)  # type: ignore[return-value]

    def _moved(self, found: Sequence[Observed]) -> dict[str, float]:
        """Relative change of the result when one thing of an observation is another."""
        first = found[0]
        names = list(first.images)
        changed = {
            "instruction": replace(first, instruction=found[1].instruction),
            "state": replace(first, state=-first.state),
            "images": replace(first, images=found[1].images),
        }
        if len(names) > 1:
            turned = dict(zip(names, [first.images[name] for name in reversed(names)], strict=True))
            changed["cameras"] = replace(first, images=turned)
        base = self._result(self.ours, first)
        return {name: error(self._result(self.ours, o), base) for name, o in changed.items()}


def timed(policy: Policy, found: Sequence[Observed], seconds: float, least: int) -> dict[str, list[float]]:
    """Raw milliseconds of decisions one after another: every part of `Chunk.timings`, and `wall`.

    token: of one token, where the policy writes tokens.
    """
    samples: dict[str, list[float]] = {}
    end, count = time.monotonic() + seconds, 0
    while count < least or time.monotonic() < end:
        given = found[count % len(found)].given()
        start = time.perf_counter()
        chunk = policy.decide(**given)
        parts = {**chunk.timings, "wall": 1e3 * (time.perf_counter() - start)}
        if "decode" in parts:
            parts["token"] = parts["decode"] / max(1, tokens_of(policy) - 1)
        for name, value in parts.items():
            samples.setdefault(name, []).append(round(value, 4))
        count += 1
    return samples


def tokens_of(policy: Policy) -> int:
    """Tokens that the last decision wrote."""
    model: Any = policy._model
    return int(model.written)


def backend_of(device: torch.device) -> Backend | str:
    """Ours for this device."""
    return "cpu" if device.type == "cpu" else str(device)
