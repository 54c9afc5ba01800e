"""The start of a client's next request, by what its server reported. Time is an argument.

A port of the layer for Rust's clients. A client's copy of a limit has what the server had when it
last reported, plus what the server adds since. What may be sent is that less the cost of all
requests on their way, because the server may have counted none of them. So, as long as no other
client takes from the limit, nothing that starts here is over it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from .hints import ServerHints, ServerLimit

_MAX_LIMITS = 32

# The default jitter of a hold: at most a fifth of it, and at most half a minute.
_JITTER_PART = 5
_MAX_JITTER_NS = 30_000_000_000

_NEVER_NS = 1 << 64


@dataclass(frozen=True)
class Cost:
    """A number of requests, and the tokens of a language model that they take."""

    requests: int = 1
    input: int = 0
    output: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests, self.input + other.input, self.output + other.output
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.requests - other.requests, self.input - other.input, self.output - other.output
        )

    def amount(self, unit: str | None) -> int | None:
        """Return the amount in a unit; None for one in which clients do not count."""
        if unit == "requests":
            return self.requests
        if unit == "tokens":
            return self.input + self.output
        if unit == "input-tokens":
            return self.input
        return self.output if unit == "output-tokens" else None


@dataclass
class Ticket:
    """The place of a request in the order of arrival, and its cost."""

    number: int
    cost: Cost
    started_ns: int = 0


@dataclass(frozen=True)
class _Rate:
    """An amount per time."""

    amount: int
    per_ns: int

    def time_ns(self, amount: int) -> int:
        return -(-max(amount, 0) * self.per_ns // max(self.amount, 1))

    def amount_of(self, ns: int) -> int:
        return ns * self.amount // self.per_ns if self.per_ns else 0


@dataclass(frozen=True)
class _Change:
    """An assumption for the time from an instant on."""

    at_ns: int
    amount: int
    is_renewed: bool
    growth: _Rate | None


class _Allowance:
    """A client's copy of a limit."""

    def __init__(
        self, limit: ServerLimit, unit: str, others: int, started_ns: int, now_ns: int, spreads: bool
    ) -> None:
        over_ns, quota, remaining = limit.reset_ns, limit.quota, limit.remaining
        reset_ns = now_ns + over_ns
        used = max((quota or 0) - remaining, 0)
        is_gradual = limit.is_gradual and used > 0
        self.name, self.unit = limit.name, unit
        # The server's amount at `since_ns`; below zero after requests without a report.
        self.amount, self.since_ns = remaining, now_ns
        self.max = quota
        self.growth = _Rate(used, over_ns) if is_gradual else None
        # One gap more than requests, so that the last does not fall into the next window.
        paced = quota or 0 if is_gradual else max(remaining - others, 0) + 1
        self.pace = _Rate(paced, over_ns) if spreads else None
        # The next change is the last one.
        self.changes: list[_Change] = []
        if quota and not is_gradual:
            if limit.window_ns is not None:
                # The draft's windows may slide: after a reset there is more, and perhaps but one,
                # which the others may take. All that was counted is over a window later.
                end_ns = max(now_ns + limit.window_ns, reset_ns)
                passed, more = max(used - others - 1, 0), max(min(used, 1) - others, 0)
                rate = _Rate(quota, limit.window_ns)
                self.changes = [
                    _Change(end_ns, passed, False, rate),
                    _Change(reset_ns, more, False, None),
                ]
            else:
                self.changes = [_Change(reset_ns, quota, True, _Rate(quota, over_ns))]
        self.reset_ns, self.longest_ns = reset_ns, over_ns
        self.reported_ns, self.started_ns = now_ns, started_ns

    def advance(self, now_ns: int) -> bool:
        """Advance to an instant. Return False if nothing is known of the limit any more."""
        while self.until_ns() <= now_ns:
            self.since_ns = self.until_ns()
            if not self.changes:
                return False
            change = self.changes.pop()
            self.amount = (0 if change.is_renewed else self.amount) + change.amount
            self.growth = change.growth
            if change.growth is not None and change.is_renewed:
                # A window is at least as long as the longest reset.
                longest_ns = max(change.growth.per_ns, self.longest_ns)
                self.growth = _Rate(change.growth.amount, longest_ns)
            self.pace = self.growth if self.pace is not None else None
        if self.max is not None and self.now(now_ns) >= self.max:
            self.amount, self.since_ns = self.max, now_ns
        return True

    def until_ns(self) -> int:
        """Return the instant up to which the amounts are those of the last change."""
        if self.changes:
            return self.changes[-1].at_ns
        return _NEVER_NS if self.growth is not None else self.reset_ns

    def now(self, now_ns: int) -> int:
        """Return the server's amount, as far as known."""
        if self.growth is None:
            return self.amount
        return self.amount + self.growth.amount_of(max(now_ns - self.since_ns, 0))

    def replaced(self, new: _Allowance) -> _Allowance:
        """Return the copy after a new report. Reports arrive in any order: one that may be older
        only lowers the amount."""
        longest_ns = max(self.longest_ns, new.longest_ns)
        kept = self
        if new.started_ns >= self.reported_ns:
            kept = new
        else:
            self.amount = min(new.amount, self.now(new.since_ns))
            self.since_ns = new.since_ns
        kept.longest_ns = longest_ns
        return kept

    def start_ns(
        self, own: int, ahead: int, in_flight: int, last_ns: int | None, hold_ns: int
    ) -> int:
        """Return the start of a request behind others, never later than the next change."""
        # A request that costs more than the quota waits until all of it is available.
        needed = (own if self.max is None else min(own, self.max)) + ahead
        missing = needed + in_flight - self.amount
        at_ns = 0
        if missing > 0:
            growth = self.growth
            at_ns = _NEVER_NS if growth is None else self.since_ns + growth.time_ns(missing)
        if self.pace is not None and last_ns is not None:
            next_ns = max(last_ns + self.pace.time_ns(own), hold_ns)
            at_ns = max(at_ns, next_ns + self.pace.time_ns(ahead))
        return min(at_ns, self.until_ns())


