# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0.5 against LeRobot's own numbers (test/data/tiny_pi05, made with lerobot 0.6.1).

When these fail, a trained checkpoint drives the robot differently than it did in training.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from flashrt_kernels import Policy
from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.composition import Node
from flashrt_kernels.models.pi05 import Pi05
from flashrt_kernels.policy import MAX_IMAGE_BYTES
from test.kernels.parity import (
    DATA,
    Oracle,
    as_image,
    assert_close,
    assert_near,
    decide,
    load,
    poison,
    read_oracle,
)
from test.kernels.policies import CPU

FOLDER = "tiny_pi05"
KEYS = read_oracle(FOLDER).intermediates("prefix.att_masks", "prefix.pad_masks", "actions_unnormalized")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return read_oracle(FOLDER)


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    policy = load(FOLDER)
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def taps(policy: Policy, oracle: Oracle) -> dict[str, np.ndarray]:
    """Every mark, from one replay of the graph that decide() uses."""
    return decide(policy, oracle, taps=policy.marks).taps


def stacked(name: str, taps: dict[str, np.ndarray]) -> np.ndarray:
    """`x_t` and `v_t` of all steps."""
    return np.stack([taps[f"{name}.step{i}"] for i in range(10)])


def computed(key: str, taps: dict[str, np.ndarray]) -> np.ndarray:
    """Our counterpart of an oracle tensor, without the batch axis."""
    return stacked(key, taps) if key in ("x_t", "v_t") else taps[key]


