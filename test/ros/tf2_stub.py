# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""As much of tf2_ros as the node uses, which has no wheel: install it with `sys.modules`."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar


class TransformException(Exception):
    """What every lookup that fails raises."""


class Buffer:
    """Holds what a test puts into `transforms`: (target, source) → TransformStamped."""

    transforms: ClassVar[dict[tuple[str, str], Any]] = {}

    def lookup_transform(self, target_frame: str, source_frame: str, time: Any) -> Any:
        assert time.nanoseconds == 0, "0 is the newest"
        if (target_frame, source_frame) not in self.transforms:
            raise TransformException(f'"{target_frame}" passed to lookupTransform does not exist')
        return self.transforms[target_frame, source_frame]


class TransformListener:
    """Counts those that listen."""

    listening: ClassVar[list[Any]] = []

    def __init__(self, buffer: Buffer, node: Any) -> None:
        self.listening.append(self)

    def unregister(self) -> None:
        self.listening.remove(self)


def tf2_module() -> ModuleType:
    """The module; buffers of all nodes share their transforms, which are forgotten here."""
    Buffer.transforms.clear()
    TransformListener.listening.clear()
    module = ModuleType("tf2_ros")
    for name in (TransformException, Buffer, TransformListener):
        setattr(module, name.__name__, name)
    return module
