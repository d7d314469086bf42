# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one way from a chunk to the robot (R45): plan, check, send; and to make it stop. No ROS.

Every command of the node goes through a `Commands`: chunks (`accept`), commands of every moment (`tick`) and
the stop action (`stop`). Times are ns of the monotonic clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flashrt_ros.channels import Channel, Refused
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.safety import Safety

EXPIRED = "expired"
"""`Accepted.reason` of a chunk of which every step was in the past."""
STORM_SHARE = 0.5  # of the points of a chunk that limits changed

Measured = Callable[[Sequence[str]], np.ndarray | None]
"""Names of joints → their measured positions [J] in the robot's units; None where one is unknown or old."""


class Sender(Protocol):
    """What puts commands on the wire."""

    def trajectory(self, channel: Channel, planned: Any) -> None: ...
    def moment(self, channel: Channel, command: Any) -> None: ...


@dataclass(frozen=True)
class Accepted:
    """What became of a chunk. `sent`: commands went out; else `reason` says why not, and `fault` that it is
    one (refused, not merely closed or late). `consumed` rows of the chunk were in the past."""

    sent: bool
    reason: str = ""
    fault: bool = False
    consumed: int = 0


class Commands:
    """All channels of a node; one lock, so that a stop and a chunk never mix."""

    def __init__(
        self,
        channels: Sequence[Channel],
        safety: Safety,
        config: NodeConfig,
        send: Sender,
        measured: Measured,
    ) -> None:
        self.channels = tuple(channels)
        self.safety = safety
        self._config, self._send, self._measured = config, send, measured
        self._lock = threading.RLock()
        self._committed_ns: int | None = None  # of the chunk that the robot follows
        self._stopped = True
        self._lag: dict[str, float] = {}
        self.stops = 0
        self.last_stop = ""
        """Why the robot was stopped last."""
        self.expired = 0
        """Chunks of which every step was in the past (R36)."""
        self.refused = 0
        self.clipped = 0
        """Points of joints that limits changed."""

    def reset(self) -> None:
        """Activate: the robot stands where it is measured."""
        with self._lock:
            self._forget()
            self.safety.reset()

    def _forget(self) -> None:
        for channel in self.channels:
            channel.motion.reset()
        self._committed_ns, self._stopped = None, True

    # ---- a chunk ----

    def accept(self, actions: np.ndarray, consumed: int, observed_ns: int, now_ns: int) -> Accepted:
        """Plan actions [H, D], of which `consumed` rows are past, and send what is to be sent.

        All groups or none. `observed_ns` is when the measured positions were taken.
        """
        with self._lock:
            self._note_lag(observed_ns)
            closed = self.safety.closed(now_ns)
            if closed:
                self._yield_robot(closed, now_ns)
            if closed and not self._config.shadow:
                return Accepted(False, closed)
            plans = self._plan(actions, consumed, now_ns)
            if isinstance(plans, Refused):
                return self._refuse(plans.reason, now_ns)
            if not plans:
                self.expired += 1
                return Accepted(False, EXPIRED, consumed=consumed)
            self._commit(plans, now_ns, send=not closed)
            return Accepted(not closed, closed)

    def _yield_robot(self, closed: str, now_ns: int) -> None:
        """No commands: stop, and when the robot stands begin the next plan where it is measured, because
        somebody else may move it meanwhile."""
        if not self._stop(closed, now_ns) and (self._config.shadow or self._resting(now_ns)):
            for channel in self.channels:
                channel.motion.reset()

    def _plan(self, actions: np.ndarray, consumed: int, now_ns: int) -> list[tuple[Channel, Any]] | Refused:
        plans = []
        for channel in self.channels:
            start = self._measured(channel.joints) if channel.joints else None
            rows = channel.targets(actions, start)
            if isinstance(rows, Refused):
                return rows
            planned = channel.motion.plan(rows, consumed, now_ns, start)
            if isinstance(planned, Refused):
                return Refused(f"group '{channel.group.name}': {planned.reason}")
            if planned is None:
                return []
            plans.append((channel, planned))
        return plans

    def _refuse(self, reason: str, now_ns: int) -> Accepted:
        self.refused += 1
        self.safety.refused(reason)
        latched = self.safety.closed(now_ns)
        if latched:
            self._stop(latched, now_ns)
        return Accepted(False, reason, fault=True)

    def _commit(self, plans: list[tuple[Channel, Any]], now_ns: int, send: bool) -> None:
        points = changed = 0
        names: set[str] = set()
        for channel, planned in plans:
            channel.motion.commit(planned)
            if send and not channel.streamed:
                self._send.trajectory(channel, planned)
            points += planned.points
            changed += planned.clipped
            names.update(planned.clipped_names)
        self.clipped += changed
        self._committed_ns, self._stopped = now_ns, not send
        if send:
            self.safety.accepted(changed >= STORM_SHARE * points > 0, ", ".join(sorted(names)))

    # ---- every moment ----

    def tick(self, now_ns: int) -> str:
        """One control period: stop when the robot must not move, send the commands of this moment.

        Returns why the robot was stopped just now, "" when it was not.
        """
        with self._lock:
            if self._stopped and self._resting(now_ns):
                return ""
            closed = self.safety.closed(now_ns)
            told = self._stop(closed, now_ns) if closed else ""
            for channel in self.channels:
                if channel.streamed:
                    self._send.moment(channel, channel.motion.command(now_ns))
            return told

    def _resting(self, now_ns: int) -> bool:
        return all(channel.motion.remaining_steps(now_ns) <= 0 for channel in self.channels)

    # ---- stopping ----

    def stop(self, reason: str, now_ns: int) -> bool:
        """The stop action, at once; False when there was nothing to stop."""
        with self._lock:
            return bool(self._stop(reason, now_ns))

    def _stop(self, reason: str, now_ns: int) -> str:
        if self._stopped:
            return ""
        self._stopped = True
        if self._resting(now_ns):  # the chunk had ended: the robot holds its last point
            return ""
        self.stops += 1
        self.last_stop = reason
        for channel in self.channels:
            self._stop_channel(channel, now_ns)
        return reason

    def _stop_channel(self, channel: Channel, now_ns: int) -> None:
        action = self._config.stop_action
        if action == "none":
            channel.motion.reset()
            return
        planned = channel.motion.stop(now_ns, action, self._config.stop_time, None)
        if planned is None:
            return
        if channel.streamed:
            self._send.moment(channel, channel.motion.command(now_ns))
        else:
            self._send.trajectory(channel, planned)

    def settle_s(self, now_ns: int) -> float:
        """Seconds until the stop action of streamed channels is over: nobody else plays it to its end."""
        with self._lock:
            left = [c.motion.remaining_steps(now_ns) for c in self.channels if c.streamed]
        return max([0.0, *left]) / self._config.action_rate_hz

    # ---- what others ask ----

    def remaining_s(self, now_ns: int) -> float:
        """Seconds of the present chunk that the robot has not consumed; 0 when it stands."""
        with self._lock:
            if self._stopped:
                return 0.0
            left = max(channel.motion.remaining_steps(now_ns) for channel in self.channels)
        return max(0.0, left) / self._config.action_rate_hz

    def replan_in_s(self, now_ns: int) -> float:
        """Seconds until `replan_after` steps of the present chunk are consumed; 0 when the robot stands."""
        with self._lock:
            if self._stopped or self._committed_ns is None:
                return 0.0
            due_s = (
                self._config.replan_after / self._config.action_rate_hz
                - (now_ns - self._committed_ns) / NS_PER_S
            )
        return max(0.0, min(due_s, self.remaining_s(now_ns)))

    def _note_lag(self, observed_ns: int) -> None:
        """Commanded minus measured (R39), at the time of the measurement; in shadow it is the divergence
        between the policy and whoever drives."""
        lag: dict[str, float] = {}
        for channel in self.channels:
            measured = self._measured(channel.joints) if channel.joints else None
            if measured is None:
                continue
            values = channel.motion.lag(measured, observed_ns)
            if values is not None:
                lag |= dict(zip(channel.joints, values.tolist(), strict=True))
        self._lag = lag

    @property
    def lag(self) -> dict[str, float]:
        """Joint → commanded minus measured position in the robot's units, at the newest observation."""
        return self._lag
