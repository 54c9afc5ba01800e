"""Types of arguments."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import timedelta
from typing import Any, Protocol, Union

from ._policy import Policy

# Seconds, a timedelta, or a text such as "1.5s".
Span = Union[float, timedelta, str]
Limit = Union[str, Policy, Iterable[Union[str, Policy]]]
Key = Union[str, bytes, int]


class Wakes(Protocol):
    """The part of a future by which a hub wakes its task."""

    def done(self) -> bool:
        """Return True if nothing is left to wake."""

    def set_result(self, result: None, /) -> None:
        """Wake the task."""


class AwaitedWakes(Wakes, Protocol):
    """A future that its task awaits for the wake alone."""

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait for the wake."""
