# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which compiled kernels a call takes on which GPU, at the sizes that policies have.

That the kernels compute what they should is test/cuda's, on a GPU.
"""

import re
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_kernels import GraphError
from flashrt_kernels.activation import ACTIVATIONS
from flashrt_kernels.attention import attention, self_attention
from flashrt_kernels.cuda.manifest import SOURCES
from flashrt_kernels.decoding import argmax, clear, write_rows
from flashrt_kernels.kernel import Kernel
from flashrt_kernels.matmul import matmul, matmul_silu_mul
from flashrt_kernels.rope import norm_rope_qkv, rope_qk, rope_table_axes
from test.kernels.noted_gpu import OPTIONS, NotedBackend, NotedGpu, check_launches, empty

BF16, FP32, INT32, BOOL = torch.bfloat16, torch.float32, torch.int32, torch.bool


def attends(queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, *hides: str) -> dict[str, Any]:
    """Arguments of `attention`; hides: `mask`, `key_valid`."""
    masks = {"mask": empty(queries, keys, dtype=BOOL), "key_valid": empty(keys, dtype=BOOL)}
    arguments = {name: empty(keys, kv_heads * head_dim) for name in ("k", "v")}
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return {
        "q": empty(queries, heads * head_dim),
        **arguments,
        **{name: masks[name] for name in hides},
        **sizes,
    }


def multiplies(rows: int, n: int, k: int, **more: Any) -> dict[str, Any]:
    return {"x": empty(rows, k), "weight": empty(n, k), **more}


def attends_itself(rows: int, heads: int, head_dim: int, sequences: int = 1) -> dict[str, Any]:
    sizes = {"heads": heads, "head_dim": head_dim, "sequences": sequences}
    return {"qkv": empty(rows, 3 * heads * head_dim), **sizes}


def gates(rows: int, f: int, k: int) -> dict[str, Any]:
    return {"x": empty(rows, k), "weight": empty(f // 8, 2, 8, k)}


def heads_to_turn(dtype: torch.dtype) -> dict[str, Any]:
    weights = {name: empty(128, dtype=FP32) for name in ("q_weight", "k_weight")}
    sizes = {"heads": 16, "kv_heads": 8, "head_dim": 128}
    return {
        "qkv": empty(300, 32 * 128, dtype=dtype),
        "table": empty(300, 128, dtype=FP32),
        **weights,
        **sizes,
    }


def rows_to_write(width: int, dtype: torch.dtype) -> dict[str, Any]:
    at, cache = empty(1, dtype=INT32), empty(1300, width, dtype=dtype)
    return {"rows": empty(1, width), "at": at, "cache": cache}


# What Qwen3, GR00T's action head and the decoding of Pi0-FAST ask for → kernel, arguments, and the functions
# that Hopper and the others launch. docs/kernels/attention.md says the same of attention.
Case = tuple[Kernel, Callable[[], dict[str, Any]], str, str]
CASES: dict[str, Case] = {
    "attention of Qwen3": (
        attention,
        lambda: attends(300, 300, 16, 8, 128, "mask"),
        "attention_128x64",
        "attention_128x64",
    ),
    "cross attention": (
        attention,
        lambda: attends(51, 400, 32, 32, 48, "key_valid"),
        "attention_64x64 attention_combine",
        "attention_64x64 attention_combine",
    ),
    "self attention of actions": (
        self_attention,
        lambda: attends_itself(51, 32, 48),
        "attention_64x64",
        "attention_64x64",
    ),
    "attention of a ViT": (
        self_attention,
        lambda: attends_itself(512, 16, 64, sequences=2),
        "attention_self_64_1",
        "attention_64x64",
    ),
    "angles of a ViT": (
        rope_qk,
        lambda: {
            "qkv": empty(512, 3 * 1024),
            "table": empty(512, 64, dtype=FP32),
            "heads": 16,
            "head_dim": 64,
        },
        "turn_in_place",
        "turn_in_place",
    ),
    "attention of all tokens": (
        attention,
        lambda: attends(300, 300, 32, 32, 64, "key_valid"),
        "attention_64x64",
        "attention_64x64",
    ),
    "attention of one token": (
        attention,
        lambda: attends(1, 1300, 8, 1, 256, "key_valid"),
        "attention_narrow_16_64_many",
        "attention_256x64 attention_combine",
    ),
    "gate and up of Qwen3": (
        matmul_silu_mul,
        lambda: gates(300, 6144, 2048),
        "matmul_silu_mul_128x256x4_2_1",
        "matmul_64x128",
    ),
    "gate and up of few tokens": (
        matmul_silu_mul,
        lambda: gates(50, 6144, 2048),
        "matmul_stream_56_silu_mul",
        "matmul_64x128",
    ),
    "gate and up in fp32": (
        matmul_silu_mul,
        lambda: {name: t.float() for name, t in gates(9, 64, 40).items()},
        "matmul_generic_4_lanes",
        "matmul_generic_4_lanes",
    ),
    "first layer of a state encoder": (
        matmul,
        lambda: multiplies(1, 1024, 128, activation="relu"),
        "matmul_stream_8_plain",
        "matmul_16x64",
    ),
    "vocabulary of one token": (
        matmul,
        lambda: multiplies(1, 257152, 2048, out_dtype=FP32),
        "matmul_stream_8_plain",
        "matmul_16x64",
    ),
    "down of one token": (
        matmul,
        lambda: multiplies(1, 2048, 16384),
        "matmul_stream_8_plain",
        "matmul_16x64 matmul_reduce",
    ),
    "next token": (
        argmax,
        lambda: {"logits": empty(1, 257152, dtype=FP32)},
        "argmax_part argmax_last",
        "argmax_part argmax_last",
    ),
    "a row of a cache": (write_rows, lambda: rows_to_write(256, BF16), "write_rows", "write_rows"),
    "an odd row": (write_rows, lambda: rows_to_write(7, FP32), "write_rows_any", "write_rows_any"),
    "an empty cache": (clear, lambda: {"out": empty(1300, 256)}, "clear", "clear"),
    "angles along axes": (
        rope_table_axes,
        lambda: {"positions": empty(3, 300, dtype=INT32), "axis": empty(64, dtype=INT32)},
        "rope_table_axes",
        "rope_table_axes",
    ),
    "heads of Qwen3": (norm_rope_qkv, lambda: heads_to_turn(BF16), "norm_turn_heads", "norm_turn_heads"),
    "heads in fp32": (norm_rope_qkv, lambda: heads_to_turn(FP32), "norm_turn_heads", "norm_turn_heads"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("without_gpu")
def test_every_path_is_the_documented_one(case: str) -> None:
    """Else a shape falls back to a kernel that is many times slower, and nobody notices."""
    kernel, arguments, on_hopper, elsewhere = CASES[case]
    for capability in ((8, 0), (9, 0), (12, 0)):
        asked = launched(kernel, arguments(), capability)
        wanted = on_hopper if capability == (9, 0) else elsewhere
        assert asked == wanted.split(), capability


def launched(kernel: Kernel, given: dict[str, Any], capability: tuple[int, int]) -> list[str]:
    """Names of the functions that a call launches, in order."""
    call = kernel.validate(given)
    made = {name: empty(*shape, dtype=dtype) for name, (shape, dtype) in call.allocate.items()}
    tensors = {name: (call.arguments | made)[name] for name in kernel.arguments}
    backend = NotedBackend(NotedGpu(*capability, SimpleNamespace(**OPTIONS)))
    scratch = backend.workspace(kernel, tensors, call.parameters)
    workspace = empty(scratch, dtype=torch.uint8) if scratch else None
    launches = backend.bind(kernel, tensors, call.parameters, workspace)
    check_launches(launches)
    return [launch.name for launch in launches]


@pytest.mark.usefixtures("without_gpu")
def test_argmax_of_no_vocabulary_is_refused() -> None:
    """Torch says so on a CPU; a kernel would write whatever it begins with as a token."""
    with pytest.raises(GraphError, match="argmax: logits have no columns"):
        launched(argmax, {"logits": empty(2, 0, dtype=FP32)}, (9, 0))


@pytest.mark.usefixtures("without_gpu")
def test_codes_of_activations_are_those_of_the_sources() -> None:
    """A shifted code is another function of the right shape."""
    families = import_module("flashrt_kernels.cuda.families.matmul")
    text = (SOURCES / "common.cuh").read_text(encoding="utf-8")
    listed = re.search(r"enum Activation : int {(.*?)};", text)
    assert listed
    codes = {name.lower(): int(code) for name, code in re.findall(r"(\w+) = (\d+)", listed[1])}
    assert codes == families.ACTIVATION_CODES
    assert set(codes) == set(ACTIVATIONS)
