# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One case: build, check and time every engine. Runs in a process of its own, see `isolation`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.device import gate, isolation
from benchmarks.device.cases import CASES, Case
from benchmarks.device.inputs import Observation, Prompts, device_tensors, observations
from benchmarks.device.isolation import Journal
from benchmarks.device.ours import ABLATIONS, OURS, Ours, PaddedPrompt, Variant, is_ours
from benchmarks.device.peers import LeftOut, Task
from benchmarks.device.peers.lerobot import LeRobotCompiled, LeRobotEager
from benchmarks.device.peers.plain import PlainEager, PlainGraph
from benchmarks.device.peers.triton_engine import TritonEngine
from benchmarks.device.timing import Engine, Sensors, interleaved, load, sustained
from flashrt_kernels.checkpoint.recipe import SIZES

PEERS = (PlainEager, PlainGraph, TritonEngine)
SLOW_PEERS: dict[str, tuple[type[LeRobotEager], ...]] = {
    "no": (),
    "eager": (LeRobotEager,),
    "compiled": (LeRobotEager, LeRobotCompiled),
}
OBSERVATIONS = 12
LOAD_S = 5.0
Builders = dict[str, Callable[[], Engine]]


@dataclass(frozen=True)
class Options:
    """What one run measures of every case. `rounds` of `turn_s` seconds per engine."""

    rounds: int
    turn_s: float
    ours: bool = True
    peers: bool = True
    lerobot: str = "no"  # key of SLOW_PEERS
    sustained_s: float = 0.0
    kernels: bool = False
    size: str = "full"


@dataclass(frozen=True)
class Job:
    """One case for one process. Ablations, slow peers and the sustained minute: in the first only."""

    case: str
    first: bool
    checkpoint: str
    ceilings: dict[str, Any]
    options: Options
    without: dict[str, str]  # engines that are not to be touched again → why

    @classmethod
    def of(cls, found: dict[str, Any]) -> Job:
        return cls(**{**found, "options": Options(**found["options"])})


