# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Ingest: the policy must see the newest valid sample of every source, or nothing and the reason."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from flashrt_ros import camera_input, encodings
from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import NotReady, Observation
from flashrt_ros.parameters import NodeConfig

S = 1_000_000_000
MS = 1_000_000
T0 = 1_700_000_000 * S


def header(stamp_ns: int) -> Any:
    return SimpleNamespace(stamp=SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S))


def image(stamp_ns: int, value: int = 0, encoding: str = "rgb8", **more: Any) -> Any:
    fields = {"height": 2, "width": 2, "step": 6, "is_bigendian": 0, "data": np.full(12, value, np.uint8)}
    return SimpleNamespace(header=header(stamp_ns), encoding=encoding, **{**fields, **more})


def jpeg(stamp_ns: int, data: bytes | None = None) -> Any:
    good = cv2.imencode(".jpg", np.full((8, 8, 3), 90, np.uint8))[1].tobytes()
    return SimpleNamespace(header=header(stamp_ns), format="jpeg", data=good if data is None else data)


def joints(stamp_ns: int, names: str = "ab", *positions: float) -> Any:
    values = positions or tuple(range(1, len(names) + 1))
    return SimpleNamespace(header=header(stamp_ns), name=list(names), position=np.array(values, float))


def before_decoding(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """`happens` is called whenever a JPEG is about to be decoded."""
    imdecode = encodings.cv2.imdecode

    def wrapped(*arguments: Any) -> Any:
        happens()
        return imdecode(*arguments)

    monkeypatch.setattr(encodings.cv2, "imdecode", wrapped)


class Rig:
    """An Ingest with two cameras and two joints, and what it said."""

    def __init__(self, **parameters: Any) -> None:
        flat = {
            "checkpoint": "/x",
            "action_rate_hz": 30.0,
            "cameras": ["front", "wrist"],
            "joint_names": ["a", "b"],
            **{name.replace("__", "."): value for name, value in parameters.items()},
        }
        self.said: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.ingest = Ingest(
            NodeConfig.from_dict(flat), lambda kind, text: self.said.append((kind, text)), self.told.append
        )

    def put(self, source: str, message: Any, at_ns: int) -> None:
        self.ingest.put(source, message, at_ns)

    def fill(self, at_ns: int = T0) -> None:
        for camera in ("front", "wrist"):
            self.put(camera, image(at_ns), at_ns)
        self.put("joint_states", joints(at_ns), at_ns)

    def seen(self, now_ns: int) -> Observation:
        observation = self.ingest.observe(now_ns)
        assert isinstance(observation, Observation), str(observation)
        return observation

    def refused(self, now_ns: int) -> NotReady:
        missing = self.ingest.observe(now_ns)
        assert isinstance(missing, NotReady)
        assert len(missing.reasons) == len(missing.keys)
        return missing

    def counts(self, source: str) -> dict[str, Any]:
        counts = self.ingest.counts()[source]
        assert counts.received == counts.used + counts.skipped + counts.waiting + sum(counts.dropped.values())
        fields = {"received": counts.received, "used": counts.used, "skipped": counts.skipped}
        dropped = {kind: number for kind, number in counts.dropped.items() if number}
        return {**fields, "waiting": counts.waiting, **dropped}


def test_observation_holds_the_newest_of_every_source_by_slot() -> None:
    """The policy gets pixels by slot and the state in its order, with the stamp of each source."""
    rig = Rig(camera__wrist__slot="left_wrist")
    rig.fill(T0)
    rig.put("front", image(T0 + 30 * MS, 7), T0 + 30 * MS)
    seen = rig.seen(T0 + 50 * MS)
    assert set(seen.images) == {"front", "left_wrist"}
    assert np.asarray(seen.images["front"].data).tolist() == [7] * 12
    assert seen.state.tolist() == [1, 2]
    assert seen.stamps_ns == {"front": T0 + 30 * MS, "wrist": T0, "joint_states": T0}
    assert seen.oldest_ns == T0
    assert seen.ages_ms["front"] == pytest.approx(20)


def test_R10_only_the_image_that_is_used_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty JPEGs a second are not decoded for five decisions a second; none twice, none in vain."""
    decoded: list[int] = []
    before_decoding(monkeypatch, lambda: decoded.append(1))
    rig = Rig(cameras=["front"], camera__front__transport="compressed")
    for frame in range(6):
        rig.put("front", jpeg(T0 + frame * MS), T0 + frame * MS)
    rig.refused(T0 + 6 * MS)
    assert decoded == [], "joint states are missing: nothing is decoded"
    rig.put("joint_states", joints(T0), T0)
    first = rig.seen(T0 + 7 * MS)
    assert rig.seen(T0 + 8 * MS).images["front"] is first.images["front"]
    assert len(decoded) == 1
    assert rig.counts("front") == {"received": 6, "used": 1, "skipped": 5, "waiting": 0}


def test_R10_large_images_are_views_until_a_decision_and_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cameras of 720p at 30 Hz are 250 MB a second: only what a decision uses is touched, and what the
    policy is given are the message's own bytes, which it copies into its input."""
    touched: list[str] = []

    def count(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counted(*given: Any) -> Any:
            touched.append(name)
            return original(*given)

        monkeypatch.setattr(module, name, counted)

    count(encodings, "RawImage")
    count(camera_input, "same_bytes")
    pixels = {name: np.zeros(720 * 1280 * 3, np.uint8) for name in ("front", "wrist", "side")}
    rig = Rig(cameras=list(pixels))
    for frame in range(30):
        at = T0 + frame * MS
        for name, data in pixels.items():
            size: Any = {"height": 720, "width": 1280, "step": 0, "data": data}
            rig.put(name, image(at, **size), at)
        rig.put("joint_states", joints(at), at)
    assert touched == [], "nothing is read before a decision"
    for decision in range(2):
        seen = rig.seen(T0 + 30 * MS)
        assert touched == ["RawImage"] * 3, f"decision {decision}"
    assert all(np.shares_memory(np.asarray(seen.images[name].data), data) for name, data in pixels.items())


def test_counts_add_up_and_are_right() -> None:
    """The report's table of received, used, skipped and dropped messages can be trusted."""
    rig = Rig()
    rig.fill(T0)
    rig.put("front", image(T0 + MS), T0 + MS)
    rig.put("front", image(T0 + 2 * MS, step=1), T0 + 2 * MS)
    rig.seen(T0 + 3 * MS)
    rig.put("front", image(T0 + 4 * MS), T0 + 4 * MS)
    rig.put("joint_states", joints(T0 + 4 * MS), T0 + 4 * MS)
    rig.put("joint_states", joints(T0 + 5 * MS, "xy"), T0 + 5 * MS)
    assert rig.counts("front") == {"received": 4, "used": 1, "skipped": 1, "waiting": 1, "malformed": 1}
    assert rig.counts("wrist") == {"received": 1, "used": 1, "skipped": 0, "waiting": 0}
    assert rig.counts("joint_states") == {
        "received": 3,
        "used": 1,
        "skipped": 0,
        "waiting": 1,
        "unrelated": 1,
    }


def test_the_same_message_put_again_is_one_message() -> None:
    """A source asked twice for its newest message must not double the counts."""
    rig = Rig()
    message = image(T0)
    rig.put("front", message, T0)
    rig.put("front", message, T0 + MS)
    assert rig.counts("front")["received"] == 1


def test_R2_malformed_frames_are_dropped_with_one_warning() -> None:
    """A corrupt frame costs that frame: the older good one serves while it is fresh, the log speaks once."""
    rig = Rig()
    rig.fill(T0)
    for frame in range(1, 9):
        rig.put("front", image(T0 + frame * MS, step=3), T0 + frame * MS)
    assert rig.seen(T0 + 10 * MS).stamps_ns["front"] == T0
    assert rig.counts("front") == {"received": 9, "used": 1, "skipped": 0, "waiting": 0, "malformed": 8}
    ((kind, text),) = rig.said
    assert kind == "malformed"
    for word in ("front/image_raw", "rgb8", "2x2", "step 3", "12 bytes"):
        assert word in text
    assert "stopped" in str(rig.refused(T0 + 2 * S))


def test_refused_messages_are_not_called_silence() -> None:
    """A camera whose every frame is refused, and joints that are all NaN, must not send anybody to the
    cables."""
    rig = Rig()
    rig.fill(T0)
    rig.seen(T0 + MS)
    late = T0 + S
    rig.put("front", image(late, step=3), late)
    rig.put("wrist", image(late), late)
    rig.put("joint_states", joints(late, "ab", math.nan, 0.0), late)
    missing = rig.refused(late + MS)
    assert missing.keys == ("joint_states: old", "joint_states: messages dropped", "front: no usable image")
    assert "a = nan" in missing.reasons[1]
    assert "for 1.00 s" in missing.reasons[2]
    assert "step 3" in missing.reasons[2]
    rig.put("front", image(late + 2 * MS), late + 2 * MS)
    rig.put("joint_states", joints(late + 2 * MS), late + 2 * MS)
    rig.seen(late + 3 * MS)
    assert "stopped" in str(rig.refused(late + 2 * S))


def test_R2_undecodable_jpeg_falls_back_to_the_last_good_one() -> None:
    """The same for bytes that only decoding can judge."""
    rig = Rig(cameras=["front"], camera__front__transport="compressed")
    rig.put("front", jpeg(T0), T0)
    rig.put("joint_states", joints(T0), T0)
    good = rig.seen(T0 + MS)
    rig.put("front", jpeg(T0 + 2 * MS, b"\xff\xd8 broken"), T0 + 2 * MS)
    again = rig.seen(T0 + 3 * MS)
    assert again.images["front"] is good.images["front"]
    assert again.stamps_ns["front"] == T0, "the chunk must carry the age of the pixels it was made from"
    assert rig.counts("front") == {"received": 2, "used": 1, "skipped": 0, "waiting": 0, "malformed": 1}
    assert [kind for kind, _ in rig.said] == ["malformed"]


def test_R5_depth_camera_is_refused_at_the_first_message() -> None:
    """A depth topic given by mistake is named in the log and in the reason why nothing moves."""
    rig = Rig()
    rig.fill(T0)
    depth = Rig()
    depth.put("front", image(T0, encoding="16UC1"), T0)
    assert [kind for kind, _ in depth.said] == ["encoding"]
    assert "'16UC1'" in depth.said[0][1]
    assert any("no usable image" in text and "16UC1" in text for text in depth.refused(T0).reasons)


def test_R3_encoding_of_each_camera_is_told_once() -> None:
    """The log says how the pixels of each camera are read."""
    rig = Rig()
    rig.fill(T0)
    rig.put("front", image(T0 + MS), T0 + MS)
    assert rig.told == [
        "camera 'front' on front/image_raw: rgb8, read as rgb8",
        "camera 'wrist' on wrist/image_raw: rgb8, read as rgb8",
    ]


def test_R15_R27_reasons_name_what_is_missing() -> None:
    """When nothing moves the user reads which source is missing, and whether it ever came."""
    rig = Rig()
    assert rig.refused(T0).keys == ("joint_states: never seen", "front: never seen", "wrist: never seen")
    rig.put("front", image(T0), T0)
    rig.put("joint_states", joints(T0, "bx"), T0)
    texts = str(rig.refused(T0 + S))
    assert "camera 'wrist' on wrist/image_raw: never seen" in texts
    assert (
        "camera 'front' on front/image_raw stopped: the last one came 1.00 s ago, the limit is 0.5 s" in texts
    )
    assert "a never seen; there are b, x" in texts


def test_keys_do_not_change_while_the_numbers_do() -> None:
    """A log that speaks once per change must not speak once per decision."""
    rig = Rig()
    rig.fill(T0)
    late, later = rig.refused(T0 + 2 * S), rig.refused(T0 + 3 * S)
    assert late.keys == later.keys
    assert late.reasons != later.reasons


def test_age_limit_of_each_source() -> None:
    """A slow overview camera and a fast wrist camera have limits of their own."""
    rig = Rig(camera__front__max_age=2.0, joint_max_age=3.0)
    rig.fill(T0)
    assert rig.refused(T0 + S).keys == ("wrist: stopped",)
    rig.put("wrist", image(T0 + S), T0 + S)
    assert rig.seen(T0 + S).ages_ms["front"] == 1000.0


def test_R27_optional_camera_is_masked_when_it_is_missing() -> None:
    """required: false keeps the robot working without that camera; its slot is absent, not stale."""
    rig = Rig(camera__wrist__required=False)
    rig.put("front", image(T0), T0)
    rig.put("joint_states", joints(T0), T0)
    assert set(rig.seen(T0).images) == {"front"}
    rig.put("wrist", image(T0), T0)
    both = rig.seen(T0 + MS)
    assert set(both.images) == {"front", "wrist"}
    assert both.required == ("front", "joint_states")
    rig.put("front", image(T0 + S), T0 + S)
    rig.put("joint_states", joints(T0 + S), T0 + S)
    assert set(rig.seen(T0 + S).images) == {"front"}


def test_R24_skew_between_sources_is_bounded() -> None:
    """An arm seen in one moment and felt in another is two arms; the limit names both sources."""
    rig = Rig(max_skew=0.1)
    rig.fill(T0)
    rig.put("joint_states", joints(T0 + 200 * MS), T0 + 200 * MS)
    missing = rig.refused(T0 + 200 * MS)
    assert "front is 0.200 s older than joint_states, max_skew is 0.1 s" in str(missing)
    assert rig.counts("front")["used"] == 0
    rig.fill(T0 + 210 * MS)
    assert rig.seen(T0 + 210 * MS).skew_ms == 0.0


def test_R19_R21_stamps_that_cannot_be_believed() -> None:
    """Zero and future stamps count from arrival, with one warning for each kind and source."""
    rig = Rig()
    for step in range(3):
        now = T0 + step * MS
        rig.put("front", image(0), now)
        rig.put("wrist", image(now + 60 * S), now)
        rig.put("joint_states", joints(now), now)
    assert rig.seen(T0 + 2 * MS).stamps_ns["front"] == T0 + 2 * MS
    assert [kind for kind, _ in rig.said] == ["zero stamp", "future stamp"]
    assert rig.refused(T0 + 2 * S).keys == ("joint_states: old", "front: stopped", "wrist: stopped")


def test_stamp_source_header_drops_what_it_cannot_use() -> None:
    """Whoever insists on header stamps never gets a chunk with another one."""
    rig = Rig(stamp_source="header")
    rig.put("front", image(0), T0)
    assert rig.counts("front")["stamp"] == 1
    assert rig.said[0][0] == "stamp"


@pytest.mark.parametrize("seen_by", ["observe", "put"])
def test_R20_clock_jumps_back(seen_by: str) -> None:
    """After a bag loop or a simulator reset nothing of the old world is used; the node goes on."""
    rig = Rig()
    rig.fill(T0)
    rig.seen(T0)
    early = T0 - 100 * S
    if seen_by == "observe":
        assert len(rig.refused(early).reasons) == 3
        rig.fill(early)
    else:
        rig.fill(early)
    assert rig.ingest.clock_jumps == 1
    assert rig.seen(early + MS).oldest_ns == early
    assert [kind for kind, _ in rig.said] == ["clock jump"]


def test_R33_flush_forgets_samples_and_keeps_counts() -> None:
    """After a reset no decision is made from what was seen before it."""
    rig = Rig()
    rig.fill(T0)
    rig.ingest.flush()
    assert "no usable image since the last reset" in str(rig.refused(T0))
    assert rig.counts("front") == {"received": 1, "used": 0, "skipped": 0, "waiting": 0, "flushed": 1}
    rig.fill(T0 + MS)
    rig.seen(T0 + MS)


def test_flush_during_a_conversion_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is being decoded while the node resets must not come back afterwards."""
    rig = Rig(cameras=["front"], camera__front__transport="compressed")
    rig.put("front", jpeg(T0), T0)
    rig.put("joint_states", joints(T0), T0)
    before_decoding(monkeypatch, rig.ingest.flush)
    rig.refused(T0)
    monkeypatch.undo()
    assert any("no usable image" in text for text in rig.refused(T0).reasons)


def test_deliveries_do_not_wait_for_a_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding a large JPEG must not hold up the executor that delivers the next message."""
    rig = Rig(cameras=["front"], camera__front__transport="compressed")
    rig.put("front", jpeg(T0), T0)
    rig.put("joint_states", joints(T0), T0)
    delivered = threading.Event()

    def deliver() -> None:
        rig.put("front", jpeg(T0 + MS), T0 + MS)
        delivered.set()

    def slow() -> None:
        threading.Thread(target=deliver).start()
        assert delivered.wait(5), "put() waited for the decoder"

    before_decoding(monkeypatch, slow)
    assert rig.seen(T0 + MS).stamps_ns["front"] == T0
    assert rig.counts("front") == {"received": 2, "used": 1, "skipped": 0, "waiting": 1}


def test_R8_rate_of_each_source_is_measured() -> None:
    """Diagnostics show which camera is slow."""
    rig = Rig()
    for frame in range(30):
        at = T0 + frame * S // 10
        rig.put("front", image(at), at)
    rates = rig.ingest.rates_hz(T0 + 29 * S // 10)
    assert rates["front"] == pytest.approx(10, rel=0.01)
    assert rates["wrist"] == 0.0


def test_unknown_source_is_a_programming_error() -> None:
    """A typing error in the node must not swallow a camera."""
    with pytest.raises(KeyError):
        Rig().put("rear", image(T0), T0)
