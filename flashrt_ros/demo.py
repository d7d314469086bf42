# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The demo: a simulated robot, the policy node and a monitor, each a process of its own, talking over ROS 2.

    python -m flashrt_ros.demo [--device cpu] [--duration 20] [--report demo_report] [--short] [--domain N]

Ends by itself. Exit code 0 only when enough decisions were made, the arm followed what they commanded, the
commands kept its limits, and both cameras ran.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from flashrt_ros.demo_setup import (
    CAMERAS,
    CHECKPOINT,
    checkpoint_folder,
    cpu_name,
    device_refusal,
    package_file,
    set_environment,
)

# Only light modules here: the first line must appear at once. What needs numpy or rclpy is imported later.
if TYPE_CHECKING:
    from flashrt_ros.demo_view import View
    from flashrt_ros.monitor import Monitor
    from flashrt_ros.processes import Children
    from flashrt_ros.report import RunLog

POLICY = "policy"
CHANGED_INSTRUCTION = "put the yellow bottle into the green box"
MIN_DECISIONS, MIN_FOLLOWED, MIN_CAMERA_HZ = 50, 0.9, 27.0
SHORT_DECISIONS = 55
TRANSITION_TIMEOUT_S, CHECKPOINT_TIMEOUT_S, FIRST_DECISION_TIMEOUT_S = 120.0, 120.0, 10.0
POLL_PERIOD_S, PATIENCE_S = 0.05, 7.0
_stop = threading.Event()  # a signal asked for the end
MAX_DOMAIN = 232  # of DDS, with its default ports


@dataclass(frozen=True)
class Settings:
    """The command line."""

    device: str
    duration_s: float
    report: Path
    short: bool
    domain: int
    start_s: float  # monotonic clock at the start of the process


@dataclass(frozen=True)
class Check:
    """One condition of the verdict, in words."""

    passed: bool
    text: str


def verdict(log: RunLog, exit_codes: dict[str, int]) -> list[Check]:
    """What must hold for a demo to have worked."""
    made = len(log.decisions)
    followed = sum(record.followed is True for record in log.decisions)
    silent = sum(record.commanded is False for record in log.decisions)
    share = followed / made if made else 0.0
    checks = [
        Check(made >= MIN_DECISIONS, f"{made} decisions (at least {MIN_DECISIONS} needed)"),
        Check(
            share >= MIN_FOLLOWED,
            f"{followed} of {made} decisions followed by the motion they commanded ({share:.0%}, at least "
            f"{MIN_FOLLOWED:.0%} needed)" + (f"; {silent} of them sent no command" if silent else ""),
        ),
    ]
    checks.append(limit_check(log))
    for camera in CAMERAS:
        rate = log.source_rates.get(camera, 0.0)
        needed = f"at least {MIN_CAMERA_HZ:g} Hz needed"
        checks.append(Check(rate >= MIN_CAMERA_HZ, f"camera {camera} at {rate:.1f} Hz ({needed})"))
    for name, code in exit_codes.items():
        checks.append(Check(code == 0, f"{name} ended with exit code {code} (0 needed)"))
    return checks


def limit_check(log: RunLog) -> Check:
    """Whether the commands stayed within the positions and speeds that the joints allow."""
    from flashrt_ros.following import beyond_limits

    if not log.command_samples:
        return Check(False, "no command was heard on joint_trajectory")
    beyond = beyond_limits(log)
    words = f"beyond the joints' limits: {'; '.join(beyond)}" if beyond else "within the joints' limits"
    return Check(not beyond, f"all commands {words}")


def prepare_checkpoint(children: Children, view: View) -> Path:
    """Make the checkpoint unless an earlier run did; a demo that starts beside this one waits meanwhile."""
    folder = checkpoint_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "demo_checkpoint.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make_checkpoint(folder, children, view)
    return folder


def make_checkpoint(folder: Path, children: Children, view: View) -> None:
    """Make the checkpoint in `folder`, remove those of other versions."""
    for old in folder.parent.glob("demo_checkpoint_*"):
        shutil.rmtree(old)
    view.say(f"making a small Pi0.5 checkpoint with random weights in {folder} (first run only)")
    arguments = ["=".join(pair) for pair in CHECKPOINT.items()]
    children.start(
        "make_checkpoint", ["-m", "flashrt_kernels.make_checkpoint", "pi05", str(folder), *arguments]
    )
    children.wait("make_checkpoint", CHECKPOINT_TIMEOUT_S)


