# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoint tensors as constants of graphs, in the layout, dtype and memory that the kernels want."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F

from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, misfit
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import interleave, matmul
from flashrt_kernels.models.upload import Progress, Upload

# What the branches of a transformer add to, in every precision. Were it rounded to bf16 after each branch,
# exact kernels would still put K/V and velocities of a full-size Pi0.5 off by 1.0 to 1.3 %; so: 0.4 to 0.6 %.
RESIDUAL = torch.float32


class Weights:
    """Tensors by canonical key. `dtype`: of matmul weights and of what matmuls and attention read.

    Everything else, the residual stream included, is fp32.

    Every constant is made once, on `device`, and shared by all graphs that ask for it. All are copies:
    `tensors` are mapped from a file, and whoever replaces that file must neither change nor crash (SIGBUS) a
    policy that runs. A GPU gets the stored bytes and converts, stacks and interleaves them itself.

    progress is told (bytes done, bytes in all).
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        dtype: torch.dtype,
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> None:
        self.tensors, self.dtype, self.device = tensors, dtype, torch.device(device)
        total = sum(tensor.nbytes for tensor in tensors.values())
        self._upload = Upload(self.device, total, progress)
        self._made: dict[str, torch.Tensor] = {}

    def matrix(self, g: StaticGraph, *keys: str) -> Buffer:
        """Matmul weights [outputs, inputs]; several keys are stacked along the outputs for one matmul."""
        return self._constant(g, " + ".join(keys), lambda: self._rows(keys, self.dtype))

    def pair(self, g: StaticGraph, gate: str, up: str) -> Buffer:
        """Two matmul weights of one shape [outputs, inputs], interleaved: [outputs/8, 2, 8, inputs]."""
        return self._constant(
            g, f"{gate} | {up}", lambda: interleave(*(self._rows((key,), self.dtype) for key in (gate, up)))
        )

    def qkv(
        self, g: StaticGraph, key_q: str, key_k: str, key_v: str, heads: int, kv_heads: int, head_dim: int
    ) -> Buffer:
        """Weights of queries, keys and values below each other: [(heads + 2·kv_heads)·head_dim, inputs].

        The rows of each head of queries and keys are interleaved, its first half with its second; those of
        values are in order.
        """

        def turned(key: str, heads: int) -> torch.Tensor:
            halves = self._rows((key,), self.dtype).unflatten(0, (heads, 2, head_dim // 2))
            return interleave(halves[:, 0], halves[:, 1]).flatten(0, 3)

        def make() -> torch.Tensor:
            return torch.cat(
                [turned(key_q, heads), turned(key_k, kv_heads), self._rows((key_v,), self.dtype)]
            )

        return self._constant(g, " + ".join((key_q, key_k, key_v)), make)

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
            self._made[key] = self.once(key)
        return self._constant(g, f"{key} × {times}", lambda: self._made[key].repeat(times, 1))

    def fixed(self, g: StaticGraph, name: str, tensor: torch.Tensor) -> Buffer:
        """A constant in fp32 that is no tensor of the file; a name always stands for the same values."""
        return self._constant(g, name, lambda: tensor.to(self.device, torch.float32))

    def keep(self, name: str, tensor: torch.Tensor) -> None:
        """A constant that was computed on the device while loading; `kept` gives it to graphs."""
        self._made[name] = tensor

    def keep_matrix(self, name: str, tensor: torch.Tensor) -> None:
        """Matmul weights [outputs, inputs] that were computed on the device while loading, for `kept`."""
        self._made[name] = tensor.to(self.dtype)

    def kept(self, g: StaticGraph, name: str) -> Buffer:
        """A constant by the name under which `keep` got it."""
        return g.constant(name, self._made[name])

    def derived(
        self, g: StaticGraph, name: str, make: Callable[[], torch.Tensor], dtype: torch.dtype = torch.float32
    ) -> Buffer:
        """A constant that `make` computes in fp32 from tensors of the file; rounded to `dtype` at the end.

        A name always stands for the same values.
        """
        return self._constant(g, name, lambda: make().to(dtype).contiguous())

    def once(self, key: str, index: int | None = None) -> torch.Tensor:
        """A tensor in fp32 on the device, for arithmetic while loading; nothing keeps it.

        index: only this part of its first dimension; nobody looks at the rest.
        """
        if index is None:
            return self._rows((key,), torch.float32)
        source = self.tensors[key][index]
        made = torch.empty(source.shape, dtype=torch.float32, device=self.device)
        self._upload.fill(made, source, key)
        return made

    def verify(self, unscanned: Unscanned | None) -> None:
        """The graphs have what they need: check what the reader of the file did not, before anything runs.

        Raises CheckpointError, with the words of a reader that scans, where a tensor holds NaN or infinity or
        differs from its twin.
        """
        self._upload.finish()
        if unscanned is None:
            return
        file, upload = unscanned.file, self._upload
        differing = [t.problem for t in unscanned.twins if not upload.equal(self.tensors[t.name], t.tensor)]
        if differing:
            raise misfit(file, {"contradictory": differing})
        suspects = upload.not_finite()
        check_finite(file, {k: t for k, t in self.tensors.items() if k in suspects or k not in upload.seen})
        if suspects:
            raise CheckpointError(f"{file}: {sorted(suspects)} are finite there, but not on {self.device}")

    def release(self) -> None:
        """Let go of the file once a graph was composed; others, of any number of cameras, still can be."""
        self.tensors = {}
        self._upload.close()

    def clear(self) -> None:
        """Let go of everything; graphs that were composed keep their constants."""
        self.release()
        self._made.clear()

    def _rows(self, keys: tuple[str, ...], dtype: torch.dtype) -> torch.Tensor:
        sources = [self.tensors[key] for key in keys]
        rows = [len(source) for source in sources]
        made = torch.empty((sum(rows), *sources[0].shape[1:]), dtype=dtype, device=self.device)
        for key, source, part in zip(keys, sources, made.split(rows), strict=True):
            self._upload.fill(part, source, key)
        return made

    def _constant(self, g: StaticGraph, name: str, make: Callable[[], torch.Tensor]) -> Buffer:
        if name not in self._made:
            self._made[name] = make()
        return g.constant(name, self._made[name])


def linear(g: StaticGraph, w: Weights, key: str, x: Buffer, **epilogue: object) -> Buffer:
    """matmul with weight and bias under `key`; `epilogue` as in `matmul`."""
    return g.call(
        matmul, x=x, weight=w.matrix(g, key + ".weight"), bias=w.vector(g, key + ".bias"), **epilogue
    )
