"""Policies that a text such as ``"10/s burst 5"`` has no words for."""

from __future__ import annotations

import json
import math
from typing import Any


class Policy:
    """A policy by its name and numbers.

    >>> Policy("fixed-window", permits=100, period="1min")
    Policy('fixed-window', permits=100, period='1min')

    The names and keys are those of the limits in the project's scenario files: ``gcra``
    (``rate``, ``burst``), ``sliding-log`` (``permits``, ``period``), ``fixed-window``
    (``permits``, ``period``, ``anchor``), ``concurrency`` (``permits``), ``two-timeline``
    (``rate``, ``mode``), ``pacer``, ``warm-up``, ``backfill-pool``, ``commit-log``,
    ``adaptive``, ``adaptive-rate``. The README has a table of all keys. An unknown name or key is
    a ``ValueError`` of the limiter that is made of it, which says what there is.
    """

    __slots__ = ("name", "numbers")

    def __init__(self, name: str, **numbers: Any) -> None:
        self.name: str = name
        self.numbers: dict[str, Any] = numbers

    @property
    def _table(self) -> str:
        rows = {"policy": self.name, **self.numbers}
        return "".join(f"{key} = {_toml(value)}\n" for key, value in rows.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Policy):
            return NotImplemented
        return (self.name, self.numbers) == (other.name, other.numbers)

    def __hash__(self) -> int:
        return hash(self._table)

    def __repr__(self) -> str:
        numbers = "".join(f", {key}={value!r}" for key, value in self.numbers.items())
        return f"Policy({self.name!r}{numbers})"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            raise ValueError(f"a number of a policy is finite, not {value!r}")
        return repr(value)
    if isinstance(value, str):
        # The escapes of a JSON string are those of a basic string of TOML.
        return json.dumps(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    raise TypeError(f"a number of a policy is an int, a float, a str or a dict, not {value!r}")
