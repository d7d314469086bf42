# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The picture of docs/motion.md: chunks that follow one another, executed by a trajectory controller.

Usage: python -m tools.draw_motion [docs/images/motion_seam.png]

One joint, three chunks that do not quite agree. Both ways go through the model of joint_trajectory_controller
that the tests use; what is drawn is what it commands.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from flashrt_ros.limits import JointLimits
from flashrt_ros.motion import JointMotion, Planned
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.sim.controller import JointTrajectoryController

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "motion_seam.png"
NAME, RATE_HZ, STEPS, BLEND_STEPS = "elbow", 20.0, 16, 5
DT_S = 1.0 / RATE_HZ
SENT_S, CONSUMED, OFFSETS = (0.0, 0.42, 0.87), (0, 2, 2), (0.0, 0.07, -0.05)  # of the three chunks
MAX_VELOCITY = 1.2  # rad/s
END_S, SAMPLES = 1.6, 3201
INK, RAW, SENT, SEAM = "#222222", "#d1495b", "#00798c", "#9a9a9a"


def chunk(index: int) -> np.ndarray:
    """Rows [STEPS, 1] of a chunk: the same wave for all, each shifted as policies shift theirs."""
    begin_s = SENT_S[index] - CONSUMED[index] * DT_S
    times = begin_s + DT_S * np.arange(1, STEPS + 1)[:, None]
    rows: np.ndarray = 0.35 * np.sin(2.2 * times) + OFFSETS[index]
    return rows


def sampled(controller: JointTrajectoryController, begin_s: float, end_s: float) -> np.ndarray:
    """time, position, velocity [n, 3] as commanded, before the next trajectory comes."""
    times = np.linspace(0.0, END_S, SAMPLES)
    times = times[(times >= begin_s) & (times < end_s)]
    states = [controller.sample(float(time)) for time in times]
    return np.array([(time, q[0], v[0]) for time, (q, v) in zip(times, states, strict=True)])


def raw() -> np.ndarray:
    """Rows sent as they are, positions only, each chunk when it is there: what many programs do."""
    controller = JointTrajectoryController([NAME], np.zeros(1))
    parts = []
    for index, (now_s, end_s) in enumerate(zip(SENT_S, (*SENT_S[1:], END_S), strict=True)):
        rows = chunk(index)[CONSUMED[index] :]
        times = DT_S * np.arange(1, len(rows) + 1)
        controller.accept([NAME], times, rows, None, None, now_s)
        parts.append(sampled(controller, now_s, end_s))
    return np.concatenate(parts)


def sent() -> np.ndarray:
    """What the node makes of the same chunks."""
    limits = JointLimits((NAME,), *(np.array([x]) for x in (-2.0, 2.0, MAX_VELOCITY, 1.0)))
    motion = JointMotion((NAME,), limits, RATE_HZ, BLEND_STEPS, "zero")
    controller = JointTrajectoryController([NAME], np.zeros(1))
    parts = []
    for index, (now_s, end_s) in enumerate(zip(SENT_S, (*SENT_S[1:], END_S), strict=True)):
        plan = motion.plan(chunk(index), CONSUMED[index], round(now_s * NS_PER_S), np.zeros(1))
        assert isinstance(plan, Planned)
        assert motion.commit(plan)
        knots = plan.trajectory
        times = knots.times_ns / NS_PER_S
        controller.accept([NAME], times, knots.positions[1:], knots.velocities[1:], None, now_s)
        parts.append(sampled(controller, now_s, end_s))
    return np.concatenate(parts)


def draw(path: Path) -> None:
    """Write the picture."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (above, below) = plt.subplots(2, 1, figsize=(9.0, 5.6), sharex=True, layout="constrained")
    for index, now_s in enumerate(SENT_S):
        rows = chunk(index)[CONSUMED[index] :, 0]
        times = now_s + DT_S * np.arange(1, len(rows) + 1)
        label = "rows of the chunks that are not past" if index == 0 else None
        above.plot(times, rows, "o", ms=3.2, mfc="white", mec=INK, mew=0.7, label=label, zorder=4)
    for curve, colour, label, width in (
        (raw(), RAW, "rows as they are, positions only", 1.2),
        (sent(), SENT, "what the node sends", 2.0),
    ):
        above.plot(curve[:, 0], curve[:, 1], color=colour, lw=width, label=label)
        below.plot(curve[:, 0], curve[:, 2], color=colour, lw=width)
    label_axes(above, below)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def label_axes(above: Axes, below: Axes) -> None:
    """Words, seams and the velocity limit."""
    for axes in (above, below):
        for now_s in SENT_S[1:]:
            axes.axvline(now_s, color=SEAM, lw=0.9, ls=":")
    for sign in (1.0, -1.0):
        below.axhline(sign * MAX_VELOCITY, color=SEAM, lw=0.9, ls="--")
    below.text(END_S, MAX_VELOCITY, "max_velocity", ha="right", va="bottom", color="#666666", fontsize=9)
    for index, now_s in enumerate(SENT_S[1:], start=2):
        above.text(now_s + 0.01, 0.47, f"chunk {index}", color="#666666", fontsize=9, va="top")
    above.set_ylim(-0.5, 0.48)
    above.set_ylabel("commanded position, rad")
    above.legend(loc="lower left", frameon=False)
    below.set_ylabel("commanded velocity, rad/s")
    below.set_xlabel("time, s")
    below.set_xlim(0.0, END_S)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
