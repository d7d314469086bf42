# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Linear layers of which every embodiment (robot) has its own: GR00T's state encoder and action coders.

A checkpoint stores them as `<key>.W` [embodiments, inputs, outputs] and `<key>.b` [embodiments, outputs];
only the part of the robot at hand leaves the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.weights import RESIDUAL, Weights


@dataclass(frozen=True)
class Embodied:
    """Weights of embodiment number `index`."""

    weights: Weights
    index: int

    def linear(
        self, g: StaticGraph, key: str, x: Buffer, outputs: int | None = None, **epilogue: object
    ) -> Buffer:
        """x · W + b: x [rows, inputs, or more with zeros behind them] → [rows, outputs].

        outputs: as many as the checkpoint has, or more, whose weights are zeros. epilogue: as in `matmul`.
        """
        w, columns = self.weights, x.shape[1]
        name = f"{key} of {self.index}, {outputs or 'all'} × {columns}"
        return g.call(
            matmul,
            x=x,
            weight=w.derived(g, name, lambda: self._transposed(key, outputs, columns), w.dtype),
            bias=w.derived(g, f"{name}, bias", lambda: self._bias(key, outputs)),
            **epilogue,
        )

    def mlp(
        self, g: StaticGraph, key: str, x: Buffer, outputs: int | None = None, **epilogue: object
    ) -> Buffer:
        """layer2(relu(layer1(x))) in fp32; x, outputs and epilogue as in `linear`."""
        h = self.linear(g, key + ".layer1", x, activation="relu", out_dtype=self.weights.dtype)
        return self.linear(g, key + ".layer2", h, outputs, out_dtype=RESIDUAL, **epilogue)

    def once(self, key: str) -> tuple[torch.Tensor, torch.Tensor]:
        """W [inputs, outputs] and b [outputs] in fp32 on the device, for arithmetic while loading."""
        return self.weights.once(key + ".W", self.index), self.weights.once(key + ".b", self.index)

    def _transposed(self, key: str, outputs: int | None, columns: int) -> torch.Tensor:
        weight = self.weights.once(key + ".W", self.index).T
        rows = outputs or len(weight)
        return F.pad(weight, (0, columns - weight.shape[1], 0, rows - len(weight)))

    def _bias(self, key: str, outputs: int | None) -> torch.Tensor:
        bias = self.weights.once(key + ".b", self.index)
        return F.pad(bias, (0, (outputs or len(bias)) - len(bias)))
