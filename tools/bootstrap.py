# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Make a virtual environment that can run, test and build flashrt_ros; do only what is not done yet.

Run by the Makefile with the Python that tools/find_python.sh chose; needs nothing but the standard library.
What was finished is written to VENV/flashrt_ros.json. While pip works, VENV/flashrt_ros.installing exists:
an environment in which it is found was interrupted, and is made anew instead of being believed in.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
# What the built package depends on. Python modules, launch and parameter files are not here:
# the environment reads them from the source tree (see link_source_tree).
PACKAGE_INPUTS = ("msg/*.msg", "scripts/*", "CMakeLists.txt", "package.xml", "setup.py", "setup.cfg")
# Measured, x86-64 Linux.
DOWNLOAD_MB = {
    "build": 35,
    "runtime": 130,
    "dev": 50,
    "rerun": 1,
    "colcon": 5,
    "ros-kilted": 50,
    "ros-jazzy": 60,
}
TORCH_DOWNLOAD = {"CPU": "about 200 MB", "CUDA": "about 1.4 GB"}  # with the CUDA libraries


class BootstrapError(Exception):
    """What is wrong, and what the person can do about it."""


class Environment:
    """One virtual environment and the record of what is finished in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.record = folder / "flashrt_ros.json"
        self.installing = folder / "flashrt_ros.installing"

    def state(self) -> dict[str, str]:
        """The finished steps; empty when the environment is new, broken or interrupted."""
        if self.installing.exists() or not self.record.exists():
            return {}
        return dict(json.loads(self.record.read_text(encoding="utf-8")))

    def finish(self, **steps: str) -> None:
        """Records finished steps; replaced in one go, so that it is never half written."""
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps(self.state() | steps, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self.record)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around every pip install: what it leaves behind when it is stopped is not to be trusted."""
        self.installing.touch()
        yield
        self.installing.unlink()

    def run(self, *arguments: str | Path, shorten: Callable[[str], str] | None = None) -> None:
        """Runs `python …` of this environment from the source root. Raises BootstrapError when it fails.

        `shorten` maps each line of its output to what is printed; "" prints nothing.
        """
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "_ROS_WHEELS"))
        }
        env["PATH"] = f"{self.python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
        command = [str(self.python), *map(str, arguments)]
        if shorten is None:
            code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
        else:
            with subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE) as process:
                for line in process.stdout or ():
                    if short := shorten(line.rstrip()):
                        print(short, flush=True)
            code = process.returncode
        if code:
            raise BootstrapError(f"`{' '.join(command)}` failed with exit code {code}; see above.")

    def pip(self, *arguments: str | Path, shorten: Callable[[str], str] | None = None) -> None:
        bar = "on" if shorten is None and sys.stdout.isatty() else "off"
        command = (
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            *arguments,
            "--progress-bar",
            bar,
        )
        self.run(*command, shorten=shorten)


def pip_progress(line: str) -> str:
    """One line of `pip install` → what a person wants to see: each package as it arrives, with its size."""
    words = line.split()
    if not words or words[0] in ("Collecting", "Requirement", "Looking", "Successfully", "Processing"):
        return ""
    if words[0] == "Downloading" or words[:2] == ["Using", "cached"]:
        size = " ".join(words[-2:]) if words[-1].endswith(")") else "(at hand)"
        file = words[-3] if words[-1].endswith(")") else words[-1]
        name = "-".join(file.rpartition("/")[2].split("-")[:2])
        return "" if ".metadata" in file else f"  {name} {size}"
    if line.startswith("Installing collected packages:"):
        return f"  unpacking {line.count(',') + 1} packages"
    return line


def say(text: str) -> None:
    print(f"flashrt_ros: {text}", flush=True)


