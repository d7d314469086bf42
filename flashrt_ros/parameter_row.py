# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What one row of the parameter table says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


REQUIRED: Final = _Required()
"""Default of a parameter that has none: every robot must state it."""

UNSET: Final = _Unset()
"""Default of a parameter that may be left out: `NodeConfig` reads None."""


@dataclass(frozen=True)
class Parameter:
    """One row of the table. `type` is a key of `TYPES`; `low` (open: `low_open`) and `high` bound numbers.

    `example` is shown when a required parameter is missing.
    """

    name: str
    type: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    choices: tuple[str, ...] | None = None
    read_only: bool = False
    example: str = ""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def declared(self) -> Any:
        """What ROS is given as default: it cannot tell the type of an empty list, such a one stays unset."""
        return None if self.default in (REQUIRED, UNSET) or self.default == [] else self.default

    def named(self, name: str) -> Parameter:
        """This row for one camera, joint or group: `<name>` in its name and default replaced."""
        default = self.default.replace("<name>", name) if isinstance(self.default, str) else self.default
        return replace(self, name=self.name.replace("<name>", name), default=default)
