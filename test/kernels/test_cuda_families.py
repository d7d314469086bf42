# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Every launch of a policy's graphs is made for a GPU that only takes notes: grids, tiles, maps, scratch.

That the kernels compute what they should is test/cuda's, on a GPU.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_kernels import GraphError
from flashrt_kernels.activation import silu
from flashrt_kernels.attention import attention, self_attention
from flashrt_kernels.checkpoint.groot_processing import GrootImages
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.image_rules import Fit, ImageRule, openpi
from flashrt_kernels.image_rules_groot import groot_n16, groot_n17
from flashrt_kernels.loading import PRECISIONS, load_policy
from flashrt_kernels.make_checkpoint import Recipe, make_checkpoint
from flashrt_kernels.matmul import matmul, matmul_gelu_mul
from test.kernels.noted_gpu import OPTIONS, NotedBackend, NotedGpu, check_launches, empty
from test.kernels.policies import DATA, TINY, TOKENIZER

FAST = DATA / "fast_tokenizer_tiny"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "small"
    return make_checkpoint(folder, Recipe(size="small", seed=3, cameras=("a", "b", "c")))


WAYS = [((8, 0), "own"), ((9, 0), "own"), ((9, 0), "portable"), ((9, 0), "cublaslt"), ((13, 0), "own")]


@pytest.mark.parametrize(("capability", "matmul"), WAYS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.usefixtures("without_gpu")
def test_every_launch_of_a_policy_can_be_made(
    capability: tuple[int, int], matmul: str, precision: str, small: Path
) -> None:
    """Else a slip in a grid or a tile shows on the robot, after the checkpoint was loaded."""
    options = SimpleNamespace(**(OPTIONS | {"matmul": matmul}))
    for folder in (TINY, small):
        backend = NotedBackend(NotedGpu(*capability, options))
        policy = load_policy(folder, device=backend, precision=precision, tokenizer=TOKENIZER)
        families = {name.partition(".")[0] for name in backend.gpu.asked}
        assert {"norm", "rope", "image", "flow", "embedding", "scaling"} <= families
        of_hopper = {name for name in families if "hopper" in name or "stream" in name}
        if matmul != "cublaslt":  # which leaves odd sizes to the others
            assert bool(of_hopper) == (capability == (9, 0) and precision == "bf16" and matmul == "own")
        check_launches(backend.made)
        policy.close()


# folder → what else it is loaded with, and a function that shows that its own kernels were asked for
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "tiny_pi0": ({"tokenizer": TOKENIZER}, "flow.euler_step"),
    "tiny_pi0_fast": ({"tokenizer": TOKENIZER, "fast_tokenizer": FAST}, "decoding.argmax_last"),
    "tiny_pi0_fast_e2e": ({"tokenizer": TOKENIZER, "fast_tokenizer": FAST}, "decoding.write_rows"),
    "tiny_groot_n16": ({}, "rope.norm_turn_heads"),
    "tiny_groot_n17": ({}, "rope.rope_table_axes"),
    "tiny_smolvla": ({}, "flow.euler_step"),
}


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("folder", OTHERS)
@pytest.mark.usefixtures("without_gpu")
def test_every_launch_of_the_other_policies_can_be_made(
    capability: tuple[int, int], precision: str, folder: str
) -> None:
    """As of Pi0.5: a kernel without a launch shows when the robot starts."""
    backend = NotedBackend(NotedGpu(*capability, SimpleNamespace(**OPTIONS)))
    options, function = OTHERS[folder]
    policy = load_policy(DATA / folder, device=backend, precision=precision, **options)
    assert function in backend.gpu.asked
    check_launches(backend.made)
    policy.close()


# kernel → arguments at the sizes of a full-size Pi0.5, and the family that Hopper uses for them
FULL_SIZE: dict[str, tuple[str, dict[str, Any], str]] = {
    "gate and up of a prefix": (
        "matmul_gelu_mul",
        {"x": (968, 2048), "weight": (2048, 2, 8, 2048)},
        "matmul_hopper",
    ),
    "down of a prefix": ("matmul", {"x": (968, 16384), "weight": (2048, 16384)}, "matmul_hopper"),
    "gate and up of the expert": (
        "matmul_gelu_mul",
        {"x": (50, 1024), "weight": (512, 2, 8, 1024)},
        "matmul_stream",
    ),
    "down of the expert": ("matmul", {"x": (10, 4096), "weight": (1024, 4096)}, "matmul_stream"),
    "attention of a prefix": (
        "attention",
        {"q": (968, 2048), "k": (968, 256), "v": (968, 256), "heads": 8, "kv_heads": 1, "head_dim": 256},
        "attention_hopper",
    ),
    "attention of the expert": (
        "attention",
        {"q": (50, 2048), "k": (1018, 256), "v": (1018, 256), "heads": 8, "kv_heads": 1, "head_dim": 256},
        "attention_hopper",
    ),
    "attention of SigLIP": (
        "self_attention",
        {"qkv": (768, 3456), "heads": 16, "head_dim": 72, "sequences": 3},
        "attention_hopper",
    ),
}


