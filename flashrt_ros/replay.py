# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Replays a bag through the node's ingest and decision code, without a ROS graph.

    python -m flashrt_ros.replay BAG --params config/unitree_g1.yaml --checkpoint DIR

Time is the bag's clock: messages arrive at their time of recording, decisions begin as `trigger` says, the
first one once every required source has been heard of. A decision occupies its measured wall time on that
clock, so the frames that arrive meanwhile are skipped, as they are on the robot. What the middleware costs
there is not measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from flashrt_ros.bag import Bag, BagError, Damaged, wanted_topics
from flashrt_ros.bag_clock import PACERS, Pacer
from flashrt_ros.chunk import decision_steps_consumed
from flashrt_ros.decision import Decider
from flashrt_ros.ingest import Ingest
from flashrt_ros.loading import load_policy_of
from flashrt_ros.observation import JOINT_STATES, NS_PER_S, Decision, NotReady, Rejected
from flashrt_ros.parameters import ConfigError, NodeConfig, load_parameter_file
from flashrt_ros.replay_tables import EXPLANATIONS, count_rows, print_result
from flashrt_ros.report import DecisionRecord, RunLog, write_report

FRAMES = 12  # pictures of what the model saw, spread over the recording
JOINT_SAMPLE_HZ = 50.0
INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


@dataclass
class Outcome:
    """What a replay found, beside the log for the report."""

    log: RunLog
    in_bag: dict[str, int]  # messages of each source
    unused: dict[str, int]  # topic that nobody asked for → messages
    outcomes: Counter[str]  # decided, not_ready, rejected …
    missed: int
    span_s: float  # bag time during which decisions could be made
    too_late: int  # chunks with every step in the past: the node publishes no trajectory for them
    warnings: Counter[str] = field(default_factory=Counter)  # kind → times told
    reasons: Counter[str] = field(default_factory=Counter)  # why a decision was not made → times
    cut_off: str = ""  # why the rest of the recording could not be read
    interrupted_s: float | None = None  # bag time at which Ctrl-C ended it


