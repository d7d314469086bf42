# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Replay: a robot's recording goes through the node's own ingest and decision code, every message counted."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import ReaderError

from flashrt_ros.bag import BagError
from flashrt_ros.observation import JOINT_STATES
from flashrt_ros.replay import main
from test.ros.bags import STORAGES, StubPolicy, arguments, joints, recording, replay, write_bag


@pytest.fixture
def stub_policy(monkeypatch: pytest.MonkeyPatch) -> StubPolicy:
    """main() runs with a stub in place of a checkpoint."""
    policy = StubPolicy()
    monkeypatch.setattr("flashrt_ros.replay.load_policy_of", lambda config, progress: policy)
    return policy


def test_a_recording_goes_through_a_real_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's command: bag in; latencies, sources and report out; the same from both storages."""
    first_actions = []
    for storage in STORAGES:
        bag = write_bag(tmp_path, recording(700), storage)
        assert main(arguments(tmp_path, bag)) == 0
        printed = capsys.readouterr().out
        for words in ("decisions in", "p50", "policy: vision", "decision total", "/joint_commands (7)"):
            assert words in printed
        assert "warnings: malformed (1)" in printed
        assert "the last good one serves while it is fresh" in printed
        assert "observation.images.extra: masked" in printed
        report = tmp_path / f"report_{bag.name}"
        assert (report / "report.html").is_file()
        run = json.loads((report / "run.json").read_text())
        first = run["decisions"][0]
        assert (first["sequence"], first["epoch"], first["steps_consumed"]) == (0, 1, 0)
        assert first["instruction"] == "pick up the cube"
        assert np.array(first["actions"], float).shape == (6, 5)
        assert np.isfinite(np.array(first["actions"], float)).all()
        for counts in run["source_counts"].values():
            parts = sum(counts[name] for name in ("used", "skipped", "malformed", "dropped"))
            assert counts["in bag"] == counts["received"] == parts
            assert counts["used"] >= 1
        first_actions.append(first["actions"])
    assert first_actions[0] == first_actions[1]


def test_every_message_is_counted_where_it_went(tmp_path: Path) -> None:
    """A policy that takes no time uses one frame per decision; others are skipped, the broken one told."""
    policy = StubPolicy()
    outcome = replay(write_bag(tmp_path, recording()), policy)
    decisions = len(outcome.log.decisions)
    assert decisions + outcome.missed == 10
    top = outcome.log.source_counts["top"]
    assert (top["in bag"], top["received"], top["malformed"], top["dropped"]) == (20, 20, 1, 0)
    assert top["used"] <= decisions
    assert top["used"] + top["skipped"] == 19
    assert outcome.unused == {"/joint_commands": 10}
    assert dict(outcome.warnings) == {"malformed": 1}
    assert outcome.reasons == {}
    assert policy.bound == ("top", "wrist")
    assert outcome.log.source_rates["wrist"] == pytest.approx(20, rel=0.05)
    assert [text for _, text in outcome.log.events if "warning" in text]


def test_decisions_see_only_what_had_arrived(tmp_path: Path) -> None:
    """The state of a decision is the newest one recorded before it, never one from the future."""
    policy = StubPolicy()
    outcome = replay(write_bag(tmp_path, recording()), policy)
    arrivals = [at + 3 for at in range(0, 1000, 20)]
    for state, record in zip(policy.states, outcome.log.decisions, strict=True):
        began_ms = record.t_s * 1e3 - record.total_ms
        latest = max(at for at in arrivals if at <= began_ms + 1)
        assert state[0] == pytest.approx(-0.5 + latest / 1e4, abs=2.1e-3)
        assert record.age_ms < 60


def test_a_decision_occupies_its_time_on_the_bag_clock(tmp_path: Path) -> None:
    """A policy slower than its period skips frames and misses deadlines, as it would on the robot."""
    outcome = replay(write_bag(tmp_path, recording()), StubPolicy(seconds=0.25))
    assert 2 <= len(outcome.log.decisions) <= 4
    assert outcome.missed >= 2 * len(outcome.log.decisions) - 2
    assert outcome.log.source_counts["wrist"]["used"] == len(outcome.log.decisions)
    assert outcome.too_late == len(outcome.log.decisions) - 1, "6 steps at 30 Hz are over after 0.2 s"
    assert all(record.steps_consumed >= 7 for record in outcome.log.decisions[1:])


def test_trigger_camera_decides_once_per_image(tmp_path: Path) -> None:
    """The pacing of the node holds on a bag as well."""
    outcome = replay(
        write_bag(tmp_path, recording(500)), StubPolicy(), trigger="camera", trigger_camera="wrist"
    )
    assert len(outcome.log.decisions) == outcome.log.source_counts["wrist"]["used"] == 10


def test_free_running_decides_back_to_back(tmp_path: Path) -> None:
    """The policy's own speed is the pace."""
    outcome = replay(write_bag(tmp_path, recording(500)), StubPolicy(seconds=0.02), trigger="free")
    assert 3 <= len(outcome.log.decisions) <= 25


