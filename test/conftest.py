# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A DDS domain of its own for every test process, and the Fast DDS profile that lets images through.

Set before anything imports rclpy; child processes inherit it.
"""

import fcntl
import os
import tempfile
from importlib import metadata
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "config" / "fastdds_large_images.xml"
# Domains above 101 use ports from which Linux gives out ephemeral ones; low numbers are what people use.
DOMAINS = range(40, 102)

_domain_lock: IO[str] | None = None  # open as long as the process lives


def pytest_configure(config: pytest.Config) -> None:
    global _domain_lock
    _domain_lock = lock_free_domain()
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ[profile_variable()] = str(PROFILE)


def lock_free_domain() -> IO[str]:
    """Sets ROS_DOMAIN_ID to a number that no other test process of this machine has."""
    for domain in DOMAINS:
        lock = Path(tempfile.gettempdir(), f"flashrt_ros_test_domain_{domain}.lock").open("w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        return lock
    raise pytest.UsageError(
        f"all ROS domains from {DOMAINS[0]} to {DOMAINS[-1]} are in use by other test runs"
    )


def profile_variable() -> str:
    """Fast DDS 3 (ROS 2 Kilted) and Fast DDS 2 (Jazzy) read differently named variables."""
    try:
        rclpy_major = int(metadata.version("ros-rclpy").split(".")[0])
    except metadata.PackageNotFoundError:  # ROS from apt
        return (
            "FASTRTPS_DEFAULT_PROFILES_FILE"
            if os.environ.get("ROS_DISTRO") == "jazzy"
            else "FASTDDS_DEFAULT_PROFILES_FILE"
        )
    return "FASTDDS_DEFAULT_PROFILES_FILE" if rclpy_major >= 9 else "FASTRTPS_DEFAULT_PROFILES_FILE"
