# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A guard: the place in the product that makes a row of robot-behaviour true, and how to switch it off.

Guards are switched off from outside, by replacing a function, method or table while a test runs: the product
knows nothing of it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

OURS = ("flashrt_ros", "flashrt_kernels", "test")


@dataclass(frozen=True)
class Guard:
    """`test` (a pytest id) must fail while `target` ("module:name" or "module:Class.name") is off.

    `off` gets what is there and returns what stands there instead; `returns`, `gives`, `value` and `edited`
    make one.
    A test that is named without its parameters must fail for all of them.
    """

    row: str
    test: str
    target: str
    off: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return f"{self.row} {self.target.partition(':')[2]}"


def returns(answer: Any) -> Callable[[Any], Any]:
    """A function that does nothing and returns `answer`."""
    return lambda real: lambda *arguments, **options: answer


def gives(position: int) -> Callable[[Any], Any]:
    """A function that does nothing and returns one of its arguments."""
    return lambda real: lambda *arguments, **options: arguments[position]


def value(replacement: Any) -> Callable[[Any], Any]:
    """Another constant, table or class."""
    return lambda real: replacement


def edited(*edits: str) -> Callable[[Any], Any]:
    """The function with parts of its source replaced: old text, new text, old text, new text, …

    For a condition in the middle of a function. Each old text must stand there exactly once: an edit that no
    longer fits is an error and not a guard that stays on.
    """

    def off(real: Any) -> Any:
        source = textwrap.dedent(inspect.getsource(real))
        for old, new in zip(edits[::2], edits[1::2], strict=True):
            if source.count(old) != 1:
                raise LookupError(f"{old!r} stands {source.count(old)} times in {real.__qualname__}")
            source = source.replace(old, new)
        names: dict[str, Any] = {}
        # As a part of its module: the future import keeps its annotations unread, as they are there.
        exec(f"from __future__ import annotations\n{source}", vars(sys.modules[real.__module__]), names)
        return names[real.__name__]

    return off


@contextmanager
def switched_off(guard: Guard) -> Iterator[None]:
    """The guard is off in the whole process, also where functions were imported by name or put in tables."""
    module_name, _, path = guard.target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for part in owners:
        owner = getattr(owner, part)
    real = inspect.getattr_static(owner, name)
    static = isinstance(real, staticmethod | classmethod)
    replacement = guard.off(real.__func__ if static else real)
    with ExitStack() as stack:
        stack.enter_context(patch.object(owner, name, type(real)(replacement) if static else replacement))
        if not owners and callable(real):
            for module in [module for key, module in sys.modules.items() if key.startswith(OURS)]:
                for key, found in list(vars(module).items()):
                    if found is real:
                        stack.enter_context(patch.object(module, key, replacement))
                    elif isinstance(found, dict) and any(entry is real for entry in found.values()):
                        rows = {name: replacement for name, entry in found.items() if entry is real}
                        stack.enter_context(patch.dict(found, rows))
        yield
