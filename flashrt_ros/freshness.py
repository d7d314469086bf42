# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When a message was taken, whether that is recent enough, and when to speak about it. Times are in ns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flashrt_ros.observation import NS_PER_S

CLOCK_TOLERANCE_NS: Final = NS_PER_S // 10
"""How far a stamp may lie ahead, or a clock go back, without a fault: /clock may tick as slowly as 10 Hz."""

QUIET_NS: Final = 10 * NS_PER_S
"""A fault that was silent for so long speaks again when it comes back."""


class StampFault(ValueError):
    """A stamp that `stamp_source: header` cannot use."""


@dataclass(frozen=True)
class Stamp:
    """When a message was taken; `warning` is set when its header could not be believed, `kind` says why."""

    ns: int
    kind: str = ""
    warning: str = ""


def header_ns(message: Any) -> int:
    """Stamp of a message's header, ns; the attributes are rclpy's and rosbags' alike."""
    stamp = message.header.stamp
    return int(stamp.sec) * NS_PER_S + int(stamp.nanosec)


def choose_stamp(stamped_ns: int, arrival_ns: int, stamp_source: str, where: str) -> Stamp:
    """The time of a message by `stamp_source`; `where` names source and topic in warnings.

    auto: the header's, but the arrival (with a warning) for a zero stamp (R19) and one in the future (R21).
    arrival: always the arrival. header: the header's; StampFault where it is unusable.
    """
    if stamp_source == "arrival":
        return Stamp(arrival_ns)
    ahead_ns = stamped_ns - arrival_ns
    if stamped_ns == 0:
        kind, problem = "zero stamp", "its stamp is zero"
    elif ahead_ns > CLOCK_TOLERANCE_NS:
        kind, problem = (
            "future stamp",
            f"its stamp lies {ahead_ns / NS_PER_S:.3f} s in the future (clocks differ)",
        )
    else:
        return Stamp(stamped_ns)
    if stamp_source == "header":
        raise StampFault(f"{where}: {problem}, which stamp_source: header cannot use; message dropped")
    return Stamp(arrival_ns, kind, f"{where}: {problem}; its arrival time is used")


def too_old(stamp_ns: int, arrival_ns: int, now_ns: int, max_age: float) -> str | None:
    """None while a sample is at most `max_age` s old, else why it is too old, with the numbers.

    A source that stopped and one whose clock is behind need different repairs, so they read differently.
    """
    age, silence = (now_ns - stamp_ns) / NS_PER_S, (now_ns - arrival_ns) / NS_PER_S
    if now_ns - stamp_ns <= max_age * NS_PER_S:
        return None
    if silence > max_age:
        return f"stopped: the last one came {silence:.2f} s ago, the limit is {max_age:g} s"
    return (
        f"too old: {age:.2f} s by its stamp, the limit is {max_age:g} s, although it came "
        f"{max(0.0, silence):.2f} s ago (slow transport, or clocks that differ: see stamp_source)"
    )


def went_back(before_ns: int | None, after_ns: int) -> bool:
    """True when a clock jumped back: a bag loop, a simulator's reset, a stepped wall clock (R20)."""
    return before_ns is not None and before_ns - after_ns > CLOCK_TOLERANCE_NS


class EdgeWarnings:
    """Passes a warning on when its fault begins, not while it lasts; `key` identifies source and kind."""

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self._last_ns: dict[tuple[str, str], int] = {}

    def fault(self, source: str, kind: str, text: str, now_ns: int) -> None:
        last_ns = self._last_ns.get((source, kind))
        self._last_ns[source, kind] = now_ns
        if last_ns is None or abs(now_ns - last_ns) >= QUIET_NS:
            self._warn(kind, text)
