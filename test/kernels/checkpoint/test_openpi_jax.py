# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""openpi's JAX checkpoints: the same strictness as with a file of tensors, for a store of arrays."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore
import torch

from flashrt_kernels.checkpoint import PiCheckpoint, PromptRule, layout, load_checkpoint
from flashrt_kernels.checkpoint.dims import released_dims
from flashrt_kernels.checkpoint.formats import FORMATS
from flashrt_kernels.checkpoint.openpi_leaves import LAYERS, leaves
from flashrt_kernels.checkpoint.orbax import open_params
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, TOKENIZER

Arrays = dict[str, np.ndarray]
PI05, PI0 = DATA / "tiny_openpi_jax_pi05", DATA / "tiny_openpi_jax_pi0"
Q = "PaliGemma/llm/layers/attn/q_einsum/w"
EMBEDDER = "PaliGemma/llm/embedder/input_embedding"


def load(folder: Path, **options: Any) -> PiCheckpoint:
    loaded = load_checkpoint(folder, **{"tokenizer": TOKENIZER, "chunk_size": 6, **options})
    assert isinstance(loaded, PiCheckpoint)
    return loaded


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The Pi0.5 fixture, to be damaged."""
    shutil.copytree(PI05, tmp_path / "jax", ignore=shutil.ignore_patterns("oracle*", "params_trainstyle"))
    return tmp_path / "jax"


def store_of(params: Path) -> dict[str, Any]:
    return {"driver": "ocdbt", "base": {"driver": "file", "path": f"{params}/", "file_io_sync": False}}


def rewrite(folder: Path, edit: Callable[[Arrays], object], suffix: str = "") -> None:
    """Replaces params/ of `folder` by its arrays as `edit` leaves them."""
    params = folder / "params"
    arrays = {name: leaf.read().numpy() for name, leaf in open_params(params).items()}
    store = tensorstore.KvStore.open(store_of(params)).result()
    stored = {key.decode(): store[key] for key in store.list().result()}
    before = dict(arrays)
    edit(arrays)
    shutil.rmtree(params)
    store = tensorstore.KvStore.open(store_of(params)).result()
    same = {path_of(name): name for name, values in arrays.items() if values is before.get(name)}
    with tensorstore.Transaction() as transaction:
        for key, content in stored.items():
            path, _, part = key.partition("/")
            if path in same:  # copied: to write an array anew takes far longer
                store.with_transaction(transaction)[f"{path}{suffix}/{part}"] = content
    for name, values in arrays.items():
        if path_of(name) not in same:
            spec = {"driver": "zarr", "kvstore": {**store_of(params), "path": f"{path_of(name)}{suffix}/"}}
            array = tensorstore.open(spec, create=True, dtype=values.dtype, shape=values.shape).result()
            array.write(values).result()


def path_of(name: str) -> str:
    return "params." + name.replace("/", ".")


# ---- reading ----


@pytest.mark.parametrize(("folder", "name"), [(PI05, "pi05"), (PI0, "pi0")])
def test_every_tensor_of_the_policy_is_there(folder: Path, name: str) -> None:
    """Under the names and in the shapes that the models ask for; the numbers are tested against openpi's."""
    loaded = load(folder)
    specs = {spec.key: spec.shape for spec in FORMATS[name].tensors(loaded.dims, 8, 8)}
    assert {key: tuple(tensor.shape) for key, tensor in loaded.tensors.items()} == specs
    assert list(loaded.tensors) == list(specs)
    assert all(tensor.is_contiguous() for tensor in loaded.tensors.values())
    assert (loaded.policy_type, loaded.origin, loaded.time) == (name, "openpi (JAX)", "accumulated")
    assert (loaded.dims.vlm.num_heads, loaded.dims.vision.num_attention_heads) == (8, 4)
    assert loaded.config.image_resolution == (56, 56)


