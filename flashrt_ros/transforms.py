# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The pose of one frame in another as a source, beside the topics of `sources.py`.

tf2_ros has no wheel: it is imported where a state group needs it, which `require_packages` checked before.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, Final

from rclpy.node import Node
from rclpy.time import Time

from flashrt_ros.sources import Sample, Traffic

STATIC: Final = (0, 0)
"""Stamp of a chain of static transforms: it is true at every time."""


class TransformTree:
    """What /tf and /tf_static say, for all groups of a node."""

    def __init__(self, node: Node) -> None:
        tf2_ros = importlib.import_module("tf2_ros")
        self.failure: type[Exception] = tf2_ros.TransformException
        self.buffer: Any = tf2_ros.Buffer()
        self._listener: Any = tf2_ros.TransformListener(self.buffer, node)

    def close(self) -> None:
        """Destroy the subscriptions; may be called once for each group."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.unregister()


class TransformSource:
    """The newest transform of one pair of frames; the same interface as `sources.Source`."""

    def __init__(self, name: str, tree: TransformTree, frame: str, child_frame: str) -> None:
        self.name, self.topic = name, f"tf {frame} → {child_frame}"
        self.traffic = Traffic()
        self._tree, self._frame, self._child = tree, frame, child_frame
        self._stamp: tuple[int, int] | None = None
        self._failure = ""

    def drain(self) -> list[Sample]:
        """The newest transform, if there is one that was not given before.

        tf keeps no times of arrival: the moment at which it is found counts.
        """
        try:
            transform = self._tree.buffer.lookup_transform(self._frame, self._child, Time())
        except self._tree.failure as error:
            self._failure = str(error)
            return []
        received_ns = time.time_ns()
        stamp = (int(transform.header.stamp.sec), int(transform.header.stamp.nanosec))
        if stamp == self._stamp and stamp != STATIC:
            return []
        self._stamp = stamp
        self.traffic.note({}, received_ns)
        return [Sample(transform, received_ns)]

    def conflicts(self) -> list[str]:
        """None: the listener of tf2_ros has its own QoS."""
        return []

    def silence(self) -> str | None:
        """What tf says of the two frames while it has never given a transform."""
        return None if self.traffic.newest_ns else f"{self.topic}: {self._failure or 'not asked yet'}"

    def close(self) -> None:
        """Stop listening."""
        self._tree.close()
