# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""JSON files read with types: every error names the file, the key, what came and what would be right."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.errors import CheckpointError

_REQUIRED: Final = object()
_SHOWN_LENGTH = 60


def read_json(path: Path) -> "Fields":
    """The JSON object in `path`. Raises `CheckpointError` if absent, broken or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    return Fields(path, "", value)


class Fields:
    """One JSON object of a file. `key` is its place in the file, empty for the root."""

    def __init__(self, file: Path, key: str, value: Any) -> None:
        self.file = file
        self.key = key
        if not isinstance(value, dict):
            raise CheckpointError(f"{file}: {key or 'the top level'} is {shown(value)}, expected an object")
        self._values: dict[str, Any] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def path(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def error(self, name: str, problem: str) -> CheckpointError:
        """An error about field `name`, for the caller to raise."""
        return CheckpointError(f"{self.file}: {self.path(name)} {problem}")

    def _get(self, name: str, default: Any, expected: str) -> Any:
        if name in self._values:
            return self._values[name]
        if default is _REQUIRED:
            raise self.error(name, f"is missing, expected {expected}")
        return default

    def _wrong(self, name: str, value: Any, expected: str) -> CheckpointError:
        return self.error(name, f"is {shown(value)}, expected {expected}")

    def integer(self, name: str, minimum: int, maximum: int, default: Any = _REQUIRED) -> int:
        expected = f"an integer from {minimum} to {maximum}"
        value = self._get(name, default, expected)
        # bool is an int in Python, never in a checkpoint
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self._wrong(name, value, expected)
        return value

    def positive(self, name: str, default: Any = _REQUIRED) -> float:
        expected = "a positive number"
        value = self._get(name, default, expected)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared, not converted: a JSON integer may be too large for a float.
        if not number or not 0 < value <= sys.float_info.max:
            raise self._wrong(name, value, expected)
        return float(value)

    def boolean(self, name: str, default: Any = _REQUIRED) -> bool:
        value = self._get(name, default, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def string(self, name: str, choices: Sequence[str] = (), default: Any = _REQUIRED) -> str:
        expected = "one of " + ", ".join(choices) if choices else "a string"
        value = self._get(name, default, expected)
        if not isinstance(value, str) or (choices and value not in choices):
            raise self._wrong(name, value, expected)
        return value

    def strings(self, name: str, default: Any = _REQUIRED) -> tuple[str, ...] | None:
        """A list of strings, or None for null."""
        value = self._get(name, default, "a list of strings")
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, value, "a list of strings")
        return tuple(value)

    def integers(self, name: str, count: int | None = None) -> tuple[int, ...]:
        """A list of positive integers, exactly `count` of them unless None."""
        expected = f"a list of {count or 'positive'} {'positive ' if count else ''}integers"
        value = self._get(name, _REQUIRED, expected)
        good = isinstance(value, list) and (count is None or len(value) == count)
        if not good or not all(type(item) is int and item > 0 for item in value):
            raise self._wrong(name, value, expected)
        return tuple(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers, NaN and infinity among them."""
        value = self._get(name, _REQUIRED, "a list of numbers")
        if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
            raise self._wrong(name, value, "a list of numbers")
        # Compared, not converted: a JSON integer may be too large for a float.
        return tuple(float(item) if abs(item) <= sys.float_info.max else math.inf for item in value)

    def given(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def array(self, name: str) -> NDArray[np.float64]:
        """A list of finite numbers, or a list of such lists, all of one length."""
        expected = "a list of finite numbers, or of lists of them that have one length"
        value = self._get(name, _REQUIRED, expected)
        rows = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
        good = all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows)
        if not good or not all(_finite(item) for row in rows for item in row):
            raise self._wrong(name, value, expected)
        array = np.array(rows, np.float64)
        return array if rows is value else array[0]

    def child(self, name: str, default: Any = _REQUIRED) -> "Fields":
        return Fields(self.file, self.path(name), self._get(name, default, "an object"))

    def children(self, name: str) -> list["Fields"]:
        """A list of objects."""
        value = self._get(name, _REQUIRED, "a list of objects")
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list of objects")
        return [Fields(self.file, f"{self.path(name)}[{i}]", item) for i, item in enumerate(value)]


def _finite(value: Any) -> bool:
    """A number that a float64 can hold: JSON knows integers of any size, and Python reads NaN."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max


def shown(value: Any) -> str:
    """`value` as JSON, cut to a length that fits into a message."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Names joined by commas; a long list is cut and the rest counted."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f", … and {rest} more" if rest > 0 else "")
