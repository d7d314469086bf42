# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoint tensors as constants of graphs, in the layout and dtype that the kernels want."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul

# What the branches of a transformer add to, in every precision. Were it rounded to bf16 after each branch,
# exact kernels would still put K/V and velocities of a full-size Pi0.5 off by 1.0 to 1.3 %; so: 0.4 to 0.6 %.
RESIDUAL = torch.float32


@dataclass(eq=False)
class Weights:
    """Tensors by canonical key. `dtype`: of matmul weights and of what matmuls and attention read.

    Everything else, the residual stream included, is fp32.

    Every constant is made once and shared by all graphs that ask for it. All are copies: `tensors` are mapped
    from a file, and whoever replaces that file must neither change nor crash (SIGBUS) a policy that runs.
    """

    tensors: Mapping[str, torch.Tensor]
    dtype: torch.dtype
    _made: dict[str, torch.Tensor] = field(default_factory=dict)

    def matrix(self, g: StaticGraph, *keys: str) -> Buffer:
        """Matmul weights [outputs, inputs]; several keys are stacked along the outputs for one matmul."""
        return self._constant(g, " + ".join(keys), lambda: self._rows(keys, self.dtype))

    def pair(self, g: StaticGraph, gate: str, up: str) -> Buffer:
        """Two matmul weights of one shape as [2, outputs, inputs]."""
        return self._constant(
            g, f"{gate} | {up}", lambda: self._rows((gate, up), self.dtype).unflatten(0, (2, -1))
        )

    def patches(self, g: StaticGraph, key: str) -> Buffer:
        """A convolution whose stride is its size [outputs, channels, y, x] as a matmul weight.

        Its rows are filled up with zeros as those of resize_to_patches are.
        """

        def make() -> torch.Tensor:
            weight = self._rows((key,), self.dtype).flatten(1)
            return F.pad(weight, (0, -weight.shape[1] % 8))

        return self._constant(g, key, make)

    def vector(self, g: StaticGraph, *keys: str) -> Buffer:
        """Norm weights and biases, fp32; several keys one after another."""
        return self._constant(g, " + ".join(keys), lambda: self._rows(keys, torch.float32))

    def repeated(self, g: StaticGraph, key: str, times: int) -> Buffer:
        """A fp32 table `times` times below itself: one row per image token."""
        if key not in self._made:
            self._made[key] = self._rows((key,), torch.float32)
        return self._constant(g, f"{key} × {times}", lambda: self._made[key].repeat(times, 1))

    def release(self) -> None:
        """Let go of the file once a graph was composed; others, of any number of cameras, still can be."""
        self.tensors = {}

    def clear(self) -> None:
        """Let go of everything; graphs that were composed keep their constants."""
        self.release()
        self._made.clear()

    def _rows(self, keys: tuple[str, ...], dtype: torch.dtype) -> torch.Tensor:
        if len(keys) == 1:
            return self.tensors[keys[0]].to(dtype, copy=True)
        return torch.cat([self.tensors[key].to(dtype) for key in keys])

    def _constant(self, g: StaticGraph, name: str, make: Callable[[], torch.Tensor]) -> Buffer:
        if name not in self._made:
            self._made[name] = make()
        return g.constant(name, self._made[name])


def linear(g: StaticGraph, w: Weights, key: str, x: Buffer, **epilogue: object) -> Buffer:
    """matmul with weight and bias under `key`; `epilogue` as in `matmul`."""
    return g.call(
        matmul, x=x, weight=w.matrix(g, key + ".weight"), bias=w.vector(g, key + ".bias"), **epilogue
    )
