# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A small simulated arm with two cameras: what the demo and the tests drive."""
