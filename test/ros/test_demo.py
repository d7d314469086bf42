# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The demo: the first thing a newcomer runs. Its parts, and one short run of the whole."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from flashrt_kernels import DeviceError, load_policy
from flashrt_ros import demo, demo_setup
from flashrt_ros.demo_view import View
from flashrt_ros.processes import ChildDied, Children
from flashrt_ros.report import DecisionRecord, RunLog
from test.ros.support import wait_for

ROOT = Path(__file__).resolve().parents[2]


def run_log(
    decisions: int = 60,
    followed: int = 58,
    front_hz: float = 30.0,
    wrist_hz: float = 30.0,
    top_speed: float = 0.05,
) -> RunLog:
    log = RunLog("test", 0.5, ["pan", "lift"], source_rates={"front": front_hz, "wrist": wrist_hz})
    for index in range(decisions):
        rows = np.zeros((4, 2), np.float32)
        stages = {"vision": 30.0}
        log.decisions.append(
            DecisionRecord(
                0.2 * index, index, 1, "pick", 25.0, 1.0, 80.0, 85.0, stages, 0, rows, index < followed
            )
        )
    log.joint_samples = [(0.0, np.zeros(2)), (20.0, np.ones(2))]
    log.command_samples = [(0.0, np.zeros(2)), (20.0, np.full(2, top_speed * 20.0))]
    log.limits = {"pan": (-99.0, 99.0, 3.0)}
    return log


def silent_log() -> RunLog:
    """Nobody heard a command, and the node says that it sent none for the last decisions."""
    log = run_log(followed=50)
    log.command_samples = []
    log.decisions[50:] = [replace(record, commanded=False) for record in log.decisions[50:]]
    return log


CLEAN = {"policy_node": 0, "robot": 0}


@pytest.mark.parametrize(
    ("log", "exit_codes", "words"),
    [
        (run_log(decisions=49, followed=49), CLEAN, "49 decisions (at least 50 needed)"),
        (run_log(decisions=0), CLEAN, "0 decisions"),
        (run_log(followed=53), CLEAN, "53 of 60 decisions followed by the motion they commanded (88%"),
        (silent_log(), CLEAN, "50 of 60 decisions followed by the motion they commanded (83%"),
        (silent_log(), CLEAN, "needed); 10 of them sent no command"),
        (silent_log(), CLEAN, "no command was heard on joint_trajectory"),
        (run_log(top_speed=3.2), CLEAN, "beyond the joints' limits: pan at 3.200 per s, limit 3"),
        (run_log(front_hz=26.9), CLEAN, "camera front at 26.9 Hz (at least 27 Hz needed)"),
        (run_log(wrist_hz=0.0), CLEAN, "camera wrist at 0.0 Hz"),
        (run_log(), {"policy_node": -9, "robot": 0}, "policy_node ended with exit code -9"),
    ],
)
def test_verdict_says_exactly_what_failed(log: RunLog, exit_codes: dict[str, int], words: str) -> None:
    """Lost otherwise: a demo that did not work exits with 0, or fails without saying why."""
    failed = [check.text for check in demo.verdict(log, exit_codes) if not check.passed]
    assert any(words in text for text in failed)


def test_verdict_passes_a_good_run() -> None:
    """Lost otherwise: a demo that worked exits with 1."""
    assert all(check.passed for check in demo.verdict(run_log(), CLEAN))


def test_a_slow_computer_gets_more_time_but_not_for_ever() -> None:
    """Lost otherwise: the demo fails a moment before its fiftieth decision, or never ends."""
    settings = demo.parse([], start_s=0.0)
    assert demo.progress(settings, run_log(decisions=60), watched_s=20.0) >= 1.0
    assert demo.progress(settings, run_log(decisions=40), watched_s=20.0) < 1.0
    assert demo.progress(settings, run_log(decisions=40), watched_s=28.0) >= 1.0
    short = demo.parse(["--short"], start_s=0.0)
    assert demo.progress(short, run_log(decisions=demo.SHORT_DECISIONS), watched_s=11.0) >= 1.0
    assert demo.progress(short, run_log(decisions=demo.MIN_DECISIONS), watched_s=11.0) < 1.0


def test_unjudged_decisions_do_not_count_as_followed() -> None:
    """Lost otherwise: a run in which no joint state arrived passes."""
    log = run_log(followed=0)
    log.decisions = [DecisionRecord(**{**record.__dict__, "followed": None}) for record in log.decisions]
    assert not demo.verdict(log, CLEAN)[1].passed


def test_environment_keeps_the_demo_away_from_real_robots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: the demo's trajectories reach a robot on the same network."""
    for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTDDS_DEFAULT_PROFILES_FILE"):
        monkeypatch.setenv(name, "of the user's robot")
    demo_setup.set_environment(77)
    assert os.environ["ROS_DOMAIN_ID"] == "77"
    assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    profiles = [
        os.environ.get(f"{prefix}_DEFAULT_PROFILES_FILE") for prefix in ("FASTDDS", "FASTRTPS")
    ]  # by release of ROS
    assert str(ROOT / "config" / "fastdds_large_images.xml") in profiles


