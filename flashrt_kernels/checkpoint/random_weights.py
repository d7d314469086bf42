# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Seeded random weights that keep a signal alive, and a safetensors writer that never holds a whole file."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.layout import Kind, TensorSpec

_CHUNK = 1 << 18  # values drawn at a time: they stay in a core's cache until they are stored
_DRAWING, _STORING = 8, 4  # threads
_PIECES = 32
_ALIGNMENT = 8

# Kind of tensor → (mean, standard deviation). Larger than a usual initialisation, so that images, state and
# instruction reach the actions through every layer, as they do in a trained policy.
_DISTRIBUTIONS: dict[Kind, Callable[[TensorSpec], tuple[float, float]]] = {
    "linear": lambda spec: (0.0, 1.2 / math.sqrt(spec.fan_in)),
    "bias": lambda spec: (0.0, 0.1),
    "embedding": lambda spec: (0.0, 1.0 / math.sqrt(spec.shape[-1])),
    "rms_norm": lambda spec: (0.0, 0.1),  # Gemma multiplies by 1 + w
    "layer_norm": lambda spec: (1.0, 0.1),
    # Gains. Before q and k they sharpen attention: a few words and digits must not drown among hundreds of
    # image tokens. But gains also carry rounding on: with 1.3 in SigLIP and 1.0 before Gemma's MLP, keys
    # and values of a full-size policy are off by 1.3 to 1.7 % in bf16 with exact kernels; with 1.8 it is
    # chaotic (26 %). With these they stay within 1 %, and another state, instruction or camera moves the
    # actions by 10 times more.
    "attention_rms_norm": lambda spec: (0.3, 0.1),
    "attention_layer_norm": lambda spec: (0.7, 0.1),
    "mlp_rms_norm": lambda spec: (-0.5, 0.1),
    # The same before Qwen3's MLP, whose norm multiplies by w: with 1.0 its layers are off by 0.9 to 1.0 %.
    "mlp_norm": lambda spec: (0.8, 0.1),
    # Gemma multiplies its embeddings by √width, Qwen3 does not: words of 1/√2048 drown in the first layer.
    "unit_embedding": lambda spec: (0.0, 1.0),
    # The one token of the state stands among 800 of Pi0's prefix, or 40 of GR00T's actions, and must still
    # be of the state when many layers have added to it what they attend to.
    "state_token": lambda spec: (0.0, 48.0 / math.sqrt(spec.fan_in)),
    "state_mlp": lambda spec: (0.0, 4.8 / math.sqrt(spec.fan_in)),  # of two layers
    # Pi0's expert adds to them what it reads from the prefix, with the prefix's error; with 1.2 nothing else
    # is left, and velocities are off by 0.8 to 1.0 %.
    "action_tokens": lambda spec: (0.0, 5.0 / math.sqrt(spec.fan_in)),
    # Ends of the branches of GR00T's vl_self_attention. Its sum is not normalised: with 1.2 it is so large
    # that the next attention chooses single keys, and what it adds drowns state and actions.
    "quiet_branch": lambda spec: (0.0, 0.4 / math.sqrt(spec.fan_in)),
    # GR00T clips actions to ±1: with 1.2 most of a chunk would be clipped. Noise alone leaves a third there.
    "action_output": lambda spec: (0.0, 0.8 / math.sqrt(spec.fan_in)),
}


# Embeddings of FAST ids, times this: of a quarter million random words the policy writes those of actions.
_LOUD = 4.0


@dataclass(frozen=True)
class StoredTensor:
    """A tensor under the name and in the dtype of the file."""

    key: str
    spec: TensorSpec
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return math.prod(self.spec.shape) * self.dtype.itemsize


