# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Make the CMake files of the ros-* wheels usable on this machine.

Their exported targets name the include directories of the Python that built them, /opt/python/cpXY-cpXY/…;
rosidl_generate_interfaces() then fails on paths that do not exist. Idempotent.

Usage: python tools/fix_ros_wheels.py    (with the Python of the virtual environment that holds the wheels)
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy

BUILD_PYTHON = r"/opt/python/cp\d+-cp\d+t?"
REPLACEMENTS = {
    rf"{BUILD_PYTHON}/lib/python3\.\d+t?/site-packages/numpy/_core/include": numpy.get_include(),
    rf"{BUILD_PYTHON}/include/python3\.\d+t?": sysconfig.get_path("include"),
}


def fix(prefix: Path) -> int:
    """Rewrites <prefix>/share/*/cmake/*.cmake; returns how many files changed."""
    changed = 0
    for file in sorted(prefix.glob("share/*/cmake/*.cmake")):
        old = new = file.read_text(encoding="utf-8")
        for pattern, path in REPLACEMENTS.items():
            new = re.sub(pattern, path.replace("\\", r"\\"), new)
        if new != old:
            file.write_text(new, encoding="utf-8")
            changed += 1
    return changed


if __name__ == "__main__":
    print(f"CMake files of the ROS wheels: {fix(Path(sys.prefix))} rewritten")
