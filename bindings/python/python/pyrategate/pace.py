"""Clients that keep below a limit and follow the hints of their server.

`Pace` is what the transports of httpx, requests and aiohttp share; with it any other client can
do the same:

>>> pace = Pace("20/s")
>>> with pace.request() as sent:
...     sent.response(200, [("RateLimit", '"default";r=50;t=30')])
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from fractions import Fraction
from typing import Any

from . import _loop
from ._clock import ManualClock
from ._core import Grant
from ._errors import ExceedsCapacity, Full, TooLong
from ._limiter import Limiter
from ._pacing import Cost, Pacing, Ticket
from ._types import Limit, Span
from .hints import parse_hints

__all__ = ["Cost", "Pace", "Sent"]


class Pace:
    """The pace of all requests to one server. Make one for each server, and share it.

    Each request waits for ``limit``, a `Limiter` or a text for one, and for the server. After a
    429, 403 or 503 with ``Retry-After``, or when nothing remains, no request is sent before that
    instant. What remains is spread over the time until the reset. Requests on their way count as
    if the server had not seen them. `pyrategate.hints.parse_hints` says how responses are read.

    A 429 is returned to the caller like any other response. To send the request again, put a
    retry around this. It needs no delay there, as the next call waits here.

    * ``jitter``: each hold ends later than the server asks, by a random part of this, and never
      sooner; those that waited start in their order, over as long again. By default it is a fifth
      of the hold, at most 30 s, and they start together.
    * ``max_hold``: the longest time that a server can make this client hold.
    * ``max_wait``: `TooLong` at once instead of a longer wait. ``max_waiting``: `Full` beyond.
    * ``spreads``: False uses what remains as fast as requests arrive, and then holds.
    """

    def __init__(
        self,
        limit: Limiter | Limit | None = None,
        *,
        jitter: Span | None = None,
        max_hold: Span = 3600,
        max_wait: Span | None = None,
        max_waiting: int = 65_536,
        spreads: bool = True,
    ) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 1:
            raise ValueError(f"max_waiting is a number of requests from 1 on, not {max_waiting!r}")
        self.limiter = limiter_of(limit)
        self._max_hold_ns = span_ns(max_hold)
        self._max_wait_ns = None if max_wait is None else span_ns(max_wait)
        jitter_ns = None if jitter is None else span_ns(jitter)
        self._pacing = Pacing(spreads, False, jitter_ns, max_waiting)
        self._lock = threading.Lock()
        self._tokens: Limiter | None = None
        self._max_tokens = 0
        self._now_ns: Callable[[], int] = time.monotonic_ns
        # A part of one, without its end.
        self._random = lambda: Fraction(random.getrandbits(64), 1 << 64)

    def _count_tokens(self, limit: Limiter | Limit | None) -> None:
        """Count the tokens of each request, too, under a limit of this client's own."""
        self._pacing.knows_tokens = True
        self._tokens = limiter_of(limit)
        if self._tokens is not None:
            self._max_tokens = capacity(self._tokens)

    def request(self, cost: Cost = Cost()) -> AbstractContextManager[Sent]:
        """Return a request whose ``with`` block begins when it may be sent. Threads wait."""
        return _Request(self, cost)

    def request_async(self, cost: Cost = Cost()) -> AbstractAsyncContextManager[Sent]:
        """Return a request whose ``async with`` block begins when it may be sent."""
        return _RequestAsync(self, cost)

    def _join(self, cost: Cost) -> Sent:
        with self._lock:
            ticket = self._pacing.join(cost)
        if ticket is None:
            raise Full(f"{self._pacing.max_waiting} requests wait already, the most that may")
        now_ns = self._now_ns()
        return Sent(self, ticket, None if self._max_wait_ns is None else now_ns + self._max_wait_ns)

    def _wait(self, sent: Sent) -> None:
        while True:
            while (left_ns := sent._start()) is not None:
                time.sleep(left_ns / 1e9)
            if self.limiter is not None:
                sent._grant = self.limiter.acquire(timeout=sent._left())
            if self._tokens is not None and sent._tokens:
                sent._token_grant = self._tokens.acquire(sent._tokens, timeout=sent._left())
            if sent._is_sent():
                return

    async def _wait_async(self, sent: Sent) -> None:
        while True:
            while (left_ns := sent._start()) is not None:
                # A timer of a loop may end early: the start is looked at again.
                await _loop.sleep(left_ns / 1e9)
            if self.limiter is not None:
                sent._grant = await self.limiter.acquire_async(timeout=sent._left())
            if self._tokens is not None and sent._tokens:
                taken = self._tokens.acquire_async(sent._tokens, timeout=sent._left())
                sent._token_grant = await taken
            if sent._is_sent():
                return


