# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Bring an environment that tools/bootstrap.py made to where `device: cuda` works; do only what is missing.

Run with that environment's Python, from the source root: .venv/bin/python -m tools.install_cuda
Installs cupy and, where the machine has no nvcc, the compiler's wheels; then compiles the kernels.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from flashrt_kernels.cuda.toolchain import find_nvcc, gpus
from flashrt_kernels.errors import KernelBuildError
from tools.bootstrap import (
    REQUIREMENTS,
    BootstrapError,
    Environment,
    digest,
    only_one,
    pip_progress,
    say,
    torch_requirement,
)

# Measured, x86-64 Linux.
DOWNLOAD_MB = {"cuda": 80, "nvcc": 105}
WHICH_TORCH = "import torch; print(torch.version.cuda or '')"
NEEDED_CUDA = "13."


def torch_cuda(env: Environment) -> str:
    """CUDA version of the installed torch: "13.0"; empty for a CPU build, or one that lacks its libraries."""
    command = [str(env.python), "-c", WHICH_TORCH]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def ensure_torch(env: Environment, index: str) -> None:
    """A CUDA 13 build of torch, from `index` when one is named. Raises BootstrapError in words."""
    if index and not torch_cuda(env).startswith(NEEDED_CUDA):
        say(f"installing {torch_requirement()} and its CUDA libraries from {index}: about 2 GB")
        source = ("install", "--index-url", index, torch_requirement())
        with env.interruptible():
            env.pip(*source, "--no-deps", "--force-reinstall")
            env.pip(*source)  # the libraries that it needs and that are not there
    found = torch_cuda(env)
    if not found.startswith(NEEDED_CUDA):
        what = f"a build for CUDA {found}" if found else "a CPU build"
        raise BootstrapError(
            f"the torch in {env.folder.name} is {what}; `device: cuda` needs a build for CUDA 13.\n"
            "PyTorch's own package index has them: look up the address of its CUDA 13.0 builds, and run\n"
            "  make install DEVICE=cuda TORCH_INDEX=URL"
        )


def install(env: Environment, index: str) -> None:
    """Packages. Raises BootstrapError."""
    names = ["cuda", *(["nvcc"] if nvcc_is_missing() else [])]
    files = [REQUIREMENTS / f"{name}.txt" for name in names]
    state = env.state()
    wanted = digest(files) + state.get("requirements", "")
    if state.get("cuda") == wanted:
        return
    if not gpus():
        raise BootstrapError(
            "DEVICE=cuda: no NVIDIA GPU, or no driver, on this machine; install the driver (R580 or newer) "
            "where there is a GPU. DEVICE=cpu needs neither."
        )
    ensure_torch(env, index)
    with env.interruptible():
        size = sum(DOWNLOAD_MB[name] for name in names)
        say(f"installing requirements/{{{','.join(names)}}}.txt: about {size} MB to download")
        env.pip("install", *(f"--requirement={file}" for file in files), shorten=pip_progress)
    env.finish(cuda=wanted)


def nvcc_is_missing() -> bool:
    """Whether the wheels must serve; once they are installed, they are found and go on being wanted."""
    try:
        return find_nvcc().path.is_relative_to(sys.prefix)
    except KernelBuildError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--torch-index", default="", help="package index to take torch from; empty: pip's own"
    )
    env = Environment(Path(sys.prefix))
    index = parser.parse_args().torch_index
    with only_one():
        install(env, index)
        env.run("-m", "flashrt_kernels.build")


if __name__ == "__main__":
    try:
        main()
    except BootstrapError as error:
        sys.exit(f"flashrt_ros: {error}")
    except KeyboardInterrupt:
        sys.exit("\nflashrt_ros: interrupted; run the same command again")
