"""Strategies and items with the names of limits: ``from pyrategate.compat.limits import …``.

What differs:

* A moving window is exact, of any length: at no instant have more passed within the period.
* The sliding window counter is that exact log too, and no estimate.
* Fixed windows follow one another from the start of the process on. Those of limits begin with a
  key's first hit. Either lets up to twice as many pass around a border.
* The keys of an item are bounded in number and memory: those beyond share a limit. Those of
  limits grow with the clients.
* Identifiers keep their borders: ``("a/b", "c")`` and ``("a", "b/c")`` are two.
* ``reset_time`` of a moving window is when nothing of it is in use any more, where limits names
  the end of its oldest hit.
* A hit that is refused does not count. In a fixed window of limits it does.
* Counters are of this process alone: there is no storage but memory.
* Months and years have 30 and 360 days, as there.
"""

from __future__ import annotations

import re
import threading
import time
from typing import NamedTuple

from .._clock import ManualClock
from .._core import Keyed
from .._errors import ExceedsCapacity
from .._policy import Policy

__all__ = [
    "FixedWindowRateLimiter",
    "MemoryStorage",
    "MovingWindowRateLimiter",
    "RateLimitItem",
    "RateLimitItemPerDay",
    "RateLimitItemPerHour",
    "RateLimitItemPerMinute",
    "RateLimitItemPerMonth",
    "RateLimitItemPerSecond",
    "RateLimitItemPerYear",
    "SlidingWindowCounterRateLimiter",
    "WindowStats",
    "parse",
    "parse_many",
]


class Granularity(NamedTuple):
    """A unit of time."""

    seconds: int
    name: str


class WindowStats(NamedTuple):
    """The Unix time at which a limit is fresh, and what remains of it now."""

    reset_time: float
    remaining: int


class RateLimitItem:
    """So many in so many units of time. Use `parse`, or a class of a unit."""

    GRANULARITY: Granularity

    def __init__(
        self, amount: int, multiples: int | None = 1, namespace: str = "LIMITER"
    ) -> None:
        self.namespace = namespace
        self.amount: int = int(amount)
        self.multiples: int = int(multiples or 1)

    def get_expiry(self) -> int:
        """Return the seconds of the period."""
        return self.GRANULARITY.seconds * self.multiples

    def _parts(self) -> tuple[object, ...]:
        return (self.amount, self.GRANULARITY, self.multiples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RateLimitItem) and self._parts() == other._parts()

    def __lt__(self, other: RateLimitItem) -> bool:
        return self.GRANULARITY.seconds < other.GRANULARITY.seconds

    def __hash__(self) -> int:
        return hash((self.namespace, *self._parts()))

    def __repr__(self) -> str:
        return f"{self.amount} per {self.multiples} {self.GRANULARITY.name}"


class RateLimitItemPerSecond(RateLimitItem):
    """So many in a second, or several."""

    GRANULARITY = Granularity(1, "second")


class RateLimitItemPerMinute(RateLimitItem):
    """So many in a minute, or several."""

    GRANULARITY = Granularity(60, "minute")


class RateLimitItemPerHour(RateLimitItem):
    """So many in an hour, or several."""

    GRANULARITY = Granularity(3600, "hour")


class RateLimitItemPerDay(RateLimitItem):
    """So many in a day, or several."""

    GRANULARITY = Granularity(86_400, "day")


class RateLimitItemPerMonth(RateLimitItem):
    """So many in 30 days, or several times that."""

    GRANULARITY = Granularity(30 * 86_400, "month")


class RateLimitItemPerYear(RateLimitItem):
    """So many in 360 days, or several times that."""

    GRANULARITY = Granularity(360 * 86_400, "year")


_UNITS = {
    name: kind
    for kind in (
        RateLimitItemPerSecond,
        RateLimitItemPerMinute,
        RateLimitItemPerHour,
        RateLimitItemPerDay,
        RateLimitItemPerMonth,
        RateLimitItemPerYear,
    )
    for name in (kind.GRANULARITY.name, f"{kind.GRANULARITY.name}s")
}
_ITEM = re.compile(r"\s*([0-9]+)\s*(?:/|per)\s*([0-9]+)?\s*([a-z]+)\s*", re.IGNORECASE)


