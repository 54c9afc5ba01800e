"""A rate limiter for chat models of LangChain.

>>> limiter = RateLimiter("10/s burst 1")
>>> limiter.acquire(blocking=False), limiter.acquire(blocking=False)
(True, False)

Give it to a model: ``ChatOpenAI(model="…", rate_limiter=RateLimiter("500/minute"))``.
"""

from __future__ import annotations

from langchain_core.rate_limiters import BaseRateLimiter

from ._limiter import Limiter
from ._types import Limit

__all__ = ["RateLimiter"]


class RateLimiter(BaseRateLimiter):
    """A limit of calls, for threads and tasks in one line in the order of their calls.

    ``limit`` is a text, a policy or a `Limiter`, which several models may share. Unlike
    LangChain's own, no call looks again every 0.1 s: each starts at its instant.
    """

    def __init__(self, limit: Limiter | Limit) -> None:
        self.limiter: Limiter = limit if isinstance(limit, Limiter) else Limiter(limit)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take a permit. Without ``blocking`` return False if none is free now."""
        if not blocking:
            return self.limiter.try_acquire()
        self.limiter.acquire()
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Take a permit in a task. Without ``blocking`` return False if none is free now."""
        if not blocking:
            return self.limiter.try_acquire()
        await self.limiter.acquire_async()
        return True
