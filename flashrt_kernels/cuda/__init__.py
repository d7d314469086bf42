# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The kernels on NVIDIA GPUs: sources, compiled families, launches, captured graphs."""
