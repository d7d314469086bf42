# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0-FAST: SigLIP views and a prompt → Gemma writes the action chunk as text, token by token."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch

from flashrt_kernels.checkpoint.layout import EMBEDDING, VLM
from flashrt_kernels.checkpoint.pi import PiCheckpoint
from flashrt_kernels.decoding import advance_text, argmax, begin_text, clear
from flashrt_kernels.embedding import embedding
from flashrt_kernels.errors import DecisionError
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.gemma import Cache, PlainNorms, Span, block
from flashrt_kernels.models.model import Bucket, Outcome
from flashrt_kernels.models.paligemma import PaliGemma
from flashrt_kernels.models.weights import RESIDUAL

Head = Literal["full", "actions"]
LOGITS, HEAD = "gen.logits", "embeddings of the words of actions"
NEXT, TEXT = "next token", ("text", "visible", "place")  # what a step leaves to the next one


class Pi0Fast(PaliGemma):
    """One loaded checkpoint: a graph for the prompt, and one for a token, replayed until a chunk is written.

    The prompt's tokens lie at the end of its rows, behind the padding: the last row is always the one that
    the first token follows from.
    """

    steps_tokens = True
    marks = (LOGITS,)

    def __init__(
        self,
        checkpoint: PiCheckpoint,
        dtype: torch.dtype,
        steps: None,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
        head: Head = "full",
    ) -> None:
        """steps: there are none.

        head: `full` chooses among all words of the vocabulary, `actions` among those of a chunk only: faster,
        and another text wherever the policy would have left that form.

        Everything else as `PaliGemma`.
        """
        super().__init__(checkpoint, dtype, device, progress)
        fast, words, rule = checkpoint.fast, checkpoint.action_tokens, checkpoint.decoding
        assert fast is not None  # the reader has read all three
        assert words is not None
        assert rule is not None
        self.fast, self.words, self.rule = fast, words, rule
        self.limit = checkpoint.max_decoding_steps
        self.demands_prefix = self.config.fast is not None and self.config.fast.demands_prefix
        self.bos_id = checkpoint.tokenizer.bos_id
        self.stops = {words.bar} if rule.ends_at_bar else {words.bar, checkpoint.tokenizer.eos_id}
        self.eps = self.dims.rms_eps
        self.written = 0  # tokens of the last chunk
        # Ids that the head chooses among, where these are not all.
        self.chosen = None if head == "full" else self._action_ids()
        if self.chosen is not None:
            rows = torch.from_numpy(self.chosen).to(device)
            self.weights.keep_matrix(HEAD, self.weights.once(EMBEDDING)[rows])
        if rule.bos_behind_padding:
            self.buckets = tuple(tokens + 1 for tokens in self.buckets)

    def _action_ids(self) -> np.ndarray:
        """Ascending, so that the first of equals stays first: FAST ids and what stands around them."""
        fast = (self.words.top - i for i in range(self.fast.size))
        return np.array(sorted({*fast, *self.words.prefix, *self.stops}), np.int64)

    # ---- the graphs ----

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Inputs `tokens`, `valid`, `positions`, `first position` [1]. Output `text` [limit].

        Keeps the caches, with room for the text, and how far it has come.
        """
        length = cameras * self.dims.vision.patches + tokens
        x = g.borrow("prefix")[:length]
        valid = g.input("valid", (length,), torch.bool)
        positions = g.input("positions", (length,), torch.int32)
        first = g.input("first position", (1,), torch.int32)
        caches = self.caches(g, length + self.limit)
        shapes = {"text": (self.limit,), "visible": (length + self.limit,), "place": (2,)}
        dtypes = {"text": torch.int32, "visible": torch.bool, "place": torch.int32}
        state = {name: g.buffer(name, shapes[name], dtypes[name]) for name in TEXT}
        with g.section("prefix"):
            ids = g.input("tokens", (tokens,), torch.int32)
            g.mark("tokens", ids)
            self.embed(g, ids, out=x[length - tokens :])
            g.mark("prefix.embs", x)
            span = Span(slice(0, length), self.rotation(g, positions), valid)
            following = g.call(argmax, logits=self._logits(g, x, caches, span, "prefix"))
            for cache in caches:
                for part in (cache.keys, cache.values):
                    g.call(clear, out=part[length:])
            g.call(begin_text, next=following, position=first, prompt=valid, **state)
        g.output("text", state["text"])
        for name, buffer in {**state, NEXT: following}.items():
            g.keep(name, buffer, rewritable=True)
        for i, cache in enumerate(caches):
            g.keep(f"kv.{i}.k", cache.keys, rewritable=True)
            g.keep(f"kv.{i}.v", cache.values, rewritable=True)

    def compose_step(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """No inputs: a replay goes on where the last one stopped. Output `text` [limit], one token longer."""
        length = cameras * self.dims.vision.patches + tokens
        rows = length + self.limit
        following = g.borrow(NEXT)
        text, visible, place = (g.borrow(name) for name in TEXT)
        caches = [Cache(g.borrow(f"kv.{i}.k"), g.borrow(f"kv.{i}.v")) for i in range(self.dims.vlm.depth)]
        with g.section("decode"):
            own, table = slice(length, rows), self.rotation(g, place[1:2])
            span = Span(own, table, visible, settled=length, at=place[0:1])
            logits = self._logits(g, self._embed_written(g, following), caches, span, "decode")
            g.call(argmax, logits=logits, out=following)
            g.call(advance_text, next=following, text=text, visible=visible[length:], place=place)
        g.output("text", text)

    def _embed_written(self, g: StaticGraph, ids: Buffer) -> Buffer:
        """Of tokens as the head numbers them."""
        if self.chosen is None:
            return self.embed(g, ids)
        scale, table = math.sqrt(self.dims.vlm.width), self.weights.kept(g, HEAD)
        found: Buffer = g.call(embedding, ids=ids, table=table, scale=scale, out_dtype=RESIDUAL)
        return found

    def _logits(self, g: StaticGraph, x: Buffer, caches: list[Cache], span: Span, label: str) -> Buffer:
        """x [tokens, width] through all layers → [1, words]: what may follow the last token."""
        w, norms = self.weights, PlainNorms(g, self.weights, self.eps)
        rows = x.shape[0]
        for i, cache in enumerate(caches):
            only = slice(rows - 1, rows) if i == len(caches) - 1 else None
            x = block(g, w, f"{VLM}layers.{i}.", self.dims.vlm, x, norms, cache, span, only=only)
            g.mark(f"{label}.layer{i}", x)
        h, _ = norms(VLM + "norm", x)
        head = w.matrix(g, EMBEDDING) if self.chosen is None else w.kept(g, HEAD)
        logits: Buffer = g.call(matmul, x=h, weight=head, out_dtype=torch.float32)
        g.mark(f"{label}.logits", logits)
        return logits

    # ---- a decision ----

    def tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        """As of every Pi policy, and a BOS behind it where the policy was trained with one."""
        behind = [self.bos_id] if self.rule.bos_behind_padding else []
        return [*super().tokenise(instruction, state), *behind]

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        tokens, valid, positions = g.host("tokens"), g.host("valid"), g.host("positions")
        text = valid.size - tokens.size
        tokens[: tokens.size - len(ids)] = self.pad_id
        tokens[tokens.size - len(ids) :] = ids
        self.write_images(valid, present)
        valid[text : valid.size - len(ids)] = False
        valid[valid.size - len(ids) :] = True
        positions[:] = np.cumsum(valid) - 1
        g.host("first position")[0] = positions[-1] + 1 + self.rule.skipped_positions

    def finish(self, bucket: Bucket, state: np.ndarray, taps: Sequence[str]) -> Outcome:
        """Writes the chunk token by token. timings: `decode`, all tokens. taps: LOGITS of every token but the
        first, [tokens − 1, vocabulary]."""
        start = time.perf_counter()
        ids, logits = self.write(bucket, LOGITS in taps)
        timings = {"decode": 1e3 * (time.perf_counter() - start)}
        actions = self.action_norm.unnormalise(self.read(ids))
        if self.relative is not None:
            relative = np.flatnonzero(self.relative)  # a state may have fewer numbers than an action
            actions[:, relative] += self.units.to_policy(state)[relative]
        copies = {LOGITS: np.concatenate(logits)} if logits else {}
        return Outcome(self.units.to_robot(actions), timings, copies)

    def read(self, ids: Sequence[int]) -> np.ndarray:
        """Written ids → normalised chunk [horizon, action_dim].

        Raises DecisionError for a text without actions, where the training code goes on with zeros, the mean
        of its data: an arm must not move there because a policy babbles.

        Sources: lerobot 0.6.1 (detokenize_actions), openpi 15a9616 (FASTTokenizer.extract_actions).
        """
        shape = (self.config.chunk_size, self.config.action_dim)
        found = self.words.read(ids[:-1] if ids and ids[-1] in self.stops else ids)
        beyond = [i for i in found if i >= self.fast.size]  # LeRobot leaves them out, down to zeros
        try:
            count, expected = self.fast.coefficients(found).size, shape[0] * shape[1]
        except ValueError as error:
            problem = f"words that are no actions: {error}"
        else:
            fits = self.rule.lenient or count == expected
            problem = "" if fits else f"{count} coefficients, expected {expected}"
        if beyond:
            problem = f"words that are no actions: {beyond[0]} is no id of a FAST action"
        if self.demands_prefix and not self.words.begins(ids):
            problem = "a text that does not begin with `Action: `"
        if not found:
            problem = "a text without actions"
        if problem:
            raise DecisionError(f"pi0_fast wrote {problem}")
        return self.fast.decode(found, *shape)

    def write(self, bucket: Bucket, tap: bool = False) -> tuple[list[int], list[np.ndarray]]:
        """Greedy ids behind the prompt of `bucket.graph`, which was replayed; with `tap` also logits.

        A GPU has the next token on its way while the host looks at the last one; behind the end of a text it
        writes one that nobody reads, and nobody waits for it.
        """
        assert bucket.step is not None
        step, text = bucket.step, self._ids(bucket.graph.read("text"))
        count = begun = 1  # tokens that are written; tokens that are or will be
        logits: list[np.ndarray] = []
        try:
            while count < self.limit and text[count - 1] not in self.stops:
                if tap:
                    logits += step.replay(("decode.logits",)).values()
                    begun += 1
                while begun < min(count + 1 + (0 if tap else step.backend.ahead), self.limit):
                    step.start()
                    begun += 1
                count += 1
                step.settle(begun - count)
                text = self._ids(step.peek("text"))
        except BaseException:
            step.finish()
            raise
        self.written = count
        return text[:count], logits

    def _ids(self, text: np.ndarray) -> list[int]:
        """Ids of words as the head numbers them."""
        return (text if self.chosen is None else self.chosen[text]).tolist()

    def describe(self) -> str:
        words = "all words" if self.chosen is None else f"{len(self.chosen)} words of actions only"
        return f"{super().describe()}, at most {self.limit} tokens, chosen among {words}"
