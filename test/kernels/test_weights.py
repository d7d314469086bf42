# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Weights in another order, another dtype or with a NaN that nobody saw are another policy."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.layout import EMBEDDING, LM_HEAD
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models import upload
from flashrt_kernels.models.weights import Weights

DATA = Path(__file__).parents[1] / "data"
TINY, TOKENIZER = DATA / "tiny_pi05", DATA / "tokenizer_tiny"
FILE = "model.safetensors"
HEAD_DIM, WIDTH = 32, 24


def some(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def made(w: Weights, *names: str) -> list[torch.Tensor]:
    return [w._made[name] for name in names]


def test_pair_rows_stand_beside_their_partners() -> None:
    """A thread multiplies the gate by the up that lies eight rows on: any other order mixes features."""
    gate, up = some(40, WIDTH), some(40, WIDTH, seed=1)
    w = Weights({"gate": gate, "up": up}, torch.bfloat16)
    assert w.pair(StaticGraph("g"), "gate", "up").shape == (5, 2, 8, WIDTH)
    (pair,) = made(w, "gate | up")
    for row in range(40):
        assert torch.equal(pair[row // 8, 0, row % 8], gate[row].bfloat16())
        assert torch.equal(pair[row // 8, 1, row % 8], up[row].bfloat16())


def test_rows_of_rotated_heads_stand_beside_their_partners() -> None:
    """Stored row 16b + j of a head is its row 8b + j, row 16b + 8 + j is row half + 8b + j; v stays."""
    heads, kv_heads = 3, 2
    q, k, v = (some(n * HEAD_DIM, WIDTH, seed=i) for i, n in enumerate((heads, kv_heads, kv_heads)))
    w = Weights({"q": q, "k": k, "v": v}, torch.float32)
    g = StaticGraph("g")
    assert w.qkv(g, "q", "k", "v", heads, kv_heads, HEAD_DIM).shape == ((heads + 4) * HEAD_DIM, WIDTH)
    (rows,) = made(w, "q + k + v")
    canonical = [8 * b + j + half for b in range(2) for half in (0, HEAD_DIM // 2) for j in range(8)]
    for head, want in enumerate([*q.split(HEAD_DIM), *k.split(HEAD_DIM)]):
        assert torch.equal(rows[head * HEAD_DIM : (head + 1) * HEAD_DIM], want[canonical])
    assert torch.equal(rows[(heads + kv_heads) * HEAD_DIM :], v)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_constants_are_rounded_once_and_copied(stored: torch.dtype) -> None:
    """A policy that runs must not change, or crash, when its file is replaced."""
    tensors = {"a": some(6, 5, dtype=stored), "b": some(3, 5, seed=1, dtype=stored)}
    copies = {key: tensor.clone() for key, tensor in tensors.items()}
    w, g = Weights(tensors, torch.bfloat16), StaticGraph("g")
    w.matrix(g, "a", "b"), w.vector(g, "b", "a"), w.matrix(g, "a"), w.repeated(g, "b", 2)
    for tensor in tensors.values():
        tensor.zero_()
    stacked, vector, one, table = made(w, "a + b", "b + a", "a", "b × 2")
    assert torch.equal(stacked, torch.cat([copies["a"], copies["b"]]).bfloat16())
    assert torch.equal(vector, torch.cat([copies["b"], copies["a"]]).float())
    assert torch.equal(one, copies["a"].bfloat16())
    assert torch.equal(table, copies["b"].float().repeat(2, 1))


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large tensors go in pieces, which must meet without a gap, whatever their size."""
    want = some(37, 5)
    monkeypatch.setattr(upload, "PIECE", 64)
    w = Weights({"a": want}, torch.float32)
    assert torch.equal(w.once("a"), want)


def test_fixed_constants_are_shared_by_name() -> None:
    """Binding other cameras composes again: statistics must not be uploaded twice."""
    w = Weights({}, torch.bfloat16)
    first, second = (w.fixed(StaticGraph(name), "offset", some(4)) for name in ("one", "two"))
    assert first.storage.tensor is second.storage.tensor
    assert torch.equal(made(w, "offset")[0], some(4))


def test_progress_ends_at_the_end() -> None:
    """A bar that stops at 99 % looks like a hang; tensors that a policy never needs count, too."""
    tensors = {"a": some(6, 5), "b": some(3, dtype=torch.bfloat16), "never used": some(7)}
    calls: list[tuple[int, int]] = []
    w = Weights(tensors, torch.bfloat16, progress=lambda done, total: calls.append((done, total)))
    w.matrix(StaticGraph("g"), "a")
    w.once("b")
    w.verify(None)
    w.verify(None)  # other cameras are bound
    assert calls == [(120, 154), (126, 154), (154, 154)]


# ---- what a reader that does not scan leaves to Weights ----


def damaged(folder: Path, **edits: torch.Tensor) -> Path:
    """A copy of the tiny checkpoint whose tensors `edits` replaces (by canonical key)."""
    folder.mkdir()
    for file in TINY.iterdir():
        if file.name != FILE and file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = load_file(TINY / FILE)
    save_file(tensors | {f"model.{key}": tensor for key, tensor in edits.items()}, folder / FILE)
    return folder


def refusal(folder: Path) -> str:
    """What a reader that scans says; checks that `Weights.verify` says the same."""
    with pytest.raises(CheckpointError) as scanned:
        load_lerobot(folder, TOKENIZER)
    checkpoint = load_lerobot(folder, TOKENIZER, scan=False)
    with pytest.raises(CheckpointError) as verified:
        Weights(checkpoint.tensors, torch.float32).verify(checkpoint.unscanned)
    assert str(verified.value) == str(scanned.value)
    return str(scanned.value)


def test_non_finite_values_are_found_without_a_scan(tmp_path: Path) -> None:
    """A NaN in one weight turns every action into NaN; the message must name it all the same."""
    tensors = load_lerobot(TINY, TOKENIZER).tensors
    bad = tensors["time_mlp_in.weight"].clone()
    bad[3, 4], bad[0, 1] = float("nan"), float("inf")
    text = refusal(damaged(tmp_path / "out", **{"time_mlp_in.weight": bad}))
    assert "time_mlp_in.weight (2 of 1024 values)" in text


def test_contradictory_copies_are_found_without_a_scan(tmp_path: Path) -> None:
    """Which of two embeddings did the training use? Nobody knows, so neither is used."""
    other = load_lerobot(TINY, TOKENIZER).tensors[EMBEDDING] + 1
    text = refusal(damaged(tmp_path / "out", **{LM_HEAD: other}))
    assert "contradictory (1)" in text


def test_sound_checkpoint_passes_without_a_scan() -> None:
    """The scan is saved, not the checkpoint refused."""
    checkpoint = load_lerobot(TINY, TOKENIZER, scan=False)
    assert checkpoint.unscanned is not None
    Weights(checkpoint.tensors, torch.float32).verify(checkpoint.unscanned)
    assert load_lerobot(TINY, TOKENIZER).unscanned is None
