# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0-FAST against LeRobot's own numbers (test/data/tiny_pi0_fast*, made with lerobot 0.6.1).

When these fail, a trained checkpoint writes another text than in training, and the robot moves otherwise.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from flashrt_kernels import DecisionError, ObservationError, Policy, arena
from flashrt_kernels.checkpoint.robot_units import RobotUnits
from flashrt_kernels.models.model import Bucket
from flashrt_kernels.models.pi0_fast import LOGITS, Pi0Fast
from flashrt_kernels.models.prompt import PromptLimit
from test.kernels.parity import Oracle, as_image, assert_close, decide, load, poison, read_oracle

RANDOM, TRAINED = "tiny_pi0_fast", "tiny_pi0_fast_e2e"
ORACLES = [(RANDOM, "oracle"), (TRAINED, "oracle"), (TRAINED, "oracle_2")]


@pytest.fixture(scope="module")
def policies() -> Iterator[dict[str, Policy]]:
    policies = {folder: load(folder) for folder in (RANDOM, TRAINED)}
    yield policies
    for policy in policies.values():
        policy.close()


@pytest.fixture
def any_text(policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a random checkpoint writes is no chunk, and has intermediates all the same."""
    monkeypatch.setattr(model_of(policies[RANDOM]), "read", lambda ids: np.zeros((6, 3), np.float32))


def model_of(policy: Policy) -> Pi0Fast:
    model: Any = policy._model
    assert isinstance(model, Pi0Fast)
    return model


def used(policy: Policy, oracle: Oracle) -> Bucket:
    """The graphs of this observation's decision."""
    ids = policy._model.tokenise(oracle.task, oracle.tensors["raw.state"].astype(np.float32))
    return policy._opened().holding(len(ids))


def written(policy: Policy, oracle: Oracle) -> list[int]:
    """Greedy ids of the last decision, from the replayed prompt."""
    return model_of(policy).write(used(policy, oracle))[0]


@pytest.mark.usefixtures("any_text")
@pytest.mark.parametrize(("folder", "file"), ORACLES)
def test_tokens_and_logits(policies: dict[str, Policy], folder: str, file: str) -> None:
    """The same text, each token with the same certainty."""
    policy, oracle = policies[folder], read_oracle(folder, file)
    chunk = decide(policy, oracle, taps=policy.marks)
    want = oracle.tensors["gen.tokens_kv"][0].tolist()
    assert written(policy, oracle) == want == oracle.tensors["gen.tokens_nocache"][0].tolist()
    logits = np.concatenate([chunk.taps["prefix.logits"], chunk.taps[LOGITS]])
    assert_close(logits, oracle.tensors["gen.logits_nocache"][0][: len(logits)])
    assert len(logits) == len(want)


@pytest.mark.usefixtures("any_text")
@pytest.mark.parametrize(("folder", "file"), ORACLES)
def test_preprocessing(policies: dict[str, Policy], folder: str, file: str) -> None:
    """Images, state and prompt as the model saw them in training; our padding stands in front of the text."""
    policy, oracle = policies[folder], read_oracle(folder, file)
    chunk = decide(policy, oracle, taps=policy.marks)
    for i in range(2):
        image = as_image(chunk.taps[f"image{i}.patches"])
        np.testing.assert_allclose(image, oracle.tensors[f"in.image{i}"][0], rtol=0, atol=2e-5)
    state = policy.normalise_state(oracle.tensors["raw.state"])
    np.testing.assert_allclose(state, oracle.tensors["in.state_normalized"][0], rtol=0, atol=1e-6)
    text = oracle.tensors["in.tokens"][0][oracle.tensors["in.token_mask"][0]]
    bos = text[0]
    np.testing.assert_array_equal(chunk.taps["tokens"][-len(text) - 1 :], [*text, bos])


@pytest.mark.parametrize("order", [("oracle", "oracle_2"), ("oracle_2", "oracle")])
def test_raw_observation_to_robot_units(policies: dict[str, Policy], order: tuple[str, str]) -> None:
    """The whole public path, whichever observation came before: nothing of the last text may remain."""
    for file in order:
        oracle = read_oracle(TRAINED, file)
        actions = decide(policies[TRAINED], oracle).actions
        assert_close(actions, oracle.tensors["actions_unnormalized"][0])


class _Turned(RobotUnits):
    """A robot whose joints all turn the other way."""

    def to_policy(self, state: np.ndarray) -> np.ndarray:
        return -state

    def to_robot(self, actions: np.ndarray) -> np.ndarray:
        return -actions


def test_units_of_the_robot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is written for the policy's state, offsets are added to it; the robot gets its own units."""
    policy, oracle = load(TRAINED), read_oracle(TRAINED)
    model, state = model_of(policy), oracle.tensors["raw.state"].astype(np.float32)
    monkeypatch.setattr(model, "relative", np.array([True, False, True]))
    usual = policy.decide(oracle.images, state, oracle.task).actions
    bare = model.normalise_state
    monkeypatch.setattr(model, "units", _Turned())
    monkeypatch.setattr(model, "normalise_state", lambda state: bare(_Turned().to_policy(state)))
    np.testing.assert_array_equal(policy.decide(oracle.images, -state, oracle.task).actions, -usual)
    policy.close()


def test_reading_a_text(policies: dict[str, Policy]) -> None:
    """`Action: ` + ids + `|` → chunk, as LeRobot's detokeniser reads it."""
    oracle, model = read_oracle(RANDOM), model_of(policies[RANDOM])
    normalised = model.read(oracle.tensors["fast.pg_ids_generated_form"].tolist())
    assert_close(normalised, oracle.tensors["fast.decoded"][0])
    assert_close(model.action_norm.unnormalise(normalised), oracle.tensors["fast.decoded_unnormalized"][0])


def test_R42_a_text_without_actions_is_no_chunk(policies: dict[str, Policy]) -> None:
    """The training code goes on with zeros, the mean of its data: an arm would move there."""
    model = model_of(policies[TRAINED])
    beyond = model.words.top + 2  # the one in between is `|`
    other_words = [5, model.words.top - model.fast.size]
    word, bar, prefix = model.words.top - 5, model.words.bar, model.words.prefix
    assert model.read([*prefix, word, bar]).any()
    for text, problem in (
        ([*prefix, beyond, bar], "words that are no actions"),
        ([*prefix, *other_words, bar], "words that are no actions"),
        ([*prefix, word, *other_words, bar], "words that are no actions"),
        ([word, bar], "does not begin with `Action: `"),
        ([*prefix, bar], "a text without actions"),
    ):
        with pytest.raises(DecisionError, match=f"pi0_fast wrote .*{problem}"):
            model.read(text)


def test_nothing_is_read_that_this_decision_did_not_write(policies: dict[str, Policy]) -> None:
    """Arenas full of NaN before a decision, caches included: the same text."""
    policy, oracle = policies[TRAINED], read_oracle(TRAINED)
    plain = decide(policy, oracle).actions
    poison(policy._opened().all)
    np.testing.assert_array_equal(decide(policy, oracle).actions, plain)


@pytest.mark.parametrize("beyond", [0, 1, 2])
def test_a_prompt_is_cut_in_front_of_its_bos_with_a_warning(
    policies: dict[str, Policy],
    beyond: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One token too many is the end of the prompt lost already: nobody would know why the policy is worse."""
    policy = policies[RANDOM]
    model = model_of(policy)
    limit = model.buckets[-1] - 1  # BOS has the last place
    ids = list(range(7, 7 + limit + beyond))
    monkeypatch.setattr(model, "prompt_limit", PromptLimit(model.prompt_limit.tokens))
    monkeypatch.setattr(model.prompts, "ids", lambda instruction, state: ids)
    assert model.tokenise("go", np.zeros(policy.state_dim, np.float32)) == [*ids[:limit], model.bos_id]
    said = [f"prompt of {limit + beyond} tokens is cut to {limit}, as in training: 'go'…"] if beyond else []
    assert caplog.messages == said


def test_prompt_bucket_does_not_change_the_text() -> None:
    """The same prompt through a longer graph: only padding is added."""
    policy, oracle = load(TRAINED), read_oracle(TRAINED)
    plain, tokens = decide(policy, oracle).actions, used(policy, oracle).tokens
    longer = [t for t in policy._opened().buckets if t > tokens]
    for bucket in [t for t in policy._opened().buckets if t <= tokens] if longer else []:
        policy._opened().buckets.pop(bucket)
    np.testing.assert_array_equal(decide(policy, oracle).actions, plain)


def test_bf16_writes_the_same_text() -> None:
    """The margins of a trained policy are wider than what bf16 rounds away."""
    policy = load(TRAINED, precision="bf16")
    for file in ("oracle", "oracle_2"):
        oracle = read_oracle(TRAINED, file)
        decide(policy, oracle)
        assert written(policy, oracle) == oracle.tensors["gen.tokens_kv"][0].tolist()


def test_head_of_action_words_writes_the_same_text() -> None:
    """The named option for speed: a policy that keeps to the form of a chunk must not notice it."""
    policy = load(TRAINED, head="actions")
    for file in ("oracle", "oracle_2"):
        oracle = read_oracle(TRAINED, file)
        actions = decide(policy, oracle).actions
        assert_close(actions, oracle.tensors["actions_unnormalized"][0])
    model = model_of(policy)
    assert model.chosen is not None
    assert len(model.chosen) < model.dims.vocab
    assert "words of actions only" in policy.description()
    with pytest.raises(ValueError, match="head='actions'; expected full, or actions for pi0_fast"):
        load("tiny_pi0", head="actions")


def test_decoding_is_timed_apart(policies: dict[str, Policy]) -> None:
    """Most of a decision is decoding: a user who tunes must see it."""
    timings = decide(policies[TRAINED], read_oracle(TRAINED)).timings
    assert set(timings) == {"prepare", "vision", "prefix", "decode", "total"}
    assert timings["decode"] > 0


def test_noise_and_steps_are_refused(policies: dict[str, Policy]) -> None:
    """A policy that starts from no noise must not silently ignore it."""
    oracle = read_oracle(TRAINED)
    with pytest.raises(ObservationError, match="noise is given, but pi0_fast starts from none"):
        policies[TRAINED].decide(
            oracle.images, oracle.tensors["raw.state"], "go", noise=np.zeros((6, 8), np.float32)
        )
    with pytest.raises(ValueError, match="pi0_fast has no such steps"):
        load(TRAINED, num_inference_steps=5)


def test_warming_up_needs_nothing_of_a_decision_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is full of something when a robot starts: as a token's id it would be outside the vocabulary."""
    allocate = arena.allocate

    def full(*arguments: Any, **options: Any) -> arena.Memory:
        memory = allocate(*arguments, **options)
        memory.arena.fill_(0x7F)
        return memory

    monkeypatch.setattr(arena, "allocate", full)
    policy, lines = load(TRAINED), list[str]()
    policy.warm_up(lines.append)
    assert len(lines) == 1


def test_the_end_of_a_text_is_no_word_of_it(
    policies: dict[str, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """openpi's policies may end with EOS alone: a chunk that is complete must not be refused."""
    model = model_of(policies[TRAINED])
    eos, word = 1, model.words.top - 5
    monkeypatch.setattr(model, "stops", {model.words.bar, eos})
    text = [*model.words.prefix, word]
    np.testing.assert_array_equal(model.read([*text, eos]), model.read([*text, model.words.bar]))
