"""Limits of a server's requests: what the integrations of ASGI, WSGI, Flask and Django share."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from . import _core, keys
from ._clock import ManualClock
from ._core import SharedDecision
from ._errors import Closed, ExceedsCapacity, Full, Limited, Unavailable
from ._fields import PROBLEM, QuotaPolicy, Statuses, lines, problem, retry_seconds
from ._shared import Shared
from ._types import Limit

__all__ = ["Limits", "Reason", "Refusal", "Rule"]

Reason = Literal[
    "over-limit",
    "too-costly",
    "no-key",
    "ambiguous-key",
    "too-many-keys",
    "undecided",
    "key-not-provided",
]
Missing = Literal["share", "refuse", "pass"]
F = TypeVar("F", bound=Callable[..., Any])

_REASONS: dict[str, tuple[int, str]] = {
    "over-limit": (429, "The limit is reached."),
    "too-costly": (400, "The request costs more than could ever pass at once."),
    "no-key": (400, "The request does not name its client."),
    "ambiguous-key": (400, "The request names its client more than once."),
    "too-many-keys": (503, "The key table is full."),
    "undecided": (503, "The limit cannot be decided now."),
    "key-not-provided": (
        500,
        "The server is not set up to tell its clients apart. Its log states the cause.",
    ),
}

# The keys of all requests without one. No source has a number, and no header that character.
_SHARED, _SHARED_IN_STORE = 0, "\0"

# The ends of a try that a server answers by itself.
_FAILURES = (ExceedsCapacity, Full, Unavailable, Closed)

_log = logging.getLogger("pyrategate")


#: The limits of several processes that are rules of this one.
_shared: WeakSet[Shared] = WeakSet()
_shared_lock = threading.Lock()


class Refusal(Limited):
    """A request that does not pass, and the response to its client.

    ``reason`` says why, ``key`` is the client's, ``policy`` the name of the limit. Over the limit
    ``retry_after_ns`` is the exact time until the same request passes, if no other comes first and
    nothing that is held comes back sooner.
    """

    def __init__(
        self,
        reason: Reason,
        policy: str,
        key: str | None = None,
        retry_after_ns: int | None = None,
        statuses: Statuses = (),
    ) -> None:
        super().__init__(reason, policy, key, retry_after_ns, statuses)
        self.reason = reason
        self.policy = policy
        self.key = key
        self.retry_after_ns = retry_after_ns
        self.status: int
        self.detail: str
        self.status, self.detail = _REASONS[reason]
        self._statuses = statuses

    def __str__(self) -> str:
        return f"the limit {self.policy!r} refuses a request: {self.detail}"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The header fields of the response."""
        headers = [("content-type", PROBLEM), ("content-length", str(len(self.body)))]
        if self.retry_after_ns is not None:
            headers.append(("retry-after", str(retry_seconds(self.retry_after_ns))))
        return headers + lines(self._statuses)

    @functools.cached_property
    def body(self) -> bytes:
        """The body of the response: a problem (RFC 9457)."""
        return problem(self)


