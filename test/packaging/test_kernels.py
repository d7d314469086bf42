# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What is installed and checked around the CUDA kernels; nothing here needs a GPU or a CUDA package."""

import ast
import fnmatch
import io
import json
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from rich.console import Console

from flashrt_kernels.backend import CUDA_PACKAGES
from flashrt_kernels.cuda import manifest, toolchain
from tools import check_kernels, install_cuda, make_wgmma_header
from tools.bootstrap import BootstrapError, Environment

ROOT = Path(__file__).resolve().parents[2]
CUDA = ROOT / "flashrt_kernels" / "cuda"

SASS = """
		Function : matmul_hopper_128x256
	.headerflags	@"EF_CUDA_SM90"
        /*0140*/          HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;  /* 0x07e00000041879f0 */
                                        /* 0x000fe20008701818 */
        /*0150*/              @!P0 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;  /* 0x07e00000081879f0 */
        /*0160*/             @!UP0 UTMALDG.2D [UR8], [UR6] ;  /* 0x00000008060075b4 */
		Function : combine
        /*0000*/          LDC R1, c[0x0][0x28] ;  /* 0x00000a00ff017b82 */
"""


def setup_constant(name: str) -> Any:
    """A literal that setup.py assigns."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_the_wheel_holds_every_file_that_the_kernels_need() -> None:
    """Else an installed package cannot compile its kernels, or finds no table beside them."""
    patterns = setup_constant("KERNELS")
    folders = [CUDA, CUDA / "src"]
    files = [
        path for folder in folders for path in folder.iterdir() if path.is_file() and path.suffix != ".py"
    ]
    built = [manifest.FATBINS / "norm.fatbin", manifest.path_of(manifest.FATBINS)]
    names = [str(path.relative_to(CUDA.parent)) for path in (*files, *built)]
    assert "cuda/src/norm.cu" in names
    assert [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []


def test_compiled_kernels_stay_out_of_git_and_of_the_source_distribution() -> None:
    """Else the repository grows by megabytes with every edit of a kernel."""
    folder = str(manifest.FATBINS.relative_to(ROOT))
    assert f"/{folder}/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert f"prune {folder}" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("constant", "file"), [("CUDA", "cuda"), ("NVCC", "nvcc")])
def test_pins_satisfy_the_extras(constant: str, file: str) -> None:
    """Else `pip install flashrt_ros[cuda]` installs what was never tested."""
    pinned = pins(file)
    for text in setup_constant(constant):
        requirement = Requirement(text)
        assert pinned[requirement.name] in requirement.specifier


def test_the_advice_where_cuda_packages_are_missing_is_the_extra() -> None:
    """Else whoever follows the message installs versions that the package refuses."""
    assert list(CUDA_PACKAGES) == setup_constant("CUDA")


def test_the_compiler_wheels_are_complete_everywhere() -> None:
    """Else the advice, the extra or the pins lack a wheel, and nvcc fails on a missing cicc or header."""
    assert set(toolchain.WHEELS) == set(pins("nvcc"))
    assert set(toolchain.WHEELS) == {Requirement(text).name for text in setup_constant("NVCC")}


def test_the_cpu_path_installs_nothing_of_cuda() -> None:
    """Else `make demo` on a laptop downloads a compiler and GPU libraries."""
    gpu_only = {*pins("cuda"), *pins("nvcc"), *pins("sass")}
    for name in ("runtime", "dev", "build"):
        assert not gpu_only & set(pins(name))


def test_a_torch_that_cannot_use_the_gpu_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else everything is installed and compiled, and the policy then says that there is no GPU."""
    monkeypatch.setattr(install_cuda, "torch_cuda", lambda env: "")
    with pytest.raises(BootstrapError, match="is a CPU build") as refused:
        install_cuda.ensure_torch(Environment(tmp_path / ".venv"), "")
    assert "make install DEVICE=cuda TORCH_INDEX=" in str(refused.value)
    monkeypatch.setattr(install_cuda, "torch_cuda", lambda env: "12.8")
    with pytest.raises(BootstrapError, match=r"is a build for CUDA 12.8; .* needs a build for CUDA 13"):
        install_cuda.ensure_torch(Environment(tmp_path / ".venv"), "")


def test_a_refusal_leaves_the_environment_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `make demo` installs everything anew after a `make demo DEVICE=cuda` that could not work."""
    monkeypatch.setattr(install_cuda, "torch_cuda", lambda env: "")
    monkeypatch.setattr(install_cuda, "gpus", lambda: [(9, 0)])
    env = Environment(tmp_path)
    env.finish(python="3.11")
    with pytest.raises(BootstrapError, match="is a CPU build"):
        install_cuda.install(env, "")
    assert env.state() == {"python": "3.11"}


def test_a_machine_without_a_gpu_is_told_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `make demo DEVICE=cuda` downloads a gigabyte first."""
    monkeypatch.setattr(install_cuda, "gpus", list)
    with pytest.raises(BootstrapError, match="no NVIDIA GPU, or no driver"):
        install_cuda.install(Environment(tmp_path / ".venv"), "")


# ---- what CI says of compiled kernels ----


def test_matrix_instructions_are_counted_per_kernel() -> None:
    """Else CI passes a Hopper path that fell back to slower instructions."""
    counts = check_kernels.count_instructions(SASS)
    assert counts["matmul_hopper_128x256"] == {"HGMMA": 2, "UTMALDG": 1, "HMMA": 0}
    assert counts["combine"] == {"HGMMA": 0, "UTMALDG": 0, "HMMA": 0}


def test_spills_of_matmul_and_attention_are_complaints() -> None:
    """Else a kernel that goes through local memory for its accumulators is shipped."""
    used = {"registers": 255, "stack": 16, "spill": 24}
    resources = {"matmul": {"matmul_128x128": {"9.0a": used}}, "norm": {"rms_norm": {"9.0a": used}}}
    console = Console(file=io.StringIO(), width=100)
    assert check_kernels.check_spills(resources, console) == [
        "matmul_128x128 for 9.0a spills 24 bytes; 0 are known"
    ]


def test_what_changed_since_the_last_run_on_a_gpu_is_said(tmp_path: Path) -> None:
    """Else results are believed that other kernels produced."""
    run = tmp_path / "device_run.json"
    assert check_kernels.changes(run) == "no run on a GPU is recorded"
    content: dict[str, Any] = {
        "date": "2026-12-01",
        "device": "NVIDIA H200",
        "kernels": manifest.source_hashes(),
    }
    run.write_text(json.dumps(content))
    assert check_kernels.changes(run).endswith("since the run of 2026-12-01 on NVIDIA H200: none")
    content["kernels"] = {**manifest.source_hashes(), "norm": "0"}
    run.write_text(json.dumps(content))
    assert check_kernels.changes(run).endswith("NVIDIA H200: norm")


def test_the_generated_header_is_what_its_generator_writes() -> None:
    """Else an edit of one of them is lost with the next run of the other."""
    written = make_wgmma_header.HEADER.read_text(encoding="utf-8")
    assert written == make_wgmma_header.header(), "run python tools/make_wgmma_header.py"