class Replay:
    """One pass over one bag with one policy."""

    def __init__(self, config: NodeConfig, policy: Any, console: Console) -> None:
        """Binds the policy's cameras; raises ConfigError when names or sizes do not match."""
        self._config, self._policy, self._console = config, policy, console
        for note in config.check_policy(policy):
            console.print(f"  {note}", markup=False, highlight=False)
        policy.bind([camera.slot for camera in config.cameras])
        self._ingest = Ingest(config, self._warn, lambda text: self._event(text))
        self._decider = Decider(policy, self._ingest, config)
        self._pacer: Pacer | None = None
        self._log = RunLog(
            title="",
            step_s=1.0 / config.action_rate_hz,
            action_names=config.action_names,
            units=dict.fromkeys(config.action_names, "robot units"),  # JointState does not say which
        )
        self._warnings: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._damaged: Counter[str] = Counter()  # source → messages that could not be decoded
        self._not_ready_keys: tuple[str, ...] = ()
        self._told: set[tuple[str, ...]] = set()
        self._heard: set[str] = set()
        self._start_ns = self._now_ns = self._next_sample_ns = self._next_frame_ns = 0
        self._first_decision_ns: int | None = None
        self._frame_period_ns = NS_PER_S
        self._camera_of_slot = {policy.slot(camera.slot): camera.name for camera in config.cameras}
        self._joint_index = {name: index for index, name in enumerate(config.action_names)}

    def run(
        self, bag: Bag, namespace: str, remaps: dict[str, str], limit_s: float | None, progress: Progress
    ) -> Outcome:
        """Feed the first `limit_s` seconds of an open bag (all of it: None).

        Raises BagError where topics are missing. Where the file cannot be read to its end, or after Ctrl-C,
        the outcome is that of the part before.
        """
        config = self._config
        required = self._ingest.required
        wanted = wanted_topics(config, namespace, remaps)
        connections = bag.select(wanted, required)
        length_s = bag.duration_s if limit_s is None else min(limit_s, bag.duration_s)
        end_ns = bag.start_ns + round(length_s * NS_PER_S)
        self._start_ns = self._now_ns = bag.start_ns
        self._frame_period_ns = round(length_s / FRAMES * NS_PER_S)
        self._decider.flush()
        task = progress.add_task("replay", total=length_s, decisions=0)
        cut_off, interrupted_s = "", None
        messages = bag.messages(wanted, connections, limit_s)
        try:
            for source, message, at_ns in messages:
                self._decide_until(at_ns)
                self._now_ns = at_ns
                self._take(source, message, at_ns, required)
                progress.update(task, completed=self._t_s(at_ns), decisions=len(self._log.decisions))
            self._decide_until(end_ns + 1)
        except BagError as error:
            cut_off, end_ns = str(error), self._now_ns
            self._warn("cut off", cut_off)
            self._decide_until(end_ns + 1)
        except KeyboardInterrupt:  # an hour of replay is not thrown away
            interrupted_s, end_ns = self._t_s(self._now_ns), self._now_ns
            self._event("interrupted")
        progress.update(task, completed=self._t_s(end_ns), decisions=len(self._log.decisions))
        outcome = self._outcome(bag, wanted, end_ns)
        outcome.cut_off, outcome.interrupted_s = cut_off, interrupted_s
        return outcome

    def _take(self, source: str, message: Any, at_ns: int, required: tuple[str, ...]) -> None:
        if isinstance(message, Damaged):
            self._damaged[source] += 1
            if self._damaged[source] == 1:
                self._warn("damaged", f"{source}: {message.problem}")
            return
        self._ingest.put(source, message, at_ns)
        if source == JOINT_STATES:
            self._sample_joints(message, at_ns)
        self._pace(source, at_ns, required)

    def _t_s(self, at_ns: int) -> float:
        return (at_ns - self._start_ns) / NS_PER_S

    def _event(self, text: str) -> None:
        self._log.events.append((self._t_s(self._now_ns), text))

    def _warn(self, kind: str, text: str) -> None:
        self._warnings[kind] += 1
        self._event(f"warning ({kind}): {text}")
        self._console.print(f"[yellow]warning ({kind})[/] at {self._t_s(self._now_ns):.2f} s: ", end="")
        self._console.print(f"{text.rstrip('.')}. {EXPLANATIONS[kind]}", markup=False, highlight=False)

    def _pace(self, source: str, at_ns: int, required: tuple[str, ...]) -> None:
        self._heard.add(source)
        if self._pacer is None and self._heard.issuperset(required):
            self._pacer = PACERS[self._config.trigger](self._config, at_ns)
            self._first_decision_ns = at_ns
        if self._pacer is not None:
            self._pacer.arrived(source, at_ns)

    def _decide_until(self, end_ns: int) -> None:
        """Make the decisions that are due before `end_ns`."""
        pacer = self._pacer
        while pacer is not None and pacer.due_ns is not None and pacer.due_ns < end_ns:
            began_ns = self._now_ns = pacer.due_ns
            wall_ns = time.monotonic_ns()
            outcome = self._decider.decide(began_ns)
            finished_ns = began_ns + time.monotonic_ns() - wall_ns
            pacer.decided(began_ns, finished_ns, not isinstance(outcome, NotReady))
            if isinstance(outcome, Decision):
                self._record(outcome, finished_ns)
            else:
                self._skip(outcome)

    def _record(self, decision: Decision, finished_ns: int) -> None:
        if self._not_ready_keys:
            self._not_ready_keys = ()
            self._event("ready again")
        self._log.decisions.append(
            DecisionRecord(
                t_s=self._t_s(finished_ns),
                sequence=decision.sequence,
                epoch=decision.epoch,
                instruction=decision.instruction,
                age_ms=decision.age_ms,
                ingest_ms=decision.ingest_ms,
                policy_ms=decision.policy_ms,
                total_ms=decision.total_ms,
                stage_ms=decision.stage_ms,
                steps_consumed=decision_steps_consumed(decision, self._config.action_rate_hz),
                actions=decision.actions,
            )
        )
        if self._now_ns >= self._next_frame_ns:
            self._next_frame_ns = self._now_ns + self._frame_period_ns
            for slot, pixels in self._policy.model_images().items():  # uint8 [h, w, 3]
                camera = self._camera_of_slot.get(slot, slot.rpartition(".")[2])
                self._log.frames.append((self._t_s(self._now_ns), camera, pixels.copy()))

    def _skip(self, outcome: NotReady | Rejected) -> None:
        if isinstance(outcome, Rejected):
            self._reasons[outcome.kind] += 1
            if self._reasons[outcome.kind] == 1:
                self._event(f"decision rejected: {outcome.reason}")
            return
        self._reasons.update(outcome.keys)
        if outcome.keys == self._not_ready_keys:
            return
        self._not_ready_keys = outcome.keys
        self._event(f"not ready: {outcome}")
        if outcome.keys not in self._told:  # a source that comes and goes would fill the screen
            self._told.add(outcome.keys)
            self._console.print(
                f"not ready at {self._t_s(self._now_ns):.2f} s: {outcome}", markup=False, highlight=False
            )

    def _sample_joints(self, message: Any, at_ns: int) -> None:
        """Measured positions in the order of the actions, for the report; NaN where the message has none."""
        if at_ns < self._next_sample_ns or len(message.name) != len(message.position):
            return
        self._next_sample_ns = at_ns + round(NS_PER_S / JOINT_SAMPLE_HZ)
        positions = np.full(len(self._joint_index), np.nan)  # [D]
        for name, position in zip(message.name, message.position, strict=True):
            if name in self._joint_index:
                positions[self._joint_index[name]] = position
        self._log.joint_samples.append((self._t_s(at_ns), positions))

    def _outcome(self, bag: Bag, wanted: dict[str, tuple[str, str]], end_ns: int) -> Outcome:
        topics = bag.topics()
        in_bag = {wanted[topic.name][0]: topic.count for topic in topics if topic.name in wanted}
        self._log.source_counts = {
            source: {"in bag": in_bag.get(source, 0), **count_rows(counts, self._damaged[source])}
            for source, counts in self._ingest.counts().items()
        }
        self._log.source_rates = self._ingest.rates_hz(self._now_ns)
        first_ns = end_ns if self._first_decision_ns is None else self._first_decision_ns
        if self._pacer is None:
            self._reasons[f"never heard of {', '.join(sorted(set(in_bag) - self._heard))}"] += 1
        return Outcome(
            log=self._log,
            in_bag=in_bag,
            unused={topic.name: topic.count for topic in topics if topic.name not in wanted},
            outcomes=self._decider.counts,
            missed=self._pacer.missed if self._pacer is not None else 0,
            span_s=(end_ns - first_ns) / NS_PER_S,
            too_late=sum(record.steps_consumed >= len(record.actions) for record in self._log.decisions),
            warnings=self._warnings,
            reasons=self._reasons,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """0: decided; 1: no decision; 2: bag, parameters or checkpoint were refused, or a bag broke off;
    130: Ctrl-C.

    What was decided before that is printed and reported all the same.
    """
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True)
    try:
        return _main(options, console)
    except (ConfigError, BagError) as error:
        console.print("[red]error:[/] ", end="")
        console.print(str(error), markup=False, highlight=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; there is no report")
        return INTERRUPTED


def _main(options: argparse.Namespace, console: Console) -> int:
    config = _config(options)
    with Bag(options.bag) as bag:
        console.print(f"loading {config.checkpoint} on {config.device}", markup=False, highlight=False)
        began = time.monotonic()
        columns = (TextColumn("  weights"), BarColumn(), DownloadColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("weights", total=None)
            policy = load_policy_of(config, lambda done, total: bar.update(task, completed=done, total=total))
        config = config.for_horizon(policy.horizon)
        replay = Replay(config, policy, console)
        policy.warm_up()
        console.print(
            f"  {policy.name} ({policy.origin}) ready after {time.monotonic() - began:.1f} s", highlight=False
        )
        _check_report(options.report)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[decisions]} decisions"),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            outcome = replay.run(bag, options.namespace, dict(options.remap), options.limit, progress)
        outcome.log.title = f"Replay of {bag.path.name}"
        outcome.log.facts = _facts(bag, config, policy.name, outcome)
        policy.close()
    print_result(console, outcome)
    try:
        report = write_report(outcome.log, options.report)
    except OSError as error:  # a disk that is full
        raise ConfigError(f"cannot write the report: {error}") from error
    console.print(f"report: {report}", markup=False, highlight=False)
    if outcome.cut_off:
        raise BagError(outcome.cut_off)
    if outcome.interrupted_s is not None:
        console.print(f"interrupted at {outcome.interrupted_s:.2f} s of the bag; the report ends there")
        return INTERRUPTED
    return 0 if outcome.log.decisions else 1


def _check_report(folder: Path) -> None:
    """Before an hour of replay, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write the report (--report): {error}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write the report (--report): no permission to write into {folder}")


def _config(options: argparse.Namespace) -> NodeConfig:
    node = "policy" if not options.namespace else f"/{options.namespace.strip('/')}/policy"
    flat = load_parameter_file(options.params, node)
    for name in ("checkpoint", "tokenizer", "instruction", "device"):
        value = getattr(options, name)
        if value is not None:
            flat[name] = value
    return NodeConfig.from_dict(flat)


def _facts(bag: Bag, config: NodeConfig, policy: str, outcome: Outcome) -> dict[str, str]:
    pace = {"timer": f"timer, {config.decision_rate:g} Hz", "camera": f"images of {config.trigger_camera}"}
    rate = len(outcome.log.decisions) / outcome.span_s if outcome.span_s > 0 else 0.0
    return {
        "bag": f"{bag.path.name}, {bag.duration_s:.1f} s",
        "policy": f"{policy} from {Path(config.checkpoint).name}",
        "device": f"{config.device}{f', {config.precision}' if config.precision else ''}",
        "instruction": config.instruction or "(none)",
        "decisions start with": pace.get(config.trigger, "the end of the one before"),
        "decisions": f"{len(outcome.log.decisions)} ({rate:.2f} Hz)",
        "chunks that came too late": str(outcome.too_late),
        "deadlines missed": str(outcome.missed),
        "time": "bag clock; a decision occupies its measured wall time",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flashrt_ros.replay", description="Feed a rosbag2 to the policy, without ROS."
    )
    parser.add_argument("bag", type=Path, help="folder of a rosbag2, or its .mcap / .db3 file")
    parser.add_argument("--params", type=Path, required=True, help="parameter file of the node")
    parser.add_argument("--checkpoint", help="replaces the file's checkpoint")
    parser.add_argument("--tokenizer", help="replaces the file's tokenizer")
    parser.add_argument("--instruction", help="replaces the file's instruction")
    parser.add_argument("--device", help="replaces the file's device")
    parser.add_argument(
        "--report", type=Path, default=Path("replay_report"), help="folder for the report (%(default)s)"
    )
    parser.add_argument("--limit", type=_seconds, metavar="S", help="only the first S seconds of the bag")
    parser.add_argument("--namespace", default="", help="namespace in which the bag was recorded")
    parser.add_argument(
        "--remap",
        type=_remap,
        action="append",
        default=[],
        metavar="FROM:=TO",
        help="as on ROS command lines",
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds above 0 is needed")
    return value


def _remap(text: str) -> tuple[str, str]:
    source, separator, target = text.partition(":=")
    if not (source and separator and target):
        raise argparse.ArgumentTypeError(f"{text}: write FROM:=TO")
    return source, target


if __name__ == "__main__":
    sys.exit(main())
