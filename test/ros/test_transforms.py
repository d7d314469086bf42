# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Poses from tf, and packages that only some robots have."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flashrt_ros.packages import require_packages
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.transforms import TransformSource, TransformTree
from test.ros.test_ingest import T0, Rig, S, header, image
from test.ros.test_state import pose
from test.ros.tf2_stub import Buffer, TransformListener, tf2_module

NODE: Any = SimpleNamespace()
TF: dict[str, Any] = {
    "state_groups": ["ee"],
    "state.ee.source": "tf",
    "state.ee.frame": "base",
    "state.ee.child_frame": "hand",
    "action_names": ["a"],
}


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> TransformTree:
    monkeypatch.setitem(sys.modules, "tf2_ros", tf2_module())
    return TransformTree(NODE)


def transform(stamp_ns: int) -> Any:
    return SimpleNamespace(header=header(stamp_ns))


def test_newest_transform_is_given_once(tree: TransformTree) -> None:
    """A tf that stopped must grow old: the same transform found again is no news."""
    source = TransformSource("state.ee", tree, "base", "hand")
    assert source.drain() == []
    assert source.silence() == 'tf base → hand: "base" passed to lookupTransform does not exist'
    Buffer.transforms["base", "hand"] = transform(T0)
    assert len(source.drain()) == 1
    assert source.drain() == []
    Buffer.transforms["base", "hand"] = transform(T0 + 1)
    assert len(source.drain()) == 1
    assert source.silence() is None
    assert (source.traffic.published, source.topic) == (2, "tf base → hand")


def test_static_transform_is_always_new(tree: TransformTree) -> None:
    """A camera bolted to the table: its stamp of 0 means that it is true at every time, and is no fault."""
    source = TransformSource("state.ee", tree, "base", "hand")
    rig = Rig(cameras=["front"], joint_names=[], **TF)
    for now_ns in (T0, T0 + 9 * S):
        static = pose(0, 1.0, 2.0, 3.0).pose
        parts = SimpleNamespace(translation=static.position, rotation=static.orientation)
        Buffer.transforms["base", "hand"] = SimpleNamespace(header=header(0), transform=parts)
        (sample,) = source.drain()
        rig.put("state.ee", sample.message, now_ns)
        rig.put("front", image(now_ns), now_ns)
        assert rig.seen(now_ns).stamps_ns["state.ee"] == now_ns
    assert rig.said == []


def test_listener_is_destroyed_once(tree: TransformTree) -> None:
    """Cleanup must leave no subscription, and two groups share one listener."""
    sources = [TransformSource(name, tree, "base", name) for name in ("left", "right")]
    assert len(TransformListener.listening) == 1
    for source in sources:
        source.close()
    assert TransformListener.listening == []


def config(**parameters: Any) -> NodeConfig:
    flat = {"checkpoint": "/x", "action_rate_hz": 30.0, "cameras": ["front"], **parameters}
    return NodeConfig.from_dict({name.replace("__", "."): value for name, value in flat.items()})


@pytest.mark.parametrize(
    ("changes", "module", "words"),
    [
        (
            TF,
            "tf2_ros",
            r"state group 'ee' \(source tf\) needs .*tf2_ros.*apt install ros-<distro>-tf2-ros-py",
        ),
        (
            {"joint_names": ["a"], "camera__front__transport": "pointcloud"},
            "sensor_msgs_py.point_cloud2",
            r"camera 'front' \(transport pointcloud\) needs .*ros-<distro>-sensor-msgs-py",
        ),
        (
            {**TF, "state.ee.source": "pose"},
            "scipy.spatial.transform",
            r"state group 'ee' \(source pose\) needs .*python3-scipy",
        ),
    ],
)
def test_missing_package_is_refused_by_name(
    changes: dict[str, Any], module: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line at configure, with the package to install, instead of a traceback at the first message."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=words):
        require_packages(config(**changes))


def test_nothing_is_needed_without_those_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has joints and images only installs none of them."""
    for module in ("tf2_ros", "sensor_msgs_py.point_cloud2", "scipy.spatial.transform"):
        monkeypatch.setitem(sys.modules, module, None)
    require_packages(config(joint_names=["a"]))
