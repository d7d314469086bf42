# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Names that are written in two places agree: nobody finds out at the robot that one of them is old."""

import ast
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flashrt_ros import __version__
from flashrt_ros.parameter_file import load_parameter_file
from flashrt_ros.parameters import NodeConfig

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()
LAUNCH_FILES = sorted(ROOT.glob("launch/*.launch.py"))
PARAMETER_FILES = sorted(ROOT.glob("config/*.yaml"))
SCRIPTS = sorted(path for path in ROOT.glob("scripts/*") if path.is_file())
REQUIREMENTS = sorted(ROOT.glob("requirements/*.txt"))


def calls(source: Path, name: str) -> list[ast.Call]:
    """Every call of `name(…)` in a Python file."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def literal_keywords(call: ast.Call) -> dict[str, object]:
    return {
        keyword.arg: keyword.value.value
        for keyword in call.keywords
        if keyword.arg and isinstance(keyword.value, ast.Constant)
    }


def main_of(script: Path) -> Path:
    """The source file that a script takes `main` from."""
    found = re.search(r"^from (\S+) import main$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{script.name} imports no main"
    return ROOT / (found[1].replace(".", "/") + ".py")


def test_versions_agree() -> None:
    """Else a bug report names a version that its author does not have."""
    version = MANIFEST.findtext("version")
    changelog = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    newest = re.search(r"^(\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)$", changelog, re.MULTILINE)
    assert newest, "CHANGELOG.rst has no entry `X.Y.Z (YYYY-MM-DD)`"
    assert version == newest[1] == __version__


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_executable_runs_a_main_that_exists(script: Path) -> None:
    """Else `ros2 run flashrt_ros …` offers a command that ends in an ImportError."""
    assert os.access(script, os.X_OK), f"scripts/{script.name} is not executable"
    source = main_of(script)
    names = [node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert "main" in names, f"{source.relative_to(ROOT)} has no main()"


def test_every_console_script_exists() -> None:
    """Else pip installs commands that end in an ImportError."""
    entries = re.findall(
        r'"flashrt-[a-z-]+ = ([\w.]+):main"', (ROOT / "setup.py").read_text(encoding="utf-8")
    )
    assert len(entries) >= 4
    for module in entries:
        source = ROOT / (module.replace(".", "/") + ".py")
        assert "def main(" in source.read_text(encoding="utf-8"), module


@pytest.mark.parametrize("launch_file", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_files_name_installed_executables(launch_file: Path) -> None:
    """Else launch says `executable not found` on the robot; nothing here can run launch."""
    nodes = [*calls(launch_file, "Node"), *calls(launch_file, "LifecycleNode")]
    assert nodes, f"{launch_file.name} starts no node"
    installed = {script.name for script in SCRIPTS}
    for node in nodes:
        keywords = literal_keywords(node)
        assert keywords["package"] == MANIFEST.findtext("name")
        assert keywords["executable"] in installed


@pytest.mark.parametrize("launch_file", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_files_name_files_that_are_installed(launch_file: Path) -> None:
    """Else launch fails on a missing parameter file, profile or included launch file."""
    text = launch_file.read_text(encoding="utf-8")
    for folder, name in re.findall(r'"(config|launch)" / "([\w.]+)"', text):
        assert (ROOT / folder / name).is_file(), f"{launch_file.name} uses {folder}/{name}"


def test_launch_remaps_name_topics_of_the_node() -> None:
    """Else a remap does nothing, silently, and the node waits for data for ever."""
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("flashrt_ros/*.py"))
    text = (ROOT / "launch" / "policy.launch.py").read_text(encoding="utf-8")
    remapped = re.search(r"for topic in \(([^)]*)\)", text)
    assert remapped, "policy.launch.py remaps no topic"
    for topic in re.findall(r'"([\w/]+)"', remapped[1]):
        assert f'"{topic}"' in sources, f"the node has no topic {topic}"


@pytest.mark.parametrize("file", PARAMETER_FILES, ids=lambda path: path.name)
def test_parameter_files_are_accepted_by_the_node(file: Path) -> None:
    """Else the example that a user starts from is refused, or a misspelt parameter is a silent default."""
    config = NodeConfig.from_dict({"checkpoint": "somewhere", **load_parameter_file(file)})
    assert config.cameras
    assert config.joint_names


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda path: path.name)
def test_requirements_are_pinned(file: Path) -> None:
    """Else an installation next year is not the one that was tested."""
    lines = [line.split("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    loose = [line for line in lines if line and not re.match(r"[\w.-]+==[\w.]+( ;.*)?$", line)]
    assert loose == []


def test_requirements_satisfy_what_the_package_declares() -> None:
    """Else the tested set and the declared ranges contradict each other, and pip refuses one of them."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pinned = {}
    for line in (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.split(";")[0].strip().split("==")
            pinned[canonicalize_name(name)] = version
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    declared = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RUNTIME"
    )
    assert declared
    for text in declared:
        requirement = Requirement(text)
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier


def test_package_xml_names_the_ros_packages_that_are_imported() -> None:
    """Else rosdep leaves something out, and the node dies of an ImportError on the robot."""
    declared = {element.text for element in MANIFEST if element.tag.endswith("depend")}
    sources = [*ROOT.glob("flashrt_ros/**/*.py"), *LAUNCH_FILES]
    imported = {
        match
        for path in sources
        for match in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    ros = {
        name
        for name in imported
        if name.endswith("_msgs") or name in ("rclpy", "launch", "launch_ros", "cv_bridge")
    }
    assert {"rclpy", "sensor_msgs"} <= ros
    assert ros <= declared


def test_readme_names_only_commands_that_exist() -> None:
    """Else the first command that a newcomer types fails."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    used = set(re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(code_of(readme))))
    assert {"demo", "test"} <= used
    assert used <= targets
    modules = set(re.findall(r"python3? -m ((?:flashrt_ros|flashrt_kernels)[\w.]*)", readme))
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def code_of(markdown: str) -> list[str]:
    """Fenced blocks and `inline code`."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    return [*fenced, *re.findall(r"`([^`\n]+)`", markdown)]
