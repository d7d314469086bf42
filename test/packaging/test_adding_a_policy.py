# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""docs/adding_a_policy.md speaks of the code as it is."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding_a_policy.md").read_text(encoding="utf-8")
SOURCES = [*(ROOT / "flashrt_kernels").rglob("*.py"), *(ROOT / "test").rglob("*.py")]


def test_files_exist() -> None:
    """Whoever adds a policy opens them one after another."""
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(paths) > 20
    missing = [
        path
        for path in paths
        if not (ROOT / path).exists() and not (ROOT / "flashrt_kernels" / path).exists()
    ]
    assert missing == []


def test_names_exist() -> None:
    """A function that was renamed sends the reader on a search."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    names = set(re.findall(r"`([A-Za-z_]+)`", PAGE))
    assert {"smolvla_tensors", "PIPELINES", "LEROBOT", "derived", "compose_vision"} <= names
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
