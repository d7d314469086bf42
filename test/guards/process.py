# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A module run as a process with a guard off: `python -m test.guards.process INDEX MODULE ARGUMENTS…`.

INDEX is the guard's place in GUARDS. Nodes that are processes are started like this (`support.RUN_MODULE`).
"""

from __future__ import annotations

import runpy
import sys

from test.guards.guard import switched_off
from test.guards.table import GUARDS

if __name__ == "__main__":
    index, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    with switched_off(GUARDS[int(index)]):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
