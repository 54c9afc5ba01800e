"""Exact rate limiting and pacing for threads, asyncio and trio.

>>> limiter = Limiter("10/s burst 5")
>>> limiter.try_acquire()
True
"""

from ._clock import ManualClock
from ._core import (
    Charged,
    Decision,
    Grant,
    Hold,
    Keyed,
    Release,
    Reservation,
    Settled,
    SharedDecision,
    SharedGrant,
    __version__,
)
from ._errors import (
    Closed,
    DeadlinePassed,
    Evicted,
    ExceedsCapacity,
    Full,
    Limited,
    RateLimited,
    TimeCannotHelp,
    TooLong,
    Unavailable,
)
from ._limiter import Limiter
from ._load import OpenLoop
from ._policy import Policy
from ._shared import Shared

__all__ = [
    "Charged",
    "Closed",
    "DeadlinePassed",
    "Decision",
    "Evicted",
    "ExceedsCapacity",
    "Full",
    "Grant",
    "Hold",
    "Keyed",
    "Limited",
    "Limiter",
    "ManualClock",
    "OpenLoop",
    "Policy",
    "RateLimited",
    "Release",
    "Reservation",
    "Settled",
    "Shared",
    "SharedDecision",
    "SharedGrant",
    "TimeCannotHelp",
    "TooLong",
    "Unavailable",
    "__version__",
]

for _name in __all__:
    _class = globals()[_name]
    if getattr(_class, "__module__", "").startswith(__name__ + "._"):
        _class.__module__ = __name__
del _name, _class