class Sent:
    """A request that is sent, or waits for that."""

    def __init__(self, pace: Pace, ticket: Ticket, deadline_ns: int | None) -> None:
        self._pace = pace
        self._ticket = ticket
        self._deadline_ns = deadline_ns
        self._stage = "waiting"
        self._grant: Grant | None = None
        # A request that costs more than ever passes waits for all of it.
        self._tokens = min(ticket.cost.input + ticket.cost.output, pace._max_tokens)
        self._token_grant: Grant | None = None

    def response(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Follow the hints of the response. Without this call the request counts as lost."""
        pace = self._pace
        hints = parse_hints(status, headers, max_hold_ns=pace._max_hold_ns)
        self._end_permit()
        with pace._lock:
            if self._stage == "sent":
                pace._pacing.follow(pace._now_ns(), self._ticket, hints, pace._random)
                self._stage = "ended"

    def _start(self) -> int | None:
        """Start the request, or return the nanoseconds until its next attempt."""
        pace = self._pace
        now_ns = pace._now_ns()
        with pace._lock:
            again_ns = pace._pacing.start(now_ns, self._ticket)
            if again_ns is None:
                self._stage = "started"
                return None
        left_ns = again_ns - now_ns
        if self._deadline_ns is not None and again_ns > self._deadline_ns:
            raise TooLong(f"the request would wait for {left_ns / 1e9:.9g} s more", left_ns)
        return left_ns

    def _left(self) -> float | None:
        if self._deadline_ns is None:
            return None
        return max(self._deadline_ns - self._pace._now_ns(), 0) / 1e9

    def _is_sent(self) -> bool:
        """Send a request that has started, unless a hold has begun: then it waits again.

        Its permit then stays charged. One that is used later than its promised start could
        coincide with others and exceed the limit.
        """
        pace = self._pace
        with pace._lock:
            is_held = pace._pacing.holds(pace._now_ns())
            if is_held:
                pace._pacing.end(self._ticket)
            self._stage = "waiting" if is_held else "sent"
        if is_held:
            self._end_permit()
            self._refund_tokens()
        return not is_held

    def _refund_tokens(self) -> None:
        if self._token_grant is not None and self._pace._tokens is not None:
            self._pace._tokens.refund(self._token_grant)
            self._token_grant = None

    def _end_permit(self) -> None:
        if self._grant is not None and self._pace.limiter is not None:
            self._grant = None
            # Of permits in flight this is the end; others have none.
            self._pace.limiter.__exit__()

    def _close(self) -> None:
        self._end_permit()
        if self._stage in ("waiting", "started"):
            self._refund_tokens()
        pacing = self._pace._pacing
        with self._pace._lock:
            if self._stage == "waiting":
                pacing.leave(self._ticket)
            elif self._stage == "started":
                pacing.take_back(self._ticket)
            elif self._stage == "sent":
                pacing.abandon(self._ticket)
            self._stage = "ended"


class _Request:
    def __init__(self, pace: Pace, cost: Cost) -> None:
        self._pace, self._cost = pace, cost
        self._sent: Sent | None = None

    def __enter__(self) -> Sent:
        self._sent = sent = self._pace._join(self._cost)
        try:
            self._pace._wait(sent)
        except BaseException:
            sent._close()
            raise
        return sent

    def __exit__(self, *_raised: object) -> None:
        if self._sent is not None:
            self._sent._close()


class _RequestAsync(_Request):
    async def __aenter__(self) -> Sent:
        self._sent = sent = self._pace._join(self._cost)
        try:
            await self._pace._wait_async(sent)
        except BaseException:
            sent._close()
            raise
        return sent

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)


def pace_of(given: Pace | Limiter | Limit | None) -> Pace:
    """Return a pace as it is, or one of a limit."""
    return given if isinstance(given, Pace) else Pace(given)


def limiter_of(limit: Limiter | Limit | None) -> Limiter | None:
    """Return a limiter as it is, or one of a limit."""
    return limit if limit is None or isinstance(limit, Limiter) else Limiter(limit)


def capacity(limiter: Limiter) -> int:
    """Return the most permits that could ever pass together."""
    low, high = 0, 1 << 63
    while low < high:
        middle = (low + high + 1) // 2
        try:
            limiter.peek(middle)
            low = middle
        except ExceedsCapacity:
            high = middle - 1
    return low


def span_ns(span: Span) -> int:
    """Return the nanoseconds of a span, which is read as all others are."""
    clock = ManualClock()
    clock.advance(span)
    return clock.now_ns