class OneCase:
    """Everything that happens in the child."""

    device = "cuda"

    def __init__(self, job: Job, journal: Journal, console: Console) -> None:
        self.job, self.journal, self.console = job, journal, console
        self.options = job.options
        self.case: Case = CASES[job.case]
        self.checkpoint = Path(job.checkpoint)
        self.sensors = Sensors()

    def run(self, finished: Callable[[dict[str, Any]], None]) -> None:
        """Hand the result to `finished` before any engine is closed: closing may end the process too."""
        found = observations(self.checkpoint, self.case, OBSERVATIONS)
        prompts = Prompts(self.checkpoint)
        tensors = device_tensors(self.checkpoint, self.device)
        task = Task(self.case, SIZES[self.options.size].dims, tensors, prompts, found[0], self.device)
        builders = self.builders(task)
        names = [peer.name for peer in PEERS] + [peer.name for peer in SLOW_PEERS["compiled"]]
        left_out = {name: "not asked for in this case" for name in names if name not in builders}
        left_out |= self.job.without
        builders = {name: build for name, build in builders.items() if name not in self.job.without}
        with engines_of(builders, left_out, self.journal, self.console) as engines:
            finished(self.measure(engines, task, found, left_out))

    def measure(
        self, engines: list[Engine], task: Task, found: list[Observation], left_out: dict[str, str]
    ) -> dict[str, Any]:
        """Gate, errors, timings: this case's part of the JSON."""
        fp32 = gate.Fp32(task)
        checks = self.check(engines, fp32, found, left_out)
        mine = [engine for engine in engines if isinstance(engine, Ours) and engine.name == OURS.name]
        if mine and self.case.prompt < task.prompts.config.tokenizer_max_length:
            engines.append(PaddedPrompt(mine[0], task.prompts))
        errors = {engine.name: self.error(engine, fp32, found[0]) for engine in engines}
        del fp32
        load(LOAD_S)
        turns = self.options.rounds, self.options.turn_s
        samples = interleaved(engines, found, *turns, self.sensors, self.journal.doing)
        return {
            "words": self.case.words,
            "prefix": self.case.prefix(task.dims.vision.patches),
            "engines": {
                engine.name: {
                    "what": engine.what,
                    "error": errors[engine.name],
                    "load_s": getattr(engine, "load_s", None),
                    "turns": samples.turns[engine.name],
                    "samples": samples.values[engine.name],
                }
                for engine in engines
            },
            "left_out": left_out,
            "gate": checks,
            "sensors": samples.sensors,
            "sustained": self.steady(mine, found),
            "kernels": self.kernels(mine),
        }

    def builders(self, task: Task) -> Builders:
        """Engine name → how to make it."""
        first, found = self.job.first, Builders()
        for variant in ((OURS, *ABLATIONS) if first else (OURS,)) if self.options.ours else ():
            found[variant.name] = self.ours(task.example, variant)
        peers = PEERS if self.options.peers else ()
        for peer in (*peers, *(SLOW_PEERS[self.options.lerobot] if first else ())):
            found[peer.name] = lambda peer=peer: peer(task)  # type: ignore[misc]
        return found

    def ours(self, example: Observation, variant: Variant) -> Callable[[], Engine]:
        return lambda: Ours(self.checkpoint, self.case, example, variant)

    def check(
        self, engines: list[Engine], fp32: gate.Fp32, found: list[Observation], left_out: dict[str, str]
    ) -> dict[str, Any]:
        """The gate, for every variant of ours. Raises Failure where the engine as installed fails it."""
        checks = {}
        for engine in [engine for engine in engines if isinstance(engine, Ours)]:
            with self.journal.doing(engine.name, "in the correctness gate"):
                outcome = checks[engine.name] = gate.check(engine, fp32, found)
                self.console.print(f"  gate, {engine.name}: {outcome['worst']}, moved {outcome['moved']}")
                if not outcome["passed"]:
                    left_out[engine.name] = f"failed the correctness gate: {outcome['worst']}"
                    engines.remove(engine)
                    engine.close()
                    if engine.name == OURS.name:
                        raise isolation.Failure(f"it did not pass, nothing was timed: {outcome}")
        return checks

    def error(self, engine: Engine, fp32: gate.Fp32, observation: Observation) -> float:
        """Of the actions, for the prompt that the engine uses."""
        if isinstance(engine, PaddedPrompt):
            observation = engine.longer(observation)
        want = fp32.forward(observation)["actions"][0]
        with self.journal.doing(engine.name, "when it was compared with fp32"):
            return gate.error(engine.actions(observation), want)

    def steady(self, mine: list[Ours], found: list[Observation]) -> dict[str, Any]:
        """First and last sixth of a minute without a pause, for our engine."""
        seconds = self.options.sustained_s
        if not seconds or not mine or not self.job.first:
            return {}
        before = self.sensors.read()
        with self.journal.doing(OURS.name, "in the sustained run"):
            taken = sustained(mine[0], found, seconds)
        return {"seconds": seconds, **taken, "before": before, "after": self.sensors.read()}

    def kernels(self, mine: list[Ours]) -> list[dict[str, Any]]:
        """Every kernel of our graph alone, where that was asked for."""
        if not self.options.kernels or not mine:
            return []
        from benchmarks import kernels

        with self.journal.doing(OURS.name, "while its kernels were timed"):
            calls = kernels.calls(mine[0].policy, self.case)
            rows = kernels.measure_all(calls, ("own",), self.job.ceilings)
        kernels.show(self.console, self.case, rows)
        return rows


@contextmanager
def engines_of(
    builders: Builders, left_out: dict[str, str], journal: Journal, console: Console
) -> Iterator[list[Engine]]:
    """Engines that could be made; the others are noted by name. All are closed at the end.

    Raises what an engine of ours raises: only a peer may be missing. `LeftOut` is a refusal, from anyone.
    """
    engines: list[Engine] = []
    for name, build in builders.items():
        start = time.monotonic()
        try:
            with journal.doing(name, "while it was built"):
                engines.append(build())
        except LeftOut as reason:
            left_out[name] = str(reason)
        except Exception as error:  # a broken peer must not take the others with it
            if is_ours(name):
                raise
            left_out[name] = isolation.described(error)
            console.print_exception()
        console.print(f"  {name}: {left_out.get(name, 'ready')} ({time.monotonic() - start:.1f} s)")
        journal.free_memory(name)
    yield engines
    while engines:
        engine = engines.pop(0)
        name = engine.name
        with journal.doing(name, "while it was closed"):
            engine.close()
        del engine
        journal.free_memory(name)


def main(folder: Path, console: Console, kind: type[OneCase] = OneCase) -> None:
    """Measure the job in `folder`; its result goes there."""
    job = Job.of(isolation.read(folder / isolation.JOB) or {})
    journal = Journal(folder, console)
    journal.nobody()
    kind(job, journal, console).run(lambda result: isolation.replace(folder / isolation.RESULT, result))