def test_layers_are_unstacked_and_turned() -> None:
    """One leaf of each kind of layout, against the arrays themselves."""
    arrays = {name: leaf.read().numpy() for name, leaf in open_params(PI05 / "params").items()}
    tensors = load(PI05).tensors
    layer = "layers.1.self_attn."
    q = arrays[Q][1]  # [heads, width, head_dim]
    np.testing.assert_array_equal(
        tensors[layout.VLM + layer + "q_proj.weight"].numpy(), np.concatenate([head.T for head in q])
    )
    value = arrays[LAYERS + "attn/kv_einsum_1/w"][1, 1, 0]
    np.testing.assert_array_equal(tensors[layout.EXPERT + layer + "v_proj.weight"].numpy(), value.T)
    up = arrays[LAYERS + "mlp/gating_einsum"][2, 1]
    np.testing.assert_array_equal(tensors[layout.VLM + "layers.2.mlp.up_proj.weight"].numpy(), up.T)
    patch = arrays["PaliGemma/img/embedding/kernel"]
    key = layout.VISION + "embeddings.patch_embedding.weight"
    np.testing.assert_array_equal(tensors[key].numpy()[3, 2], patch[:, :, 2, 3])
    name = "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/value/kernel"
    np.testing.assert_array_equal(
        tensors[layout.VISION + "encoder.layers.0.self_attn.v_proj.weight"].numpy(),
        arrays[name][0].reshape(48, 48).T,
    )


def test_bfloat16_and_float16_keep_their_dtype(copied: Path) -> None:
    """Half the memory; converting 13 GB to float32 doubles it instead."""
    half = {EMBEDDER: ml_dtypes.bfloat16, Q: np.float16}
    want = load(copied).tensors
    rewrite(copied, lambda a: a.update({name: a[name].astype(dtype) for name, dtype in half.items()}))
    got = load(copied).tensors
    key = layout.VLM + "layers.2.self_attn.q_proj.weight"
    assert (got[layout.EMBEDDING].dtype, got[key].dtype) == (torch.bfloat16, torch.float16)
    assert torch.equal(got[layout.EMBEDDING], want[layout.EMBEDDING].bfloat16())
    assert torch.equal(got[key], want[key].half())


def without_expert(arrays: Arrays) -> None:
    for name in list(arrays):
        language = name.startswith("PaliGemma/llm/")
        if not name.startswith("PaliGemma/") or (language and "_1/" in name):
            del arrays[name]


def test_pi0_fast_is_the_same_without_the_expert(copied: Path) -> None:
    """openpi's third policy: its actions are text, and its rules of decoding are not LeRobot's."""
    rewrite(copied, without_expert)
    loaded = load(copied, fast_tokenizer=DATA / "fast_tokenizer_tiny")
    assert (loaded.policy_type, loaded.dims.expert, loaded.denoising_steps) == ("pi0_fast", None, None)
    assert list(loaded.tensors) == [spec.key for spec in FORMATS["pi0_fast"].tensors(loaded.dims, 5, 5)]
    assert loaded.prompt == PromptRule(clean=True, lower=True, state=True)
    assert loaded.camera_rule == "fixed, seen"
    assert loaded.decoding is not None
    assert not loaded.decoding.ends_at_bar
    assert loaded.decoding.skipped_positions == 1
    assert loaded.cameras[1] == "observation.images.base_1_rgb"
    assert load(copied, fast_tokenizer=DATA / "fast_tokenizer_tiny", chunk_size=None).horizon == 32


def test_released_shapes() -> None:
    """The arrays of a released Pi0.5, which no test can hold."""
    shapes = {
        spec.name: spec.stored_shape
        for spec in leaves("pi05", released_dims("gemma_2b", "gemma_300m", 224), 32)
    }
    want = {
        "PaliGemma/img/embedding/kernel": (14, 14, 3, 1152),
        "PaliGemma/img/pos_embedding": (1, 256, 1152),
        "PaliGemma/img/Transformer/encoderblock/MlpBlock_0/Dense_0/kernel": (27, 1152, 4304),
        "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/out/kernel": (
            27,
            16,
            72,
            1152,
        ),
        "PaliGemma/img/head/kernel": (1152, 2048),
        EMBEDDER: (257152, 2048),
        Q: (18, 8, 2048, 256),
        LAYERS + "attn/kv_einsum_1/w": (18, 2, 1, 1024, 256),
        LAYERS + "mlp/gating_einsum": (18, 2, 2048, 16384),
        LAYERS + "pre_attention_norm_1/Dense_0/kernel": (18, 1024, 3072),
        "PaliGemma/llm/final_norm_1/Dense_0/bias": (3072,),
        "action_in_proj/kernel": (32, 1024),
        "time_mlp_in/kernel": (1024, 1024),
    }
    assert {name: shapes[name] for name in want} == want


