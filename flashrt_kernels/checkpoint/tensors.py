# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Safetensors files: opened without trust, compared with the expected tensors, checked to be finite."""

import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.checkpoint.layout import TensorSpec
from flashrt_kernels.errors import CheckpointError

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Start, number of the layer or nothing, end.
_LAYER = re.compile(r"((?:.*?\.(?=\d+\.))?)(\d*)(.*)", re.DOTALL)
_FOREIGN_STARTS = {
    b"\x80": "a pickle, which is never loaded; convert it to safetensors",
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"<": "an HTML or XML page, not a downloaded weight file",
}


@dataclass(frozen=True, eq=False)
class Twin:
    """A second copy, `tensor`, of the tensor `name`, and what is wrong where the two differ."""

    name: str
    tensor: Tensor
    problem: str


@dataclass(frozen=True, eq=False)
class Unscanned:
    """What a reader that looked at names and sizes only leaves to others: `Weights.verify`.

    That nothing in `file` is NaN or infinite, and that every one of `twins` is what it stands for.
    """

    file: Path
    twins: tuple[Twin, ...]


def read_all(path: Path) -> dict[str, Tensor]:
    """Every tensor of `path`, memory-mapped where the platform can.

    Raises `CheckpointError` when the file is absent, truncated or not a safetensors file.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file{_nearby(path)}")
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {_diagnosis(path)} ({error})") from error


def _nearby(path: Path) -> str:
    """Files that a user may have meant, for the message of a missing file."""
    patterns = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt", "*.pth", "*.ckpt")
    found = sorted(file.name for pattern in patterns for file in path.parent.glob(pattern))
    if not found:
        return ""
    return f"; the folder has {listed(found)}, but only one file of that name in safetensors format is read"


def _diagnosis(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(32)
    if zipfile.is_zipfile(path):
        return "a zip archive (torch.save?), which is never loaded; convert it to safetensors"
    for magic, meaning in _FOREIGN_STARTS.items():
        if start.startswith(magic):
            return meaning
    return f"truncated or not a safetensors file ({path.stat().st_size} bytes); copy it again"


def match(
    path: Path,
    found: Mapping[str, Tensor],
    expected: Iterable[TensorSpec],
    canonical: Callable[[str], str | None],
    sizes: str,
    scan: bool,
) -> tuple[dict[str, Tensor], tuple[Twin, ...]]:
    """The tensors of `found` under their canonical keys, exactly the expected ones, and their twins.

    `canonical` maps a key of the file to its canonical name, or to None when the tensor is to be ignored;
    `sizes` says where the expected sizes come from. Raises `CheckpointError` listing every missing,
    unexpected, mis-shaped or mis-typed tensor, and with `scan` every twin that differs.
    """
    specs = {spec.key: spec for spec in expected}
    tensors: dict[str, Tensor] = {}
    keys: dict[str, str] = {}  # canonical name → key in the file
    unexpected, shapes, dtypes, twins = [], [], [], []
    for key, tensor in found.items():
        name = canonical(key)
        if name is None:
            continue
        if name not in specs:
            unexpected.append(key)
            continue
        if name in tensors:
            problem = f"{keys[name]} and {key} differ, but one stands for the other"
            twins.append((tensor, Twin(name, tensors[name], problem)))
        if tuple(tensor.shape) != specs[name].shape:
            shapes.append(f"{key} is {list(tensor.shape)}, expected {list(specs[name].shape)}")
        if tensor.dtype not in _DTYPES:
            dtypes.append(f"{key} is {tensor.dtype}, expected float32, bfloat16 or float16")
        tensors[name], keys[name] = tensor, key
    problems = {
        "missing": [key for key in specs if key not in tensors],
        "unexpected": unexpected,
        f"wrong shape, sizes from {sizes}": shapes,
        "wrong dtype": dtypes,
        "contradictory": [t.problem for kept, t in twins if scan and not torch.equal(kept, t.tensor)],
    }
    if any(problems.values()):
        raise misfit(path, problems)
    return {key: tensors[key] for key in specs}, tuple(twin for _, twin in twins)


def misfit(path: Path, problems: Mapping[str, Sequence[str]]) -> CheckpointError:
    """The error about tensors of `path`, for the caller to raise: kind of problem → what is concerned."""
    lines = [f"  {kind} ({len(names)}):{complete(names)}" for kind, names in problems.items() if names]
    return CheckpointError(f"{path}: the tensors do not fit the policy:\n" + "\n".join(lines))


def complete(names: Sequence[str]) -> str:
    """All names, to stand behind a colon; those that differ in their first number only share a line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        start, number, end = _LAYER.match(name).groups()  # type: ignore[union-attr] # matches every text
        groups.setdefault((start, end), []).append(number)
    lines = [start + _ranges(numbers) + end for (start, end), numbers in groups.items()]
    return f" {lines[0]}" if len(lines) == 1 else "".join(f"\n    {line}" for line in lines)


def _ranges(numbers: Sequence[str]) -> str:
    """["0", "1", "2", "5"] → {0–2, 5}; one number as it is."""
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[int]] = []
    for number in sorted(map(int, numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "{" + ", ".join(str(run[0]) + (f"–{run[-1]}" if run[1:] else "") for run in runs) + "}"


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises `CheckpointError` listing every tensor of `path` that holds NaN or infinity."""
    bad = []
    for key, tensor in tensors.items():
        # One pass without a copy, also over files larger than the memory: NaN propagates into both extremes.
        low, high = torch.aminmax(tensor)
        if not (torch.isfinite(low) and torch.isfinite(high)):
            count = int((~torch.isfinite(tensor)).sum())
            bad.append(f"{key} ({count} of {tensor.numel()} values)")
    if bad:
        raise CheckpointError(f"{path}: NaN or infinity in {len(bad)} tensor(s):{complete(bad)}")
