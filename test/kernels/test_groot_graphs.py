# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What holds for the graphs of GR00T N1.6 and N1.7 beside the numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flashrt_kernels import load_policy
from flashrt_kernels.composition import Node
from flashrt_kernels.errors import GraphError, ObservationError
from flashrt_kernels.graph import SMALL
from flashrt_kernels.models.dit import CONDITION
from flashrt_kernels.models.groot import START
from test.kernels.groot_rig import CAMERAS, DATA, checkpoint_of, oracle, prompt_of, rig
from test.kernels.parity import assert_close, poison

versions = pytest.mark.parametrize("version", ["n16", "n17"])


@versions
def test_filling_changes_nothing(version: str) -> None:
    """Nothing but its length says which bucket a prompt lands in; N1.7's own attention has no mask at all."""
    given = oracle(version)
    assert_close(rig(version, tokens=64).act(given)[0], rig(version).act(given)[0], 1e-5)


@versions
def test_nothing_is_read_that_this_decision_did_not_write(version: str) -> None:
    """The arena full of NaN before a decision: the same actions."""
    graphs, given = rig(version, tokens=64), oracle(version)
    plain = graphs.act(given)[0]
    poison(graphs.graphs)
    np.testing.assert_array_equal(graphs.act(given)[0], plain)


@versions
def test_arena_is_reused(version: str) -> None:
    """The parity holds for a plan in which buffers really share memory."""
    for graph in rig(version).graphs:
        plan = graph.layout()
        kept = {name.storage for name in graph._kept.values()}
        always = sum(p.request.bytes for p in plan.placements if p.request.in_front)
        always += sum(storage.bytes for storage in kept)
        assert (plan.bytes - always) < 0.5 * (plan.bytes_without_reuse - always), graph.name


@versions
def test_norms_take_eps_from_the_checkpoint(version: str) -> None:
    """1e-5 in place of 1e-6 hides below the tolerance here and moves a policy whose activations are small."""
    checkpoint = checkpoint_of(version)
    dims = checkpoint.dims
    changed = replace(dims, vision=replace(dims.vision, layer_norm_eps=0.25), llm=replace(dims.llm, eps=0.5))
    nodes = rig(version, checkpoint=replace(checkpoint, dims=changed)).nodes
    eps = {(node.kernel.name, node.parameters["eps"]) for node in nodes if "eps" in node.parameters}
    assert eps == {
        ("layer_norm", 0.25),  # vision
        ("layer_norm", 1e-5),  # head
        ("layer_norm", 1e-6),  # in front of the DiT's output
        ("rms_norm", 0.5),
        ("norm_rope_qkv", 0.5),
    }


@versions
def test_only_the_own_embodiment_is_used(version: str) -> None:
    """Weights of other robots are neither read nor on the device, where they would cost a gigabyte."""
    checkpoint, given = checkpoint_of(version), oracle(version)
    own, tensors = checkpoint.embodiment_index, dict(checkpoint.tensors)
    stacked = [key for key in tensors if key.endswith((".W", ".b"))]
    assert len(stacked) == 14
    for key in stacked:
        tensors[key] = torch.full_like(tensors[key], torch.nan)
        tensors[key][own] = checkpoint.tensors[key][own]
    changed = rig(version, checkpoint=replace(checkpoint, tensors=tensors))
    np.testing.assert_array_equal(changed.act(given)[0], rig(version).act(given)[0])
    count = checkpoint.dims.head.embodiments
    constants = [s for graph in changed.graphs for s in graph._storages.values() if s.kind == "constant"]
    assert not [s.name for s in constants if len(s.shape) == 3 and s.shape[0] == count]


@versions
def test_another_embodiment_acts_otherwise(version: str) -> None:
    """A robot that is driven with the weights of another one moves wrongly, not badly."""
    checkpoint, given = checkpoint_of(version), oracle(version)
    other = replace(checkpoint.processing, embodiment_index=0)
    changed = rig(version, checkpoint=replace(checkpoint, processing=other))
    assert np.abs(changed.act(given)[0] - rig(version).act(given)[0]).max() > 0.1


@versions
def test_time_follows_the_number_of_steps(version: str) -> None:
    """Step 3 of 6 is the same time as step 1 of 2; a wrong time shows in the actions only."""
    few, many = (rig(version, steps=steps).model.weights._made[CONDITION] for steps in (2, 6))
    torch.testing.assert_close(few, many[[0, 3]], rtol=0, atol=1e-6)
    assert (many[1] - many[0]).abs().max() > 1e-3


@versions
def test_context_is_projected_once_and_by_halves(version: str) -> None:
    """Keys of text for all tokens, or in every step, would cost more than the steps themselves."""
    graphs = rig(version)
    images, tokens = CAMERAS * graphs.model.image_tokens, graphs.bucket.tokens
    keys = [
        node
        for node in graphs.nodes
        if ".to_k.weight" in weight_of(node) and "model.transf" in weight_of(node)
    ]
    cross = [node for node in keys if " + " not in weight_of(node)]
    assert [node.arguments["x"].shape[0] for node in cross] == [tokens, images]  # type: ignore[union-attr]
    assert {node.section for node in cross} == {"prefix"}


def weight_of(node: Node) -> str:
    """Name of the call's weight."""
    weight = node.arguments.get("weight")
    return "" if weight is None else weight.storage.name


