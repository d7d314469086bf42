# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Memory of the node over many decisions: the real node, a tiny Pi0.5, two VGA cameras over DDS.

Two runs, each in a process of its own, because tracing costs memory itself: one traces Python's allocations,
one watches the resident set. The first 200 decisions are left out of both.

Usage: python -m benchmarks.memory [--decisions 2000]
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.live_node import JOINT_NAMES, live_node
from benchmarks.record import Record, Target
from flashrt_ros.commands import Accepted
from flashrt_ros.demo_setup import CAMERAS

EVERY = 50  # decisions between two samples
SETTLED = 200
LIMIT_BYTES_PER_DECISION = 100.0
LIMIT_RSS_MB = 2.0


def traced_bytes() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def resident_bytes() -> float:
    return float(psutil.Process().memory_info().rss)


SAMPLERS: dict[str, Callable[[], float]] = {"traced": traced_bytes, "resident": resident_bytes}


def sample_node(sampler: Callable[[], float], decisions: int) -> list[tuple[int, float]]:
    """(decisions so far, bytes) at every 50th decision of an active node."""
    from flashrt_kernels.make_checkpoint import Recipe, make_checkpoint
    from flashrt_ros.loading import load_policy_of

    dims = len(JOINT_NAMES)
    with tempfile.TemporaryDirectory() as folder:
        recipe = Recipe(size="tiny", seed=1, action_dim=dims, state_dim=dims, cameras=CAMERAS)
        checkpoint = make_checkpoint(Path(folder, "tiny"), recipe)
        pace: dict[str, Any] = {"trigger": "timer", "decision_rate": 30.0, "cpu_threads": 1}
        with live_node(load_policy_of, checkpoint=str(checkpoint), **pace) as (live, children):
            samples: list[tuple[int, float]] = []
            publish = live.running.outputs.publish
            counts = live.running.decider.counts

            def publish_and_sample(*arguments: Any) -> Accepted:
                """Always at the same point of a decision: a VGA image more or less is 900 KB."""
                accepted = publish(*arguments)
                if counts["decided"] % EVERY == 0:
                    samples.append((counts["decided"], sampler()))
                return accepted

            live.running.outputs.publish = publish_and_sample  # type: ignore[method-assign, assignment]
            live.node.trigger_activate()
            live.run(lambda: counts["decided"] >= decisions, decisions / 3 + 60, children)
            return samples


def in_a_process_of_its_own(what: str, decisions: int) -> np.ndarray:
    """Samples [n, 2] of `sample_node`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "samples.json")
        command = [sys.executable, "-m", "benchmarks.memory", "--decisions", str(decisions)]
        subprocess.run([*command, "--sample", what, "--out", str(out)], check=True)
        samples = np.array(json.loads(out.read_text(encoding="utf-8")))
    return samples[samples[:, 0] >= SETTLED]


def measure(decisions: int) -> Record:
    record = Record("memory", {"decisions": decisions, "sampled_every": EVERY, "from_decision": SETTLED})
    traced = in_a_process_of_its_own("traced", decisions)
    slope = float(np.polyfit(traced[:, 0], traced[:, 1], 1)[0])
    resident = in_a_process_of_its_own("resident", decisions) / (1, 1e6)
    growth = float(resident[-1, 1] - resident[0, 1])
    record.add("traced by tracemalloc, MB", traced[:, 1] / 1e6)
    record.add("resident set, MB", resident[:, 1])
    record.targets = [
        Target("tracemalloc slope", slope, LIMIT_BYTES_PER_DECISION, "bytes per decision"),
        Target("growth of the resident set", growth, LIMIT_RSS_MB, "MB"),
    ]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--sample", choices=SAMPLERS, help="be one of the two processes")
    parser.add_argument("--out", type=Path, help="where that process writes its samples")
    arguments = parser.parse_args()
    if arguments.sample is None:
        measure(arguments.decisions).finish()
        return
    if arguments.sample == "traced":
        tracemalloc.start()
    samples = sample_node(SAMPLERS[arguments.sample], arguments.decisions)
    arguments.out.write_text(json.dumps(samples), encoding="utf-8")


if __name__ == "__main__":
    main()
