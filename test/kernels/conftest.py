# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One torch thread: the tensors here are tiny, and threads that wait for each other cost ten times more."""

import torch

from test.kernels.noted_gpu import without_gpu as without_gpu

torch.set_num_threads(1)