class Rule:
    """A limit for each client of a server. `Limits` makes it.

    ``table`` has the counters by key: it can be reset, reconfigured and observed. For a limit of
    several processes it is None, and ``shared`` is that limit.
    """

    def __init__(
        self, limits: Limits, limit: Limit | Shared, name: str, cost: Callable[[Any], int] | None
    ) -> None:
        _check_function(cost, "cost")
        self.policy: QuotaPolicy = QuotaPolicy(name, limit)
        self.shared: Shared | None = None
        self.table: _core.Keyed | None = None
        if isinstance(limit, Shared):
            self.shared = limit
            _warn_of_another(limit, name)
        else:
            self.table = _core.Keyed(
                limit,
                max_keys=limits._max_keys,
                max_bytes=limits._max_bytes,
                when_full=limits._when_full,
                clock=limits._clock,
            )
            self._take = self.table._decide
        self._limits = limits
        self._cost = cost

    def decide(self, head: keys.Head) -> Statuses:
        """Take the cost of a request. Return the status that its response reports.

        Raises `Refusal`. Waits for nothing but the reply of a store, for a limit of several
        processes, and takes no lock that another request holds for long.
        """
        call = self._call(head)
        if call is None:
            return ()
        key, cost = call
        policy = self.policy
        try:
            if self.shared is not None:
                return self._reported(self.shared.check(_in_store(key), cost), key)
            in_table = _SHARED if key is None else key
            granted, status, after_ns = self._take(in_table, cost, policy.quoted, policy.quota)
        except _FAILURES as error:
            raise self._failed(error, key) from None
        statuses = ((policy, status),)
        if granted:
            return statuses
        raise self._limits._refused("over-limit", policy.name, key, after_ns, statuses)

    async def decide_async(self, head: keys.Head) -> Statuses:
        """Decide as `decide` does, in a task, which awaits the reply of a store."""
        if self.shared is None:
            return self.decide(head)
        call = self._call(head)
        if call is None:
            return ()
        key, cost = call
        try:
            return self._reported(await self.shared.check_async(_in_store(key), cost), key)
        except _FAILURES as error:
            raise self._failed(error, key) from None

    def _call(self, head: keys.Head) -> tuple[str | None, int] | None:
        """Return the key and the cost of a request, or None for one that passes uncounted."""
        limits = self._limits
        key = limits._key.name(head)
        if key is None and limits._without_key(head, self.policy.name) == "pass":
            return None
        if self._cost is None:
            return key, 1
        cost = self._cost(head.raw)
        if not isinstance(cost, int) or cost < 0:
            wrong = ValueError if isinstance(cost, int) else TypeError
            raise wrong(f"cost= returns a whole number of permits from 0 on, not {cost!r}")
        return None if cost == 0 else (key, cost)

    def _reported(self, decision: SharedDecision, key: str | None) -> Statuses:
        """Return the status of a store's decision, or raise its refusal."""
        report = decision._report(self.policy.quoted)
        statuses = () if report is None else ((self.policy, report),)
        if decision.granted:
            return statuses
        # Without the store and without a local limit, the client has not exceeded anything.
        is_undecided = decision.by == "fallback" and report is None
        reason: Reason = "undecided" if is_undecided else "over-limit"
        after_ns = decision.retry_after_ns
        raise self._limits._refused(reason, self.policy.name, key, after_ns, statuses)

    def _failed(self, error: Exception, key: str | None) -> Refusal:
        reason: Reason = "undecided"
        if isinstance(error, ExceedsCapacity):
            reason = "too-costly"
        elif isinstance(error, Full):
            reason = "too-many-keys"
        after_ns = error.retry_after_ns if isinstance(error, Unavailable) else None
        return self._limits._refused(reason, self.policy.name, key, after_ns)


def _check_function(given: object, name: str) -> None:
    if given is not None and not callable(given):
        raise TypeError(f"{name}= is a function, not {given!r}")


def _warn_of_another(limit: Shared, name: str) -> None:
    """Warn if a rule counts together with one that was made of another object."""
    with _shared_lock:
        is_another = limit not in _shared and any(map(limit._counts_with, _shared))
        _shared.add(limit)
    if is_another:
        warnings.warn(
            f"the limit {name!r} counts together with another Shared of the same store and limit, as "
            "neither has a name: give each a name= of its own, or both the same Shared",
            RuntimeWarning,
            stacklevel=4,
        )


