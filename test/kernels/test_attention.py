# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Attention: when the masks fail, padding and missing cameras leak into the actions."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.attention import attention, self_attention
from test.kernels.support import check, dtypes, random, seeds, wide


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, heads: int) -> np.ndarray:
    """q [queries, heads·d], k and v [keys, kv_heads·d], visible [queries, keys]; a blind query gives 0."""
    dim = q.shape[1] // heads
    group = heads // (k.shape[1] // dim)
    out = np.zeros_like(q)
    for head in range(heads):
        columns = slice(head * dim, (head + 1) * dim)
        shared = slice(head // group * dim, (head // group + 1) * dim)
        scores = np.where(visible, q[:, columns] @ k[:, shared].T / np.sqrt(dim), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
        total = weights.sum(-1, keepdims=True)
        out[:, columns] = weights @ v[:, shared] / np.where(total == 0, 1, total)
    return out


@given(
    queries=st.integers(1, 9),
    keys=st.integers(1, 40),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    dim=st.integers(1, 20),
    masks=st.sets(st.sampled_from(("key_valid", "mask"))),
    source=dtypes,
    target=dtypes,
    seed=seeds,
)
@settings(deadline=None)
def test_attention(
    queries: int,
    keys: int,
    kv_heads: int,
    group: int,
    dim: int,
    masks: set[str],
    source: torch.dtype,
    target: torch.dtype,
    seed: int,
) -> None:
    """Grouped heads, key validity and per-query masks in every combination, blind queries included."""
    rng = np.random.default_rng(seed)
    heads = kv_heads * group
    q, k, v = (
        random(rng, (n, h * dim), source) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads))
    )
    shapes = {"key_valid": (keys,), "mask": (queries, keys)}
    given_masks = {name: torch.from_numpy(rng.random(shapes[name]) < 0.6) for name in sorted(masks)}
    visible = np.ones((queries, keys), bool)
    for mask in given_masks.values():
        visible = visible & mask.numpy()
    want = attend(wide(q), wide(k), wide(v), visible, heads)
    parameters = {"heads": heads, "kv_heads": kv_heads, "head_dim": dim}
    limit = 1e-5 if target == torch.float32 else None
    check(attention, want, target, limit, q=q, k=k, v=v, **given_masks, **parameters)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), dtypes, seeds)
@settings(deadline=None)
def test_self_attention(
    sequences: int, rows: int, heads: int, dim: int, dtype: torch.dtype, seed: int
) -> None:
    """Images of several cameras go through together and must not see each other."""
    width = heads * dim
    qkv = random(np.random.default_rng(seed), (sequences * rows, 3 * width), dtype)
    everything = np.ones((rows, rows), bool)
    images = [np.split(wide(part), 3, axis=1) for part in qkv.split(rows)]
    want = np.concatenate([attend(q, k, v, everything, heads) for q, k, v in images])
    check(
        self_attention,
        want,
        dtype,
        1e-5 if dtype == torch.float32 else None,
        qkv=qkv,
        heads=heads,
        head_dim=dim,
        sequences=sequences,
    )


def test_masked_keys_do_not_matter_at_all() -> None:
    """Bit by bit: what lies in a padding token must not show, however large it is."""
    rng = np.random.default_rng(0)
    q, k, v = random(rng, (5, 32)), random(rng, (20, 16)), random(rng, (20, 16))
    valid = torch.arange(20) < 13
    parameters = {"key_valid": valid, "heads": 2, "kv_heads": 1, "head_dim": 16}
    before = attention(q=q, k=k, v=v, **parameters)
    k[13:], v[13:] = 1e6, -1e6
    assert torch.equal(before, attention(q=q, k=k, v=v, **parameters))
