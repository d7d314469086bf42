# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLA against LeRobot's own numbers (test/data/tiny_smolvla, see make_tiny_smolvla.py there).

When these fail, a trained checkpoint drives the robot differently than it did in training.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from flashrt_kernels import Policy, load_policy
from flashrt_kernels.composition import Node
from test.kernels.parity import DATA, Oracle, as_image, assert_close, assert_near, decide, poison, read_oracle

FOLDER = "tiny_smolvla"
KEYS = read_oracle(FOLDER).intermediates("prefix.att_masks", "prefix.pad_masks", "actions_unnormalized")
GRID, SCALE, WIDTH = 8, 4, 64  # patches along an edge, patches along the edge of a token, language width


def load(**options: object) -> Policy:
    return load_policy(DATA / FOLDER, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return read_oracle(FOLDER)


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    policy = load()
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def taps(policy: Policy, oracle: Oracle) -> dict[str, np.ndarray]:
    """Every mark, from one replay of the graph that decide() uses."""
    return decide(policy, oracle, taps=policy.marks).taps


def row_major(patches: np.ndarray) -> np.ndarray:
    """Patches in blocks of SCALE × SCALE → row by row, as LeRobot has them."""
    blocks = GRID // SCALE
    grid = patches.reshape(blocks, blocks, SCALE, SCALE, -1).transpose(0, 2, 1, 3, 4)
    return grid.reshape(GRID * GRID, -1)


def computed(key: str, taps: dict[str, np.ndarray]) -> np.ndarray:
    """Our counterpart of an oracle tensor, without the batch axis, in LeRobot's order of rows."""
    if key in ("x_t", "v_t"):
        return np.stack([taps[f"{key}.step{i}"] for i in range(10)])
    if key.startswith("vision.connector"):
        return taps[key] / np.sqrt(WIDTH)
    return row_major(taps[key]) if key.startswith("vision.") else taps[key]


@pytest.mark.parametrize("key", KEYS)
def test_intermediate(key: str, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Every stage that LeRobot stored, so that a deviation is found where it starts.

    LeRobot drops an absent camera beyond the empty ones and fills the prefix up behind the state; here each
    keeps its place. What counts of the prefix comes in the same order.
    """
    got, want = computed(key, taps), oracle.tensors[key][0]
    if ".kv." in key:
        want = want.transpose(1, 0, 2).reshape(want.shape[1], -1)  # heads beside each other
    if key.startswith(("prefix.", "cross.")):
        got, want = got[taps["prefix.pad_masks"]], want[oracle.valid]
    assert_close(got, want)


def test_every_kind_of_intermediate_is_stored() -> None:
    """The parametrised test above must not pass because the file lost its tensors."""
    kinds = {key.split(".")[0] for key in KEYS}
    assert kinds == {"vision", "prefix", "cross", "suffix", "x_t", "v_t", "actions_normalized_padded"}
    assert len(KEYS) == 36


def test_preprocessing(policy: Policy, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Images (at the end of rows and columns), state and prompt as the model saw them in training."""
    for i in range(3):
        image = as_image(row_major(taps[f"image{i}.patches"]), patch=8)
        np.testing.assert_allclose(image, oracle.tensors[f"in.image{i}"][0], rtol=0, atol=2e-5)
    state = policy.normalise_state(oracle.tensors["raw.state"])
    np.testing.assert_array_equal(state, oracle.tensors["in.state_normalized"][0])
    count = int(oracle.tensors["in.token_mask"].sum())
    np.testing.assert_array_equal(taps["tokens"], oracle.tensors["in.tokens"][0])
    assert 16 < count < len(taps["tokens"])  # padding is there to be masked
    np.testing.assert_array_equal(taps["prefix.pad_masks"][16:-1], oracle.tensors["in.token_mask"][0])


def test_only_the_actions_see_the_state(oracle: Oracle) -> None:
    """The fixture's own mask: our constant ones are right only as long as it says this."""
    block_starts = np.flatnonzero(oracle.tensors["prefix.att_masks"][0])
    np.testing.assert_array_equal(block_starts, [3 * 4 + 32])  # the row of the state


def test_raw_observation_to_robot_units(policy: Policy, oracle: Oracle) -> None:
    """The whole public path, the one that a robot takes."""
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized"][0])


def test_five_steps(oracle: Oracle) -> None:
    """Another step count has other flow times."""
    policy = load(num_inference_steps=5)
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized.steps5"][0])


def test_nothing_is_read_that_this_decision_did_not_write(oracle: Oracle, policy: Policy) -> None:
    """The arena full of NaN before a decision: the same actions."""
    plain = decide(policy, oracle).actions
    poison(policy._opened().all)
    np.testing.assert_array_equal(decide(policy, oracle).actions, plain)


def test_length_of_the_graph_changes_nothing(oracle: Oracle, policy: Policy) -> None:
    """A prompt decided by the graph of a longer one: padding must be masked everywhere."""
    noise, state = oracle.tensors["in.noise"][0], oracle.tensors["raw.state"]
    short = policy.decide(oracle.images, state, "wait", noise=noise).actions
    buckets = policy._opened().buckets
    smallest = buckets.pop(min(buckets))
    try:
        longer = policy.decide(oracle.images, state, "wait", noise=noise).actions
    finally:
        buckets[smallest.tokens] = smallest
    assert min(buckets) == 16
    assert_close(longer, short, 1e-5)


def test_unbound_cameras_cost_nothing_and_change_nothing(oracle: Oracle, policy: Policy) -> None:
    """Leaving absent cameras out of the graph is the same as masking them."""
    bound = load(cameras=["top", "wrist"])
    assert "2 cameras" in bound.description()
    assert_close(decide(bound, oracle).actions, decide(policy, oracle).actions, 1e-5)


def test_state_and_instruction_reach_the_actions(oracle: Oracle, policy: Policy) -> None:
    """A robot whose joints moved, or that was told something else, must act differently."""
    usual = decide(policy, oracle).actions
    noise, state = oracle.tensors["in.noise"][0], oracle.tensors["raw.state"]
    moved = policy.decide(oracle.images, state + 5, oracle.task, noise=noise).actions
    told = policy.decide(oracle.images, state, "open the drawer", noise=noise).actions
    assert min(np.abs(moved - usual).max(), np.abs(told - usual).max()) > 0.1


def test_keys_of_the_prefix_are_made_once(policy: Policy) -> None:
    """Made in every denoising step, they would be ten times the work, silently."""
    made = [node for node in nodes_of(policy) if "k_proj" in str(weight_of(node))]
    assert [node.section for node in made if "lm_expert.layers.1." in str(weight_of(node))] == ["prefix"]


def test_bf16(oracle: Oracle) -> None:
    """bf16 weights and activations stay within the gate of the other policies."""
    assert_near(decide(load(precision="bf16"), oracle).actions, oracle.tensors["actions_unnormalized"])


def test_rows_of_matmul_and_attention_start_on_16_bytes() -> None:
    """Vector loads and TMA need it."""
    rows = {
        (node.kernel.name, name, buffer.shape[-1] * buffer.dtype.itemsize)
        for node in nodes_of(load(precision="bf16"))
        for name, buffer in node.arguments.items()
        if buffer is not None and node.kernel.arguments[name].align == 16
    }
    assert {kernel for kernel, _, _ in rows} >= {"matmul", "matmul_silu_mul", "attention", "self_attention"}
    assert all(size % 16 == 0 for _, _, size in rows), rows


def test_residual_stream_is_fp32_in_bf16() -> None:
    """Sixteen layers that each round it would leave the keys of a full-size policy off."""
    nodes = nodes_of(load(precision="bf16"))
    into = {"layer_norm": "x", "rms_norm": "x", "matmul": "residual"}
    streams = [node.arguments[into[node.kernel.name]] for node in nodes if node.kernel.name in into]
    ends = [node.arguments["out"] for node in nodes if node.arguments.get("residual") is not None]
    assert {buffer.dtype for buffer in (*streams, *ends) if buffer is not None} == {torch.float32}


def nodes_of(policy: Policy) -> list[Node]:
    """Of the shortest decision."""
    graphs = policy._opened()
    return graphs.vision._nodes + graphs.holding(1).graph._nodes


def weight_of(node: Node) -> str | None:
    """Name of the constant that a launch multiplies by."""
    weight = node.arguments.get("weight")
    return None if weight is None else weight.storage.name
