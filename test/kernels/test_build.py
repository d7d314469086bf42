# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled once, for the right GPUs, and never run when they are older than their sources."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flashrt_kernels import build as command
from flashrt_kernels.cuda import manifest, toolchain
from flashrt_kernels.cuda.manifest import ARCHITECTURES, architecture_for, runs_on
from flashrt_kernels.errors import DeviceError, KernelBuildError

# What nvcc is to the build: it says its version and where it lies, and turns a source into an image.
FAKE_NVCC = """#!{python}
import pathlib, sys
arguments = sys.argv[1:]
if "--version" in arguments:
    sys.exit(print("Cuda compilation tools, release {version}, V{version}.88"))
if "--dryrun" in arguments:
    sys.exit(print("#$ _HERE_=" + str(pathlib.Path(__file__).parent), file=sys.stderr))
source = pathlib.Path(next(word for word in arguments if word.endswith(".cu")))
text = source.read_text()
if "broken" in text:
    sys.exit("norm.cu(3): error: identifier is undefined")
if "edited meanwhile" in text:
    source.write_text("// edited again")
print("ptxas info    : Compiling entry function 'rms_norm' for 'sm_90a'")
print("    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads")
print("ptxas info    : Used 40 registers, used 1 barriers")
if "setmaxnreg" in text:
    print("ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored")
pathlib.Path(arguments[arguments.index("-o") + 1]).write_text(" ".join(arguments))
"""
FAKE_FATBINARY = """#!{python}
import pathlib, sys
out = next(word for word in sys.argv if word.startswith("--create=")).partition("=")[2]
pathlib.Path(out).write_text("\\n".join(word for word in sys.argv if word.startswith("--image3")))
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Two families, one of them for Hopper alone, with a header that includes another."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "norm.cu").write_text('#include "common.cuh"\n#include <cuda_bf16.h>\n')
    (folder / "matmul_hopper.cu").write_text("// wgmma\n")
    (folder / "common.cuh").write_text('#pragma once\n#include "types.cuh"\n')
    (folder / "types.cuh").write_text("// types\n")
    manifest.source_hashes.cache_clear()
    return folder


def fake_tool(path: Path, text: str, version: str = "13.0") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("{python}", sys.executable).replace("{version}", version))
    path.chmod(0o755)
    return path


@pytest.fixture
def nvcc(tmp_path: Path) -> Path:
    fake_tool(tmp_path / "bin" / "fatbinary", FAKE_FATBINARY)
    return fake_tool(tmp_path / "bin" / "nvcc", FAKE_NVCC)


def build(sources: Path, out: Path, nvcc: Path | None, *architectures: str) -> str:
    """Runs the build on fake sources in a new process's stead; returns what it printed."""
    manifest.source_hashes.cache_clear()
    console = Console(file=io.StringIO(), width=200)
    families = list(manifest.families(sources).values())
    try:
        command.build(families, architectures or ARCHITECTURES, out, nvcc, 2, console)
    finally:
        manifest.source_hashes.cache_clear()
        assert isinstance(console.file, io.StringIO)
        printed = console.file.getvalue()
    return printed


# ---- what is compiled ----


