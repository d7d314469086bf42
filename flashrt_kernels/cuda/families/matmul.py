# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matmuls on a GPU: which of the paths a product takes, and the epilogue that all of them share.

Paths: `stream` (Hopper, few rows: operands swapped, weights streamed), `hopper` (wgmma fed by TMA),
`portable` (mma.sync), `generic` (fp32 units: every dtype and size), `cublaslt` (the library, then an
epilogue kernel).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from flashrt_kernels.cuda.families import Dtypes, Parameters, Shapes, Tensors, launches, workspace
from flashrt_kernels.cuda.families import matmul_hopper as hopper
from flashrt_kernels.cuda.families import matmul_portable as portable
from flashrt_kernels.cuda.families import matmul_stream as stream
from flashrt_kernels.cuda.families.elements import is_bf16, pointer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.errors import GraphError
from flashrt_kernels.kernel import short
from flashrt_kernels.matmul import matmul, matmul_gelu_mul, matmul_rope_qkv, matmul_silu_mul

Launches = list[Callable[[], Any]]
ACTIVATION_CODES = {
    "none": 0,
    "gelu_tanh": 1,
    "gelu_erf": 2,
    "silu": 3,
    "relu": 4,
}  # Activation of common.cuh
PLAIN, GELU_MUL, ROPE_QKV, SILU_MUL = range(4)  # EpilogueKind of epilogue.cuh