@pytest.mark.parametrize("case", FULL_SIZE)
@pytest.mark.usefixtures("without_gpu")
def test_hopper_takes_its_own_kernels_at_full_size_and_only_hopper_does(case: str) -> None:
    """Else an H200 runs at half its speed, or another GPU is given instructions that it does not have."""
    name, given, family = FULL_SIZE[case]
    kernel = {k.name: k for k in (attention, self_attention, matmul, matmul_gelu_mul)}[name]
    arguments = {key: empty(*value) if isinstance(value, tuple) else value for key, value in given.items()}
    call = kernel.validate(arguments)
    tensors = dict(call.arguments)
    tensors |= {key: empty(*shape, dtype=dtype) for key, (shape, dtype) in call.allocate.items()}
    tensors = {key: tensors[key] for key in kernel.arguments}
    for capability in ((8, 0), (9, 0), (10, 0), (12, 0)):
        backend = NotedBackend(NotedGpu(*capability, SimpleNamespace(**OPTIONS)))
        scratch = backend.workspace(kernel, tensors, call.parameters)
        workspace = empty(scratch, dtype=torch.uint8) if scratch else None
        check_launches(backend.bind(kernel, tensors, call.parameters, workspace))
        asked = {function.partition(".")[0] for function in backend.gpu.asked}
        assert (family in asked) == (capability == (9, 0)), (capability, asked)


@pytest.mark.usefixtures("without_gpu")
def test_a_weight_that_the_graph_may_write_is_refused() -> None:
    """Kernels read weights before the one in front has ended: they would see half of it."""
    backend = NotedBackend(NotedGpu(9, 0, SimpleNamespace(**OPTIONS)))
    first = StaticGraph("first", backend)
    kept = first.buffer("rows", (16, 16), torch.bfloat16)
    first.call(silu, x=first.input("x", (8, 16), torch.bfloat16), out=kept[:8])
    first.keep("rows", kept)
    for makes, refused in (("computed", True), ("borrowed", True), ("input", False)):
        second = StaticGraph("second", backend, after=first)
        x, rows = second.input("x", (8, 16), torch.bfloat16), second.borrow("rows")
        weight = {"computed": second.call(silu, x=x), "borrowed": rows[:8], "input": x}[makes]
        if refused:
            with pytest.raises(GraphError, match="may be written by the graph itself"):
                second.call(matmul, x=x, weight=weight)
        else:
            second.call(matmul, x=x, weight=weight)


RULES: dict[str, ImageRule] = {
    "LeRobot": Fit(224, 224, 14),
    "SmolVLA": Fit(512, 512, 16, place="end"),
    "openpi": openpi(224, 224, 14),
    "GR00T N1.6": groot_n16(
        GrootImages(shortest_edge=256, crop_fraction=0.95, albumentations=True, camera_size=(480, 640))
    ),
    "GR00T N1.7": groot_n17(GrootImages((256, 256), (230, 230))),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("without_gpu")
def test_every_launch_of_an_image_rule_can_be_made(rule: str) -> None:
    """Else a camera's images stop at a wrong argument on the robot; every GPU takes the same launches."""
    made, chosen = [], RULES[rule]
    for capability in ((8, 0), (9, 0)):
        backend = NotedBackend(NotedGpu(*capability, SimpleNamespace(**OPTIONS)))
        g = StaticGraph(rule, backend)
        out = g.buffer("patches", (chosen.rows, (3 * chosen.patch**2 + 7) // 8 * 8), torch.bfloat16)
        pixels, info = g.input("pixels", (480 * 640 * 3,), torch.uint8), g.input("info", (4,), torch.int32)
        chosen.compose(g, pixels, info, out)
        g.output("patches", out)
        g.plan()
        check_launches(backend.made)
        made.append([launch.name for launch in backend.made])
    assert made[0] == made[1]
    assert made[0][-1] == f"resize_{'bilinear' if isinstance(chosen, Fit) else 'none'}"
    assert all(name.startswith("resample_") for name in made[0][:-1])
