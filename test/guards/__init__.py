# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The guards of the rows of robot-behaviour, and the proof that tests notice when one is off: __main__.py."""
