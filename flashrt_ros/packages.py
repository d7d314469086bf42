# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Packages that only some configurations need, and that no Python package registry has."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from flashrt_ros.parameters import ConfigError, NodeConfig

NEEDED: Final = {
    "tf": ("tf2_ros", "ros-<distro>-tf2-ros-py"),
    "pose": ("scipy.spatial.transform", "python3-scipy"),
    "gripper_command": ("control_msgs.action", "ros-<distro>-control-msgs"),
    "pointcloud": ("sensor_msgs_py.point_cloud2", "ros-<distro>-sensor-msgs-py"),
}
"""Source of a state group, output of an action group, or transport of a camera → module that it needs, Debian
package that has it."""


def require_packages(config: NodeConfig) -> None:
    """Raises ConfigError where a package is missing: who needs it, and what to install."""
    for owner, kind in _users(config):
        module, package = NEEDED[kind]
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{owner} needs the Python module {module}, which is not there ({error}): "
                f"apt install {package}"
            ) from error


def _users(config: NodeConfig) -> Iterator[tuple[str, str]]:
    for group in config.state_groups:
        if group.source in NEEDED:
            yield f"state group '{group.name}' (source {group.source})", group.source
        if group.source == "tf":
            yield f"state group '{group.name}' (source tf)", "pose"
    for action in config.action_groups:
        owner = f"action group '{action.name}'"
        if action.output in NEEDED:
            yield f"{owner} (output {action.output})", action.output
        if action.space in ("eef_pose", "eef_delta"):
            yield f"{owner} (space {action.space})", "pose"
    for camera in config.cameras:
        if camera.transport in NEEDED:
            yield f"camera '{camera.name}' (transport {camera.transport})", camera.transport
