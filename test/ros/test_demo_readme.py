# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""README and docs are the first thing a newcomer believes: what they show must exist and run."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from flashrt_kernels import load_policy
from flashrt_kernels.make_checkpoint import main as make_checkpoint
from flashrt_ros.parameters import NodeConfig, load_parameter_file

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Lost otherwise: a reader clicks and finds nothing."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_launch_files_exist(page: Path) -> None:
    """Lost otherwise: a command copied from the page does not start."""
    text = page.read_text(encoding="utf-8")
    modules = set(re.findall(r"-m (flashrt_\w+(?:\.\w+)+)", text))
    assert [name for name in modules if find_spec(name) is None] == []
    launched = set(re.findall(r"ros2 launch flashrt_ros (\S+)", text))
    assert [name for name in launched if not (ROOT / "launch" / name).exists()] == []


def test_readme_commands_are_checked_at_all() -> None:
    """Lost otherwise: the two tests above pass because they find nothing."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "-m flashrt_ros.replay" in text
    assert "ros2 launch flashrt_ros policy.launch.py" in text


def test_readme_python_example_runs_with_the_readme_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost otherwise: the first lines of Python that a user tries fail, or do not fit the checkpoint."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"-m flashrt_kernels.make_checkpoint (.+)", readme)
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert make_checkpoint(command.replace("--size small", "--size tiny").split()) == 0
    exec(compile(example, "README.md", "exec"), {})
    assert "(8, 5)" in capsys.readouterr().out


def test_readme_checkpoint_fits_the_example_parameter_file(tmp_path: Path) -> None:
    """Lost otherwise: who follows the README in order is refused by names that do not match."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"-m flashrt_kernels.make_checkpoint pi05 \S+ (.+)", readme)
    folder = tmp_path / "checkpoint"
    assert (
        make_checkpoint(["pi05", str(folder), *command.replace("--size small", "--size tiny").split()]) == 0
    )
    parameters = load_parameter_file(ROOT / "config" / "policy.yaml") | {"checkpoint": str(folder)}
    policy = load_policy(folder)
    notes = NodeConfig.from_dict(parameters).check_policy(policy)  # raises ConfigError where names differ
    assert [note.rpartition(" ")[2] for note in notes] == ["front", "wrist"]
    policy.close()
