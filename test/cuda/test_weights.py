# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What reaches the GPU must be what the file holds: pieces, casts and checks run there, out of sight."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flashrt_kernels.checkpoint import PiCheckpoint, load_lerobot
from flashrt_kernels.checkpoint.layout import EMBEDDING
from flashrt_kernels.checkpoint.tensors import Twin, Unscanned
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models import upload
from flashrt_kernels.models.action_expert import CONDITION, MODULATION
from flashrt_kernels.models.pi05 import Pi05
from test.cuda.support import requires_cuda

pytestmark = requires_cuda
DATA = Path(__file__).parents[1] / "data"


def checkpoint() -> PiCheckpoint:
    return load_lerobot(DATA / "tiny_pi05", DATA / "tokenizer_tiny", scan=False)


def constants(model: Pi05) -> dict[str, torch.Tensor]:
    vision = StaticGraph("only its constants matter")
    model.compose_vision(vision, 2, 32, 1000)
    model.compose(StaticGraph("and these", vision.backend, after=vision), 2, 32)
    return {name: tensor.cpu() for name, tensor in model.weights._made.items()}


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("piece", [upload.PIECE, 1000])
def test_constants_are_those_of_the_cpu(
    stored: torch.dtype, dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same bits in the same places, however a tensor is cut and whatever is converted on the way."""
    monkeypatch.setattr(upload, "PIECE", piece)
    file = checkpoint()
    file = replace(file, tensors={key: tensor.to(stored) for key, tensor in file.tensors.items()})
    want, got = (constants(Pi05(file, dtype, 2, torch.device(device))) for device in ("cpu", "cuda"))
    assert list(want) == list(got)
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype, name
        if name.endswith(MODULATION) or name == CONDITION:  # computed on the device
            torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-5)
        else:
            assert torch.equal(got[name], tensor), name


def refusal(file: PiCheckpoint) -> str:
    """What `verify` says about a checkpoint whose weights have gone to the GPU."""
    model = Pi05(file, torch.bfloat16, 2, torch.device("cuda"))
    constants(model)
    with pytest.raises(CheckpointError) as caught:
        model.weights.verify(file.unscanned)
    return str(caught.value)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("key", [EMBEDDING, "time_mlp_in.bias", "action_in_proj.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_value_is_found_while_loading(stored: torch.dtype, key: str, value: float) -> None:
    """The only thing between a damaged file and a robot that gets NaN, now that nobody scans the file."""
    file = checkpoint()
    bad = file.tensors[key].to(stored, copy=True)
    bad.view(-1)[-2] = value
    assert file.unscanned is not None
    alone = replace(file.unscanned, twins=())  # or the embedding would differ from its twin first
    text = refusal(replace(file, tensors=dict(file.tensors) | {key: bad}, unscanned=alone))
    assert f"NaN or infinity in 1 tensor(s): {key} (1 of {bad.numel()} values)" in text


def test_copy_that_differs_in_one_value_is_found() -> None:
    """Two embeddings of which nobody knows the right one."""
    file = checkpoint()
    twins = [file.tensors[EMBEDDING].clone() for _ in range(2)]
    twins[1][-1, -1] += 1
    same, other = (Twin(EMBEDDING, twin, f"copy {i} differs") for i, twin in enumerate(twins))
    unscanned = Unscanned(file.folder / "model.safetensors", (same, other))
    text = refusal(replace(file, unscanned=unscanned))
    assert "contradictory (1): copy 1 differs" in text


def test_sound_checkpoint_passes_and_frees_what_it_staged() -> None:
    """Loading must not cost the GPU more than the policy that it loads."""
    file = checkpoint()
    Pi05(file, torch.bfloat16, 2, torch.device("cuda"))  # cuBLAS keeps a workspace from its first call on
    gc.collect()
    before = torch.cuda.memory_allocated()
    model = Pi05(file, torch.bfloat16, 2, torch.device("cuda"))
    made = constants(model)
    model.weights.verify(file.unscanned)
    model.weights.release()
    torch.cuda.synchronize()
    kept = sum(tensor.nbytes for tensor in made.values())
    grown = torch.cuda.memory_allocated() - before
    assert kept <= grown < kept + 512 * len(made)  # the allocator's granularity
