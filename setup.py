# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""pip build: the CMakeLists.txt that colcon uses, staged into the wheel.

colcon reads package.xml (ament_cmake) and never comes here. pip comes here, and gets the same messages,
executables, launch files and parameter files.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

NAME = "flashrt_ros"
HERE = Path(__file__).resolve().parent
MANIFEST = ElementTree.parse(HERE / "package.xml").getroot()

# The ROS packages are left out on purpose: on a robot they come from apt, where pip does not see them.
# Exact, tested versions of everything, ROS included, are in requirements/.
RUNTIME = [
    "numpy>=1.26",
    "jinja2>=3.1",
    "opencv-python-headless>=4.8",
    "matplotlib>=3.8",
    "PyYAML>=6.0",
    "rich>=13.7",
    "rosbags>=0.11,<0.12",
    "rosbags-image>=0.10,<0.11",
    "safetensors>=0.4.3",
    "scipy>=1.11",
    "sentencepiece>=0.2.0",
    "tokenizers>=0.19",
    "torch>=2.6",
]

# An NVIDIA GPU. torch must be a CUDA 13 build, which no requirement can say.
CUDA = ["cupy-cuda13x>=14.0,<15", "cuda-bindings>=13.0,<14"]
# openpi's JAX checkpoints.
JAX_CHECKPOINTS = ["tensorstore>=0.1.70"]
# The CUDA compiler, for python -m flashrt_kernels.build where the wheel came without compiled kernels.
NVCC = [
    "nvidia-cuda-nvcc==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-crt==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-cccl==13.0.*",
]
# Kernels go into the wheel as sources and, where they were compiled before it, as fatbins.
KERNELS = ["cuda/*.json", "cuda/src/*.cu", "cuda/src/*.cuh", "cuda/fatbin/*.fatbin", "cuda/fatbin/*.json"]


class BinaryDistribution(Distribution):
    """Makes the wheel platform-specific: the message type supports are shared libraries."""

    def has_ext_modules(self) -> bool:
        return True


class BuildPy(build_py):
    """Adds what CMake builds and installs to what setuptools collects."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # modules deleted since the last build
        super().run()
        if self.editable_mode:
            raise SystemExit(
                "flashrt_ros cannot be installed with `pip install -e`: its messages would not be found at "
                "run time. `make install` installs it so that edited modules need no re-installation."
            )
        build_temp = Path(self.get_finalized_command("build").build_temp).resolve()
        # One CMake cache for each environment: a cache that names another ROS release builds against that.
        build = build_temp / f"cmake-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]}"
        stage = build / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        run_cmake(build, stage)
        site = next(stage.glob("lib/python3*/site-packages"))
        generated = site / NAME
        for file in [*generated.glob("*.so"), *generated.glob("msg/*.py")]:
            target = Path(self.build_lib) / NAME / file.relative_to(generated)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        self.distribution.data_files = [*(self.distribution.data_files or []), *data_files(stage, site)]


def run_cmake(build: Path, stage: Path) -> None:
    """Configures, builds and installs CMakeLists.txt into `stage`. Raises CalledProcessError."""
    env = dict(os.environ)
    # cmake and ninja of the same environment, also when it is not activated.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    prefixes = env.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    if (Path(sys.prefix) / "share" / "rosidl_cmake").is_dir():
        # ROS wheels of this very environment win over the AMENT_PREFIX_PATH of another distro:
        # types built against foreign headers compile, and then fail when they are loaded.
        prefixes = [sys.prefix, *prefixes]
        env.pop("PYTHONPATH", None)  # pip's build isolation would hide the generators
    joined = os.pathsep.join(dict.fromkeys(prefix for prefix in prefixes if prefix))
    if joined:
        env |= {"AMENT_PREFIX_PATH": joined, "CMAKE_PREFIX_PATH": joined}
    configure = [
        "cmake",
        "-S",
        str(HERE),
        "-B",
        str(build),
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBUILD_TESTING=OFF",
    ]
    configure += [f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_PREFIX={stage}"]
    if shutil.which("ninja", path=env["PATH"]):
        configure.append("-GNinja")
    for command in (
        configure,
        ["cmake", "--build", str(build), "--parallel"],
        ["cmake", "--install", str(build)],
    ):
        subprocess.run(command, env=env, check=True)


def data_files(stage: Path, site: Path) -> list[tuple[str, list[str]]]:
    """What lies in the staged prefix beside Python modules: libraries, share/, executables."""
    files: dict[str, list[str]] = {}
    for file in sorted(stage.rglob("*")):
        if file.is_file() and not file.is_relative_to(site):
            files.setdefault(str(file.relative_to(stage).parent), []).append(str(file))
    return list(files.items())


setup(
    name=NAME,
    version=MANIFEST.findtext("version"),
    description=MANIFEST.findtext("description"),
    maintainer=MANIFEST.findtext("maintainer"),
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["flashrt_ros", "flashrt_ros.*", "flashrt_kernels", "flashrt_kernels.*"]),
    package_data={"flashrt_kernels": ["data/*/*", *KERNELS]},
    install_requires=RUNTIME,
    extras_require={"cuda": CUDA, "build": NVCC, "jax-checkpoints": JAX_CHECKPOINTS},
    zip_safe=False,
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPy},
    entry_points={
        "console_scripts": [
            "flashrt-policy-node = flashrt_ros.policy_node:main",
            "flashrt-replay = flashrt_ros.replay:main",
            "flashrt-demo = flashrt_ros.demo:main",
            "flashrt-make-checkpoint = flashrt_kernels.make_checkpoint:main",
        ]
    },
)