class Limits:
    """The limits of a server, and what it refused.

    ``limit`` is for each client over all requests; without it only those count that
    `limit` decorates. See the subclass of the framework for an example. A `pyrategate.Shared` is
    one limit for all processes; the bounds of memory and ``clock`` are of other limits.

    * ``key``: a source of `pyrategate.keys`, by default the address of the peer.
    * ``missing``: what to do without a key: ``"share"`` one limit, ``"refuse"`` with a 400,
      ``"pass"`` unlimited. By default a request whose client left the key out shares a limit. One
      that names its client twice gets a 400, and one whose server left the key out a 500.
    * ``cost``: a function of the framework's request that returns its permits. With 0 it passes.
    * ``max_keys``, ``max_bytes``, ``when_full``: as of `pyrategate.Keyed`. The memory is bounded.
    * ``name``: the limit's name, which clients see.
    * ``on_refused``: a function that is called with each `Refusal`. ``refused`` counts them.
    """

    def __init__(
        self,
        limit: Limit | Shared | None = None,
        *,
        key: keys.KeySource | None = None,
        missing: Missing | None = None,
        cost: Callable[[Any], int] | None = None,
        max_keys: int | None = None,
        max_bytes: int | None = None,
        when_full: Literal["share", "refuse", "admit"] = "share",
        name: str = "default",
        on_refused: Callable[[Refusal], None] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        if missing not in (None, "share", "refuse", "pass"):
            raise ValueError(f'missing is "share", "refuse" or "pass", not {missing!r}')
        _check_function(on_refused, "on_refused")
        self._key = keys.peer() if key is None else keys.source_of(key)
        self._missing = missing
        self._max_keys, self._max_bytes = max_keys, max_bytes
        self._when_full: Literal["share", "refuse", "admit"] = when_full
        self._on_refused = on_refused
        self._clock = clock
        self._counts: dict[Reason, int] = {}
        self._lock = threading.Lock()
        self._has_reported = False
        self.rule: Rule | None = None if limit is None else Rule(self, limit, name, cost)

    @property
    def refused(self) -> dict[Reason, int]:
        """The number of requests that were refused, by reason."""
        with self._lock:
            return dict(self._counts)

    def limit(
        self,
        limit: Limit | Shared,
        *,
        name: str | None = None,
        cost: Callable[[Any], int] | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function that serves requests: each client may call it that often.

        The function needs no parameter for it. Several decorators are several limits; a request
        that an inner one refuses has counted in the outer ones. One that is kept, and decorates
        several functions, is one limit of them together.
        """
        if callable(limit):
            raise TypeError(f"a decorator is made of a limit, as in limit('5/minute'), not {limit!r}")
        _check_function(cost, "cost")
        # A wrong limit is an error here, and not where it decorates.
        QuotaPolicy("limit", limit)
        made: list[Rule] = []

        def decorate(function: F) -> F:
            if not callable(function):
                raise TypeError(f"a limit decorates a function, not {function!r}")
            # Django's method_decorator decorates anew at each call.
            with self._lock:
                if not made:
                    named = str(getattr(function, "__name__", "limit")) if name is None else name
                    made.append(Rule(self, limit, named, cost))
            return self._decorated(function, made[0])

        return decorate

    def _decorated(self, function: F, rule: Rule) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limited(*args: Any, **kwargs: Any) -> Any:
                await current_async(rule)
                return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def limited(*args: Any, **kwargs: Any) -> Any:
                current(rule)
                return function(*args, **kwargs)

        return limited  # type: ignore[return-value]

    def _without_key(self, head: keys.Head, policy: str) -> Missing:
        """Say what to do with a request without a key, or raise its refusal."""
        missing = self._missing
        if missing == "share" or missing == "pass":
            return missing
        if self._key.is_ambiguous(head):
            raise self._refused("ambiguous-key", policy)
        if missing == "refuse":
            raise self._refused("no-key", policy)
        lacking = self._key.lacks(head)
        if lacking is None:
            return "share"
        if not self._has_reported:
            self._has_reported = True
            _log.error(
                "requests lack %s, which tells clients apart, and are answered with 500: let the "
                "server provide it, trust a number of hops, or say what to do by missing=",
                lacking,
            )
        raise self._refused("key-not-provided", policy)

    def _refused(
        self,
        reason: Reason,
        policy: str,
        key: str | None = None,
        retry_after_ns: int | None = None,
        statuses: Statuses = (),
    ) -> Refusal:
        refusal = Refusal(reason, policy, key, retry_after_ns, statuses)
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + 1
        if self._on_refused is not None:
            self._on_refused(refusal)
        return refusal


#: The head of the request that this task or thread serves, with the statuses to report.
serving: ContextVar[keys.Head] = ContextVar("pyrategate.request")


def current(rule: Rule) -> None:
    """Decide on the request that is being served, by a rule of the function that serves it."""
    head = _served(rule)
    try:
        head.statuses += rule.decide(head)
    except Refusal as refusal:
        head.refusal = refusal
        raise


async def current_async(rule: Rule) -> None:
    """Decide as `current` does, in a task."""
    head = _served(rule)
    try:
        head.statuses += await rule.decide_async(head)
    except Refusal as refusal:
        head.refusal = refusal
        raise


def _served(rule: Rule) -> keys.Head:
    head = serving.get(None)
    if head is None:
        raise LookupError(
            f"the limit {rule.policy.name!r} is not within a request: put the middleware of its "
            "Limits around the application, and call the function before the application returns"
        )
    return head


def _in_store(key: str | None) -> str:
    return _SHARED_IN_STORE if key is None else key