@versions
def test_prompt_and_cameras_must_agree(version: str) -> None:
    """A prompt with one picture for two cameras would shift every position behind it."""
    graphs, given = rig(version), oracle(version)
    ids, state = prompt_of(given, graphs.model), np.zeros(7, np.float32)
    ids.remove(graphs.model.image_token)
    with pytest.raises(GraphError, match="1 images in the prompt and 2 from cameras; expected 2 of both"):
        graphs.model.write_inputs(graphs.bucket.graph, ids, [True, True], state)


@versions
def test_large_masks_are_sent(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU gets inputs above 64 KB only when they are sent: it would go on with the mask before."""
    for tokens in (32, 256):
        graphs = rig(version, tokens=tokens)
        graph = graphs.bucket.graph
        sent: list[tuple[str, int]] = []
        monkeypatch.setattr(graph, "send", lambda name, count, sent=sent: sent.append((name, count)))
        graphs.write(oracle(version))
        rows = CAMERAS * graphs.model.image_tokens + tokens
        assert sent == ([("mask", rows**2)] if rows**2 > SMALL else [])
    assert sent


def test_prompt_is_the_original_one() -> None:
    """Cleaned text in the checkpoint's chat template, one id for each picture (of N1.6 no ids are known)."""
    graphs, given = rig("n17"), oracle("n17", "oracle_raw")
    ids = graphs.model.tokenise("Pick up the red block, please!", np.zeros(7, np.float32))
    assert ids == prompt_of(given, graphs.model)


@versions
def test_instruction_that_is_too_long_is_refused(version: str) -> None:
    """Cut anywhere, it would be another instruction."""
    model = rig(version).model
    with pytest.raises(ObservationError, match=r"makes a prompt of \d{3,} tokens; expected at most 256"):
        model.tokenise("pick up the red block " * 60, np.zeros(7, np.float32))


@versions
def test_policy_of_a_folder(version: str) -> None:
    """What a robot does with a checkpoint: pictures in, a chunk out, the same one for the same seed."""
    policy = load_policy(DATA / f"tiny_groot_{version}")
    images = {name: np.full((60, 60, 3), 40 * i, np.uint8) for i, name in enumerate(policy.cameras, 1)}
    first, again, other = (
        policy.decide(
            images=images, state=np.zeros(7), instruction="pick up the red block", seed=seed
        ).actions
        for seed in (0, 0, 1)
    )
    policy.close()
    assert first.shape == (5, 7)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


# ---- bf16 ----


def bf16_nodes(version: str) -> list[Node]:
    return rig(version, torch.bfloat16).nodes


@versions
def test_bf16_weights_are_bf16_and_norms_are_not(version: str) -> None:
    """Otherwise bf16 would save no memory, or lose the digits that norms need."""
    dtypes: dict[str, set[torch.dtype]] = {"matrix": set(), "vector": set()}
    for node in bf16_nodes(version):
        for name, buffer in node.arguments.items():
            if buffer is None or buffer.storage.kind != "constant" or buffer.storage.name == START:
                continue
            if buffer.dtype.is_floating_point:
                matrix = node.kernel.name == "embedding" or (name == "weight" and len(buffer.shape) > 1)
                dtypes["matrix" if matrix else "vector"].add(buffer.dtype)
    assert dtypes == {"matrix": {torch.bfloat16}, "vector": {torch.float32}}


@versions
def test_residual_streams_are_fp32_in_bf16(version: str) -> None:
    """Layers that each round it leave the features of a full-size policy more than 1 % off."""
    nodes = bf16_nodes(version)
    streams = [node.arguments["residual"] for node in nodes if node.arguments.get("residual") is not None]
    assert {buffer.dtype for buffer in streams if buffer is not None} == {torch.float32}
    norms = [node.arguments["x"] for node in nodes if node.kernel.name in ("layer_norm", "rms_norm")]
    assert {buffer.dtype for buffer in norms if buffer is not None} == {torch.float32}


@versions
def test_what_matmuls_and_attention_read_is_bf16(version: str) -> None:
    """An operand in fp32 takes a matmul off the tensor cores; state, noise and actions are small enough."""
    slow = set()
    for node in bf16_nodes(version):
        for name in {"x", "q", "k", "v", "qkv"} & set(node.arguments):
            buffer = node.arguments[name]
            if node.kernel.name not in ("layer_norm", "rms_norm", "euler_step") and buffer is not None:
                slow |= {buffer.storage.name} if buffer.dtype == torch.float32 else set()
    assert {name.split("/")[-1].split(".", 1)[-1] for name in slow} == {"noise", "state", "matmul.out"}
    assert len(slow) == 3


@versions
def test_rows_of_matmul_and_attention_start_on_16_bytes(version: str) -> None:
    """Vector loads and TMA need it: state and actions of any width are filled up with zeros."""
    rows = {
        (node.kernel.name, name, buffer.shape[-1] * buffer.dtype.itemsize)
        for node in bf16_nodes(version)
        for name, buffer in node.arguments.items()
        if buffer is not None and node.kernel.arguments[name].align == 16
    }
    assert {kernel for kernel, _, _ in rows} >= {"matmul", "attention", "self_attention"}
    assert all(size % 16 == 0 for _, _, size in rows), rows
