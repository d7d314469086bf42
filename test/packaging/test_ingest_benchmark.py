# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The benchmark of the ingest runs on the ingest of today."""

import numpy as np

from benchmarks.ingest import jpeg_image, measure_camera, raw_image


def test_every_frame_becomes_an_observation() -> None:
    """Else the figures of README are of an ingest that no longer is: a check that refuses these frames
    is found when somebody wants to measure, months later."""
    for message, transport in ((raw_image("rgb8"), "raw"), (jpeg_image(), "compressed")):
        times_ms = measure_camera(message, transport, frames=30)
        assert len(times_ms) == 30
        assert np.isfinite(times_ms).all()
