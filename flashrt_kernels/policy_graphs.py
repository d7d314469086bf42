# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The graphs of a policy: one for vision, and behind it one for every length of prompt."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from flashrt_kernels.backend import Backend
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models.model import Bucket, Model


class PolicyGraphs:
    """Graphs for one number of cameras.

    vision: depends on no prompt, so it can run while the prompt is made.
    buckets: by prompt tokens; they never run at the same time and share one arena, and so do their graphs for
    one token, where the policy writes tokens.
    """

    def __init__(self, name: str, model: Model, backend: Backend, cameras: int, image_bytes: int) -> None:
        """Composes all; `plan` makes them ready. image_bytes: most of one image."""
        self._backend = backend
        name = f"{name}, {cameras} cameras"
        self.vision = StaticGraph(f"{name}, vision", backend)
        model.compose_vision(self.vision, cameras, model.buckets[-1], image_bytes)
        self.buckets: dict[int, Bucket] = {}
        for tokens in model.buckets:
            graph = StaticGraph(f"{name}, {tokens} tokens", backend, after=self.vision)
            model.compose(graph, cameras, tokens)
            step = None
            if model.steps_tokens:
                step = StaticGraph(f"{graph.name}, one more", backend, after=graph, repeats=True)
                model.compose_step(step, cameras, tokens)
            self.buckets[tokens] = Bucket(tokens, graph, step)

    def plan(self) -> None:
        """Allocate memory and bind every launch. What fails leaves nothing behind."""
        try:
            self.vision.plan()
            self._plan_in_one([bucket.graph for bucket in self.buckets.values()])
            self._plan_in_one([bucket.step for bucket in self.buckets.values() if bucket.step is not None])
        except BaseException as error:
            self.close()
            traceback.clear_frames(error.__traceback__)  # or they keep the memory
            raise

    def _plan_in_one(self, graphs: Sequence[StaticGraph]) -> None:
        """Plan graphs that never run at the same time in the memory of the largest."""
        if not graphs:
            return
        layouts = [graph.layout() for graph in graphs]
        front = max(p.front for p in layouts)
        memory = self._backend.allocate(max(p.bytes for p in layouts), front)
        memory.host[:front].zero_()  # what warms up before anything was written must find valid token ids
        for graph in graphs:
            graph.plan(memory=memory)

    def holding(self, tokens: int) -> Bucket:
        """The smallest bucket that a prompt of `tokens` fits into."""
        return self.buckets[min(bucket for bucket in self.buckets if bucket >= tokens)]

    @property
    def all(self) -> tuple[StaticGraph, ...]:
        """Vision, then the graphs of the buckets."""
        buckets = self.buckets.values()
        steps = (bucket.step for bucket in buckets if bucket.step is not None)
        return (self.vision, *(bucket.graph for bucket in buckets), *steps)

    @property
    def largest(self) -> Bucket:
        """The bucket of the longest prompt."""
        return self.buckets[max(self.buckets)]

    def describe(self) -> str:
        """The plans of vision and of the largest graph, as text."""
        buckets = ", ".join(map(str, self.buckets))
        return "\n".join(
            [
                "graphs: one for vision, then one by the length of the prompt",
                self.vision.describe_plan(limit=16),
                f"prompt buckets {buckets}, one arena; the largest:",
                self.largest.graph.describe_plan(limit=16),
                *([] if self.largest.step is None else [self.largest.step.describe_plan(limit=16)]),
            ]
        )

    def close(self) -> None:
        """Let go of launches and memory."""
        for graph in self.all:
            graph.close()
