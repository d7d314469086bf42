# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A full-size Pi0.5 on one GPU: ceilings, correctness, then this engine, its ablations and its peers.

Usage: python -m benchmarks.run [--quick] [--cases 3v-968-50 …] [--no-ours] [--no-peers] [--lerobot eager]
       [--kernels] [--sustained 60] [--workdir DIR] [--out FILE]

Needs a CUDA build of torch and 9 GB in --workdir; ROS is not needed. Peers take part where `lerobot` (with
transformers) and `pi05_infer` can be imported. One JSON holds every raw sample;
`python -m benchmarks.performance_page` makes docs/performance.md from it.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.device import ceilings, gate, machine
from benchmarks.device.cases import CASES, Case
from benchmarks.device.inputs import Observation, Prompts, device_tensors, observations, write_checkpoints
from benchmarks.device.ours import ABLATIONS, OURS, Ours, PaddedPrompt, Variant
from benchmarks.device.peers import LeftOut, Task
from benchmarks.device.peers.lerobot import LeRobotCompiled, LeRobotEager
from benchmarks.device.peers.plain import PlainEager, PlainGraph
from benchmarks.device.peers.triton_engine import TritonEngine
from benchmarks.device.report import show_case
from benchmarks.device.timing import Engine, Sensors, interleaved, load, sustained
from flashrt_kernels.checkpoint.recipe import SIZES
from flashrt_kernels.cuda import manifest
from flashrt_ros.demo_setup import device_refusal

RESULT = Path(__file__).resolve().parent / "results" / "device.json"
TESTED = "device_run.json"  # beside it: which kernel sources ran on a GPU last
PEERS = (PlainEager, PlainGraph, TritonEngine)
SLOW_PEERS: dict[str, tuple[type[LeRobotEager], ...]] = {
    "no": (),
    "eager": (LeRobotEager,),
    "compiled": (LeRobotEager, LeRobotCompiled),
}
OBSERVATIONS = 12
LOAD_S = 5.0


@dataclass
class Options:
    """What one run measures. `rounds` of `turn_s` seconds per engine."""

    cases: list[Case]
    rounds: int
    turn_s: float
    ours: bool
    peers: bool
    slow_peers: tuple[type[LeRobotEager], ...]
    sustained_s: float
    kernels: bool = False
    size: str = "full"


@dataclass
class Run:
    """The growing result, and what all cases share."""

    options: Options
    folders: dict[str, Path]
    tensors: dict[str, torch.Tensor]
    sensors: Sensors
    console: Console
    ceilings: dict[str, Any]

    def case(self, case: Case) -> dict[str, Any]:
        """Build, check and time every engine of one case."""
        found = observations(self.folders[case.key], case, OBSERVATIONS)
        prompts = Prompts(self.folders[case.key])
        task = Task(case, SIZES[self.options.size].dims, self.tensors, prompts, found[0])
        builders = self.builders(case, task)
        names = [peer.name for peer in PEERS] + [peer.name for peer in SLOW_PEERS["compiled"]]
        left_out = {name: "not asked for in this case" for name in names if name not in builders}
        fp32 = gate.Fp32(task)
        with engines_of(builders, left_out, self.console) as engines:
            checks = self.check(engines, fp32, found, left_out)
            mine = [engine for engine in engines if isinstance(engine, Ours) and engine.name == OURS.name]
            if mine and case.prompt < prompts.config.tokenizer_max_length:
                engines.append(PaddedPrompt(mine[0], prompts))
            errors = {engine.name: self.error(engine, fp32, found[0]) for engine in engines}
            del fp32
            load(LOAD_S)
            samples = interleaved(engines, found, self.options.rounds, self.options.turn_s, self.sensors)
            steady = self.steady(mine, found)
            kernels = self.kernels(mine, case)
            return {
                "words": case.words,
                "prefix": case.prefix(task.dims.vision.patches),
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
                "sustained": steady,
                "kernels": kernels,
            }

    def kernels(self, mine: list[Ours], case: Case) -> list[dict[str, Any]]:
        """Every kernel of our graph alone, where that was asked for."""
        if not self.options.kernels or not mine:
            return []
        from benchmarks import kernels

        rows = kernels.measure_all(kernels.calls(mine[0].policy, case), ("own",), self.ceilings)
        kernels.show(self.console, case, rows)
        return rows

    def builders(self, case: Case, task: Task) -> dict[str, Callable[[], Engine]]:
        """Engine name → how to make it."""
        first = case is self.options.cases[0]
        found: dict[str, Callable[[], Engine]] = {}
        for variant in ((OURS, *ABLATIONS) if first else (OURS,)) if self.options.ours else ():
            found[variant.name] = self.ours(case, task.example, variant)
        peers = PEERS if self.options.peers else ()
        for peer in (*peers, *(self.options.slow_peers if first else ())):
            found[peer.name] = lambda peer=peer: peer(task)  # type: ignore[misc]
        return found

    def ours(self, case: Case, example: Observation, variant: Variant) -> Callable[[], Engine]:
        return lambda: Ours(self.folders[case.key], case, example, variant)

    def check(
        self, engines: list[Engine], fp32: gate.Fp32, found: list[Observation], left_out: dict[str, str]
    ) -> dict[str, Any]:
        """The gate, for every variant of ours. Raises SystemExit where the engine as installed fails it."""
        checks = {}
        for engine in [engine for engine in engines if isinstance(engine, Ours)]:
            outcome = checks[engine.name] = gate.check(engine, fp32, found)
            self.console.print(f"  gate, {engine.name}: {outcome['worst']}, moved {outcome['moved']}")
            if not outcome["passed"]:
                left_out[engine.name] = f"failed the correctness gate: {outcome['worst']}"
                engines.remove(engine)
                engine.close()
                if engine.name == OURS.name:
                    raise SystemExit(
                        f"{engine.name} failed the correctness gate; nothing was timed: {outcome}"
                    )
        return checks

    @staticmethod
    def error(engine: Engine, fp32: gate.Fp32, observation: Observation) -> float:
        """Of the actions, for the prompt that the engine uses."""
        if isinstance(engine, PaddedPrompt):
            observation = engine.longer(observation)
        return gate.error(engine.actions(observation), fp32.forward(observation)["actions"][0])

    def steady(self, mine: list[Ours], found: list[Observation]) -> dict[str, Any]:
        """First and last sixth of a minute without a pause, for our engine."""
        if not self.options.sustained_s or not mine:
            return {}
        before = self.sensors.read()
        taken = sustained(mine[0], found, self.options.sustained_s)
        return {"seconds": self.options.sustained_s, **taken, "before": before, "after": self.sensors.read()}


