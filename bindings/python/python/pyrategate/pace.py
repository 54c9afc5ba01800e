"""Clients that keep below a limit and follow the hints of their server.

`Pace` is what the transports of httpx, requests and aiohttp share; with it any other client can
do the same:

>>> pace = Pace("20/s")
>>> with pace.request() as sent:
...     sent.response(200, [("RateLimit", '"default";r=50;t=30')])
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, NamedTuple

from . import _loop
from ._clock import ManualClock
from ._core import Grant, Hold, ServerHints, _outcome_of, _PacedRequest, _Pacing
from ._errors import Closed, ExceedsCapacity, Full, TooLong
from ._limiter import Limiter
from ._types import Limit, Span
from .hints import parse_hints

__all__ = ["Pace", "Sent", "Tokens"]

# What is held ends with its request.
_FOREVER = f"{(1 << 64) - 1}ns"

Outcome = Literal["served", "dropped", "ignored"]


class Tokens(NamedTuple):
    """The tokens that a request will take of a language model's limits, as an estimate."""

    #: Those of the prompt.
    input: int = 0
    #: Those of the reply.
    output: int = 0


class Pace:
    """The pace of all requests to one server. Make one for each server, and share it.

    Each request waits for ``limit``, a `Limiter` or a text for one, and for the server. After a
    429, 403 or 503 with ``Retry-After``, or when nothing remains, no request is sent before that
    instant. What remains is spread over the time until the reset. Requests on their way count as
    if the server had not seen them. `pyrategate.hints.parse_hints` says how responses are read.

    An adaptive limiter follows how requests end: a 429, 503 or 529 counts as dropped, and so does
    a 403 that says how long to hold; any other response as served, and none as ignored. After a
    429 that says nothing, such a limiter cuts its rate, and there is no hold.

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
        self.limiter: Limiter | None = limiter_of(limit)
        self._max_hold_ns = span_ns(max_hold)
        self._max_wait_ns = None if max_wait is None else span_ns(max_wait)
        jitter_ns = None if jitter is None else span_ns(jitter)
        self._max_waiting = max_waiting
        self._pacing = _Pacing(spreads=spreads, jitter_ns=jitter_ns, max_waiting=max_waiting)
        self._tokens: Limiter | None = None
        self._max_tokens = 0
        self._now_ns: Callable[[], int] = time.monotonic_ns

    def _count_tokens(self, limit: Limiter | Limit | None) -> None:
        """Count the tokens of each request, too, under a limit of this client's own."""
        self._pacing = self._pacing.with_tokens()
        self._tokens = limiter_of(limit)
        if self._tokens is not None:
            self._max_tokens = capacity(self._tokens)

    def request(self, tokens: Tokens = Tokens()) -> AbstractContextManager[Sent]:
        """Return a request whose ``with`` block begins when it may be sent. Threads wait."""
        return _Request(self, tokens)

    def request_async(self, tokens: Tokens = Tokens()) -> AbstractAsyncContextManager[Sent]:
        """Return a request whose ``async with`` block begins when it may be sent."""
        return _RequestAsync(self, tokens)

    def _join(self, tokens: Tokens) -> Sent:
        request = self._pacing.join(tokens.input, tokens.output)
        if request is None:
            raise Full(f"{self._max_waiting} requests wait already, the most that may")
        return Sent(self, request, tokens)

    def _wait(self, sent: Sent) -> None:
        while True:
            while (left_ns := sent._start()) is not None:
                time.sleep(left_ns / 1e9)
            if self.limiter is not None:
                sent._grant = self.limiter.acquire(timeout=sent._left())
            if self._tokens is not None and sent._tokens:
                sent._held = self._tokens.hold(sent._tokens, _FOREVER, timeout=sent._left())
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
                holds = self._tokens.hold_async(sent._tokens, _FOREVER, timeout=sent._left())
                sent._held = await holds
            if sent._is_sent():
                return


class Sent:
    """A request that is sent, or waits for that."""

    def __init__(self, pace: Pace, request: _PacedRequest, tokens: Tokens) -> None:
        self._pace = pace
        self._request = request
        wait_ns = pace._max_wait_ns
        self._deadline_ns = None if wait_ns is None else pace._now_ns() + wait_ns
        self._grant: Grant | None = None
        # A request that costs more than ever passes waits for all of it.
        self._tokens = min(tokens.input + tokens.output, pace._max_tokens)
        self._held: Hold | None = None
        self._was_sent = False

    def response(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Follow the hints of the response. Without this call the request counts as lost."""
        hints = parse_hints(status, headers, max_hold_ns=self._pace._max_hold_ns)
        self._end_permit(_outcome_of(status, hints.hold_ns))
        limiter = self._pace.limiter
        if hints.is_guess and limiter is not None and limiter._follows_outcomes:
            # The limiter has cut its rate instead.
            hints = ServerHints(limits=hints.limits)
        self._request.follow(self._pace._now_ns(), hints)

    def _start(self) -> int | None:
        """Start the request, or return the nanoseconds until its next attempt."""
        now_ns = self._pace._now_ns()
        again_ns = self._request.start(now_ns)
        if again_ns is None:
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
        self._was_sent = self._request.send(self._pace._now_ns())
        if not self._was_sent:
            self._end_permit("ignored")
            self._end_tokens()
        return self._was_sent

    def _end_tokens(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        if self._was_sent:
            # What it has cost is not known.
            held.keep()
        else:
            held.cancel()

    def _end_permit(self, outcome: Outcome) -> None:
        grant, self._grant = self._grant, None
        if grant is not None and self._pace.limiter is not None:
            # Permits in flight end with it. Adaptive limits follow it, and a closed one needs none.
            with contextlib.suppress(Closed):
                self._pace.limiter.release_with_outcome(grant, outcome)

    def _close(self) -> None:
        self._end_permit("ignored")
        self._end_tokens()
        self._request.close()


class _Request:
    def __init__(self, pace: Pace, tokens: Tokens) -> None:
        self._pace, self._tokens = pace, tokens
        self._sent: Sent | None = None

    def __enter__(self) -> Sent:
        self._sent = sent = self._pace._join(self._tokens)
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
        self._sent = sent = self._pace._join(self._tokens)
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
