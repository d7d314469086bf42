# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""README and docs are the first thing a newcomer believes: what they show must exist and run."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from flashrt_kernels.checkpoint.recipe import Recipe
from flashrt_kernels.make_checkpoint import make_checkpoint

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


def test_readme_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost otherwise: the first lines of Python that a user tries fail."""
    monkeypatch.chdir(tmp_path)
    make_checkpoint("checkpoint", Recipe(size="tiny", action_dim=7, state_dim=7, cameras=("front", "wrist")))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "README.md", "exec"), {})
    assert "(8, 7)" in capsys.readouterr().out
