# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0 against LeRobot's own numbers (test/data/tiny_pi0, made with lerobot 0.6.1).

When these fail, a trained checkpoint drives the robot differently than it did in training.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from flashrt_kernels import Policy
from test.kernels.parity import Oracle, as_image, assert_close, assert_near, decide, load, poison, read_oracle

FOLDER = "tiny_pi0"
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


def computed(key: str, taps: dict[str, np.ndarray]) -> np.ndarray:
    """Our counterpart of an oracle tensor, without the batch axis; the state token is computed apart."""
    if key in ("x_t", "v_t"):
        return np.stack([taps[f"{key}.step{i}"] for i in range(10)])
    if not key.startswith("suffix."):
        return taps[key]
    state = "suffix.state.embs" if key == "suffix.t1.embs" else key.replace("step0", "state")
    return np.concatenate([taps[state], taps[key]])


@pytest.mark.parametrize("key", KEYS)
def test_intermediate(key: str, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Every stage that LeRobot stored, so that a deviation is found where it starts."""
    got, want = computed(key, taps), oracle.tensors[key][0]
    if key.startswith("prefix.kv"):
        want = want[0]  # one key/value head
    if key.startswith(("prefix.layer", "prefix.kv")):
        got, want = got[oracle.valid], want[oracle.valid]
    assert_close(got, want)


def test_every_kind_of_intermediate_is_stored() -> None:
    """The parametrised test above must not pass because the file lost its tensors."""
    kinds = {key.split(".")[0] for key in KEYS}
    assert kinds == {"vision", "prefix", "suffix", "x_t", "v_t", "actions_normalized_padded"}
    assert len(KEYS) == 24


def test_preprocessing(policy: Policy, oracle: Oracle, taps: dict[str, np.ndarray]) -> None:
    """Images, state and prompt as the model saw them in training."""
    for i in range(3):
        image = as_image(taps[f"image{i}.patches"])
        np.testing.assert_allclose(image, oracle.tensors[f"in.image{i}"][0], rtol=0, atol=2e-5)
    state = policy.normalise_state(oracle.tensors["raw.state"])
    np.testing.assert_allclose(state, oracle.tensors["in.state_normalized"][0], rtol=0, atol=1e-6)
    tokens = oracle.tensors["in.tokens"][0]
    np.testing.assert_array_equal(taps["tokens"], tokens)
    np.testing.assert_array_equal(oracle.valid[-len(tokens) :], taps["prefix.pad_masks"][-len(tokens) :])


def test_raw_observation_to_robot_units(policy: Policy, oracle: Oracle) -> None:
    """The whole public path, the one that a robot takes."""
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized"][0])


def test_five_steps(oracle: Oracle) -> None:
    """Another step count has other flow times."""
    policy = load(FOLDER, num_inference_steps=5)
    assert_close(decide(policy, oracle).actions, oracle.tensors["actions_unnormalized.steps5"][0])


def test_nothing_is_read_that_this_decision_did_not_write(oracle: Oracle, policy: Policy) -> None:
    """The arena full of NaN before a decision: the same actions."""
    plain = decide(policy, oracle).actions
    poison(policy._opened().all)
    np.testing.assert_array_equal(decide(policy, oracle).actions, plain)


def test_bf16(oracle: Oracle) -> None:
    """bf16 weights and activations stay within the gate that the public implementation meets."""
    assert_near(
        decide(load(FOLDER, precision="bf16"), oracle).actions, oracle.tensors["actions_unnormalized"]
    )


def test_state_reaches_the_actions_through_its_token(oracle: Oracle, policy: Policy) -> None:
    """Pi0's prompt has no state: a robot whose joints moved must get other actions all the same."""
    usual = decide(policy, oracle).actions
    noise = oracle.tensors["in.noise"][0]
    moved = policy.decide(oracle.images, oracle.tensors["raw.state"] + 0.3, oracle.task, noise=noise).actions
    assert np.abs(moved - usual).max() > 1e-3
