# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Distinct kernel calls of a composed graph, and arrays to run one of them alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import torch

from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.kernel import Kernel, short

VGA = [480, 640, 1920, 0]  # rows, columns, bytes per row, rgb8
Layout = tuple[tuple[int, ...], torch.dtype]  # shape, dtype


@dataclass(frozen=True)
class KernelCall:
    """One kernel at one size. `layouts` by argument in the order of declaration; None: not given."""

    section: str
    kernel: Kernel
    layouts: tuple[tuple[str, Layout | None], ...]
    parameters: tuple[tuple[str, Any], ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: layout[0] for name, layout in self.layouts if layout is not None}

    @property
    def words(self) -> str:
        """Sizes and what is fused, in words: `968×32768×2048` for a product."""
        size = self.product or (self.attention[:2] if self.attention else next(iter(self.shapes.values())))
        extras: list[str] = [
            name for name in ("bias", "gate", "residual", "key_valid") if name in self.shapes
        ]
        extras += [str(value) for name, value in self.parameters if name == "activation" and value != "none"]
        return " ".join(["×".join(map(str, size)), *extras, "→ " + short(self.written[0][1])])

    @property
    def written(self) -> list[Layout]:
        named = dict(self.layouts)
        return [layout for name in self.kernel.outputs if (layout := named[name]) is not None]

    @property
    def product(self) -> tuple[int, int, int] | None:
        """(rows, n, k) of a matmul."""
        if not self.kernel.name.startswith("matmul"):
            return None
        rows, k = self.shapes["x"]
        return rows, prod(self.shapes["weight"]) // k, k

    @property
    def attention(self) -> tuple[int, int, int] | None:
        """(queries, keys, values read and written per query and key) of an attention."""
        if "attention" not in self.kernel.name:
            return None
        parameters = dict(self.parameters)
        width = parameters["heads"] * parameters["head_dim"]
        if self.kernel.name == "self_attention":
            rows = self.shapes["qkv"][0]
            return rows, rows // parameters["sequences"], width
        return self.shapes["q"][0], self.shapes["k"][0], width

    @property
    def flops(self) -> int:
        """Of the matrix products; elementwise arithmetic is not counted."""
        if self.product:
            return 2 * prod(self.product)
        return 4 * prod(self.attention) if self.attention else 0

    @property
    def bytes(self) -> int:
        """Every array once; of an embedding table and of pixels only what is read."""
        sizes = {name: prod(shape) * dtype.itemsize for name, shape, dtype in self.arrays()}
        if self.kernel.name == "embedding":
            sizes["table"] = sizes["out"]
        if "pixels" in sizes:
            rows, _, step, _ = image_info(sizes["pixels"])
            sizes["pixels"] = rows * step
        return sum(sizes.values())

    def arrays(self) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        return [(name, *layout) for name, layout in self.layouts if layout is not None]


def calls_of(graph: StaticGraph) -> Counter[KernelCall]:
    """How often each call is launched in a decision, those of the graph before included.

    Calls that run for taps only are not counted.
    """
    needed = graph._needed()
    found: Counter[KernelCall] = Counter() if graph._before is None else calls_of(graph._before)
    for index, node in enumerate(graph._nodes):
        if index in needed:
            layouts = tuple(
                (name, None if b is None else (tuple(b.shape), b.dtype)) for name, b in node.arguments.items()
            )
            found[KernelCall(node.section, node.kernel, layouts, tuple(node.parameters.items()))] += 1
    return found


# Arrays in which any bits will not do, by argument name.
SPECIAL: Mapping[str, Callable[[tuple[int, ...], str], torch.Tensor]] = {
    "ids": lambda shape, device: torch.randint(0, 512, shape, dtype=torch.int32, device=device),
    "positions": lambda shape, device: torch.arange(shape[0], dtype=torch.int32, device=device),
    "span": lambda shape, device: torch.ones(shape, device=device),
}


def image_info(room: int) -> list[int]:
    """Rows, columns, bytes per row and format of a VGA image; where it has no room, of the largest square."""
    edge = isqrt(room // 3)
    return VGA if VGA[0] * VGA[2] <= room else [edge, edge, 3 * edge, VGA[3]]


def random_arrays(call: KernelCall, device: str) -> dict[str, torch.Tensor | None]:
    """One array for every argument: normal values, everything visible, a VGA image."""
    found: dict[str, torch.Tensor | None] = dict.fromkeys(name for name, _ in call.layouts)
    for name, shape, dtype in call.arrays():
        if name in SPECIAL:
            found[name] = SPECIAL[name](shape, device)
        elif name == "info":
            found[name] = torch.tensor(image_info(call.shapes["pixels"][0]), dtype=dtype, device=device)
        elif dtype == torch.bool:
            found[name] = torch.ones(shape, dtype=dtype, device=device)
        elif dtype.is_floating_point:
            scale = shape[-1] ** -0.5 if name == "weight" and len(shape) > 1 else 1.0
            found[name] = (torch.randn(shape, device=device) * scale).to(dtype)
        else:
            found[name] = torch.randint(0, 200, shape, dtype=dtype, device=device)
    return found