def test_decisions_go_on_to_the_end_of_the_recording(tmp_path: Path) -> None:
    """Sources that fall silent before the end are decided on as long as they are fresh, as on the robot."""
    bag = write_bag(tmp_path, [*recording(100), (350, "/joint_commands", joints(350))])
    outcome = replay(bag, StubPolicy())
    assert [round(record.t_s, 1) for record in outcome.log.decisions] == [0.0, 0.1, 0.2, 0.3]


def test_limit_ends_early(tmp_path: Path) -> None:
    """--limit tries the first seconds of a long recording."""
    outcome = replay(write_bag(tmp_path, recording()), StubPolicy(), limit_s=0.3)
    assert outcome.log.source_counts["top"]["received"] == 6
    assert outcome.log.source_counts["top"]["in bag"] == 20


def test_R61_remaps_and_namespaces_find_the_topics(tmp_path: Path, stub_policy: StubPolicy) -> None:
    """A recording made in a namespace, or with a remapped topic, needs no other parameter file."""
    messages = [(at, f"/arm{topic}", message) for at, topic, message in recording(300)]
    bag = write_bag(tmp_path, messages)
    remaps = {
        name: f"/arm/{name}" for name in ("joint_states", "top/image_raw", "wrist/image_raw/compressed")
    }
    assert replay(bag, StubPolicy(), remaps=remaps).log.decisions
    assert main([*arguments(tmp_path, bag), "--namespace", "arm"]) == 0
    renamed = [part for name, target in remaps.items() for part in ("--remap", f"{name}:={target}")]
    assert main([*arguments(tmp_path, bag), *renamed]) == 0


def test_instruction_of_the_command_line_wins(tmp_path: Path, stub_policy: StubPolicy) -> None:
    """One parameter file, many tasks; and the first latency is not that of a cold policy."""
    bag = write_bag(tmp_path, recording(300))
    assert main([*arguments(tmp_path, bag), "--instruction", "open the drawer"]) == 0
    assert stub_policy.instructions == {"open the drawer"}
    assert stub_policy.warm_ups == 1


def test_missing_topic_lists_what_the_bag_has(tmp_path: Path) -> None:
    """The user sees at once how the camera is really called."""
    bag = write_bag(tmp_path, recording(100))
    with pytest.raises(BagError) as caught:
        replay(bag, StubPolicy(), camera__top__topic="front/image")
    for words in (
        "no topic /front/image for top",
        "/top/image_raw (sensor_msgs/msg/Image, 2 messages)",
        "--remap",
    ):
        assert words in str(caught.value)


def test_optional_camera_may_be_missing(tmp_path: Path) -> None:
    """required: false means the same on a bag as on the robot."""
    messages = [written for written in recording(300) if "wrist" not in written[1]]
    bag = write_bag(tmp_path, messages)
    assert replay(bag, StubPolicy(), camera__wrist__required=False).log.decisions


def test_wrong_transport_is_told(tmp_path: Path) -> None:
    """A compressed topic read as raw images would fail in every message."""
    bag = write_bag(tmp_path, recording(100))
    with pytest.raises(BagError, match=r"holds sensor_msgs/msg/Image, but top needs .*CompressedImage"):
        replay(bag, StubPolicy(), camera__top__transport="compressed", camera__top__topic="top/image_raw")


