"""Exact rate limiting and pacing for threads and asyncio.

>>> limiter = Limiter("10/s burst 5")
>>> limiter.try_acquire()
True
"""

from ._clock import ManualClock
from ._core import Charged, Decision, Grant, Keyed, Reservation, Settled
from ._errors import Closed, ExceedsCapacity, Full, Limited, RateLimited, TooLong
from ._limiter import Limiter
from ._policy import Policy

__all__ = [
    "Charged",
    "Closed",
    "Decision",
    "ExceedsCapacity",
    "Full",
    "Grant",
    "Keyed",
    "Limited",
    "Limiter",
    "ManualClock",
    "Policy",
    "RateLimited",
    "Reservation",
    "Settled",
    "TooLong",
]

for _class in (Limited, RateLimited, TooLong, Full, Closed, ExceedsCapacity, Limiter, ManualClock, Policy):
    _class.__module__ = __name__
del _class
