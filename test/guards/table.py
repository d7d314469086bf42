# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""All guards. A new one is an entry in one of these tables, or in one of its own; a row may have several.

    Guard("R12", ROWS + "R12_…", "flashrt_ros.joints:JointTracker._layout", edited("old text", "new text"))

`make guards ARGS=R12` runs those of one row, `ARGS="R12 --control"` their tests with everything on.
"""

from __future__ import annotations

from typing import Final

from test.guards.checkpoints import CHECKPOINTS
from test.guards.chunks import CHUNKS
from test.guards.clocks import CLOCKS
from test.guards.guard import Guard
from test.guards.images import IMAGES
from test.guards.joints import JOINTS
from test.guards.lifecycle import LIFECYCLE
from test.guards.motion import MOTIONS
from test.guards.node import NODE_GUARDS
from test.guards.sources import SOURCE_GUARDS
from test.guards.spaces import SPACES

GUARDS: Final[tuple[Guard, ...]] = (
    *IMAGES,
    *JOINTS,
    *SOURCE_GUARDS,
    *CLOCKS,
    *CHUNKS,
    *MOTIONS,
    *SPACES,
    *NODE_GUARDS,
    *LIFECYCLE,
    *CHECKPOINTS,
)

UNGUARDED: Final[dict[str, str]] = {}
"""Rows whose tests have no guard that could be switched off → why."""
