# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Frozen cameras: a picture that no longer changes is no picture of the robot."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_ros.camera_input import Stillness, same_bytes
from flashrt_ros.observation import NotReady
from test.ros.test_ingest import MS, T0, Rig, S, image, joints, jpeg


def look(at: Stillness, stamp_ns: int, value: int) -> str | None:
    stamp = SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S)
    data = np.full(100, value, np.uint8)
    at.look(SimpleNamespace(header=SimpleNamespace(stamp=stamp), data=data))
    return at.why()


def test_R7_same_content_is_frozen() -> None:
    """A driver that sends its last picture for ever: the policy would act on a world of minutes ago."""
    still = Stillness(3)
    assert [look(still, k + 1, 7) for k in range(2)] == [None, None]
    assert look(still, 3, 7) == "frozen: 3 images with the same content"
    assert look(still, 4, 7) == "frozen: 4 images with the same content"
    assert look(still, 5, 8) is None, "it moves again"


def test_R7_same_stamp_is_frozen() -> None:
    """A driver whose exposure hangs may still add noise or a clock to an old picture."""
    still = Stillness(3)
    assert [look(still, 5, value) for value in range(3)][-1] == "frozen: 3 images with the same stamp"
    assert look(still, 6, 9) is None


def test_R7_zero_stamps_and_stamps_that_do_not_count() -> None:
    """A driver that never fills stamps in is no frozen camera; nor is one whose stamps nobody believes."""
    zero, ignored = Stillness(3), Stillness(3, stamps_count=False)
    assert all(look(zero, 0, value) is None for value in range(9))
    assert all(look(ignored, 5, value) is None for value in range(9))


@pytest.mark.parametrize(("limit", "images"), [(0, 50), (1, 1), (2, 1), (10, 9)])
def test_R7_limit(limit: int, images: int) -> None:
    """0 switches it off; one image alone is not alike to anything; any limit holds exactly."""
    still = Stillness(limit)
    assert all(look(still, k + 1, 1) is None for k in range(images))
    assert (look(still, 99, 1) is None) == (limit == 0)


@pytest.mark.parametrize("size", [0, 5, 8, 921_600, 921_603])
def test_R7_every_byte_is_compared(size: int) -> None:
    """A picture that differs in its last pixel only is another picture."""
    a = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    assert same_bytes(a, a.copy())
    assert not same_bytes(a, np.append(a, np.uint8(0)))
    for index in {0, size // 2, size - 1} if size else ():
        b = a.copy()
        b[index] ^= 1
        assert not same_bytes(a, b)


def test_comparing_costs_little() -> None:
    """Lost otherwise: milliseconds of every decision. 0.1 ms on an idle machine; this one may be busy."""
    a = np.random.default_rng(0).integers(0, 256, 640 * 480 * 3, np.uint8)
    b, times = a.copy(), []
    for _ in range(20):
        started = time.perf_counter()
        same_bytes(a, b)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5e-3


def frozen_rig(**parameters: Any) -> Rig:
    return Rig(camera__front__frozen_after=3, camera__wrist__frozen_after=0, **parameters)


def step(rig: Rig, frame: int, front: int) -> Any:
    """One image of each camera, one decision."""
    at_ns = T0 + frame * 10 * MS
    rig.put("front", image(at_ns, front), at_ns)
    rig.put("wrist", image(at_ns), at_ns)
    rig.put("joint_states", joints(at_ns), at_ns)
    return rig.ingest.observe(at_ns)


def test_R7_no_observation_of_a_frozen_camera_until_it_moves() -> None:
    """Lost otherwise: the robot goes on acting on the picture of a camera that hangs."""
    rig = frozen_rig()
    assert not isinstance(step(rig, 0, 7), NotReady)
    assert not isinstance(step(rig, 1, 7), NotReady)
    for frame in (2, 3):
        refused = step(rig, frame, 7)
        assert isinstance(refused, NotReady)
        assert refused.keys == ("front: frozen",)
        assert refused.reasons == (
            f"camera 'front' on front/image_raw frozen: {frame + 1} images with the same content",
        )
    assert rig.ingest.frozen() == {"front": "frozen: 4 images with the same content"}
    assert not isinstance(step(rig, 4, 8), NotReady)
    assert rig.ingest.frozen() == {}


def test_R7_optional_frozen_camera_is_masked() -> None:
    """required: false: the robot goes on without that camera, not with its frozen picture."""
    rig = frozen_rig(camera__front__required=False)
    seen = [set(step(rig, frame, 7).images) for frame in range(4)]
    assert seen == [{"front", "wrist"}] * 2 + [{"wrist"}] * 2
    assert set(step(rig, 4, 8).images) == {"front", "wrist"}


def test_R7_only_new_images_are_counted() -> None:
    """A camera that is slower than the decisions is asked for the same image several times."""
    rig = frozen_rig()
    step(rig, 0, 7)
    for later in range(20):
        rig.seen(T0 + later * MS)
    assert not isinstance(step(rig, 1, 7), NotReady)


def test_R7_flush_begins_anew() -> None:
    """Lost otherwise: what was seen before a reset counts against the camera after it."""
    rig = frozen_rig()
    for frame in range(4):
        step(rig, frame, 7)
    rig.ingest.flush()
    assert not isinstance(step(rig, 5, 7), NotReady)


def test_R7_compressed_bytes_are_compared() -> None:
    """A camera behind JPEG freezes as well, and is not decoded to find out."""
    rig = Rig(cameras=["front"], camera__front__transport="compressed", camera__front__frozen_after=3)
    for frame in range(3):
        at_ns = T0 + frame * MS
        rig.put("front", jpeg(at_ns), at_ns)
        rig.put("joint_states", joints(at_ns), at_ns)
        last = rig.ingest.observe(at_ns)
    assert isinstance(last, NotReady)
    assert last.keys == ("front: frozen",)
