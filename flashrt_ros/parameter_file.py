# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""ROS parameter files without ROS: `replay` reads the very file that the node is started with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from flashrt_ros.parameter_table import ConfigError


def load_parameter_file(path: str | Path, node_name: str = "policy") -> dict[str, Any]:
    """Read a ROS parameter file into a flat dict (nested maps joined with dots) for the node `node_name`.

    Sections `/**`, the node's name, its full name and namespace sections count, later ones win.
    A bare `node_name` fits any namespace; when sections of several namespaces would fit, write it in full.
    Raises ConfigError naming the file when it is no parameter file or no section fits.
    """
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read parameter file {path}: {error}") from error
    sections = dict(_sections(tree, ""))
    if not sections:
        raise ConfigError(
            f"{path} is no ROS parameter file: it needs a section like `/**: ros__parameters: …`"
        )
    fitting = [name for name in sections if _section_fits(name, node_name)]
    plain = [name for name in fitting if "*" not in name]
    if not fitting or len(plain) > 1:
        problem = (
            f"sections {', '.join(plain)} all fit"
            if plain
            else f"no section fits (it has {', '.join(sections)})"
        )
        raise ConfigError(
            f"{path}: {problem} node '{node_name}'; give the node's full name, like /left/policy"
        )
    flat: dict[str, Any] = {}
    for name in fitting:
        if not isinstance(sections[name], dict):
            raise ConfigError(
                f"{path}: ros__parameters of section {name} is {sections[name]!r}; it must be a map"
            )
        flat.update(_flatten(sections[name], ""))
    return flat


def _sections(tree: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """(full node name pattern, parameters) of every section in the file's order."""
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if key == "ros__parameters":
            yield prefix or "/", value
        else:
            yield from _sections(value, f"{prefix}/{str(key).strip('/')}")


def _section_fits(section: str, node_name: str) -> bool:
    """`*` stands for one name, `**` for any number of them."""
    parts = section.strip("/").split("/")
    if not node_name.startswith("/"):
        return parts[-1] in ("*", "**", node_name)
    regex = "".join({"**": r"(/[^/]+)*", "*": r"/[^/]+"}.get(part, "/" + re.escape(part)) for part in parts)
    return re.fullmatch(regex, node_name) is not None


def _flatten(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
