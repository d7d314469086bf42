# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The newest image of one camera, and whether its images still change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flashrt_kernels.pixels import RawImage
from flashrt_ros.encodings import Convert
from flashrt_ros.freshness import header_ns, too_old
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.parameters import CameraConfig
from flashrt_ros.source_counts import Counted, Reason

_BLOCK: Final = 8192  # words of 8 bytes that are compared at once: live images differ within the first


@dataclass
class Sample:
    """One checked image; `raw` once a decision has asked for it, `seen` once its content was looked at."""

    message: Any
    convert: Convert
    stamp_ns: int
    arrival_ns: int
    raw: RawImage | None = None
    used: bool = False
    seen: bool = False


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two uint8 [n] hold the same; stops at the first block that differs (0.1 ms for a VGA image)."""
    if a.size != b.size:
        return False
    whole = a.size // 8 * 8
    words_a, words_b = a[:whole].view(np.uint64), b[:whole].view(np.uint64)
    for start in range(0, words_a.size, _BLOCK):
        if not np.array_equal(words_a[start : start + _BLOCK], words_b[start : start + _BLOCK]):
            return False
    return np.array_equal(a[whole:], b[whole:])


class Stillness:
    """R7: counts images in a row of one stamp, or of one content. `limit` images are frozen; 0: never.

    A simulated camera repeats its picture where nothing moves; a sensor never does, for its noise.
    """

    def __init__(self, limit: int, stamps_count: bool = True) -> None:
        """`stamps_count` is False where stamps are not to be believed."""
        self._limit = max(2, limit) if limit else 0  # one image alone is not alike to anything
        self._stamps_count = stamps_count
        self.clear()

    def clear(self) -> None:
        """Begin to count anew."""
        self._stamp_ns = 0
        self._content: np.ndarray | None = None  # uint8 [n], a view: it keeps one message alive
        self._same = {"stamp": 0, "content": 0}

    def look(self, message: Any) -> None:
        """Compare one more image with the one before; a stamp of zero is no stamp."""
        if not self._limit:
            return
        stamp_ns = header_ns(message) if self._stamps_count else 0
        content = np.frombuffer(message.data, np.uint8)
        same = {
            "stamp": stamp_ns != 0 and stamp_ns == self._stamp_ns,
            "content": self._content is not None and same_bytes(content, self._content),
        }
        self._same = {what: self._same[what] + 1 if alike else 1 for what, alike in same.items()}
        self._stamp_ns, self._content = stamp_ns, content

    def why(self) -> str | None:
        """What froze, with the number of images; None while they change."""
        what = max(self._same, key=self._same.__getitem__)
        if not self._limit or self._same[what] < self._limit:
            return None
        return f"frozen: {self._same[what]} images with the same {what}"


class CameraInput(Counted):
    """The newest image of one camera, and the last one that could be converted."""

    def __init__(self, config: CameraConfig, stamps_count: bool = True) -> None:
        super().__init__()
        self.config = config
        self.where = f"camera '{config.name}' on {config.topic}"
        self.newest: Sample | None = None
        self.good: Sample | None = None  # kept beside a newer one: that may turn out to be malformed
        self.stillness = Stillness(config.frozen_after, stamps_count)

    def waiting(self) -> int:
        unused = [sample for sample in (self.newest, self.good) if sample is not None and not sample.used]
        return len({id(sample) for sample in unused})

    def clear(self) -> None:
        self.newest = self.good = None
        self.stillness.clear()

    def look(self) -> None:
        """Note whether the newest image differs from the one looked at before."""
        if self.newest is not None and not self.newest.seen:
            self.newest.seen = True
            self.stillness.look(self.newest.message)

    def reasons(self, sample: Sample | None, now_ns: int) -> list[Reason]:
        """Why `sample` cannot serve; empty when it can."""
        name = self.config.name
        if sample is None and self.received == 0:
            return [(f"{self.where}: never seen", f"{name}: never seen")]
        if sample is None:
            last = f"; {self.last_problem}" if self.last_problem else " since the last reset"
            return [(f"{self.where}: no usable image{last}", f"{name}: no usable image")]
        why = too_old(sample.stamp_ns, sample.arrival_ns, now_ns, self.config.max_age)
        if why and self.still_dropping(now_ns, self.config.max_age):
            gap_s = (now_ns - sample.arrival_ns) / NS_PER_S
            text = f"{self.where}: no usable image for {gap_s:.2f} s; {self.last_problem}"
            return [(text, f"{name}: no usable image")]
        why = why or self.stillness.why()
        return [(f"{self.where} {why}", f"{name}: {why.partition(':')[0]}")] if why else []
