# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When a replay decides: when these fail, a bag is decided on at moments at which a robot would not be."""

from flashrt_ros.bag_clock import CameraPacer, FreePacer, Pacer, TimerPacer
from flashrt_ros.parameters import NodeConfig

MS = 1_000_000
T0 = 1_760_000_000_000 * MS
CONFIG = NodeConfig.from_dict(
    {
        "checkpoint": "x",
        "cameras": ["top", "wrist"],
        "joint_names": ["j0"],
        "action_rate_hz": 30.0,
        "trigger": "camera",
        "trigger_camera": "top",
        "decision_rate": 10.0,
    }
)


def due(pacer: Pacer) -> int | None:
    return pacer.due_ns


def test_timer_pacer_keeps_its_grid() -> None:
    """One late decision does not shift the following ones."""
    pacer = TimerPacer(CONFIG, T0)
    assert due(pacer) == T0
    pacer.decided(T0, T0 + 30 * MS, made=True)
    assert (pacer.due_ns, pacer.missed) == (T0 + 100 * MS, 0)
    pacer.decided(T0 + 100 * MS, T0 + 350 * MS, made=True)
    assert (pacer.due_ns, pacer.missed) == (T0 + 400 * MS, 2)


def test_camera_pacer_waits_for_images_and_for_itself() -> None:
    """Images during a decision make one more, begun when the policy is free."""
    pacer = CameraPacer(CONFIG, T0)
    pacer.arrived("wrist", T0)
    assert due(pacer) is None
    pacer.arrived("top", T0 + MS)
    assert due(pacer) == T0 + MS
    pacer.decided(T0 + MS, T0 + 90 * MS, made=True)
    assert due(pacer) is None
    pacer.arrived("top", T0 + 50 * MS)
    pacer.arrived("top", T0 + 80 * MS)
    assert due(pacer) == T0 + 90 * MS


def test_free_pacer_runs_on_and_waits_without_input() -> None:
    """Back to back while there is input, else at the next message: no endless loop on a silent bag."""
    pacer = FreePacer(CONFIG, T0)
    pacer.decided(T0, T0 + 20 * MS, made=True)
    assert due(pacer) == T0 + 20 * MS
    pacer.decided(T0 + 20 * MS, T0 + 20 * MS, made=False)
    assert due(pacer) is None
    pacer.arrived("wrist", T0 + 60 * MS)
    assert due(pacer) == T0 + 60 * MS
