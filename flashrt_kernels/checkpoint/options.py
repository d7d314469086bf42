# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a user may say about a checkpoint that its files do not."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.errors import CheckpointError

# `"false"` is true and `True` is 1 where nobody looks.
_TYPES = {
    "embodiment": (str, "a name"),
    "pad_prompt_state": (bool, "True or False"),
    "delta_actions": (str, 'counts joined by commas, as "6,-1"'),
    "chunk_size": (int, "an integer"),
    "state_in_prompt": (bool, "True or False"),
    "adapt_to_pi": (bool, "True or False"),
}


@dataclass(frozen=True)
class Options:
    """See `load_checkpoint`. None: nothing was said."""

    tokenizer: str | Path | None = None
    embodiment: str | None = None
    fast_tokenizer: str | Path | None = None
    pad_prompt_state: bool | None = None
    delta_actions: str | None = None
    chunk_size: int | None = None
    state_in_prompt: bool | None = None
    adapt_to_pi: bool | None = None
    image_size: tuple[int, int] | None = None
    scan: bool = True

    def check(self, folder: Path, origin: str, known: Iterable[str]) -> None:
        """Raises `CheckpointError` for what means nothing in folders of `origin`, or is of a wrong type."""
        self._check_types()
        takes = ("tokenizer", *known)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in (*takes, "scan"):
                raise CheckpointError(
                    f"{folder}: {field.name} is {value!r}, but this is a folder of {origin}, which takes "
                    f"{listed(takes)} only"
                )

    def refuse_fast_tokenizer(self, folder: Path, policy_type: str) -> None:
        """Raises `CheckpointError` where there is one for a policy that does not write its actions."""
        if self.fast_tokenizer is not None:
            raise CheckpointError(
                f"{folder}: fast_tokenizer is {str(self.fast_tokenizer)!r}, but this is a {policy_type}, "
                f"which writes no tokens; leave it out"
            )

    def _check_types(self) -> None:
        for name, (kind, expected) in _TYPES.items():
            value = getattr(self, name)
            if value is not None and type(value) is not kind:
                raise CheckpointError(f"{name} is {value!r}, expected {expected}")
