# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The section of docs/performance.md about all policies, from benchmarks/results/policies.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.device.gate import LIMIT, MARGIN
from benchmarks.device.policies import POLICIES
from benchmarks.device.report import PERCENTILES, percentiles

HEAD = f"""\
## Every policy

Full size, seeded random weights, bf16, all views at 640×480 (GR00T N1.6: 480×480), by
`python -m benchmarks.policies`. *gpu* is of a whole decision; of Pi0-FAST of what comes before the text, and
*token* of one token of it. Gate: every intermediate within {LIMIT:.0%} of the same graphs in fp32 through the
kernels' references, and another instruction, state, pictures and swapped cameras each move the result by more
than {MARGIN:g} times its error. Published: by others, on their machines.
"""
MISSING = """\
## Every policy

Not measured yet: `python -m benchmarks.policies` compares and times Pi0, Pi0-FAST and GR00T beside Pi0.5.
"""


def section(result: Mapping[str, Any] | None) -> list[str]:
    """Lines of Markdown; where nothing was measured, that."""
    if result is None:
        return [MISSING]
    where = (
        f"{result['hardware']['gpu']}, {result['date']}." if "hardware" in result else f"{result['date']}."
    )
    quantities = (*(f"gpu {name}" for name in PERCENTILES), "token p50", "wall p50", "limit", "aim")
    header = ("policy", *quantities, "ready", "worst error", "gate", "published")
    rows = [row(key, found) for key, found in result["policies"].items()]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return [HEAD, where, "", *lines, *("| " + " | ".join(cells) + " |" for cells in rows), ""]


def row(key: str, found: Mapping[str, Any]) -> list[str]:
    """One policy; what failed the gate has no times."""
    case, gate, samples = POLICIES[key], found["gate"], found.get("samples", {})
    views = "1 view" if case.views == 1 else f"{case.views} views"

    def shown(quantity: str, percentile: str = "p50") -> str:
        values = samples.get(quantity)
        return f"{percentiles(values)[percentile]:.2f}" if values else "–"

    judged = samples.get("token") or samples.get("gpu")
    limits = [
        "–"
        if limit is None
        else f"≤ {limit:g}: {'kept' if judged and percentiles(judged)['p50'] <= limit else 'missed'}"
        for limit in (case.limit_ms, case.aim_ms)
    ]
    kind, worst = max(gate["worst"].items(), key=lambda item: item[1])
    published = "; ".join(f"{who}: {value:g} ms" for who, value in case.published) or "–"
    return [
        f"{case.policy}, {views}",
        *(shown("gpu", percentile) for percentile in PERCENTILES),
        shown("token"),
        shown("wall"),
        *limits,
        f"{found['ready_s']:.1f} s",
        f"{100 * worst:.2f} % ({kind})",
        "passed" if gate["passed"] else "failed",
        published,
    ]