def test_no_decision_is_a_failure_with_reasons(
    tmp_path: Path, stub_policy: StubPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bag without usable input must not end like a success."""
    messages = [(at, "/joint_states", joints(at, ["other"])) for at in range(0, 300, 20)]
    messages += [written for written in recording(300) if written[1] != "/joint_states"]
    bag = write_bag(tmp_path, sorted(messages, key=lambda written: written[0]))
    assert main(arguments(tmp_path, bag)) == 1
    assert stub_policy.states == []
    printed = capsys.readouterr().out
    assert "none of the 5 joints was ever seen; the messages name other" in printed
    assert "decisions not made, by reason" in printed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bag": "nowhere"}, "cannot open bag"),
        ({"bag": "broken.mcap"}, "broken.mcap"),
        ({"bag": "notes.txt"}, "notes.txt"),
        ({"--checkpoint": "nowhere"}, "nowhere"),
        ({"--params": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, change: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the file; no traceback, exit code 2."""
    (tmp_path / "broken.mcap").write_bytes(b"\x89MCAP0\r\n" + b"\0" * 50)
    (tmp_path / "notes.txt").write_text("no bag")
    bag = tmp_path / change["bag"] if "bag" in change else write_bag(tmp_path, recording(100))
    changed = [str(part) for name in change if name != "bag" for part in (name, tmp_path / change[name])]
    assert main([*arguments(tmp_path, bag), *changed]) == 2
    printed = capsys.readouterr().out
    assert "error:" in printed
    assert words in printed
    assert not list(tmp_path.glob("report*"))


def test_message_that_cannot_be_decoded_is_counted(tmp_path: Path) -> None:
    """One bad message of a long recording must not cost the result of all others."""
    bag = write_bag(tmp_path, recording(), "sqlite3")
    with sqlite3.connect(next(bag.glob("*.db3"))) as database:
        query = (
            "SELECT m.id FROM messages m JOIN topics t ON t.id = m.topic_id WHERE t.name = ? ORDER BY m.id"
        )
        for topic, count in (("/joint_states", 3), ("/wrist/image_raw/compressed", 1)):
            for (row,) in database.execute(query, (topic,)).fetchall()[-count:]:
                database.execute("UPDATE messages SET data = substr(data, 1, 40) WHERE id = ?", (row,))
    outcome = replay(bag, StubPolicy())
    counts = outcome.log.source_counts
    assert outcome.warnings["damaged"] == 2  # once per source
    assert [counts[source]["malformed"] for source in ("top", "wrist", JOINT_STATES)] == [1, 1, 3]
    for source, row in counts.items():
        assert row["received"] == row["in bag"], source
        assert row["received"] == row["used"] + row["skipped"] + row["malformed"] + row["dropped"], source
    assert outcome.cut_off == ""
    assert len(outcome.log.decisions) == 10


def test_source_that_comes_and_goes_is_told_once(
    tmp_path: Path, stub_policy: StubPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of a flapping camera must not bury the result under thousands of lines."""
    messages = [m for m in recording(4000) if "wrist" not in m[1] or m[0] % 1000 < 200]
    bag = write_bag(tmp_path, messages)
    assert main(arguments(tmp_path, bag)) == 0
    assert capsys.readouterr().out.count("not ready at") == 1
    run = json.loads((tmp_path / "report_bag_mcap" / "run.json").read_text())
    assert sum("not ready" in text for _, text in run["events"]) == 4  # the report has them all


def test_reasons_name_their_source(
    tmp_path: Path, stub_policy: StubPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    """`old (35995)` sends nobody to the driver of the joints."""
    messages = [m for m in recording(2000) if m[1] != "/joint_states" or m[0] < 500]
    assert main(arguments(tmp_path, write_bag(tmp_path, messages))) == 0
    assert "decisions not made, by reason: joint_states: old (" in capsys.readouterr().out


def test_recording_that_breaks_off_is_reported_up_to_there(
    tmp_path: Path,
    stub_policy: StubPolicy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was decided before the damage is not lost, and the exit code does not claim success."""
    whole = AnyReader.messages

    def broken(reader: AnyReader, *arguments: Any, **options: Any) -> Any:
        yield from islice(whole(reader, *arguments, **options), 60)
        raise ReaderError("chunk is damaged")

    monkeypatch.setattr(AnyReader, "messages", broken)
    bag = write_bag(tmp_path, recording())
    assert main(arguments(tmp_path, bag)) == 2
    printed = capsys.readouterr().out
    assert "error:" in printed
    assert "cannot be read beyond 0.650 s: chunk is damaged" in printed
    run = json.loads((tmp_path / "report_bag_mcap" / "run.json").read_text())
    assert len(run["decisions"]) == len(stub_policy.states) == 7


def test_ctrl_c_reports_what_was_replayed(
    tmp_path: Path,
    stub_policy: StubPolicy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lost otherwise: an hour of replay ends in a traceback and nothing else."""
    decide = stub_policy.decide

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if len(stub_policy.states) == 5:
            signal.raise_signal(signal.SIGINT)
        return decide(*arguments, **options)

    monkeypatch.setattr(stub_policy, "decide", interrupted)
    assert main(arguments(tmp_path, write_bag(tmp_path, recording()))) == 130
    printed = capsys.readouterr().out
    assert "5 decisions in" in printed
    assert re.search(r"interrupted at 0\.\d\d s of the bag; the report ends there", printed)
    run = json.loads((tmp_path / "report_bag_mcap" / "run.json").read_text())
    assert len(run["decisions"]) == 5
    assert "interrupted" in [text for _, text in run["events"]]


def test_ctrl_c_while_loading_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost otherwise: a traceback for whoever changes their mind during the minute that loading takes."""
    monkeypatch.setattr(
        "flashrt_ros.replay.load_policy_of", lambda config, progress: signal.raise_signal(signal.SIGINT)
    )
    assert main(arguments(tmp_path, write_bag(tmp_path, recording(100)))) == 130
    assert "interrupted; there is no report" in capsys.readouterr().out


def test_report_that_cannot_be_written_stops_before_the_replay(
    tmp_path: Path, stub_policy: StubPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an hour of replay it would be too late to learn it."""
    (tmp_path / "file").write_text("")
    bag = write_bag(tmp_path, recording(100))
    assert main([*arguments(tmp_path, bag), "--report", str(tmp_path / "file" / "report")]) == 2
    assert "cannot write the report (--report)" in capsys.readouterr().out
    assert stub_policy.states == []
