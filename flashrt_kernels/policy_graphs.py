# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The graphs of a policy: one for vision, and behind it one for every length of prompt."""

from __future__ import annotations

from flashrt_kernels.arena import Memory
from flashrt_kernels.backend import Backend
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models.model import Model

BUCKET, LARGEST_BUCKET = 32, 192  # prompt tokens


class PolicyGraphs:
    """Graphs for one number of cameras.

    vision: depends on no prompt, so it can run while the prompt is made.
    buckets: by prompt tokens; they never run at the same time and share one arena.
    """

    def __init__(
        self, name: str, model: Model, backend: Backend, cameras: int, limit: int, image_bytes: int
    ) -> None:
        """Composes all; `plan` makes them ready. limit: most tokens of a prompt. image_bytes: of an image."""
        self._backend = backend
        name = f"{name}, {cameras} cameras"
        self.vision = StaticGraph(f"{name}, vision", backend)
        model.compose_vision(self.vision, cameras, limit, image_bytes)
        self.buckets: dict[int, StaticGraph] = {}
        for tokens in (*range(BUCKET, min(limit, LARGEST_BUCKET + 1), BUCKET), limit):
            graph = StaticGraph(f"{name}, {tokens} tokens", backend, after=self.vision)
            model.compose(graph, cameras, tokens)
            self.buckets[tokens] = graph

    def plan(self) -> None:
        """Allocate memory and bind every launch. What fails leaves nothing behind."""
        memory: Memory | None = None
        try:
            self.vision.plan()
            layouts = [graph.layout() for graph in self.buckets.values()]
            memory = self._backend.allocate(max(p.bytes for p in layouts), max(p.front for p in layouts))
            for graph in self.buckets.values():
                graph.plan(memory=memory)
        except BaseException:
            self.close()
            memory = None  # or the traceback keeps it
            raise

    def holding(self, tokens: int) -> StaticGraph:
        """The smallest graph that a prompt of `tokens` fits into."""
        return self.buckets[min(bucket for bucket in self.buckets if bucket >= tokens)]

    @property
    def all(self) -> tuple[StaticGraph, ...]:
        """Vision, then the buckets."""
        return (self.vision, *self.buckets.values())

    @property
    def largest(self) -> StaticGraph:
        """The graph of the longest prompt."""
        return self.buckets[max(self.buckets)]

    def describe(self) -> str:
        """The plans of vision and of the largest graph, as text."""
        buckets = ", ".join(map(str, self.buckets))
        return "\n".join(
            [
                "graphs: one for vision, then one by the length of the prompt",
                self.vision.describe_plan(limit=16),
                f"prompt buckets {buckets}, one arena; the largest:",
                self.largest.describe_plan(limit=16),
            ]
        )

    def close(self) -> None:
        """Let go of launches and memory."""
        for graph in self.all:
            graph.close()