def parse_many(limit_string: str) -> list[RateLimitItem]:
    """Read several limits: ``"1/second; 5 per 2 minutes"``.

    >>> parse_many("1/second; 5 per 2 minutes")
    [1 per 1 second, 5 per 2 minute]
    """
    items: list[RateLimitItem] = []
    for part in re.split("[,;|]", limit_string) if isinstance(limit_string, str) else ():
        match = _ITEM.fullmatch(part)
        kind = _UNITS.get(match[3].lower()) if match else None
        if match is None or kind is None:
            raise ValueError(f"couldn't parse rate limit string {limit_string!r}: write '5/minute'")
        items.append(kind(int(match[1]), int(match[2]) if match[2] else None))
    if not items:
        raise ValueError(f"couldn't parse rate limit string {limit_string!r}: write '5/minute'")
    return items


def parse(limit_string: str) -> RateLimitItem:
    """Read a limit: ``"5/minute"``. Of several it is the first."""
    return parse_many(limit_string)[0]


class MemoryStorage:
    """The counters of this process, at most ``max_keys`` for each item."""

    def __init__(
        self, *, max_keys: int | None = None, clock: ManualClock | None = None
    ) -> None:
        self._max_keys, self._clock = max_keys, clock
        self._tables: dict[tuple[str, str, RateLimitItem], Keyed] = {}
        self._lock = threading.Lock()

    def _table(self, policy: str, item: RateLimitItem) -> Keyed:
        name = (policy, item.namespace, item)
        table = self._tables.get(name)
        if table is None:
            with self._lock:
                period = f"{item.get_expiry()}s"
                limit = Policy(policy, permits=item.amount, period=period)
                made = Keyed(limit, max_keys=self._max_keys, clock=self._clock)
                table = self._tables.setdefault(name, made)
        return table

    def reset(self) -> int | None:
        """Clear all counters. Returns the number of items that had some."""
        with self._lock:
            number = len(self._tables)
            self._tables.clear()
        return number


class _RateLimiter:
    _policy = "sliding-log"

    def __init__(self, storage: MemoryStorage) -> None:
        if not isinstance(storage, MemoryStorage):
            raise TypeError(
                f"the counters are in a MemoryStorage of this package, not in {storage!r}"
            )
        self.storage = storage

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Take ``cost`` permits, or return False and take none."""
        try:
            return self._table(item).try_acquire(_key(identifiers), cost)
        except ExceedsCapacity:
            return False

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Return True if a hit would pass now."""
        try:
            return self._table(item).peek(_key(identifiers), cost) == 0
        except ExceedsCapacity:
            return False

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """Return when the limit is fresh, and what remains of it."""
        status = self._table(item).check(_key(identifiers), 0)
        return WindowStats(time.time() + (status.reset_after_ns or 0) / 1e9, status.remaining)

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """Forget what was taken."""
        self._table(item).reset(_key(identifiers))

    def _table(self, item: RateLimitItem) -> Keyed:
        return self.storage._table(self._policy, item)


class MovingWindowRateLimiter(_RateLimiter):
    """At most the amount within any period.

    >>> limiter = MovingWindowRateLimiter(MemoryStorage())
    >>> item = parse("2/minute")
    >>> [limiter.hit(item, "user", "42") for _ in range(3)]
    [True, True, False]
    """


class SlidingWindowCounterRateLimiter(_RateLimiter):
    """At most the amount within any period: the same exact log as the moving window."""


class FixedWindowRateLimiter(_RateLimiter):
    """At most the amount within each of the periods that follow one another."""

    _policy = "fixed-window"


def _key(identifiers: tuple[object, ...]) -> str:
    texts = [it.decode() if isinstance(it, bytes) else str(it) for it in identifiers]
    return "".join(f"{len(text)}:{text}," for text in texts)
