# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T N1.6 and N1.7 against the public implementations' own numbers (test/data/tiny_groot_n16, …_n17).

N1.6: the model's source with transformers 4.51.3 and diffusers 0.35.1. N1.7: lerobot 0.6.1. When these
fail, a trained checkpoint drives the robot differently than it did in training.
"""

from functools import cache

import numpy as np
import pytest
import torch

from flashrt_kernels import load_policy
from flashrt_kernels.models.qwen3_vl import POSITIONS
from test.kernels.groot_rig import (
    CAMERAS,
    DATA,
    Rig,
    Tensors,
    checkpoint_of,
    oracle,
    prompt_of,
    rig,
    rows_of,
)
from test.kernels.parity import assert_near

TOLERANCE = 1e-4  # of the largest |reference| of each tensor
VERSIONS = ("n16", "n17")
BF16 = {"n16": (2e-2, 0.9998), "n17": (1e-2, 0.9999)}  # largest relative error, least cosine
INPUTS = ("raw.", "in.", "eef.")
IN_ROBOT_UNITS = ("actions_decoded", "actions_normalized")
COUNTS = {"n16": 16, "n17": 26}  # intermediates and actions in the oracle
# Where the public implementation's name stands for a mark of ours.
MARKS = {
    "backbone_features": "llm.norm",
    "backbone_features_after_head_norm": "head.vl_self_attention",
    "vis.patch_embed": "vis.embeddings",
    "head.step0.action_encoder": "head.step0.action_tokens",
}


@cache
def fp32(version: str) -> Rig:
    return rig(version)


@cache
def taps(version: str, name: str) -> Tensors:
    """Every mark, from one replay of the graphs."""
    graphs = fp32(version)
    return graphs.act(oracle(version, name), graphs.bucket.graph.marks)[1]


def keys(version: str, name: str) -> list[str]:
    return [k for k in sorted(oracle(version, name)) if not k.startswith(INPUTS) and k not in IN_ROBOT_UNITS]


def intermediates() -> list[tuple[str, str, str]]:
    names = ("oracle", "oracle_raw")
    return [(version, name, key) for version in VERSIONS for name in names for key in keys(version, name)]


def computed(version: str, name: str, key: str) -> np.ndarray:
    """Our counterpart of an oracle tensor without its batch axis, in the original's order."""
    graphs, given = fp32(version), oracle(version, name)
    if key == "llm.position_ids":
        graphs.write(given)
        found = graphs.bucket.graph.host("positions").T
    else:
        found = taps(version, name)[MARKS.get(key, key)]
    if key.startswith(("llm.", "head.vl", "backbone")):
        places = rows_of(given, graphs.model)
        found = found[np.argsort(places)]  # filling, behind them, drops out
    return found.T if key == "llm.position_ids" else ADJUSTED.get(key, lambda rig, x: x)(graphs, found)


def without_positions(graphs: Rig, found: np.ndarray) -> np.ndarray:
    """The original stores patch embeddings before positions are added."""
    table = graphs.model.weights._made[POSITIONS].numpy()
    return found - np.tile(table, (len(found) // len(table), 1))


def without_action_positions(graphs: Rig, found: np.ndarray) -> np.ndarray:
    table = checkpoint_of(graphs.model.dims.version).tensors["action_head.position_embedding.weight"]
    return found - table[: len(found)].float().numpy()


def by_rows(graphs: Rig, found: np.ndarray) -> np.ndarray:
    """Patches in blocks → row by row in each image, as N1.6's tower has them."""
    edge = graphs.model.dims.vision.merge
    blocks = found.reshape(2, *graphs.model.grid, edge, edge, -1)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(found.shape)


ADJUSTED = {
    "vis.patch_embed": without_positions,
    "vis.out": by_rows,
    "head.step0.action_encoder": without_action_positions,
    "head.step0.temb": lambda graphs, found: found[None],
    "head.step0.pred": lambda graphs, found: found[:, : graphs.model.dims.head.max_action],
    "action_pred": lambda graphs, found: found[:, : graphs.model.dims.head.max_action],
}


def reference(given: Tensors, key: str) -> np.ndarray:
    found = given[key]
    if key == "llm.position_ids":
        return found[:, 0]
    return found[0] if len(found) == 1 else found


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = TOLERANCE) -> None:
    got = got.reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * float(np.abs(want).max()))


@pytest.mark.parametrize(("version", "name", "key"), intermediates())
def test_intermediate(version: str, name: str, key: str) -> None:
    """Every stage that the public implementation stored, so that a deviation is found where it starts."""
    assert_close(computed(version, name, key), reference(oracle(version, name), key))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_intermediate_is_stored(version: str) -> None:
    """The parametrised test above must not pass because the file lost its tensors."""
    kinds = {key.split(".")[0].split("_")[0] for key in keys(version, "oracle")}
    assert kinds == {"vis", "llm", "backbone", "head", "action"}
    assert len(keys(version, "oracle")) == COUNTS[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_raw_state_to_robot_units(version: str) -> None:
    """State in robot units in, actions in robot units out: normalisation and decoding stand at both ends."""
    graphs, given = fp32(version), oracle(version, "oracle_raw")
    graphs.write(given)
    graph = graphs.bucket.graph
    graphs.model.write_inputs(graph, prompt_of(given, graphs.model), [True] * CAMERAS, given["raw.state"])
    graph.replay()
    outcome = graphs.model.finish(graphs.bucket, given["raw.state"], ())
    assert_close(outcome.actions, given["actions_decoded"][0])


def test_raw_observation_to_robot_units() -> None:
    """The whole path that a robot takes (of N1.6 no picture is known). A few pixels differ by one level."""
    given, policy = oracle("n17", "oracle_raw"), load_policy(DATA / "tiny_groot_n17")
    policy.warm_up()
    chunk = policy.decide(
        images={k.removeprefix("raw."): v for k, v in given.items() if k.startswith("raw.observation")},
        state=given["raw.state"],
        instruction="Pick up the red block, please!",
        noise=given["in.noise"][0],
    )
    policy.close()
    assert_close(chunk.actions, given["actions_decoded"][0], 1e-3)


@pytest.mark.parametrize("version", VERSIONS)
def test_bf16(version: str) -> None:
    """bf16 weights and activations stay within the gate that the public implementation meets."""
    worst, least = BF16[version]
    graphs = rig(version, torch.bfloat16)
    for name in ("oracle", "oracle_raw"):
        given = oracle(version, name)
        assert_near(graphs.act(given)[0], given["action_pred"], worst, least)
