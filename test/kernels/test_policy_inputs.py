# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""State, instruction and noise on their way into a policy."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from flashrt_kernels import ObservationError, Policy
from flashrt_kernels.checkpoint.pi import PromptRule
from flashrt_kernels.checkpoint.tokenizer import load_tokenizer
from flashrt_kernels.models.prompt import PromptWriter
from flashrt_kernels.observation import seeded_noise
from test.kernels.policies import TOKENIZER, TOP, act, load, picture


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    policy = load()
    yield policy
    policy.close()


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "no camera": ({"images": {}}, "at least one of " + TOP),
    "camera twice": ({"images": {"top": picture(1), TOP: picture(1)}}, f"{TOP} is given twice"),
    "state width": ({"state": [0.0] * 4}, r"state has shape \[4\]; expected \[5\]"),
    "state NaN": ({"state": [0, 0, float("nan"), 0, 0]}, r"state\[2\] is nan"),
    "state infinite": ({"state": [0, float("inf"), 0, 0, 0]}, r"state\[1\] is inf"),
    "state beyond float32": ({"state": [1e300, 0, 0, 0, 0]}, r"state\[0\] is inf"),
    "state no number": ({"state": ["up", 0, 0, 0, 0]}, "state: could not convert.*expected 5 numbers"),
    "state ragged": ({"state": [[0], 0, 0, 0, 0]}, "state: .*expected 5 numbers"),
    "images no dict": ({"images": [picture(1)]}, "images is list; expected {camera name: image}"),
    "instruction": ({"instruction": None}, "instruction is NoneType; expected a string"),
    "noise shape": (
        {"noise": np.zeros((6, 5), np.float32)},
        r"noise is float32 \[6, 5\]; expected finite float32 \[6, 8\]",
    ),
    "instruction no text": ({"instruction": "a\ud800"}, r"instruction 'a\\ud800' is not text"),
    "noise dtype": ({"noise": np.zeros((6, 8))}, "noise is float64"),
    "noise no array": ({"noise": [[0.0] * 8] * 6}, "noise is list"),
    "noise NaN": ({"noise": np.full((6, 8), np.nan, np.float32)}, "noise holds NaN or infinity"),
    "seed": ({"seed": -1}, "seed=-1"),
    "seed no integer": ({"seed": 1.5}, "seed=1.5; expected an integer"),
    "seed too large": ({"seed": 1 << 128}, "expected an integer from 0 to 2\\^128 - 1"),
    "sequence too large": ({"sequence": 1 << 64}, "expected an integer from 0 to 2\\^64 - 1"),
    "sequence": ({"sequence": -5}, "sequence=-5"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_observation_is_refused(policy: Policy, case: str) -> None:
    """A robot must not move on an observation that is not one."""
    changes, words = BAD_INPUT[case]
    with pytest.raises(ObservationError, match=words):
        act(policy, **changes)


def test_state_and_instruction_matter(policy: Policy) -> None:
    """Both reach the model through the prompt."""
    usual = act(policy)
    assert np.abs(act(policy, state=[0.8, -0.7, 0.3, 1.0, 0.9]) - usual).max() > 1e-3
    assert np.abs(act(policy, instruction="put it down") - usual).max() > 1e-3


def written(instruction: str, state: np.ndarray) -> str:
    rule = PromptRule(clean=True, lower=False, state=True)
    return PromptWriter(load_tokenizer(TOKENIZER / "tokenizer.json"), rule, "pi05").text(instruction, state)


@pytest.mark.parametrize(
    ("instruction", "clean"),
    [("pick up", "pick up"), ("  pick_up\nnow ", "pick up now"), ("Pick, Up!", "Pick, Up!"), ("", "")],
)
def test_prompt_text_is_that_of_the_training_code(instruction: str, clean: str) -> None:
    """Other white space or case would be other tokens."""
    state = np.array([-1.0, 0.0, 1.0], np.float32)
    assert written(instruction, state) == f"Task: {clean}, State: 0 128 255;\nAction: "


def test_state_bins_are_not_clipped_below_and_keep_their_edges() -> None:
    """A state outside the range seen in training has its own word; a value on an edge belongs above it."""
    below = np.nextafter(np.float32(-1), np.float32(-2))
    state = np.array([-5, below, -1, -0.9921875, 0.9921875, 1, 7], np.float32)
    assert "State: -1 -1 0 1 255 255 255;" in written("go", state)


def test_long_prompt_is_cut_on_the_right_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As the training code does; a robot with a long instruction must not flood the log."""
    policy = load()
    long = "put the red block on the blue block " * 8
    with caplog.at_level(logging.WARNING):
        first = act(policy, instruction=long)
        act(policy, instruction=long)
    assert len(caplog.records) == 1
    assert "is cut to 48" in caplog.text
    assert len(caplog.records[0].getMessage()) < 200  # the whole text may be a megabyte
    # what is beyond the cut, the state for one, cannot matter
    np.testing.assert_array_equal(first, act(policy, instruction=long + " and more", state=[0.0] * 5))


def test_prompt_bucket_does_not_change_the_actions() -> None:
    """The same prompt through a longer graph: only padding is added."""
    policy = load()
    short = act(policy, instruction="go")
    np.testing.assert_allclose(act(without_bucket(policy, 32), instruction="go"), short, rtol=0, atol=2e-5)


def without_bucket(policy: Policy, tokens: int) -> Policy:
    assert policy._opened().buckets.pop(tokens)
    return policy


def test_nothing_of_the_last_prompt_remains() -> None:
    """A shorter prompt after a longer one: left-over tokens would be an instruction nobody gave."""
    policy = without_bucket(load(), 32)
    act(policy, instruction="pick up the red block now")
    np.testing.assert_array_equal(
        act(policy, instruction="go"), act(without_bucket(load(), 32), instruction="go")
    )


# ---- noise ----


def test_R31_same_observation_and_seed(policy: Policy) -> None:
    """Bit-identical, in this process and after loading again."""
    first = act(policy, seed=7, sequence=3)
    act(policy, {TOP: picture(5)}, seed=1)
    np.testing.assert_array_equal(act(policy, seed=7, sequence=3), first)
    np.testing.assert_array_equal(act(load(), seed=7, sequence=3), first)


@pytest.mark.parametrize(("seed", "sequence"), [(8, 3), (7, 4)])
def test_seed_and_sequence_choose_the_noise(policy: Policy, seed: int, sequence: int) -> None:
    """Otherwise every decision would start from the same sample."""
    assert not np.array_equal(act(policy, seed=seed, sequence=sequence), act(policy, seed=7, sequence=3))


def test_noise_of_neighbouring_decisions_has_nothing_in_common() -> None:
    """Philox counts its output in the counter: sequence and sequence + 1 must not be shifted copies."""
    drawn = [seeded_noise(0, sequence, (50, 32)) for sequence in range(4)]
    everything = np.concatenate(drawn).ravel()
    assert len(np.unique(everything)) > 0.999 * everything.size
    assert abs(float(everything.mean())) < 0.05
    assert abs(float(everything.std()) - 1) < 0.05


def test_largest_sequence_has_its_own_noise(policy: Policy) -> None:
    """Counters are 64 bits wide: read as floats, all large ones would draw the same sample."""
    top = (1 << 64) - 1
    drawn = [seeded_noise(0, sequence, (4, 4)) for sequence in (top, top - 1, 1 << 63)]
    assert len(np.unique(drawn)) == 48
    np.testing.assert_array_equal(seeded_noise(0, np.uint64(top), (4, 4)), drawn[0])  # type: ignore[arg-type]


def test_given_noise_replaces_the_seeded_one(policy: Policy) -> None:
    """Recorded noise reproduces a recorded decision."""
    noise = seeded_noise(7, 3, (6, 8))
    np.testing.assert_array_equal(act(policy, noise=noise), act(policy, seed=7, sequence=3))
