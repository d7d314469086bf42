# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Folders of openpi's JAX models: params/ (orbax) and assets/. Sizes come from the arrays."""

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint.dims import GEMMA_VARIANTS, GemmaDims, ModelDims, VisionDims, gemma_problems
from flashrt_kernels.checkpoint.formats import FORMATS
from flashrt_kernels.checkpoint.openpi import Found, assemble
from flashrt_kernels.checkpoint.openpi_leaves import BLOCK, IMAGE, LANGUAGE, LAYERS, LeafSpec, leaves
from flashrt_kernels.checkpoint.options import Options
from flashrt_kernels.checkpoint.orbax import Leaf, known_dtype, open_params
from flashrt_kernels.checkpoint.pi import PiCheckpoint
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, misfit
from flashrt_kernels.errors import CheckpointError

PARAMS = "params"
_LARGEST = 10_000_000  # of any axis


def recognise(folder: Path) -> bool:
    return (folder / PARAMS).is_dir()


def load_openpi_jax(folder: Path, options: Options) -> PiCheckpoint:
    """Reads and verifies the folder. Raises `CheckpointError` naming file, array or option.

    Memory: the weights once, and the largest array, a third of them, twice while it is turned.
    """
    params = folder / PARAMS
    found = open_params(params)
    policy_type = _policy_type(found)
    sizes = Sizes(params, found)
    dims = sizes.model(policy_type)
    action_width = None if dims.expert is None else sizes.of("action_in_proj/kernel", 2)[0]
    specs = list(leaves(policy_type, dims, action_width))
    _check(params, found, specs)

    def weights() -> tuple[Mapping[str, Tensor], Unscanned | None]:
        read = {key: tensor for spec in specs for key, tensor in spec.tensors(found[spec.name].read())}
        width = action_width or 0
        order = FORMATS[policy_type].tensors(dims, width, width)
        tensors = {spec.key: read[spec.key] for spec in order}
        if not options.scan:
            return tensors, Unscanned(params, ())
        check_finite(params, tensors)
        return tensors, None

    variants = (_variant(dims.vlm), None if dims.expert is None else _variant(dims.expert))
    return assemble(
        Found(folder, "openpi (JAX)", policy_type, dims, action_width, None, variants), options, weights
    )


def _policy_type(found: Mapping[str, Leaf]) -> str:
    if not any(name.startswith(LAYERS + "mlp_1/") for name in found):
        return "pi0_fast"
    return "pi0" if "state_proj/kernel" in found else "pi05"


def _variant(dims: GemmaDims) -> str:
    names = [name for name, released in GEMMA_VARIANTS.items() if released == dims]
    return names[0] if names else "custom"


def _check(params: Path, found: Mapping[str, Leaf], specs: list[LeafSpec]) -> None:
    """Raises `CheckpointError` listing every array that is not as expected."""
    expected = {spec.name: spec.stored_shape for spec in specs}
    lora = any("lora" in name for name in found)
    hint = ", LoRA is not merged here: merge it in openpi first" if lora else ""
    here = {name: leaf for name, leaf in found.items() if name in expected}
    problems = {
        "missing": [name for name in expected if name not in found],
        f"unexpected{hint}": sorted(name for name in found if name not in expected),
        "wrong shape, sizes from the other arrays": [
            f"{name} is {list(leaf.shape)}, expected {list(expected[name])}"
            for name, leaf in here.items()
            if leaf.shape != expected[name]
        ],
        "wrong dtype": [
            f"{name} is {leaf.dtype}, expected float32, bfloat16 or float16"
            for name, leaf in here.items()
            if not known_dtype(leaf.dtype)
        ],
    }
    if any(problems.values()):
        raise misfit(params, problems)


class Sizes:
    """The sizes of the policy, each from the one array that shows it."""

    def __init__(self, params: Path, found: Mapping[str, Leaf]) -> None:
        self._params, self._found = params, found

    def of(self, name: str, axes: int) -> tuple[int, ...]:
        """The shape of an array. Raises `CheckpointError` where it is absent or has other axes."""
        if name not in self._found:
            raise misfit(self._params, {"missing": [name]})
        shape = self._found[name].shape
        if len(shape) != axes or not all(1 <= size <= _LARGEST for size in shape):
            raise self._wrong(name, f"{axes} axes from 1 to {_LARGEST}")
        return shape

    def model(self, policy_type: str) -> ModelDims:
        vocab, _ = self.of(LANGUAGE + "embedder/input_embedding", 2)
        expert = None if policy_type == "pi0_fast" else self._gemma("_1")
        dims = ModelDims(self._vision(), self._gemma(""), expert, vocab)
        for name in ("depth", "num_heads", "num_kv_heads", "head_dim"):
            if dims.expert is not None and getattr(dims.expert, name) != getattr(dims.vlm, name):
                raise self._wrong(
                    LAYERS + "attn/q_einsum_1/w", f"the {name} of the VLM, whose keys it attends to"
                )
        return dims

    def _vision(self) -> VisionDims:
        kernel = IMAGE + "embedding/kernel"
        patch, _, channels, width = self.of(kernel, 4)
        _, patches, _ = self.of(IMAGE + "pos_embedding", 3)
        layers, _, heads, each = self.of(BLOCK + "MultiHeadDotProductAttention_0/query/kernel", 4)
        grid = math.isqrt(patches)
        if grid * grid != patches:
            raise self._wrong(IMAGE + "pos_embedding", "a square number of patches")
        if channels != 3 or heads * each != width:
            raise self._wrong(kernel, f"3 channels, and {heads * each} outputs as attention has")
        return VisionDims(
            hidden_size=width,
            intermediate_size=self.of(BLOCK + "MlpBlock_0/Dense_0/kernel", 3)[2],
            num_hidden_layers=layers,
            num_attention_heads=heads,
            patch_size=patch,
            image_size=grid * patch,
        )

    def _gemma(self, suffix: str) -> GemmaDims:
        name = f"{LAYERS}attn/q_einsum{suffix}/w"
        depth, heads, width, head_dim = self.of(name, 4)
        mlp = self.of(f"{LAYERS}mlp{suffix}/linear", 3)[1]
        kv_heads = self.of(f"{LAYERS}attn/kv_einsum{suffix}/w", 5)[2]
        dims = GemmaDims(width, depth, mlp, heads, kv_heads, head_dim)
        for size, problem in gemma_problems(dims):
            raise CheckpointError(f"{self._params}: {name}: {size} {problem}")
        return dims

    def _wrong(self, name: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self._params}: {name} is {list(self._found[name].shape)}, expected {expected}"
        )
