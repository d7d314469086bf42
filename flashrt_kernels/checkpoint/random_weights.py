# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Seeded random weights that keep a signal alive, and a safetensors writer that never holds a whole file."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.layout import Kind, TensorSpec

_CHUNK = 1 << 22  # values drawn at a time: 16 MB
_ALIGNMENT = 8

# Kind of tensor → (mean, standard deviation). Larger than a usual initialisation, so that images, state and
# instruction reach the actions through every layer, as they do in a trained policy.
_DISTRIBUTIONS: dict[Kind, Callable[[TensorSpec], tuple[float, float]]] = {
    "linear": lambda spec: (0.0, 1.2 / math.sqrt(spec.fan_in)),
    "bias": lambda spec: (0.0, 0.1),
    "embedding": lambda spec: (0.0, 1.0 / math.sqrt(spec.shape[-1])),
    "rms_norm": lambda spec: (0.0, 0.1),  # Gemma multiplies by 1 + w
    "layer_norm": lambda spec: (1.0, 0.1),
    # A gain before q and k sharpens attention: a few words and digits must not drown among hundreds of image
    # tokens. At full size 1.0, 1.3 and 1.8 let another state move the actions by 0.9, 2 and 11 %, but bf16
    # with exact kernels is off by 0.5, 0.6 and 26 % in the keys of the deepest layers: 1.8 makes it chaotic.
    "attention_rms_norm": lambda spec: (0.3, 0.1),
    "attention_layer_norm": lambda spec: (1.3, 0.1),
}


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
    count = math.prod(spec.shape)
    for start in range(0, count, _CHUNK):
        values = generator.standard_normal(min(_CHUNK, count - start), dtype=np.float32)
        yield values * np.float32(deviation) + np.float32(mean)


def write_random(
    path: Path, tensors: Sequence[StoredTensor], seed: int, advance: Callable[[int], None] | None = None
) -> None:
    """Writes `tensors` with random values to `path`; `advance` is told the bytes of every piece.

    The safetensors library serialises only tensors that are all in memory; a full-size policy has 8 to 14 GB.
    """
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)  # keeps every tensor aligned
    with path.open("wb") as file:
        file.write(_header(ordered))
        for tensor in ordered:
            for values in random_values(tensor.spec, seed):
                piece = torch.from_numpy(values).to(tensor.dtype)
                file.write(piece.view(torch.uint8).numpy().tobytes())
                if advance is not None:
                    advance(piece.nbytes)


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
