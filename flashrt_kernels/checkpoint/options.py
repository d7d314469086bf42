# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a user may say about a checkpoint that its files do not."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from flashrt_kernels.checkpoint.fields import listed
from flashrt_kernels.errors import CheckpointError


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
        """Raises `CheckpointError` for what was said and has no meaning in folders of `origin`."""
        takes = ("tokenizer", *known)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in (*takes, "scan"):
                raise CheckpointError(
                    f"{folder}: {field.name} is {value!r}, but this is a folder of {origin}, which takes "
                    f"{listed(takes)} only"
                )