def test_a_family_is_compiled_for_every_architecture_and_bound_to_its_sources(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else a wheel lacks the code for somebody's GPU, and nobody finds out before the robot."""
    out = tmp_path / "fatbin"
    printed = build(sources, out, nvcc)
    assert "2 of 2" in printed
    norm = manifest.check("norm", out, sources).read_text()
    assert [line.split("sm=")[1].split(",")[0] for line in norm.splitlines()] == [
        "80", "86", "87", "89", "90a", "100", "110", "120", "80",
    ]  # fmt: skip
    assert norm.count("kind=ptx") == 1
    hopper = manifest.check("matmul_hopper", out, sources).read_text()
    assert [line.split("sm=")[1].split(",")[0] for line in hopper.splitlines()] == ["90a"]
    entry = manifest.read(out)["norm"]
    assert (entry["images"], entry["nvcc"]) == ([*ARCHITECTURES, "ptx"], "13.0.88")
    resources = json.loads((out / command.RESOURCES).read_text())["families"]["norm"]["rms_norm"]
    assert resources["9.0a"] == {"registers": 40, "stack": 16, "spill": 12}


def test_what_is_up_to_date_is_left_alone(sources: Path, nvcc: Path, tmp_path: Path) -> None:
    """Else every `make demo DEVICE=cuda` compiles for minutes."""
    out = tmp_path / "fatbin"
    build(sources, out, nvcc, "9.0a")
    assert "up to date" in build(sources, out, Path("/nowhere/nvcc"), "9.0a")
    (sources / "types.cuh").write_text("// edited\n")
    assert "compiling 1 of 2" in build(sources, out, nvcc, "9.0a")
    assert "compiling 1 of 2" in build(sources, out, nvcc, "8.9")  # the Hopper family has nothing for 8.9


def test_a_family_for_hopper_alone_is_no_reason_to_compile_elsewhere(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else the build fails on a GPU that could never use those kernels."""
    build(sources, tmp_path / "fatbin", nvcc, "8.9")
    assert set(manifest.read(tmp_path / "fatbin")) == {"norm"}


def test_the_hash_sees_every_header_and_the_flags(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an edited header leaves old kernels in use."""
    before = manifest.families(sources)
    assert [path.name for path in before["norm"].files] == ["norm.cu", "common.cuh", "types.cuh"]
    hashes = {name: family.hash() for name, family in before.items()}
    (sources / "types.cuh").write_text("// other types\n")
    assert manifest.changed_since(hashes, sources) == ["norm"]
    monkeypatch.setattr(manifest, "FLAGS", ("-O0",))
    assert before["matmul_hopper"].hash() != hashes["matmul_hopper"]


def test_families_that_came_or_went_have_changed(sources: Path) -> None:
    """Else CI calls kernels tested that no GPU has ever run."""
    now = manifest.source_hashes(sources)
    assert manifest.changed_since({**now, "gone": "0"}, sources) == ["gone"]
    assert manifest.changed_since({}, sources) == ["matmul_hopper", "norm"]


def test_an_include_that_leads_nowhere_is_named(sources: Path) -> None:
    """Else the hash silently covers less than what is compiled."""
    (sources / "types.cuh").write_text('#include "missing.cuh"\n')
    with pytest.raises(KernelBuildError, match=r'types.cuh includes "missing.cuh"'):
        manifest.families(sources)


def test_the_sources_of_this_repository_form_families() -> None:
    """Else a family is silently left out of the build."""
    families = manifest.families()
    assert {"norm", "matmul", "attention", "matmul_hopper"} <= set(families)
    assert families["matmul"].architectures == ARCHITECTURES
    assert families["matmul_hopper"].architectures == ("9.0a",)
    assert "common.cuh" in {path.name for path in families["norm"].files}


# ---- what goes wrong ----


def test_a_failing_compiler_is_shown_and_nothing_stale_stays_usable(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else an edit that does not compile is measured with the kernels from before it."""
    out = tmp_path / "fatbin"
    build(sources, out, nvcc, "9.0a")
    (sources / "norm.cu").write_text("broken")
    with pytest.raises(KernelBuildError, match="not built: norm; see above"):
        build(sources, out, nvcc, "9.0a")
    with pytest.raises(KernelBuildError, match="norm are older than their sources"):
        manifest.check("norm", out, sources)
    manifest.check("matmul_hopper", out, sources)
    assert sorted(path.name for path in out.glob(".*")) == [".lock"]


def test_what_the_compiler_said_is_printed(sources: Path, nvcc: Path, tmp_path: Path) -> None:
    """Else the author of a kernel sees an exit code and no error."""
    (sources / "norm.cu").write_text("broken")
    family = manifest.families(sources)["norm"]
    with pytest.raises(KernelBuildError, match=r"exit code 1:\n.*identifier is undefined"):
        toolchain.compile_image(toolchain.find_nvcc(nvcc), family, "9.0a", tmp_path)


def test_wgmma_that_the_compiler_serialised_is_an_error(sources: Path, nvcc: Path, tmp_path: Path) -> None:
    """Else a kernel loses most of its speed, and the only trace is a line in a log."""
    (sources / "norm.cu").write_text("// setmaxnreg")
    family = manifest.families(sources)["norm"]
    with pytest.raises(KernelBuildError, match=r"norm for 9.0a: .*C7508"):
        toolchain.compile_image(toolchain.find_nvcc(nvcc), family, "9.0a", tmp_path)


def test_sources_that_change_while_they_are_compiled_are_not_believed_in(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else the manifest claims a source that the fatbin was not made of."""
    (sources / "norm.cu").write_text("// edited meanwhile")
    with pytest.raises(KernelBuildError, match="not built: norm"):
        build(sources, tmp_path / "fatbin", nvcc, "9.0a")
    assert "norm" not in manifest.read(tmp_path / "fatbin")


def test_kernels_that_must_not_be_used_are_refused_with_the_command_to_run(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else a robot runs old kernels after an update, or its user does not know what to do."""
    out = tmp_path / "fatbin"
    with pytest.raises(KernelBuildError, match=r"norm are not built; run: python -m flashrt_kernels.build"):
        manifest.check("norm", out, sources)
    build(sources, out, nvcc, "9.0a")
    (out / "norm.fatbin").write_text("of another build")
    with pytest.raises(KernelBuildError, match="are not those that were built"):
        manifest.check("norm", out, sources)
    (out / "manifest.json").write_text("{}")
    with pytest.raises(KernelBuildError, match=r"manifest.json cannot be read .*remove it and run"):
        manifest.check("norm", out, sources)


def test_installed_kernels_without_their_sources_are_used(sources: Path, nvcc: Path, tmp_path: Path) -> None:
    """Else a package that leaves the sources out can never start."""
    build(sources, tmp_path / "fatbin", nvcc, "9.0a")
    assert manifest.check("norm", tmp_path / "fatbin", tmp_path / "nowhere").is_file()


def test_an_old_compiler_is_refused_naming_both_versions(tmp_path: Path) -> None:
    """Else nvcc 12 stops somewhere with `unsupported gpu architecture`."""
    old = fake_tool(tmp_path / "bin" / "nvcc", FAKE_NVCC, version="12.4")
    with pytest.raises(KernelBuildError, match=r"nvcc 13.0 or newer is needed .* found 12.4.88 at") as error:
        toolchain.find_nvcc(old)
    assert "pip install 'nvidia-cuda-nvcc==13.0.*'" in str(error.value)
    with pytest.raises(KernelBuildError, match="found no working nvcc at /nowhere/nvcc"):
        toolchain.find_nvcc(Path("/nowhere/nvcc"))


def test_an_old_compiler_on_the_path_gives_way_to_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine with CUDA 12 cannot compile, although the right compiler is installed."""
    old = fake_tool(tmp_path / "old" / "nvcc", FAKE_NVCC, version="12.4")
    wheel = tmp_path / "nvidia" / "cu13" / "bin"
    wheel.mkdir(parents=True)
    fake_tool(wheel / "nvcc", FAKE_NVCC)
    (tmp_path / "nvidia" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(toolchain, "USUAL_FOLDERS", ())
    monkeypatch.setenv("PATH", str(old.parent))
    assert toolchain.find_nvcc().path == wheel / "nvcc"


def test_without_a_gpu_the_architecture_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a build machine without a GPU compiles nothing and says nothing."""
    monkeypatch.setattr(command, "gpus", list)
    assert command.main([]) == 1
    assert "no NVIDIA GPU (or no driver)" in capsys.readouterr().err


def test_a_family_that_these_gpus_cannot_have_is_not_called_up_to_date(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else `--family matmul_hopper` on an L4 seems to have worked."""
    only = [manifest.families(sources)["matmul_hopper"]]
    console = Console(file=io.StringIO(), width=200)
    command.build(only, ["8.9"], tmp_path / "fatbin", nvcc, 1, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "nothing to compile for these GPUs: matmul_hopper (9.0a alone)\n"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a file where the folder should be ends in a traceback."""
    (tmp_path / "file").touch()
    assert command.main(["--arch", "8.9", "--out", str(tmp_path / "file" / "fatbin")]) == 1
    assert "choose another folder with --out" in capsys.readouterr().err


def test_the_gpus_are_asked_of_whoever_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `--arch native` fails on a Jetson, whose nvidia-smi does not know the question."""
    smi = fake_tool(tmp_path / "bin" / "nvidia-smi", "#!{python}\nprint('9.0')\nprint('12.0')\n")
    monkeypatch.setenv("PATH", str(smi.parent))
    assert toolchain.gpus() == [(9, 0), (12, 0)]
    fake_tool(smi, "#!{python}\nprint('[N/A]')\n")
    knows = fake_tool(tmp_path / "knows", "#!{python}\nprint('8.7')\n")
    fails = fake_tool(tmp_path / "fails", "#!{python}\nraise OSError('no libcuda.so.1')\n")
    monkeypatch.setattr(sys, "executable", str(knows))
    assert toolchain.gpus() == [(8, 7)]
    monkeypatch.setattr(sys, "executable", str(fails))
    assert toolchain.gpus() == []


def test_native_is_every_gpu_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the second, different GPU of a workstation has no kernels."""
    monkeypatch.setattr(command, "gpus", lambda: [(8, 9), (9, 0), (9, 0), (13, 0)])
    assert command.chosen_architectures(["native"]) == ["8.9", "9.0a"]
    assert command.chosen_architectures(["all"]) == list(ARCHITECTURES)


# ---- which GPUs ----


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("8.0", (8, 0), True), ("8.0", (8, 6), True), ("8.6", (8, 0), False), ("8.6", (8, 9), True),
        ("8.7", (8, 7), True), ("8.7", (8, 9), False), ("9.0a", (9, 0), True), ("9.0a", (9, 1), False),
        ("10.0", (10, 3), True), ("10.0", (11, 0), False), ("12.0", (12, 1), True), ("12.0", (13, 0), False),
    ],
)  # fmt: skip
def test_machine_code_runs_on_later_gpus_of_its_generation_only(
    architecture: str, capability: tuple[int, int], runs: bool
) -> None:
    """Else the log is silent while the driver compiles for a minute, or refuses a GPU that would work."""
    assert runs_on(architecture, capability) is runs


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((8, 0), "8.0"),
        ((8, 9), "8.9"),
        ((9, 0), "9.0a"),
        ((10, 3), "10.0"),
        ((12, 1), "12.0"),
        ((13, 0), None),
    ],
)
def test_a_gpu_gets_the_newest_code_that_it_runs(
    capability: tuple[int, int], architecture: str | None
) -> None:
    """Else a GPU that came after this release is refused."""
    assert architecture_for(capability) == architecture


def test_a_gpu_that_is_too_old_is_named() -> None:
    """Else it fails inside the driver with `no kernel image is available`."""
    with pytest.raises(KernelBuildError, match=r"compute capability 7.5; 8.0 or newer is needed"):
        architecture_for((7, 5))


def test_the_manifest_knows_what_the_driver_would_translate(
    sources: Path, nvcc: Path, tmp_path: Path
) -> None:
    """Else nobody is told why the first start on another GPU takes a minute."""
    out = tmp_path / "fatbin"
    build(sources, out, nvcc, "8.6", "9.0a")
    assert manifest.covers("norm", (8, 9), out)
    assert not manifest.covers("norm", (12, 0), out)
    assert manifest.usable("norm", (12, 0), out)
    assert manifest.covers("matmul_hopper", (9, 0), out)
    assert not manifest.usable("matmul_hopper", (12, 0), out)
    assert not manifest.usable("never_built", (9, 0), out)


def test_an_old_driver_is_refused_naming_both_versions() -> None:
    """Else loading fails with `unsupported toolchain`, which tells a user nothing."""
    with pytest.raises(DeviceError, match=r"supports CUDA 12.4; 13.0 is needed: driver R580 or newer"):
        manifest.check_driver(12040)
    manifest.check_driver(13000)
    manifest.check_driver(13030)


def test_the_build_imports_neither_torch_nor_cupy() -> None:
    """Else CI and packaging need gigabytes to compile ten files."""
    code = "import sys, flashrt_kernels.build; print(sorted({'torch', 'cupy', 'cuda'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