@dataclass
class Pacing:
    """The state that all clients of a server share."""

    spreads: bool = True
    #: The tokens of each request are known.
    knows_tokens: bool = False
    #: The maximum jitter of a hold. Without one it is a part of the hold.
    jitter_ns: int | None = None
    max_waiting: int = 65_536

    _hold_until_ns: int = 0
    _named_until_ns: int = 0
    _jitter_ns: int = 0
    # All extensions of a hold share it: the latest of several would be close to the maximum.
    _random: Fraction = Fraction(0)
    # Over this time after a hold those start that waited for its end.
    _release_ns: int = 0
    _spacing_ns: int = 0
    _allowances: list[_Allowance] = field(default_factory=list)
    _last_start_ns: int | None = None
    _previous_start_ns: int | None = None
    _waiting: list[Ticket] = field(default_factory=list)
    _next: int = 0
    _in_flight: Cost = field(default_factory=lambda: Cost(0))

    def join(self, cost: Cost) -> Ticket | None:
        """Add a request behind the waiting ones, unless as many as may wait already."""
        if len(self._waiting) >= self.max_waiting:
            return None
        ticket = Ticket(self._next, cost)
        self._next += 1
        self._waiting.append(ticket)
        return ticket

    def _index(self, ticket: Ticket) -> int:
        return bisect_left(self._waiting, ticket.number, key=lambda it: it.number)

    def leave(self, ticket: Ticket) -> None:
        """Remove a request that will not start."""
        index = self._index(ticket)
        if index < len(self._waiting) and self._waiting[index].number == ticket.number:
            del self._waiting[index]

    def start(self, now_ns: int, ticket: Ticket) -> int | None:
        """Start a waiting request, or return the instant of its next attempt."""
        self._allowances = [it for it in self._allowances if it.advance(now_ns)]
        ahead = self._index(ticket)
        start_ns = self._start_ns(now_ns, ahead, ticket.cost)
        if start_ns > now_ns:
            return start_ns
        if self._last_start_ns is None or self._last_start_ns < self._hold_until_ns:
            self._spacing_ns = self._spacing()
        # The requests ahead have missed their start. They start at their next attempt.
        del self._waiting[:ahead]
        self.leave(ticket)
        self._previous_start_ns, self._last_start_ns = self._last_start_ns, now_ns
        ticket.started_ns = now_ns
        self._in_flight += ticket.cost
        return None

    def _start_ns(self, now_ns: int, ahead: int, cost: Cost) -> int:
        start_ns = max(now_ns, self._released_ns(now_ns, ahead))
        for allowance in self._allowances:
            own = cost.amount(allowance.unit) or 0
            if own > 0:
                start_ns = max(
                    start_ns,
                    allowance.start_ns(
                        own,
                        self._cost_of_first(ahead, allowance.unit),
                        self._in_flight.amount(allowance.unit) or 0,
                        self._last_start_ns,
                        self._hold_until_ns,
                    ),
                )
        return start_ns

    def _released_ns(self, now_ns: int, ahead: int) -> int:
        hold_ns = self._hold_until_ns
        if now_ns < hold_ns or now_ns >= hold_ns + self._release_ns:
            return hold_ns
        if self._last_start_ns is not None and self._last_start_ns >= hold_ns:
            return self._last_start_ns + self._spacing_ns * (ahead + 1)
        return hold_ns + self._spacing() * ahead

    def _spacing(self) -> int:
        return self._release_ns // len(self._waiting) if self._waiting else 0

    def _cost_of_first(self, requests: int, unit: str) -> int:
        if unit == "requests":
            return requests
        return sum(it.cost.amount(unit) or 0 for it in self._waiting[:requests])

    def take_back(self, ticket: Ticket) -> None:
        """Withdraw a start that was not used."""
        if self._last_start_ns == ticket.started_ns:
            self._last_start_ns = self._previous_start_ns
        self.end(ticket)

    def holds(self, now_ns: int) -> bool:
        """Return True if no request may start now."""
        return now_ns < self._hold_until_ns

    def end(self, ticket: Ticket) -> None:
        """Record that a request has its response, or was not sent."""
        self._in_flight -= ticket.cost

    def abandon(self, ticket: Ticket) -> None:
        """Record that a request will have no response. The server may have counted it."""
        self._count(ticket, ())
        self.end(ticket)

    def _count(self, ticket: Ticket, reported: list[_Allowance] | tuple[()]) -> None:
        names = {(it.unit, it.name) for it in reported}
        for known in self._allowances:
            if (known.unit, known.name) not in names:
                known.amount -= ticket.cost.amount(known.unit) or 0

    def follow(
        self, now_ns: int, ticket: Ticket, hints: ServerHints, random: Callable[[], Fraction]
    ) -> None:
        """Apply the hints of the response to a request. Holds only grow."""
        others = self._in_flight - ticket.cost
        hold_ns = hints.hold_ns
        reported: list[_Allowance] = []
        for limit in hints.limits[:_MAX_LIMITS]:
            unit = limit.unit if self.knows_tokens or not limit.counts_tokens else None
            taken = others.amount(unit)
            if unit is not None and taken is not None:
                started_ns = ticket.started_ns
                reported.append(_Allowance(limit, unit, taken, started_ns, now_ns, self.spreads))
            elif limit.remaining == 0:
                # What the next request takes of it is unknown.
                hold_ns = max(hold_ns, limit.reset_ns)
        self._allowances = [it for it in self._allowances if it.advance(now_ns)]
        self._count(ticket, reported)
        self._report(now_ns, reported)
        self._hold(now_ns, hold_ns, random)
        self.end(ticket)

    def _report(self, now_ns: int, reported: list[_Allowance]) -> None:
        new = {(it.unit, it.name): it for it in reported}
        # What is not reported after its reset may be no limit any more.
        known = {
            (it.unit, it.name): it
            for it in self._allowances
            if now_ns < it.reset_ns or (it.unit, it.name) in new
        }
        for name, allowance in new.items():
            if name in known:
                known[name] = known[name].replaced(allowance)
            elif len(known) < _MAX_LIMITS:
                known[name] = allowance
        self._allowances = list(known.values())

    def _hold(self, now_ns: int, hold_ns: int, random: Callable[[], Fraction]) -> None:
        until_ns = now_ns + hold_ns
        if hold_ns == 0 or until_ns <= self._named_until_ns:
            return
        if not self.holds(now_ns):
            self._jitter_ns, self._random = 0, random()
        most_ns = self.jitter_ns
        if most_ns is None:
            most_ns = min(hold_ns // _JITTER_PART, _MAX_JITTER_NS)
        self._jitter_ns = max(self._jitter_ns, int(most_ns * self._random))
        self._release_ns = self.jitter_ns or 0
        self._named_until_ns = until_ns
        self._hold_until_ns = until_ns + self._jitter_ns
