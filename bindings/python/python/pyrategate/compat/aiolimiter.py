"""``AsyncLimiter`` with the names of aiolimiter: ``from pyrategate.compat.aiolimiter import …``.

The limit is the same bucket: ``max_rate`` at once, then evenly. What differs:

* Tasks pass in the order of their calls. aiolimiter lets small amounts pass first.
* Each starts at its own instant. aiolimiter wakes late, and falls behind the rate.
* One limiter is for all loops and threads. aiolimiter's is for one loop.
* Numbers are whole. A rate such as 1.5 in a second is written as 3 in two.
* A wait that is cancelled returns what it was granted and did not use.
"""

from __future__ import annotations

from .._clock import ManualClock
from .._errors import ExceedsCapacity
from .._limiter import Limiter
from ..pace import span_ns

__all__ = ["AsyncLimiter"]


class AsyncLimiter:
    """At most ``max_rate`` in ``time_period`` seconds, and as many at once.

    >>> limiter = AsyncLimiter(2, 10)
    >>> limiter.has_capacity(), limiter.has_capacity(2)
    (True, True)
    """

    def __init__(
        self, max_rate: float, time_period: float = 60, *, clock: ManualClock | None = None
    ) -> None:
        self.max_rate = max_rate
        self.time_period = time_period
        rate = _whole(max_rate, "max_rate")
        self.limiter: Limiter = Limiter(f"{rate} per {span_ns(time_period)} ns", clock=clock)

    def has_capacity(self, amount: float = 1) -> bool:
        """Return True if so much could be taken now."""
        try:
            return self.limiter.peek(_whole(amount, "amount")) == 0
        except ExceedsCapacity:
            return False

    async def acquire(self, amount: float = 1) -> None:
        """Wait for so much, and take it. More than ``max_rate`` is a ``ValueError``."""
        await self.limiter.acquire_async(_whole(amount, "amount"))

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_raised: object) -> None:
        return None


def _whole(number: float, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{name} is a number, not {number!r}")
    if number != number or number in (float("inf"), float("-inf")) or int(number) != number:
        raise ValueError(
            f"{name} is a whole number here, not {number!r}: write 1.5 in a second as 3 in two"
        )
    return int(number)