def test_environment_of_a_robot_developer_does_not_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: with another middleware, a discovery server or peers in the shell the processes of the
    demo never find each other, and nothing says why."""
    names = (*demo_setup.FOREIGN_VARIABLES, "RMW_IMPLEMENTATION", "ROS_DOMAIN_ID")
    for name in (*names, "ROS_AUTOMATIC_DISCOVERY_RANGE"):
        monkeypatch.setenv(name, "the user's")
    demo_setup.set_environment(77)
    assert os.environ["RMW_IMPLEMENTATION"] == "rmw_fastrtps_cpp"
    assert "the user's" not in os.environ.values()


def test_package_files_are_found_where_pip_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: after `pip install` the demo runs only inside the source tree, as pip sets no ament
    index."""
    installed = tmp_path / "share" / "flashrt_ros" / "config" / "demo.yaml"
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setattr(demo_setup, "__file__", str(tmp_path / "lib" / "flashrt_ros" / "demo_setup.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    assert demo_setup.package_file("config/demo.yaml") == installed


def test_checkpoint_is_made_anew_when_its_recipe_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: the demo runs with the checkpoint of another version."""
    before = demo_setup.checkpoint_folder()
    monkeypatch.setitem(demo_setup.CHECKPOINT, "--seed", "8")
    assert demo_setup.checkpoint_folder() != before


def test_a_child_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Lost otherwise: the demo waits for a dead node, and the reason stays in a file nobody opens."""
    with Children(tmp_path) as children:
        children.start("talker", ["-c", "print('what I was doing'); raise SystemExit(3)"])
        with pytest.raises(ChildDied, match=r"(?s)talker ended with exit code 3.*what I was doing"):
            children.wait("talker", timeout_s=20)
        children.start("sleeper", ["-c", "import time; time.sleep(60)"])
        children.check()
        children.start("killed", ["-c", "import os; os.kill(os.getpid(), 9)"])
        with pytest.raises(ChildDied, match="killed was ended by SIGKILL"):
            wait_for_death(children)


def wait_for_death(children: Children) -> None:
    for _ in range(200):
        children.check()
        time.sleep(0.05)


def test_children_are_stopped_with_sigint_and_killed_when_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost otherwise: processes stay behind after the demo, or are killed before they can stop cleanly."""
    monkeypatch.setattr("flashrt_ros.processes.STOP_TIMEOUT_S", 0.5)
    polite = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(7)); print('up'); time.sleep(60)"
    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); print('up'); time.sleep(60)"
    with Children(tmp_path) as children:
        children.start("polite", ["-c", polite])
        children.start("deaf", ["-c", deaf])
        for name in ("polite", "deaf"):
            while "up" not in children.log_path(name).read_text():
                time.sleep(0.02)
    assert children.exit_codes == {"polite": 7, "deaf": -signal.SIGKILL}


def test_two_demos_make_one_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost otherwise: the second of two demos that start together fails over the other's half-made files."""
    folder, made = tmp_path / "cache" / "demo_checkpoint_1", []

    def make(target: Path, *_: object) -> None:
        made.append(target)
        time.sleep(0.2)
        target.mkdir()

    monkeypatch.setattr(demo, "checkpoint_folder", lambda: folder)
    monkeypatch.setattr(demo, "make_checkpoint", make)
    nobody: Any = None
    threads = [threading.Thread(target=demo.prepare_checkpoint, args=(nobody, nobody)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert made == [folder]


def test_children_end_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    """Lost otherwise: a robot and a node go on in the background after `kill -9`, or when memory runs out."""
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    parent = (
        "import os, pathlib, sys, time\n"
        "from flashrt_ros.processes import Children\n"
        "children = Children(pathlib.Path(sys.argv[1]))\n"
        f"children.start('child', ['-c', {child!r}])\n"
        "while not children.log_path('child').read_text(): time.sleep(0.02)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", parent, str(tmp_path)], cwd=ROOT, timeout=30, check=False)
    process = Path("/proc", (tmp_path / "child.log").read_text().split()[0], "stat")
    wait_for("the end of the child", lambda: not process.exists() or ") Z " in process.read_text())


@pytest.mark.parametrize("terminal", [True, False])
def test_view_shows_the_run(terminal: bool) -> None:
    """Lost otherwise: the person in front of the demo sees nothing, in a terminal or in a log."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with View(time.monotonic(), console) as view:
        view.say("hello [not markup]")
        view.show(run_log(), {"front": 29.96}, now_s=12.0)
    text = out.getvalue()
    assert "hello [not markup]" in text
    assert "58 of 60" in text
    assert "front 30.0" in text
    assert ("commanded" in text) == terminal
    if terminal:
        row = [line.split() for line in text.splitlines() if line.startswith("pan")][-1]
        assert row == ["pan", "+1.000", "+1.000", "+0.000", "0.05", "3", "rad,", "rad/s"]


def processes_of_domain(domain: str) -> list[str]:
    """Command lines of this package's processes that run in the ROS domain."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # ended meanwhile
            continue
        if f"ROS_DOMAIN_ID={domain}".encode() in environment and "-m flashrt_ros." in command:
            found.append(command)
    return found


def default_signals() -> None:
    """In the child: tests under `nohup` or in a background job hand ignored signals on, and the demo respects
    that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def start_demo(folder: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "flashrt_ros.demo", "--report", str(folder), *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=default_signals,
    )


@pytest.mark.dds
@pytest.mark.serial
def test_short_demo_passes(tmp_path: Path) -> None:
    """Lost otherwise: `make demo` does not work."""
    process = start_demo(tmp_path / "report", "--short", "--domain", os.environ["ROS_DOMAIN_ID"])
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    raw = json.loads((tmp_path / "report" / "run.json").read_text())
    assert len(raw["decisions"]) >= demo.MIN_DECISIONS
    assert raw["facts"]["verdict"] == "passed"
    assert {record["instruction"] for record in raw["decisions"]} == {
        "pick up the red cube",
        demo.CHANGED_INSTRUCTION,
    }
    assert {camera for _, camera, _ in raw["frames"]} == set(demo.CAMERAS)
    measured = dict(raw["joint_samples"])
    pairs = [(row, measured[t_s]) for t_s, row in raw["command_samples"] if t_s in measured]
    assert len(pairs) > 500
    assert np.abs(np.subtract(*zip(*pairs, strict=True))).mean() < 0.02
    assert processes_of_domain(os.environ["ROS_DOMAIN_ID"]) == []
    for name in ("robot", "policy_node"):
        assert "Traceback" not in (tmp_path / "report" / f"{name}.log").read_text()


@pytest.mark.dds
def test_a_configure_that_fails_is_reported_in_the_words_of_the_node(tmp_path: Path) -> None:
    """Lost otherwise: 'configure failed', and the reason stays in a file that nobody opens."""
    (tmp_path / demo_setup.checkpoint_folder()).mkdir(parents=True)  # made, and emptied since
    report = tmp_path / "report"
    process = start_demo(report, "--domain", os.environ["ROS_DOMAIN_ID"], cwd=tmp_path)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "configure failed" in output
    assert "[ERROR]" in output
    assert "config.json" in output
    assert (report / "report.html").exists()


def test_a_node_without_an_error_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Lost otherwise: a node that hangs in configure leaves no hint on the screen."""
    with Children(tmp_path) as children:
        children.start("node", ["-c", "print('loading')"])
        children.wait("node", timeout_s=20)
        assert "loading" in children.complaint("node")
        children.log_path("node").write_text(
            "[ERROR] [1.5] [policy]: first\n[ERROR] [2.5] [policy]: last\n  of two lines\n[INFO] end\n"
        )
        assert children.complaint("node").endswith("[policy]: last\n  |   of two lines")


@pytest.mark.parametrize("device", ["cuda:77", "abacus"])
def test_a_device_that_does_not_exist_is_refused_before_anything_starts(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost otherwise: twelve seconds of starting processes for a sentence that was known at once."""
    with pytest.raises(DeviceError) as refused:
        load_policy("", device=device)
    assert device in str(refused.value)
    assert demo.main(["--device", device, "--report", str(tmp_path / "report")]) == 2
    assert capsys.readouterr().err == f"{refused.value}\n"
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--duration", "0"], "--duration is 0; it must be above 0 seconds"),
        (["--duration", "nan"], "--duration is nan"),
        (["--domain", "233"], "--domain is 233; it must be at least 0 and at most 232"),
        (["--report", str(ROOT / "README.md")], "README.md is no folder that can be written"),
    ],
)
def test_a_command_line_that_cannot_work_is_refused_at_once(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost otherwise: half a minute of demo, and then a traceback of the report, or nothing to judge."""
    try:
        code: int | str | None = demo.main(["--report", str(tmp_path), *arguments])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("lost", [True, False])
def test_ctrl_c_inside_of_rclpy_is_still_ctrl_c(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost otherwise: one Ctrl-C in ten ends in a traceback: rclpy's C++ code swallows or renames it."""

    def run(settings: demo.Settings) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if not lost:
                raise RuntimeError("Unable to convert call argument") from None
        demo.go_on(Children(tmp_path))
        return 0

    monkeypatch.setattr(demo, "run", run)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        assert demo.main(["--report", str(tmp_path)]) == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.dds
@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "first decision"), (signal.SIGTERM, "configure"), (signal.SIGHUP, "decisions")],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """Lost otherwise: after Ctrl-C a robot and a node go on in the background."""
    domain = os.environ["ROS_DOMAIN_ID"]
    process = start_demo(tmp_path, "--domain", domain)
    assert process.stdout is not None
    for line in process.stdout:
        if moment in line:
            break
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert processes_of_domain(domain) == []
