# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A DDS domain of its own for every test process, and the Fast DDS profile that lets images through.

Set before anything imports rclpy; child processes inherit it.
"""

import fcntl
import signal
import tempfile
from pathlib import Path
from typing import IO

import pytest

from flashrt_ros.demo_setup import set_environment

# Domains above 101 use ports from which Linux gives out ephemeral ones; low numbers are what people use.
DOMAINS = range(40, 102)

_domain_lock: IO[str] | None = None  # open as long as the process lives


def pytest_configure(config: pytest.Config) -> None:
    global _domain_lock
    # A shell without job control starts what it puts into the background with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    domain, _domain_lock = lock_free_domain()
    set_environment(domain)


def lock_free_domain() -> tuple[int, IO[str]]:
    """A ROS_DOMAIN_ID that no other test process of this machine has, and the lock that says so."""
    for domain in DOMAINS:
        lock = Path(tempfile.gettempdir(), f"flashrt_ros_test_domain_{domain}.lock").open("w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return domain, lock
    raise pytest.UsageError(
        f"all ROS domains from {DOMAINS[0]} to {DOMAINS[-1]} are in use by other test runs"
    )
