# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The Pi family's weight files by policy type: which tensors, and how other writers call them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from flashrt_kernels.checkpoint import layout
from flashrt_kernels.checkpoint.dims import ModelDims
from flashrt_kernels.checkpoint.tensors import Unscanned, check_finite, match

# Key → key, tried in turn.
Renames = tuple[tuple[re.Pattern[str], str], ...]


@dataclass(frozen=True)
class PolicyFormat:
    """How one policy type is stored: its tensors, and how keys of older or other writers are read.

    tensors: called with the sizes and the padded widths of action and state.
    """

    tensors: Callable[[ModelDims, int, int], Iterable[layout.TensorSpec]]
    renames: Renames
    ignored: frozenset[str] = frozenset({layout.EXPERT_LM_HEAD})

    def canonical(self, key: str) -> str | None:
        """The canonical name of a key in a file; None for tensors that inference never uses."""
        for pattern, replacement in self.renames:
            key = pattern.sub(replacement, key)
        return None if key in self.ignored else key


_COMMON: Renames = (
    (re.compile(r"^model\."), ""),  # LeRobot's policy object holds the model as `model`, openpi's does not
    (re.compile(r"^paligemma\."), layout.PALIGEMMA),  # a model that is nothing but PaliGemma
    (re.compile(r"\.vision_tower\.(?!vision_model\.)"), ".vision_tower.vision_model."),  # transformers ≥ 5.17
    # The embedding is tied: either copy or both are stored.
    (re.compile("^" + re.escape(layout.LM_HEAD) + "$"), layout.EMBEDDING),
)

FORMATS: dict[str, PolicyFormat] = {
    "pi05": PolicyFormat(
        tensors=layout.pi05_tensors,
        # Early files kept Pi0's names for the time MLP and its state projection, which Pi0.5 never uses.
        renames=(*_COMMON, (re.compile(r"^action_time_mlp_(in|out)\."), r"time_mlp_\1.")),
        ignored=frozenset({layout.EXPERT_LM_HEAD, "state_proj.weight", "state_proj.bias"}),
    ),
    "pi0": PolicyFormat(
        tensors=layout.pi0_tensors,
        renames=(*_COMMON, (re.compile(r"^time_mlp_(in|out)\."), r"action_time_mlp_\1.")),
    ),
    "pi0_fast": PolicyFormat(tensors=layout.pi0_fast_tensors, renames=_COMMON),
}


def fit(
    path: Path,
    found: Mapping[str, Tensor],
    policy_type: str,
    expected: Iterable[layout.TensorSpec],
    sizes: str,
    scan: bool,
) -> tuple[dict[str, Tensor], Unscanned | None]:
    """The tensors of `found` under their canonical keys, exactly the expected ones.

    path, sizes: where they and their sizes come from, for messages. Without `scan` nobody looks at the
    values: what is left to check is returned. Raises `CheckpointError` listing everything that does not fit.
    """
    tensors, twins = match(path, found, expected, FORMATS[policy_type].canonical, sizes, scan)
    if not scan:
        return tensors, Unscanned(path, twins)
    check_finite(path, tensors)
    return tensors, None