def random_values(spec: TensorSpec, seed: int) -> Iterator[NDArray[np.float32]]:
    """The values of one tensor in row-major order, in pieces.

    The generator is NumPy's Philox keyed by seed and canonical name: a tensor's values depend on neither the
    other tensors nor their order.
    """
    digest = hashlib.sha256(f"{seed}/{spec.key}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    mean, deviation = _DISTRIBUTIONS[spec.kind](spec)
    count, row_size = math.prod(spec.shape), math.prod(spec.shape[1:])
    for start in range(0, count, _CHUNK):
        values = generator.standard_normal(min(_CHUNK, count - start), dtype=np.float32)
        values *= np.float32(deviation)
        values += np.float32(mean)
        first, last = (min(max(row * row_size - start, 0), values.size) for row in spec.loud)
        values[first:last] *= np.float32(_LOUD)
        yield values


def round_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite values as the bits of the nearest bf16, ties to even, as torch rounds.

    torch would start a team of threads of its own in every thread that writes.
    """
    bits = values.view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    return rounded.astype(np.uint16)


# Dtype of the file → what stands there for values.
_STORED: dict[torch.dtype, Callable[[NDArray[np.float32]], NDArray[Any]]] = {
    torch.float32: lambda values: values,
    torch.bfloat16: round_to_bf16,
}


def write_random(
    path: Path, tensors: Sequence[StoredTensor], seed: int, advance: Callable[[int], None] | None = None
) -> None:
    """Writes `tensors` with random values to `path`; `advance` is told the bytes of every piece.

    The safetensors library serialises only tensors that are all in memory; a full-size policy has 8 to 14 GB.
    `advance` is called from the caller's thread; what it raises ends all others.
    """
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)  # keeps every tensor aligned
    header = _header(ordered)
    starts = accumulate((tensor.size for tensor in ordered), initial=len(header))
    places = sorted(zip(ordered, starts, strict=False), key=lambda place: -place[0].size)
    left = sum(tensor.size for tensor in ordered)
    with path.open("wb", buffering=0) as file:
        file.write(header)
        file.truncate(len(header) + left)
        with Writer(file.fileno()) as writer:
            for tensor, start in places:  # the largest first: it takes longest
                writer.add(tensor, start, seed)
            while left:
                count = writer.wait()
                left -= count
                if advance is not None:
                    advance(count)


class Writer:
    """Threads that draw the values of tensors, and others that store them in an open file.

    A tensor is one stream of numbers, and the embedding, a sixth of a full-size policy, lasts as long as
    everything else on eight cores: the thread that draws it must do nothing else.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._drawing = ThreadPoolExecutor(min(_DRAWING, len(os.sched_getaffinity(0))))
        self._storing = ThreadPoolExecutor(_STORING)
        self._pieces = Semaphore(_PIECES)  # that may be in memory
        self._stored: SimpleQueue[int | BaseException] = SimpleQueue()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Ends the threads, whether or not all is written."""
        self._stopped = True
        self._drawing.shutdown(cancel_futures=True)
        self._storing.shutdown()

    def add(self, tensor: StoredTensor, start: int, seed: int) -> None:
        """Begin to write a tensor at offset `start`."""
        self._drawing.submit(self._told, self._draw, tensor, start, seed)

    def wait(self) -> int:
        """Bytes that were stored. Raises what a thread raised."""
        result = self._stored.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def _told(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self._stored.put(error)

    def _draw(self, tensor: StoredTensor, start: int, seed: int) -> None:
        for values in random_values(tensor.spec, seed):
            self._pieces.acquire()
            if self._stopped:
                return
            self._storing.submit(self._told, self._store, values, tensor.dtype, start)
            start += values.size * tensor.dtype.itemsize

    def _store(self, values: NDArray[np.float32], dtype: torch.dtype, start: int) -> None:
        try:
            piece = _STORED[dtype](values).view(np.uint8)
            while piece.size:  # a disk that fills up takes a part first
                count = os.pwrite(self._file, piece.data, start)
                piece, start = piece[count:], start + count
                self._stored.put(count)
        finally:
            self._pieces.release()


def _header(tensors: Sequence[StoredTensor]) -> bytes:
    """Length (8 bytes, little endian) and JSON, padded so that the data starts aligned."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16"}
    entries: dict[str, Mapping[str, object]] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        entries[tensor.key] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.spec.shape),
            "data_offsets": [offset, offset + tensor.size],
        }
        offset += tensor.size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