def run(settings: Settings) -> int:
    """The whole demo; returns the exit code."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from flashrt_ros.demo_view import View
    from flashrt_ros.monitor import Monitor, MonitorError
    from flashrt_ros.processes import ChildDied, Children

    set_environment(settings.domain)
    log, start_ns = new_log(settings), time.time_ns() - round((time.monotonic() - settings.start_s) * 1e9)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    children = Children(settings.report)
    failure = ""
    try:
        with children, View(settings.start_s) as view:
            start_processes(settings, children, view)
            monitor = Monitor(log, CAMERAS, POLICY, start_ns)
            try:
                drive(settings, log, children, monitor, view)
            finally:
                monitor.close()
    except ChildDied as error:
        failure = str(error)
    except MonitorError as error:
        failure = f"{error}; {children.complaint('policy_node')}"
    finally:
        rclpy.try_shutdown()
    return conclude(settings, log, children.exit_codes, failure)


def new_log(settings: Settings) -> RunLog:
    """An empty log of the simulated arm under config/demo.yaml."""
    from flashrt_ros.parameter_file import load_parameter_file
    from flashrt_ros.report import RunLog
    from flashrt_ros.sim.arm import JOINTS

    parameters = load_parameter_file(package_file("config/demo.yaml"))
    return RunLog(
        title="Simulated arm driven by the policy node",
        step_s=1.0 / parameters["action_rate_hz"],
        action_names=[joint.name for joint in JOINTS],
        units={joint.name: joint.unit for joint in JOINTS},
        limits={joint.name: (joint.lower, joint.upper, joint.max_velocity) for joint in JOINTS},
        facts={
            "policy": f"Pi0.5, size {CHECKPOINT['--size']}, random weights, on {settings.device}",
            "computer": f"{cpu_name()}, {os.cpu_count()} cores",
            "software": ", ".join(f"{name} {metadata.version(name)}" for name in ("rclpy", "torch", "numpy"))
            + f", Python {platform.python_version()}",
        },
    )


def start_processes(settings: Settings, children: Children, view: View) -> None:
    """The robot and the (still unconfigured) node, and the checkpoint that the node will be told to load."""
    view.say(
        f"starting robot and policy node; logs in {settings.report}; ROS_DOMAIN_ID={settings.domain}, "
        "this computer only"
    )
    children.start("robot", ["-m", "flashrt_ros.sim.robot"])
    parameters = {"checkpoint": str(checkpoint_folder().resolve()), "device": settings.device}
    children.start(
        "policy_node",
        [
            *("-m", "flashrt_ros.policy_node", "--ros-args"),
            *("--params-file", str(package_file("config/demo.yaml"))),
            *(text for name, value in parameters.items() for text in ("-p", f"{name}:={value}")),
        ],
    )
    prepare_checkpoint(children, view)


def drive(settings: Settings, log: RunLog, children: Children, monitor: Monitor, view: View) -> None:
    """Bring the node up, watch it decide, change the instruction once, bring it down."""
    view.say("policy node: configure (load, plan, warm up)")
    monitor.transition("configure", TRANSITION_TIMEOUT_S, lambda: go_on(children))
    monitor.transition("activate", TRANSITION_TIMEOUT_S, lambda: go_on(children))
    wait_for_first_decision(log, children, monitor, view)
    begin_s = monitor.now_s()
    monitor.start_rates()

    def watch(until: float) -> None:
        """Poll until this share of the run is over."""
        while progress(settings, log, monitor.now_s() - begin_s) < until:
            go_on(children)
            monitor.poll()
            view.show(log, monitor.rates(), monitor.now_s())
            time.sleep(POLL_PERIOD_S)

    try:
        watch(0.5)
        monitor.say(CHANGED_INSTRUCTION)
        view.say(f'instruction changed to "{CHANGED_INSTRUCTION}"')
        watch(1.0)
    finally:  # a run that breaks off still tells what the cameras did
        monitor.finish_rates()
    monitor.transition("deactivate", TRANSITION_TIMEOUT_S, lambda: go_on(children))
    monitor.poll(finished=True)
    view.say("stopping")


def go_on(children: Children) -> None:
    """Raises ChildDied when a process is gone, KeyboardInterrupt when the demo was asked to stop."""
    if _stop.is_set():
        raise KeyboardInterrupt
    children.check()


def progress(settings: Settings, log: RunLog, watched_s: float) -> float:
    """How much of the run is over, 1 = all; a short run ends when it has enough decisions."""
    made = len(log.decisions)
    # A slow computer gets some seconds more to reach the number that the verdict needs.
    by_time = watched_s / (settings.duration_s + (PATIENCE_S if made < MIN_DECISIONS else 0.0))
    return max(by_time, made / SHORT_DECISIONS) if settings.short else by_time


def wait_for_first_decision(log: RunLog, children: Children, monitor: Monitor, view: View) -> None:
    """Raises MonitorError with what the node says about itself when no decision comes."""
    from flashrt_ros.monitor import MonitorError

    deadline = time.monotonic() + FIRST_DECISION_TIMEOUT_S
    while not log.decisions:
        go_on(children)
        monitor.poll()
        if time.monotonic() > deadline:
            said = "\n".join(f"  {name}: {text}" for name, text in monitor.statuses.items())
            raise MonitorError(f"no decision within {FIRST_DECISION_TIMEOUT_S:g} s; the node says:\n{said}")
        time.sleep(POLL_PERIOD_S)
    view.say("first decision")


def conclude(settings: Settings, log: RunLog, exit_codes: dict[str, int], failure: str) -> int:
    """Write the report, print the verdict, return the exit code."""
    from flashrt_ros.demo_view import summary
    from flashrt_ros.report import write_report

    checks = [Check(False, failure)] if failure else []
    checks += verdict(log, exit_codes)
    passed = all(check.passed for check in checks)
    if log.decisions:
        log.facts["first decision"] = f"{log.decisions[0].t_s:.1f} s after the start"
        log.facts |= summary(log, log.source_rates)
    log.facts["verdict"] = "passed" if passed else "failed"
    log.facts |= {f"check {i + 1}": ("" if c.passed else "FAILED: ") + c.text for i, c in enumerate(checks)}
    page = write_report(log, settings.report)
    for check in checks:
        print(f"{'ok    ' if check.passed else 'FAILED'}  {check.text}")
    seconds = time.monotonic() - settings.start_s
    print(f"demo {log.facts['verdict']} after {seconds:.0f} s; report: {page}", flush=True)
    return 0 if passed else 1


def parse(arguments: Sequence[str] | None, start_s: float) -> Settings:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m flashrt_ros.demo", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--device", default="cpu", help="where the policy runs (default: cpu)")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds of decisions (default: 20)")
    parser.add_argument("--report", type=Path, default=Path("demo_report"), help="folder of report and logs")
    parser.add_argument(
        "--short", action="store_true", help=f"stop after {SHORT_DECISIONS} decisions, enough for the verdict"
    )
    # Ports of domains above 101 can collide with ephemeral ones; low domains are those that robots use.
    private = 40 + os.getpid() % 62
    parser.add_argument(
        "--domain", type=int, default=private, help="ROS_DOMAIN_ID of the demo (default: a private one)"
    )
    given = parser.parse_args(arguments)
    if not 0 < given.duration < math.inf:
        parser.error(f"--duration is {given.duration:g}; it must be above 0 seconds")
    if not 0 <= given.domain <= MAX_DOMAIN:
        parser.error(f"--domain is {given.domain}; it must be at least 0 and at most {MAX_DOMAIN}")
    return Settings(given.device, given.duration, given.report, given.short, given.domain, start_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns its exit code (130 after Ctrl-C, 2 for a command line that cannot work)."""
    settings = parse(arguments, time.monotonic())
    refusal = device_refusal(settings.device)
    if refusal:
        print(refusal, file=sys.stderr)
        return 2
    try:
        settings.report.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=settings.report).close()
    except OSError as error:
        print(f"--report {settings.report} is no folder that can be written: {error}", file=sys.stderr)
        return 2
    _stop.clear()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored: nohup, or a background job
            signal.signal(number, _on_signal)
    try:
        print(
            f"flashrt_ros demo: a simulated arm and a policy on {settings.device}; ends by itself in about "
            f"{settings.duration_s + 15:.0f} s",
            flush=True,
        )
        return run(settings)
    except (KeyboardInterrupt, RuntimeError):
        # Inside of rclpy's C++ code the interrupt comes out as a RuntimeError, or not at all: see go_on.
        if not _stop.is_set():
            raise
        print("demo interrupted; robot and policy node are stopped", flush=True)
        return 130


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Leave through the same doors, so that the children are stopped."""
    _stop.set()
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
