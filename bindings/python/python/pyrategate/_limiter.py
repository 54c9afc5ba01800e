"""The limiter, with what Python does as well as Rust."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core, _loop
from ._core import Grant, Hold
from ._errors import RateLimited
from ._types import Limit, Span

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])


class Limiter(_core.Limiter):
    """A limit for threads and tasks, which share one line in the order of their calls.

    ``limit`` is a text (``"10/s burst 5"``, ``"100 per any minute"``, several between
    semicolons), a `Policy`, or a list of these. A call passes all of them, or takes nothing.
    Without ``burst`` as many permits are free at once as are written.

    >>> clock = ManualClock()
    >>> limiter = Limiter("2 per any second", clock=clock)
    >>> limiter.try_acquire(), limiter.try_acquire(), limiter.try_acquire()
    (True, True, False)
    >>> clock.advance("1s")
    >>> limiter.try_acquire()
    True
    """

    @classmethod
    def restore(
        cls,
        limit: Limit,
        saved: bytes | bytearray,
        *,
        max_downtime: Span | None = None,
        **options: Any,
    ) -> Self:
        """Make a limiter that continues from the bytes of ``save``, with the options of any.

        The time away counts by the wall clock, but at most ``max_downtime``: a clock that was set
        forward earns no more. A `ManualClock` says itself how much has passed. Other numbers of
        the same policies come into force now. Bytes that are not whole, or are of other policies,
        are a ``ValueError``.

        A class made of this one is called with ``limit=`` and the ``options``, and its
        `super().__init__` continues. So its ``__init__`` need not know of this method. One that
        takes other arguments is given them by name, among the ``options``; one that has no
        ``limit`` is a ``TypeError``.

        >>> limiter = Limiter("2/h")
        >>> limiter.try_acquire(2)
        True
        >>> Limiter.restore("2/h", limiter.save()).try_acquire()
        False
        """
        # By name: what another class takes first may be anything.
        try:
            inspect.signature(cls.__init__).bind(None, limit=limit, **options)
        except TypeError as error:
            raise TypeError(
                f"{cls.__name__}.restore calls {cls.__name__}(limit=..., **options), and its "
                f"__init__ does not take that: {error}. Give restore all of its arguments by name, "
                "and give __init__ a parameter named limit if it has none"
            ) from None
        # As a call of the class does, with the state in between.
        limiter = cls.__new__(cls, limit=limit, **options)
        limiter._continue_from(saved, max_downtime)
        limiter.__init__(limit=limit, **options)  # type: ignore[misc]
        return limiter

    def _wait(self, permits: int, timeout: Span | None) -> Coroutine[Any, Any, Grant | Hold]:
        return _loop.wait(self, permits, timeout)

    async def hold_async(self, permits: int, ttl: Span, *, timeout: Span | None = None) -> Hold:
        """Hold an estimate as soon as it fits, until its true cost is known or ``ttl`` is over.

        >>> limiter = Limiter("100/s")
        >>> async def call():
        ...     with await limiter.hold_async(80, "1min") as held:
        ...         return held.commit(30)
        >>> asyncio.run(call())
        Settled(refunded=50, charged=0, forgiven=0)
        """
        held = self._hold_at_once(permits, ttl)
        if held is None:
            taken = await _loop.wait(self, permits, timeout, ttl)
            assert isinstance(taken, Hold)
            held = taken
        return held

    def __call__(self, function: F) -> F:
        """Decorate a function, or a coroutine function: each call waits for a permit.

        >>> @Limiter("10/s")
        ... def fetch(page):
        ...     return page
        >>> fetch(1)
        1
        """
        if _is_coroutine_function(function):

            @functools.wraps(function)
            async def waits(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def waits(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return waits  # type: ignore[return-value]

    def or_raise(self, function: F) -> F:
        """Decorate a function: a call that comes too soon raises `RateLimited` and is not made.

        >>> @Limiter("1/h", clock=ManualClock()).or_raise
        ... def report():
        ...     return "done"
        >>> report()
        'done'
        >>> report()
        Traceback (most recent call last):
        pyrategate.RateLimited: rate limited: retry in 3600 s
        """

        def enter() -> None:
            decision = self.check()
            if not decision.granted:
                after = decision.retry_after
                when = "never" if after is None else f"retry in {after:.9g} s"
                raise RateLimited(f"rate limited: {when}", decision.retry_after_ns)

        if _is_coroutine_function(function):

            @functools.wraps(function)
            async def tries(*args: Any, **kwargs: Any) -> Any:
                enter()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self.__exit__()

        else:

            @functools.wraps(function)
            def tries(*args: Any, **kwargs: Any) -> Any:
                enter()
                try:
                    return function(*args, **kwargs)
                finally:
                    self.__exit__()

        return tries  # type: ignore[return-value]


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    if not callable(function):
        raise TypeError(f"a limiter decorates a function, not {function!r}")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        # Its body runs at each step, so that one permit at the call would limit nothing.
        raise TypeError(f"a limiter decorates no generator: acquire in the body of {function!r}")
    return inspect.iscoroutinefunction(called)
