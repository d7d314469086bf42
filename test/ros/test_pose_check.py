# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""R17: a robot in other units than the policy was trained with is found before it moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.observation import NotReady
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.pose_check import outside_training, pose_check_of
from test.ros.stub_policy import StubPolicy
from test.ros.test_ingest import MS, T0, Rig, image, joints

NAMES = ("shoulder", "elbow")
LOW, HIGH = np.array([-1.2, 0.0], np.float32), np.array([1.4, 2.0], np.float32)


def stats(low: str = "q01", high: str = "q99", **more: Any) -> dict[str, np.ndarray]:
    return {low: LOW, high: HIGH, **more}


def lines(*state: float, of: dict[str, np.ndarray] | None = None) -> list[str]:
    return outside_training(np.array(state, np.float32), NAMES, stats() if of is None else of)


def test_R17_numbers_outside_are_named_with_their_range() -> None:
    """Degrees for radians: the line says which joint, what it is and what it was."""
    assert lines(3.14, 1.0) == ["shoulder: 3.14, trained from -1.2 to 1.4 (q01–q99)"]
    assert len(lines(90.0, -57.0)) == 2


def test_R17_half_of_the_range_is_allowed_beyond() -> None:
    """A demonstration begins a little elsewhere each time; nobody should switch the check off for that."""
    assert lines(2.6, 2.9) == []
    assert lines(-2.4, -0.9) == []
    assert len(lines(2.8, 3.1)) == 2


def test_R17_statistics_that_a_checkpoint_has() -> None:
    """Quantiles, else extremes, else mean ± 4 std; nothing to compare with is no reason to refuse."""
    wide: Any = {"min": np.array([-9.0, -9.0]), "max": np.array([9.0, 9.0])}
    assert "(q01–q99)" in lines(3.14, 1.0, of=stats(**wide))[0]
    assert "(min–max)" in lines(3.14, 1.0, of=stats("min", "max"))[0]
    spread = {"mean": np.zeros(2), "std": np.full(2, 0.1)}
    assert lines(0.7, 0.9, of=spread) == ["elbow: 0.9, trained from -0.4 to 0.4 (mean ± 4 std)"]
    for nothing in ({}, {"q01": LOW}, {"q01": LOW[:1], "q99": HIGH[:1]}):
        assert lines(99.0, 99.0, of=nothing) == []


def test_R17_numbers_that_never_moved_are_not_judged() -> None:
    """A padded or locked joint has no range: its noise would refuse every robot."""
    still = {"q01": np.array([-1.0, 0.5]), "q99": np.array([1.0, 0.5])}
    assert lines(0.0, 0.5001, of=still) == []


def test_R17_no_observation_until_the_state_is_inside_once() -> None:
    """Lost otherwise: a robot in degrees gets 57 times the motion. Afterwards the robot may go where it
    likes."""
    rig = Rig()
    rig.ingest._pose_check = lambda state: outside_training(state, NAMES, stats())

    def at(position: float, ms: int) -> Any:
        now_ns = T0 + ms * MS
        for camera in ("front", "wrist"):
            rig.put(camera, image(now_ns, ms), now_ns)
        rig.put("joint_states", joints(now_ns, "ab", position, 1.0), now_ns)
        return rig.ingest.observe(now_ns)

    refused = at(57.0, 1)
    assert isinstance(refused, NotReady)
    assert refused.keys == ("state: outside of training",)
    for words in ("shoulder: 57, trained from -1.2 to 1.4", "joint.<name>.scale", "pose_check: false"):
        assert words in str(refused)
    assert rig.counts("front")["used"] == 0
    assert isinstance(at(58.0, 2), NotReady)
    assert not isinstance(at(0.5, 3), NotReady)
    assert not isinstance(at(57.0, 4), NotReady), "only the start is judged"
    rig.ingest.flush()
    assert isinstance(at(57.0, 5), NotReady), "and every start after a reset"


def test_R17_check_of_a_policy() -> None:
    """Its own statistics, in their own units; none with pose_check: false or without statistics."""

    def config(**more: Any) -> NodeConfig:
        flat = {"checkpoint": "/x", "action_rate_hz": 30.0, "cameras": ["top"], "joint_names": list(NAMES)}
        return NodeConfig.from_dict({**flat, **more})

    policy = StubPolicy(config())
    assert pose_check_of(policy, config()) is None
    policy.state_stats = stats()
    assert pose_check_of(policy, config(pose_check=False)) is None
    check = pose_check_of(policy, config())
    assert check is not None
    assert len(check(np.array([3.14, 1.0], np.float32))) == 1
    policy.statistics_units = lambda state: -state  # type: ignore[method-assign]
    assert check(np.array([3.14, 1.0], np.float32))[0].startswith("shoulder: -3.14")


def test_R17_real_checkpoint_has_what_the_check_needs() -> None:
    """The statistics of a LeRobot checkpoint are those of its robot's units."""
    loading = pytest.importorskip("flashrt_kernels")
    data = Path(__file__).resolve().parents[1] / "data"
    policy = loading.load_policy(data / "tiny_pi05", tokenizer=data / "tokenizer_tiny")
    names = ["pan", "lift", "elbow", "wrist", "gripper"]
    flat = {"checkpoint": "/x", "action_rate_hz": 30.0, "cameras": ["top"], "joint_names": names}
    check = pose_check_of(policy, NodeConfig.from_dict(flat))
    assert check is not None
    assert check(np.array([0.0, 0.1, 0.2, 0.3, 0.4], np.float32)) == []
    assert check(np.array([0.0, 0.1, 0.2, 0.3, 40.0], np.float32)) == [
        "gripper: 40, trained from 0.02 to 0.98 (q01–q99)"
    ]
    policy.close()