# ---- damage ----


def put(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


def poisoned(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flat[7] = np.nan
    return values


EDITS: dict[str, tuple[Callable[[Arrays], object], list[str]]] = {
    "array missing": (lambda a: a.pop(LAYERS + "mlp/linear"), ["missing (1)", LAYERS + "mlp/linear"]),
    "norm missing": (lambda a: a.pop("PaliGemma/llm/final_norm/scale"), ["missing (1)", "final_norm/scale"]),
    "array unexpected": (lambda a: a.update(extra=np.zeros(2, np.float32)), ["unexpected (1): extra"]),
    "LoRA": (
        lambda a: a.update({LAYERS + "attn/q_einsum/lora_a": np.zeros((3, 8, 64, 2), np.float32)}),
        ["LoRA is not merged here", "q_einsum/lora_a"],
    ),
    "several at once": (
        lambda a: [a.pop("time_mlp_in/bias"), a.update(time_mlp_inn=np.zeros(2, np.float32))],
        ["missing (1): time_mlp_in/bias", "unexpected (1): time_mlp_inn"],
    ),
    "wrong shape": (
        put("action_out_proj/kernel", lambda x: x[:, :7]),
        ["wrong shape", "action_out_proj/kernel is [32, 7], expected [32, 8]"],
    ),
    "wrong axes": (put(Q, lambda x: x[0]), [Q, "is [8, 64, 16], expected 4 axes"]),
    "empty": (put(EMBEDDER, lambda x: x[:0]), [EMBEDDER, "[0, 64]"]),
    "doubles": (
        put("action_in_proj/bias", lambda x: x.astype(np.float64)),
        ["wrong dtype", "action_in_proj/bias is float64"],
    ),
    "integers": (put(Q, lambda x: x.astype(np.int32)), ["wrong dtype", "int32"]),
    "NaN": (put(Q, poisoned), ["NaN or infinity", "self_attn.q_proj.weight (1 of 8192 values)"]),
    "patches not square": (
        put("PaliGemma/img/pos_embedding", lambda x: x[:, :15]),
        ["pos_embedding is [1, 15, 48], expected a square number of patches"],
    ),
    "heads and width": (
        put("PaliGemma/img/embedding/kernel", lambda x: x[..., :40]),
        ["img/embedding/kernel is [14, 14, 3, 40]", "48 outputs"],
    ),
    "depths differ": (
        put(LAYERS + "attn/q_einsum_1/w", lambda x: x[:2]),
        ["q_einsum_1/w is [2, 8, 32, 16], expected the depth of the VLM"],
    ),
    "head of odd size": (
        lambda a: a.update({name: v[..., :8] for name, v in a.items() if name.endswith("q_einsum/w")}),
        ["q_einsum/w: head_dim is 8, expected a multiple of 16"],
    ),
}


@pytest.mark.parametrize(("edit", "words"), EDITS.values(), ids=EDITS)
def test_arrays_that_do_not_fit_are_named(
    copied: Path, edit: Callable[[Arrays], object], words: list[str]
) -> None:
    """As strict as with LeRobot's files: a policy with one wrong array moves, but not as it was trained."""
    rewrite(copied, edit)
    with pytest.raises(CheckpointError) as caught:
        load(copied)
    missing = [word for word in (*words, str(copied / "params")) if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_training_layout_strips_the_last_part_only(copied: Path) -> None:
    """SigLIP's attention has an array that is called `value` itself."""
    want = load(copied).tensors
    rewrite(copied, lambda a: None, suffix=".value")
    assert all(torch.equal(tensor, want[key]) for key, tensor in load(copied).tensors.items())


def largest(folder: Path) -> Path:
    return max((folder / "params").rglob("d/*"), key=lambda file: file.stat().st_size)


def empty(folder: Path) -> None:
    shutil.rmtree(folder / "params")
    (folder / "params").mkdir()


FILES: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda f: (f / "params" / "manifest.ocdbt").unlink(),
    "manifest empty": lambda f: (f / "params" / "manifest.ocdbt").write_bytes(b""),
    "manifest is text": lambda f: (f / "params" / "manifest.ocdbt").write_text("<html>"),
    "data missing": lambda f: largest(f).unlink(),
    "data cut": lambda f: largest(f).write_bytes(largest(f).read_bytes()[:1000]),
    "data of zeros": lambda f: largest(f).write_bytes(bytes(largest(f).stat().st_size)),
    "params empty": empty,
}


@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_damaged_files_are_refused(copied: Path, damage: Callable[[Path], object]) -> None:
    """A copy that stopped: an error, never arrays of zeros."""
    damage(copied)
    with pytest.raises(CheckpointError, match="params"):
        load(copied)


def test_chunk_that_was_never_written_is_no_array_of_zeros(copied: Path) -> None:
    """tensorstore would fill it up: a policy with one layer of zeros moves, but not as it was trained."""
    kv = tensorstore.KvStore.open(store_of(copied / "params")).result()
    chunk = next(
        key for key in kv.list().result() if b"gating_einsum/" in key and not key.endswith(b".zarray")
    )
    kv.delete_range(tensorstore.KvStore.KeyRange(chunk, chunk + b"\0")).result()
    with pytest.raises(CheckpointError, match="gating_einsum cannot be read"):
        load(copied)


def test_absurd_sizes_are_refused_before_anything_is_read(copied: Path) -> None:
    """A header may claim terabytes."""
    spec = {"driver": "zarr", "kvstore": {**store_of(copied / "params"), "path": "params.huge/"}}
    tensorstore.open(spec, create=True, dtype="float32", shape=[10**9, 10**9]).result()
    with pytest.raises(CheckpointError, match="unexpected"):
        load(copied)
    shutil.rmtree(copied / "params")
    shutil.copytree(PI05 / "params", copied / "params")
    path = "params." + Q.replace("/", ".")
    spec["kvstore"]["path"] = f"{path}/"  # type: ignore[index]
    tensorstore.open(
        spec, create=True, delete_existing=True, dtype="float32", shape=[10**9, 8, 64, 16]
    ).result()
    with pytest.raises(
        CheckpointError, match=r"q_einsum/w is \[1000000000, 8, 64, 16\], expected 4 axes from 1"
    ):
        load(copied)


def test_names_outside_the_parameters_are_refused(copied: Path) -> None:
    """Keys of the store are names, never paths of the machine."""
    spec = {"driver": "zarr", "kvstore": {**store_of(copied / "params"), "path": "../outside/"}}
    tensorstore.open(spec, create=True, dtype="float32", shape=[2]).result()
    with pytest.raises(CheckpointError, match=r"holds \.\./outside, expected arrays below params"):
        load(copied)


def test_missing_tensorstore_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional: most users have no JAX checkpoint."""
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(CheckpointError, match=r"needs tensorstore .*pip install tensorstore"):
        load(PI05)


def test_nothing_else_needs_tensorstore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot without it still loads everything else."""
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    assert load_checkpoint(DATA / "tiny_pi0", tokenizer=TOKENIZER).policy_type == "pi0"


def test_without_scan_the_values_are_left_to_the_gpu(copied: Path) -> None:
    """Every pass over gigabytes on the host is time before the first motion."""
    rewrite(copied, put(Q, poisoned))
    loaded = load(copied, scan=False)
    assert loaded.unscanned is not None
    assert loaded.unscanned.file == copied / "params"