@contextmanager
def engines_of(
    builders: dict[str, Callable[[], Engine]], left_out: dict[str, str], console: Console
) -> Iterator[list[Engine]]:
    """Engines that could be made; the others are noted by name. All are closed at the end."""
    engines: list[Engine] = []
    for name, build in builders.items():
        start = time.monotonic()
        try:
            engines.append(build())
        except LeftOut as reason:
            left_out[name] = str(reason)
        except Exception as error:  # a broken peer must not take the others with it
            left_out[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            console.print_exception()
        console.print(f"  {name}: {left_out.get(name, 'ready')} ({time.monotonic() - start:.1f} s)")
        gc.collect()
        torch.cuda.empty_cache()
    try:
        yield engines
    finally:
        for engine in engines:
            engine.close()
        engines.clear()
        gc.collect()
        torch.cuda.empty_cache()


def measure(options: Options, workdir: Path | None, out: Path, console: Console) -> None:
    """The whole run; the JSON is written after every case."""
    sensors = Sensors()
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        start = time.monotonic()
        folders = write_checkpoints(Path(folder), options.cases, options.size)
        console.print(f"checkpoint written in {time.monotonic() - start:.1f} s")
        result: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"),
            "hardware": machine.hardware(sensors),
            "versions": machine.versions(),
            "settings": {"rounds": options.rounds, "turn_s": options.turn_s, "load_s": LOAD_S},
            "ceilings": ceilings.measure(),
            "cases": {},
        }
        console.print(f"ceilings ({time.monotonic() - start:.1f} s): {result['ceilings']}")
        tensors = device_tensors(folders[options.cases[0].key], "cuda")
        run = Run(options, folders, tensors, sensors, console, result["ceilings"])
        for case in options.cases:
            result["cases"][case.key] = run.case(case)
            write(out, result)
            show_case(
                console, f"{case.words} ({time.monotonic() - start:.0f} s so far)", result["cases"][case.key]
            )
    if options.ours:
        facts = {"date": result["date"], "device": result["hardware"]["gpu"]}
        write(out.with_name(TESTED), {**facts, "kernels": manifest.source_hashes()})
    console.print(f"written to {out}")


def write(path: Path, document: dict[str, Any]) -> None:
    """Raw samples one list a line: thousands of lines of one number each would be no easier to read."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([-\d.][^\[\]{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5 short rounds, without LeRobot")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--no-ours", action="store_true", help="peers and ceilings only")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--lerobot", choices=SLOW_PEERS, help="default: compiled, with --quick no")
    parser.add_argument("--kernels", action="store_true", help="also every kernel alone")
    parser.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument(
        "--workdir", type=Path, help="where the checkpoint is written; default: the temporary folder"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    a = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error(device_refusal("cuda"))
    if a.workdir is not None and shutil.disk_usage(a.workdir).free < 9e9:
        parser.error(f"--workdir {a.workdir}: less than 9 GB free")
    options = Options(
        cases=[CASES[key] for key in a.cases],
        rounds=5 if a.quick else 8,
        turn_s=0.25 if a.quick else 0.6,
        ours=not a.no_ours,
        peers=not a.no_peers,
        slow_peers=SLOW_PEERS[a.lerobot or ("no" if a.quick or a.no_peers else "compiled")],
        kernels=a.kernels,
        sustained_s=a.sustained,
    )
    measure(options, a.workdir, a.out, Console(width=130))


if __name__ == "__main__":
    main()
