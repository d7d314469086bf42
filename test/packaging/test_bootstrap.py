# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The way to a working environment: what is missing is named, and nothing half-done is believed in."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bootstrap import BootstrapError, Environment, create, digest, pip_progress, reason_to_recreate

ROOT = Path(__file__).resolve().parents[2]
FIND_PYTHON = ROOT / "tools" / "find_python.sh"


def fake_python(folder: Path, answer: str) -> Path:
    """An interpreter that answers the script's question with `answer`, whatever it is asked."""
    path = folder / "python3.11"
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def find_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FIND_PYTHON, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_a_complete_python_is_printed(tmp_path: Path) -> None:
    """Else make cannot start."""
    python = fake_python(tmp_path, "3.12")
    result = find_python(python)
    assert (result.returncode, result.stdout) == (0, f"{python}\n")


@pytest.mark.parametrize(
    ("answer", "package"), [("3.11 venv", "python3.11-venv"), ("3.12 headers", "python3.12-dev")]
)
def test_a_missing_part_is_named_with_the_command_that_installs_it(
    tmp_path: Path, answer: str, package: str
) -> None:
    """Else a newcomer sees a traceback of ensurepip, or a compiler that misses Python.h."""
    result = find_python(fake_python(tmp_path, answer))
    assert result.returncode == 1
    assert f"sudo apt-get install {package}" in result.stderr


def test_a_python_of_another_version_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    """Else wheels are compiled from source, or fail to install, after a minute of downloads."""
    result = find_python(fake_python(tmp_path, "3.9 version"))
    assert result.returncode == 1
    assert "Python 3.11 or 3.12 is needed" in result.stderr
    assert "(3.9)" in result.stderr


def test_a_python_that_does_not_run_is_named() -> None:
    """Else a typing error in PYTHON= silently takes another Python."""
    result = find_python("/nowhere/python3.11")
    assert result.returncode == 1
    assert "PYTHON=/nowhere/python3.11 does not run" in result.stderr


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    """Else CMake says so after all downloads, in a hundred lines."""
    (tmp_path / "make").touch(mode=0o755)
    code = "from tools.bootstrap import check_compiler; check_compiler()"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert "g++ not found" in result.stderr
    assert "sudo apt-get install g++" in result.stderr


def test_an_environment_that_make_did_not_create_is_left_alone(tmp_path: Path) -> None:
    """Else `make demo` deletes somebody's own environment."""
    (tmp_path / "precious").touch()
    with pytest.raises(BootstrapError, match="make did not create it"):
        create(Environment(tmp_path), "")
    assert (tmp_path / "precious").exists()


def test_an_interrupted_installation_is_not_believed_in(tmp_path: Path) -> None:
    """Else every later run fails on half a package, and nobody knows why."""
    env = Environment(tmp_path)
    env.finish(python="3.11", requirements="all", package="built")
    assert env.state()["package"] == "built"
    with pytest.raises(KeyboardInterrupt), env.interruptible():
        raise KeyboardInterrupt
    assert env.state() == {}
    assert reason_to_recreate(env, python_was_chosen=False) == "was left half installed"


def test_finished_steps_are_kept_and_a_finished_installation_leaves_no_mark(tmp_path: Path) -> None:
    """Else the second run installs everything again."""
    env = Environment(tmp_path)
    with env.interruptible():
        pass
    env.finish(python="3.11", requirements="all")
    env.finish(package="built")
    assert env.state() == {"python": "3.11", "requirements": "all", "package": "built"}
    assert json.loads(env.record.read_text()) == env.state()


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path: Path) -> None:
    """Else an upgrade of the system's Python breaks every command for good."""
    env = Environment(tmp_path)
    env.finish(python="3.11")
    env.python.parent.mkdir()
    env.python.symlink_to("/nowhere/python3.11")
    assert reason_to_recreate(env, python_was_chosen=False) == "points to a Python that is gone"


def test_another_python_is_used_only_when_it_was_asked_for(tmp_path: Path) -> None:
    """Else PYTHON=python3.12 is ignored, or a plain `make test` throws a good environment away."""
    env = Environment(tmp_path)
    env.finish(python="3.4")
    env.python.parent.mkdir()
    env.python.symlink_to(sys.executable)
    assert reason_to_recreate(env, python_was_chosen=False) == ""
    assert reason_to_recreate(env, python_was_chosen=True) == "was made with Python 3.4"


def test_the_digest_sees_contents_and_names() -> None:
    """Else an edited message definition is not rebuilt."""
    makefile, manifest = ROOT / "Makefile", ROOT / "package.xml"
    assert digest([makefile]) != digest([manifest])
    assert digest([makefile, manifest]) == digest([manifest, makefile])
    assert digest([makefile, manifest]) != digest([makefile])


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "  Downloading fonttools-4.68.0-cp311-manylinux2014_x86_64.whl (5.5 MB)",
            "  fonttools-4.68.0 (5.5 MB)",
        ),
        ("  Downloading numpy-2.4.6-cp311-linux.whl.metadata (62 kB)", ""),
        ("Using cached https://index/numpy-2.4.6-cp311-linux.whl (16.4 MB)", "  numpy-2.4.6 (16.4 MB)"),
        ("  Using cached empy-4.2.1-py3-none-any.whl", "  empy-4.2.1 (at hand)"),
        ("Collecting numpy==2.4.6 (from -r runtime.txt (line 5))", ""),
        ("Installing collected packages: a, b, c", "  unpacking 3 packages"),
        (
            "ERROR: No matching distribution found for numpy==9",
            "ERROR: No matching distribution found for numpy==9",
        ),
    ],
)
def test_pip_tells_what_arrives_and_hides_no_error(line: str, shown: str) -> None:
    """Else the first run is 600 lines in which its own progress is lost, or fails without a reason."""
    assert pip_progress(line) == shown