def digest(files: Iterable[Path]) -> str:
    """One hash of names and contents."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file.relative_to(ROOT)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return total.hexdigest()


def check_compiler() -> None:
    missing = [name for name in ("g++", "make") if shutil.which(name) is None]
    if missing:
        raise BootstrapError(
            f"{' and '.join(missing)} not found; the ROS messages are compiled with it.\n"
            f"On Debian and Ubuntu:  sudo apt-get install {' '.join(missing)}"
        )


def python_minor() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def reason_to_recreate(env: Environment, python_was_chosen: bool) -> str:
    """Why our environment cannot be used; empty when it can be, or when there is none."""
    if env.installing.exists():
        return "was left half installed"
    state = env.state()
    if state and not env.python.exists():  # follows the link
        return "points to a Python that is gone"
    if state and python_was_chosen and state["python"] != python_minor():
        return f"was made with Python {state['python']}"
    return ""


def create(env: Environment, reason: str) -> None:
    """Makes an empty environment, in place of an unusable one. Never touches one that is not ours."""
    if reason:
        say(f"{env.folder.name} {reason}: making it anew")
        shutil.rmtree(env.folder)
    elif env.folder.exists() and any(env.folder.iterdir()):
        raise BootstrapError(
            f"{env.folder} exists, but make did not create it. Remove it, or choose another folder: "
            "make VENV=.venv-flashrt …"
        )
    say(f"creating {env.folder.name} with Python {platform.python_version()} ({sys.executable})")
    env.folder.mkdir(parents=True, exist_ok=True)
    env.installing.touch()
    (env.folder / "COLCON_IGNORE").touch()  # the wheels bring a hundred package.xml files
    if subprocess.run([sys.executable, "-m", "venv", str(env.folder)], check=False).returncode:
        raise BootstrapError(f"{sys.executable} cannot create a virtual environment; see above.")


def torch_offers_cpu_build(env: Environment, version: str) -> bool:
    """Whether pip would take a CPU build, found out without downloading it."""
    if platform.machine() != "x86_64":
        return True  # PyPI's Linux builds for other machines are CPU builds
    command = [str(env.python), "-m", "pip", "--disable-pip-version-check", "index", "versions", "torch"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return f"{version}+cpu" in listing


def torch_requirement() -> str:
    """The pin of torch, `torch==X.Y.Z`."""
    lines = (REQUIREMENTS / "runtime.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def install_torch(env: Environment, index: str) -> None:
    """torch first and apart: it is most of the download, and may come from an index of its own."""
    requirement = torch_requirement()
    version = requirement.removeprefix("torch==")
    if index:
        say(f"installing {requirement} from {index}")
        env.pip("install", "--no-deps", "--index-url", index, requirement)
        return
    if torch_offers_cpu_build(env, version):
        say(f"installing {requirement}, CPU build: {TORCH_DOWNLOAD['CPU']} to download")
    else:
        say(
            f"installing {requirement}, CUDA build: {TORCH_DOWNLOAD['CUDA']} to download, several GB on disk."
        )
        say("The demo and the tests need no GPU. PyTorch's own package index has CPU builds: look it up,")
        say("stop this with Ctrl-C, and run `make TORCH_INDEX=URL …`.")
    env.pip("install", requirement)


def install_requirements(env: Environment, names: list[str], torch_index: str, old: dict[str, str]) -> None:
    """Installs the named files of requirements/, with the build tools before them."""
    files = [REQUIREMENTS / f"{name}.txt" for name in names]
    wanted = digest([REQUIREMENTS / "build.txt", *files])
    if old.get("requirements") == wanted:
        return
    started = time.monotonic()
    with env.interruptible():
        say(f"installing the build tools: about {DOWNLOAD_MB['build']} MB to download")
        env.pip("install", "-r", REQUIREMENTS / "build.txt", shorten=pip_progress)
        if "runtime" in names:
            install_torch(env, torch_index)
        size = sum(DOWNLOAD_MB[name] for name in names)
        say(f"installing requirements/{{{','.join(names)}}}.txt: about {size} MB to download")
        env.pip("install", *(f"--requirement={file}" for file in files), shorten=pip_progress)
        env.run(ROOT / "tools" / "fix_ros_wheels.py")
    env.finish(python=python_minor(), requirements=wanted)
    say(f"installed in {time.monotonic() - started:.0f} s")


def install_package(env: Environment, old: dict[str, str]) -> None:
    """Builds the messages and installs the package. Slow part first, so that the install itself is short."""
    wanted = digest(file for pattern in PACKAGE_INPUTS for file in ROOT.glob(pattern) if file.is_file())
    wanted += old.get("requirements", "")  # built against one ROS release
    if old.get("package") == wanted:
        return
    say("building the ROS messages and installing flashrt_ros: 10 to 30 s")
    started = time.monotonic()
    wheels = env.folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    env.pip("wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, ROOT)
    with env.interruptible():
        env.pip("install", "--quiet", "--no-deps", "--force-reinstall", *wheels.glob("*.whl"))
        link_source_tree(env)
    env.finish(package=wanted)
    say(f"built in {time.monotonic() - started:.0f} s")


def link_source_tree(env: Environment) -> None:
    """Puts the source tree before the installed modules, so that an edited file needs no re-installation.

    Only the messages are then taken from the installed package (flashrt_ros/__init__.py joins both).
    """
    site = next(env.folder.glob("lib/python3*/site-packages"))
    (site / "flashrt_ros_source.pth").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n", encoding="utf-8"
    )


@contextmanager
def only_one() -> Iterator[None]:
    """Waits until no other bootstrap works in this tree."""
    path = ROOT / ".cache" / "bootstrap.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another make is working on the environment; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--ros", choices=("kilted", "jazzy"), default="kilted")
    parser.add_argument(
        "--requirements", nargs="*", default=["runtime", "dev"], help="files in requirements/"
    )
    parser.add_argument(
        "--no-package", action="store_true", help="do not build and install flashrt_ros itself"
    )
    parser.add_argument(
        "--torch-index", default="", help="package index to take torch from; empty: pip's own"
    )
    parser.add_argument("--this-python", action="store_true", help="replace an environment of another Python")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    env = Environment((ROOT / arguments.venv).absolute())
    requirements = [*arguments.requirements, f"ros-{arguments.ros}"]
    with only_one():  # `make demo` and `make test` started at once share one environment
        reason = reason_to_recreate(env, arguments.this_python)
        if reason or not env.state():
            check_compiler()
            create(env, reason)
        install_requirements(env, requirements, arguments.torch_index, env.state())
        if not arguments.no_package:
            install_package(env, env.state())


if __name__ == "__main__":
    try:
        main()
    except BootstrapError as error:
        sys.exit(f"flashrt_ros: {error}")
    except KeyboardInterrupt:
        sys.exit("\nflashrt_ros: interrupted; run the same command again")
