# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one way from a chunk to the robot (R45): plan, check, send; and to make it stop. No ROS.

Every command of the node goes through a `Commands`: chunks (`accept`), commands of every moment (`tick`) and
the stop action (`stop`). Times are ns of the monotonic clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from flashrt_ros.cartesian import StopAction
from flashrt_ros.channels import Channel, Proposal
from flashrt_ros.chunk import steps_consumed
from flashrt_ros.observation import NS_PER_MS, NS_PER_S, Decision
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.planned import Refused
from flashrt_ros.robot_view import RobotView
from flashrt_ros.safety import Safety
from flashrt_ros.trajectory import Trajectory

EXPIRED = "expired"
"""`Accepted.reason` of a chunk of which every step was in the past."""
OVERTAKEN = "the robot was stopped while it was decided"
"""`Accepted.reason` of a chunk that was decided before the last stop."""
STOPS: Final[dict[str, StopAction | None]] = {"hold": "hold", "decelerate": "decelerate", "none": None}
STORM_SHARE = 0.5  # of the points of a chunk that limits changed


class Sender(Protocol):
    """What puts commands on the wire."""

    def trajectory(self, channel: Channel, trajectory: Trajectory) -> None: ...
    def moment(self, channel: Channel, values: np.ndarray, velocities: np.ndarray) -> None: ...
    def forget(self) -> None:
        """Somebody else may have moved the robot: what was sent last is no reason not to send it again."""


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
        robot: RobotView,
    ) -> None:
        self.channels = tuple(channels)
        self.safety = safety
        self._config, self._send = config, send
        self._robot = robot
        self._lock = threading.RLock()
        self._committed_ns: int | None = None  # of the chunk that the robot follows
        self._moving_ns: int | None = None  # since when it moves without a pause
        self._stop_ns: int | None = None  # when it was stopped last
        self._stopped = True
        self._at_rest = True  # whether the last command of a stop was sent
        self._yielded = False  # whether commands were withheld, so that somebody else may move the robot
        self._lag: dict[str, float] = {}
        self.stops = 0
        self.last_stop = ""
        """Why the robot was stopped last."""
        self.expired = 0
        """Chunks of which every step was in the past (R36)."""
        self.refused = 0
        self.refusal = ""
        """Why the newest chunk was refused; "" when it was not."""
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
        self._send.forget()
        self._committed_ns, self._moving_ns, self._stopped, self._at_rest = None, None, True, True
        self._yielded, self.refusal = False, ""

    # ---- a chunk ----

    def accept(self, decision: Decision, consumed: int, now_ns: int) -> Accepted:
        """Plan the chunk of a decision, of which `consumed` rows are past, and send what is to be sent.

        All groups or none. Nothing of a decision that began before the robot was stopped.
        """
        with self._lock:
            observed = self._look(decision)
            closed = self.safety.closed(now_ns)
            if not closed:
                consumed = min(consumed, self._consumed(decision, now_ns))
            else:
                self._stop(closed, now_ns)
                self._yielded = True
            if self._is_overtaken(decision):
                return Accepted(False, OVERTAKEN, consumed=consumed)
            self._take_over(now_ns)
            if closed and not self._config.shadow:
                return Accepted(False, closed, consumed=consumed)
            plans = self._plan(decision.actions, consumed, now_ns, observed)
            if isinstance(plans, Refused):
                return self._refuse(plans, consumed, now_ns)
            if not plans:
                self.expired += 1
                return Accepted(False, EXPIRED, consumed=consumed)
            self._commit(plans, now_ns, send=not closed)
            return Accepted(not closed, closed, consumed=consumed)

    def _is_overtaken(self, decision: Decision) -> bool:
        """Whether the robot was stopped for a reason that this decision cannot know of."""
        return self._stop_ns is not None and decision.started_ns <= self._stop_ns

    def _consumed(self, decision: Decision, now_ns: int) -> int:
        """Steps of motion since the observation (R29): a robot that stood has consumed nothing."""
        if self._stopped or self._moving_ns is None or not self.channels:
            return 0
        observed_ns = decision.started_ns - round(decision.age_ms * NS_PER_MS)
        end_ns = now_ns + min(0, max(channel.over_ns(now_ns) for channel in self.channels))
        moved_s = (end_ns - max(observed_ns, self._moving_ns)) / NS_PER_S
        return steps_consumed(moved_s, self._config.action_rate_hz, first=False)

    def _look(self, decision: Decision) -> list[np.ndarray | None]:
        """Where the robot was measured, for each channel; notes how far it is from what was commanded (R39).

        In shadow that is the distance between the policy and whoever drives.
        """
        states, observation = self._config.state_groups, decision.observation
        observed = [channel.observed(states, observation) for channel in self.channels]
        lag: dict[str, float] = {}
        for channel, positions in zip(self.channels, observed, strict=True):
            lag |= channel.lag(positions, decision.started_ns)
        self._lag = lag
        return observed

    def _take_over(self, now_ns: int) -> None:
        """While no commands flowed somebody else may have moved the robot: begin where it is measured."""
        if self._yielded and self.is_settled() and (self._config.shadow or self._left_s(now_ns) <= 0.0):
            self._forget()

    def _plan(
        self, actions: np.ndarray, consumed: int, now_ns: int, observed: list[np.ndarray | None]
    ) -> list[tuple[Channel, Proposal]] | Refused:
        plans = []
        for channel, seen in zip(self.channels, observed, strict=True):
            # A slow policy's observation is old: a robot that somebody else may have moved is looked at anew.
            anew = channel.is_moving_nothing(now_ns)
            start = channel.measured(self._config.state_groups, self._robot) if anew else seen
            proposal = channel.plan(actions, consumed, now_ns, seen, start)
            if isinstance(proposal, Refused):
                unknown = proposal.kind == "no_state" and channel.joints
                hint = f": {self._robot.missing(channel.joints)}" if unknown else ""
                return Refused(proposal.kind, f"group '{channel.group.name}': {proposal.reason}{hint}")
            if proposal is None:
                return []
            plans.append((channel, proposal))
        return plans

    def _refuse(self, refused: Refused, consumed: int, now_ns: int) -> Accepted:
        self.refused += 1
        self.refusal = refused.reason
        if refused.kind != "no_state":  # nobody knows where the robot is: no fault of the policy
            self.safety.refused(refused.reason)
        latched = self.safety.closed(now_ns)
        if latched:
            self._stop(latched, now_ns)
        return Accepted(False, refused.reason, fault=True, consumed=consumed)

    def _commit(self, plans: list[tuple[Channel, Proposal]], now_ns: int, send: bool) -> None:
        if self._stopped or self._moving_ns is None or self._left_s(now_ns) <= 0.0:
            self._moving_ns = now_ns
        # Before anything is sent: should a sender fail, what went out before it is stopped.
        self._committed_ns, self._stopped, self._at_rest, self.refusal = now_ns, not send, not send, ""
        for channel, proposal in plans:
            channel.commit(proposal)
        for channel, proposal in plans:
            if send and not channel.streamed and proposal.trajectory is not None:
                self._send_trajectory(channel, proposal.trajectory)
        points = sum(proposal.points for _, proposal in plans)
        clipped = sum(proposal.clipped for _, proposal in plans)
        names = {name for _, proposal in plans for name in proposal.names}
        self.clipped += clipped
        if send:
            self.safety.accepted(clipped >= STORM_SHARE * points > 0, ", ".join(sorted(names)))

    def _send_trajectory(self, channel: Channel, trajectory: Trajectory) -> None:
        """The last look at what leaves: not finite is a defect of ours, and not sent."""
        _require_finite(channel, trajectory.positions, trajectory.velocities)
        self._send.trajectory(channel, trajectory)

    # ---- every moment ----

    def tick(self, now_ns: int) -> str:
        """One control period: stop when the robot must not move, send the commands of this moment.

        Returns why the robot was stopped just now, "" when it was not.
        """
        with self._lock:
            closed = self.safety.closed(now_ns)
            self._yielded |= bool(closed)
            told = self._stop(closed, now_ns) if closed else ""
            if self._at_rest or self._config.shadow:
                return told
            # Asked before: what is sent now is then the end of the stop, a velocity of 0 among others.
            self._at_rest = self._stopped and self._left_s(now_ns) <= 0.0
            self._for_all(self._send_moment, now_ns)
            return told

    def _send_moment(self, channel: Channel, now_ns: int) -> None:
        commanded = channel.motion.commanded(now_ns) if channel.streamed else None
        if commanded is not None:
            _require_finite(channel, *commanded)
            self._send.moment(channel, *commanded)

    def _left_s(self, now_ns: int) -> float:
        return max((channel.left_s(now_ns) for channel in self.channels), default=0.0)

    # ---- stopping ----

    def stop(self, reason: str, now_ns: int) -> bool:
        """The stop action, at once; False when there was nothing to stop."""
        with self._lock:
            return bool(self._stop(reason, now_ns))

    def _stop(self, reason: str, now_ns: int) -> str:
        if self._stopped:
            return ""
        self._stopped, self._stop_ns = True, now_ns
        if self._left_s(now_ns) <= 0.0:  # the chunk had ended: a controller holds its last point by itself
            self._for_all(self._send_moment, now_ns)
            return ""
        self.stops += 1
        self.last_stop = reason
        self._for_all(self._stop_channel, now_ns)
        return reason

    def _for_all(self, do: Callable[[Channel, int], None], now_ns: int) -> None:
        """Each channel, also behind one that fails; the first failure is raised then."""
        errors = []
        for channel in self.channels:
            try:
                do(channel, now_ns)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _stop_channel(self, channel: Channel, now_ns: int) -> None:
        action = STOPS[self._config.stop_action]
        if action is None:
            channel.motion.reset()
            self._send_moment(channel, now_ns)  # a velocity is 0 then; of positions nothing is commanded
            return
        stopped = channel.motion.stop(now_ns, action, self._config.stop_time)
        if isinstance(stopped, Trajectory) and not channel.streamed:
            self._send_trajectory(channel, stopped)
        else:
            self._send_moment(channel, now_ns)

    def is_settled(self) -> bool:
        """Whether nobody needs to play a stop action any more: a controller plays its own trajectories."""
        with self._lock:
            return self._at_rest or not any(channel.streamed for channel in self.channels)

    # ---- what others ask ----

    def remaining_s(self, now_ns: int) -> float:
        """Seconds of the present chunk that the robot has not consumed; 0 when it stands."""
        with self._lock:
            return 0.0 if self._stopped else self._left_s(now_ns)

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

    @property
    def lag(self) -> dict[str, float]:
        """Joint → commanded minus measured position in the robot's units, at the newest observation."""
        return self._lag


def _require_finite(channel: Channel, *numbers: np.ndarray) -> None:
    if not all(np.isfinite(values).all() for values in numbers):
        raise FloatingPointError(f"a command of group '{channel.group.name}' is not finite; it was not sent")
