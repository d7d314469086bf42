# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Measurements of what the project promises; `python -m benchmarks` runs them all."""