@pytest.mark.parametrize("key", KEYS)
def test_intermediate(key: str, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Every stage that LeRobot stored, so that a deviation is found where it starts."""
    got, want = computed(key, taps), oracle.tensors[key][0]
    if key.startswith("prefix.kv"):
        want = want[0]  # one key/value head
    if key.startswith(("prefix.layer", "prefix.kv")):
        got, want = got[oracle.valid], want[oracle.valid]
    assert_close(got, want)


def test_every_kind_of_intermediate_is_stored(oracle: Oracle) -> None:
    """The parametrised test above must not pass because the file lost its tensors."""
    kinds = {key.split(".")[0] for key in KEYS}
    assert kinds == {"vision", "prefix", "suffix", "x_t", "v_t", "actions_normalized_padded"}
    assert len(KEYS) == 25


def test_prefix_masks(oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Padding and the absent camera are masked; everything else sees everything."""
    np.testing.assert_array_equal(taps["prefix.pad_masks"], oracle.valid)
    assert not oracle.tensors["prefix.att_masks"].any()  # no causal part: one bidirectional block


def test_image_preprocessing(policy: Policy, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Raw uint8 → what the vision tower reads, present cameras first, the absent one −1."""
    for i in range(3):
        image = as_image(taps[f"image{i}.patches"])
        np.testing.assert_allclose(image, oracle.tensors[f"in.image{i}"][0], rtol=0, atol=2e-5)


def test_state_normalisation(policy: Policy, oracle: Oracle) -> None:
    """The prompt's state bins come from these numbers: they must agree bit by bit."""
    got = policy.normalise_state(oracle.tensors["raw.state"])
    np.testing.assert_array_equal(got, oracle.tensors["in.state_normalized"][0])


def test_prompt(policy: Policy, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Cleaned text, state bins and padding give LeRobot's ids."""
    np.testing.assert_array_equal(taps["tokens"], oracle.tensors["in.tokens"][0])
    valid = oracle.valid[-len(taps["tokens"]) :]
    np.testing.assert_array_equal(valid, oracle.tensors["in.token_mask"][0])


def test_raw_observation_to_robot_units(policy: Policy, oracle: Oracle) -> None:
    """The whole public path, the one that a robot takes."""
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized"][0])


def test_taps_do_not_change_the_actions(policy: Policy, oracle: Oracle) -> None:
    """The intermediates are those of the very plan that produced the actions."""
    plain = decide(policy, oracle).actions
    np.testing.assert_array_equal(decide(policy, oracle, taps=policy.marks).actions, plain)


def test_nothing_is_read_that_this_decision_did_not_write(oracle: Oracle, policy: Policy) -> None:
    """The arena full of NaN before a decision: the same actions."""
    plain = decide(policy, oracle).actions
    poison(policy._opened().all)
    np.testing.assert_array_equal(decide(policy, oracle).actions, plain)


def test_arena_is_reused(policy: Policy) -> None:
    """The parity above holds for a plan in which buffers really share memory."""
    for graph in policy._opened().all:
        plan = graph.layout()
        kept = {f"image{i}.pixels" for i in range(3)} | {"prefix"}
        always = sum(p.request.bytes for p in plan.placements if p.request.name in kept)
        assert (plan.bytes - always) < 0.5 * (plan.bytes_without_reuse - always), graph.name


def test_inputs_are_one_block_and_images_need_no_prompt(policy: Policy) -> None:
    """A device gets its small inputs in one copy, and images before the length of the prompt is known."""
    for graph in policy._opened().all:
        placed = sorted(graph.layout().placements, key=lambda p: p.offset)
        inputs = [p for p in placed if p.request.name in graph._host]
        assert placed[: len(inputs)] == inputs
    names = {p.request.name for p in policy._opened().vision.layout().placements if p.request.in_front}
    assert names == {f"image{i}.{part}" for i in range(3) for part in ("pixels", "info")}


def test_graphs_share_the_arena_of_the_largest(policy: Policy) -> None:
    """One arena per bucket would multiply the memory on a small GPU."""
    graphs = [bucket.graph for bucket in policy._opened().buckets.values()]
    arenas = [graph._arena for graph in graphs]
    assert len({arena.data_ptr() for arena in arenas if arena is not None}) == 1
    largest = max(graph.layout().bytes for graph in graphs)
    assert [arena.numel() for arena in arenas if arena is not None] == [largest] * len(graphs)


def nodes_of(policy: Policy) -> list[Node]:
    """Of the shortest decision."""
    graphs = policy._opened()
    return graphs.vision._nodes + graphs.holding(1).graph._nodes


def test_norms_take_eps_from_the_checkpoint() -> None:
    """1e-5 in place of 1e-6 hides below the tolerance here and moves a policy whose activations are small."""
    checkpoint = load_lerobot(DATA / "tiny_pi05", DATA / "tokenizer_tiny")
    dims = replace(checkpoint.dims, rms_eps=0.5, vision=replace(checkpoint.dims.vision, layer_norm_eps=0.25))
    changed = replace(checkpoint, dims=dims)
    policy = Policy(changed, Pi05(changed, torch.float32, 1, CPU.device), CPU, MAX_IMAGE_BYTES)
    nodes = nodes_of(policy)
    eps = {(node.kernel.name, node.parameters["eps"]) for node in nodes if "eps" in node.parameters}
    assert eps == {("layer_norm", 0.25), ("rms_norm", 0.5), ("ada_rms_norm", 0.5)}
    assert (checkpoint.dims.rms_eps, checkpoint.dims.vision.layer_norm_eps) == (1e-6, 1e-6)


def test_five_steps(oracle: Oracle) -> None:
    """Another step count has other time conditions."""
    policy = load(FOLDER, num_inference_steps=5)
    chunk = decide(policy, oracle, taps=("actions_normalized_padded",))
    assert_close(
        chunk.taps["actions_normalized_padded"], oracle.tensors["actions_normalized_padded.steps5"][0]
    )
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized.steps5"][0])


def test_bf16(oracle: Oracle) -> None:
    """bf16 weights and activations stay within the gate that the public implementation meets."""
    assert_near(
        decide(load(FOLDER, precision="bf16"), oracle).actions, oracle.tensors["actions_unnormalized"]
    )


def test_bf16_weights_are_bf16_and_norms_are_not() -> None:
    """Otherwise bf16 would save no memory, or lose the digits that norms need."""
    nodes = nodes_of(load(FOLDER, precision="bf16"))
    dtypes: dict[str, set[torch.dtype]] = {"matrix": set(), "vector": set()}
    for node in nodes:
        for name, buffer in node.arguments.items():
            if buffer is not None and buffer.storage.kind == "constant" and node.section:
                matrix = name == "table" or (name == "weight" and len(buffer.shape) > 1)
                dtypes["matrix" if matrix else "vector"].add(buffer.dtype)
    assert dtypes == {"matrix": {torch.bfloat16}, "vector": {torch.float32}}


def test_residual_stream_is_fp32_in_bf16() -> None:
    """27 + 18 layers that each round it to bf16 leave the keys of a full-size policy more than 1 % off."""
    nodes = nodes_of(load(FOLDER, precision="bf16"))
    into = {"layer_norm": "x", "rms_norm": "x", "ada_rms_norm": "x", "matmul": "residual"}
    streams = [node.arguments[into[node.kernel.name]] for node in nodes if node.kernel.name in into]
    ends = [node.arguments["out"] for node in nodes if node.arguments.get("residual") is not None]
    assert {buffer.dtype for buffer in (*streams, *ends) if buffer is not None} == {torch.float32}
    norms = [node.arguments["out"] for node in nodes if node.kernel.name.endswith("norm")]
    assert {buffer.dtype for buffer in norms if buffer is not None} == {torch.bfloat16}


def test_rows_of_matmul_and_attention_start_on_16_bytes() -> None:
    """Vector loads and TMA need it; 3 · 14² values of a patch in bf16 would not give it."""
    nodes = nodes_of(load(FOLDER, precision="bf16"))
    rows = {
        (node.kernel.name, name, buffer.shape[-1] * buffer.dtype.itemsize)
        for node in nodes
        for name, buffer in node.arguments.items()
        if buffer is not None and node.kernel.arguments[name].align == 16
    }
    assert {kernel for kernel, _, _ in rows} >= {"matmul", "attention", "self_attention"}
    assert all(size % 16 == 0 for _, _, size in rows), rows


def test_unbound_camera_costs_nothing_and_changes_nothing(oracle: Oracle, policy: Policy) -> None:
    """Leaving the absent camera out of the graph is the same as masking it."""
    bound = load(FOLDER)
    bound.bind(["top", "wrist"])
    assert "3 cameras" not in bound.description()
    assert_close(decide(bound, oracle).actions, decide(policy, oracle).actions, 1e-5)