class Epilogue(ctypes.Structure):
    """Mirror of Epilogue in epilogue.cuh."""

    _fields_ = (
        ("bias", ctypes.c_void_p),
        ("gate", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("k_out", ctypes.c_void_p),
        ("v_out", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("rows", ctypes.c_int32),
        ("n", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("out_bf16", ctypes.c_int32),
        ("residual_bf16", ctypes.c_int32),
        ("q_width", ctypes.c_int32),
        ("kv_width", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
    )


class Product(NamedTuple):
    """One product: x [rows, k] · weight [n, k]ᵀ with the epilogue of a kind."""

    kind: int
    rows: int
    n: int
    k: int
    x: torch.dtype
    weight: torch.dtype


# ---- which path ----


def path_of(gpu: Gpu, product: Product) -> str:
    """The path that a product takes on this GPU."""
    kind, rows, n, k, x, weight = product
    if not portable.fits_portable(x, weight, k):
        return "generic"
    wanted = gpu.options.matmul
    if wanted == "cublaslt" and n % 16 == 0:
        return "cublaslt"
    if gpu.hopper and wanted != "portable":
        if stream.fits(gpu, kind, rows, n, k):
            return "stream"
        if hopper.fits(gpu, kind, rows, n, k):
            return "hopper"
    return "portable"


def scratch(gpu: Gpu, product: Product) -> int:
    """Bytes of workspace on the product's path."""
    kind, rows, n, k, _, _ = product
    sizes = {
        "portable": lambda: portable.workspace_portable(gpu, rows, n, k),
        "hopper": lambda: hopper.workspace_bytes(gpu, kind, rows, n, k),
        "cublaslt": lambda: rows * n * 4,
    }
    path = path_of(gpu, product)
    return sizes[path]() if path in sizes else 0


def make(
    gpu: Gpu,
    product: Product,
    epilogue: Epilogue,
    x: torch.Tensor,
    weight: torch.Tensor,
    memory: torch.Tensor | None,
) -> Launches:
    """The launches of a product on its path."""
    kind, rows, n, k, _, _ = product
    if not rows or not n:
        return []
    weight = weight.view(n, k)
    size = (rows, n, k)
    makers: dict[str, Callable[[], Sequence[Callable[[], Any]]]] = {
        "generic": lambda: portable.launch_generic(gpu, epilogue, kind, x, weight, *size),
        "portable": lambda: portable.launch_portable(gpu, epilogue, kind, x, weight, *size, memory),
        "hopper": lambda: hopper.launch(gpu, epilogue, kind, x, weight, *size, memory),
        "stream": lambda: stream.launch(gpu, epilogue, kind, x, weight, *size),
        "cublaslt": lambda: launch_library(gpu, epilogue, kind, x, weight, memory),
    }
    return list(makers[path_of(gpu, product)]())


def launch_library(
    gpu: Gpu,
    epilogue: Epilogue,
    kind: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    memory: torch.Tensor | None,
) -> Launches:
    """cuBLASLt through torch into fp32 sums, then the epilogue as a kernel of its own."""
    assert memory is not None
    rows, n = x.shape[0], weight.shape[0]
    sums = memory[: rows * n * 4].view(torch.float32).view(rows, n)
    product = partial(torch.mm, x, weight.t(), out_dtype=torch.float32, out=sums)
    return [product, portable.launch_reduce(gpu, epilogue, kind, sums, 1, rows, n)]


# ---- the declared kernels ----


def product_of(kind: int, shapes: Shapes, dtypes: Dtypes) -> Product:
    """The product of a declared kernel, from the shapes of its arguments."""
    x, weight = shapes["x"], shapes["weight"]
    assert x is not None
    assert weight is not None
    n = weight[0] * 2 * 8 if kind in (GELU_MUL, SILU_MUL) else weight[0]
    kinds = (dtypes["x"], dtypes["weight"])
    assert kinds[0] is not None
    assert kinds[1] is not None
    return Product(kind, x[0], n, x[1], kinds[0], kinds[1])


def product_of_tensors(kind: int, a: Tensors) -> Product:
    """The same from the tensors."""
    names = ("x", "weight")
    return product_of(kind, {i: tuple(a[i].shape) for i in names}, {i: a[i].dtype for i in names})


@workspace(matmul)
def matmul_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """Bytes for split sums or for the library's result."""
    return scratch(gpu, product_of(PLAIN, shapes, dtypes))


@launches(matmul)
def launch_matmul(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """residual + gate · activation(x · weightᵀ + bias)."""
    product = product_of_tensors(PLAIN, a)
    epilogue = Epilogue(
        bias=pointer(a["bias"]),
        gate=pointer(a["gate"]),
        residual=pointer(a["residual"]),
        out=pointer(a["out"]),
        rows=product.rows,
        n=product.n,
        activation=ACTIVATION_CODES[p["activation"]],
        out_bf16=is_bf16(a["out"]),
        residual_bf16=is_bf16(a["residual"]),
    )
    return make(gpu, product, epilogue, a["x"], a["weight"], memory)


@workspace(matmul_gelu_mul)
def matmul_gelu_mul_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """As matmul_scratch."""
    return scratch(gpu, product_of(GELU_MUL, shapes, dtypes))


@launches(matmul_gelu_mul)
def launch_matmul_gelu_mul(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """gelu_tanh(x · gateᵀ) · (x · upᵀ)."""
    return launch_gated(gpu, GELU_MUL, a, memory)


@workspace(matmul_silu_mul)
def matmul_silu_mul_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """As matmul_scratch."""
    return scratch(gpu, product_of(SILU_MUL, shapes, dtypes))


@launches(matmul_silu_mul)
def launch_matmul_silu_mul(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """silu(x · gateᵀ) · (x · upᵀ)."""
    return launch_gated(gpu, SILU_MUL, a, memory)


def launch_gated(gpu: Gpu, kind: int, a: Tensors, memory: torch.Tensor | None) -> Launches:
    """A product of gates and ups, of a gated kind."""
    product = product_of_tensors(kind, a)
    epilogue = Epilogue(out=pointer(a["out"]), rows=product.rows, n=product.n, out_bf16=is_bf16(a["out"]))
    return make(gpu, product, epilogue, a["x"], a["weight"], memory)


@workspace(matmul_rope_qkv)
def matmul_rope_qkv_scratch(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> int:
    """As matmul_scratch."""
    return scratch(gpu, product_of(ROPE_QKV, shapes, dtypes))


@launches(matmul_rope_qkv)
def launch_matmul_rope_qkv(gpu: Gpu, a: Tensors, p: Parameters, memory: torch.Tensor | None) -> Launches:
    """Projection, rotation and the write into the cache."""
    product = product_of_tensors(ROPE_QKV, a)
    written = [a[name] for name in ("q_out", "k_out", "v_out") if a[name] is not None]
    if not written:
        return []
    if len({out.dtype for out in written}) > 1:  # the epilogue has one type for all
        dtypes = ", ".join(short(out.dtype) for out in written)
        raise GraphError(f"matmul_rope_qkv: outputs are {dtypes}; expected one dtype on a GPU")
    epilogue = Epilogue(
        out=pointer(a["q_out"]),
        k_out=pointer(a["k_out"]),
        v_out=pointer(a["v_out"]),
        table=pointer(a["table"]),
        rows=product.rows,
        n=product.n,
        out_bf16=is_bf16(written[0]),
        q_width=p["heads"] * p["head_dim"],
        kv_width=p["kv_heads"] * p["head_dim"],
        head_dim=p["head_dim"],
    )
    return make(gpu, product, epilogue, a["x"], a["weight"], memory)
