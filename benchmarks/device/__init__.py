# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Parts of `benchmarks.run`: what a GPU can do, whether engines agree, how long each of them takes."""
