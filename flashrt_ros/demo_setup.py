# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the demo needs before its processes start: package files, environment, the checkpoint's name."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

CAMERAS = ("front", "wrist")

# What the demo's checkpoint is made of. The ranges of its actions lie well inside of the arm's limits.
CHECKPOINT = {
    "--size": "small",
    "--seed": "7",
    "--cameras": ",".join(CAMERAS),
    "--action-dim": "4",
    "--state-dim": "4",
    "--action-low": "-0.35,0.92,-1.8,0.025",
    "--action-high": "0.35,1.28,-1.3,0.055",
    "--state-low": "-1.0,0.5,-2.2,0.0",
    "--state-high": "1.0,1.5,-0.8,0.08",
}


# What somebody who works on a robot has in the shell, and what would lead the demo's processes elsewhere: to
# another middleware, through another profile, or to the machines of the real robot; or log lines of another
# form, in which the demo does not find the node's errors.
FOREIGN_VARIABLES = (
    "FASTDDS_BUILTIN_TRANSPORTS",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTDDS_ENVIRONMENT_FILE",
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "RCUTILS_COLORIZED_OUTPUT",
    "RCUTILS_CONSOLE_OUTPUT_FORMAT",
    "RMW_FASTRTPS_PUBLICATION_MODE",
    "RMW_FASTRTPS_USE_QOS_FROM_XML",
    "ROS_DISCOVERY_SERVER",
    "ROS_LOCALHOST_ONLY",
    "ROS_SECURITY_ENABLE",
    "ROS_STATIC_PEERS",
    "ROS_SUPER_CLIENT",
)


def package_file(name: str) -> Path:
    """A file of the package: in the source tree when run from there, else where pip or colcon put it."""
    for folder in (Path(__file__).resolve().parent.parent, Path(sys.prefix, "share", "flashrt_ros")):
        if (folder / name).exists():
            return folder / name
    from ament_index_python.packages import get_package_share_directory

    return Path(get_package_share_directory("flashrt_ros")) / name


def rclpy_version() -> str:
    """Version of the installed rclpy; "0" where there is none, as where only the kernels are tested."""
    try:
        return metadata.version("rclpy")
    except metadata.PackageNotFoundError:
        return "0"


def set_environment(domain: int) -> None:
    """Environment of this process and its children, before rclpy looks at it.

    A ROS domain of its own, on this computer only: the demo's trajectories must never reach a real robot.
    """
    for name in FOREIGN_VARIABLES:
        os.environ.pop(name, None)
    os.environ["RMW_IMPLEMENTATION"] = "rmw_fastrtps_cpp"
    os.environ["ROS_DOMAIN_ID"] = str(domain)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    # Without it Fast DDS loses most images. Jazzy (rclpy 7) reads another name than later releases.
    later = int(rclpy_version().split(".")[0]) >= 9
    name = "FASTDDS_DEFAULT_PROFILES_FILE" if later else "FASTRTPS_DEFAULT_PROFILES_FILE"
    os.environ[name] = str(package_file("config/fastdds_large_images.xml"))


def checkpoint_folder() -> Path:
    """Where the demo keeps its checkpoint: the name changes with the arguments and with what generates it."""
    # Found, not imported: that would import torch, and the demo's first line comes before.
    spec = find_spec("flashrt_kernels")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("flashrt_kernels is not installed beside flashrt_ros")
    package = Path(spec.submodule_search_locations[0])
    key = hashlib.sha256(repr(sorted(CHECKPOINT.items())).encode())
    for source in sorted([package / "make_checkpoint.py", *(package / "checkpoint").glob("*.py")]):
        key.update(source.read_bytes())
    return Path(".cache", f"demo_checkpoint_{key.hexdigest()[:16]}")


def device_refusal(device: str) -> str:
    """Why no policy can run on a device of this machine; empty when one can."""
    if device == "cpu":  # every version has it, and asking imports torch
        return ""
    from flashrt_kernels.backend import backend_of
    from flashrt_kernels.errors import DeviceError, KernelBuildError

    try:
        backend_of(device)
    except (DeviceError, KernelBuildError) as error:
        return str(error)
    return ""


def cpu_name() -> str:
    """The processor's name as Linux knows it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
