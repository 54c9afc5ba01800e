"""Plays the project's scenarios, as tapes: docs/conformance.md says what their lines mean."""

import os
from collections import deque
from pathlib import Path

import pytest
from pyrategate import (
    Closed,
    DeadlinePassed,
    Evicted,
    ExceedsCapacity,
    Full,
    Grant,
    Limiter,
    ManualClock,
    RateLimited,
    Settled,
    TimeCannotHelp,
)
from pyrategate._core import Hub

FOLDER = os.environ.get("RATEGATE_TAPES")
TAPES = sorted(Path(FOLDER).glob("*.tape")) if FOLDER else []


class Table:
    """A policy as a tape writes it."""

    def __init__(self, body):
        self._table = body.replace("; ", "\n")


class Future:
    """The future by which the hub wakes a task."""

    def __init__(self, call, woken):
        self.call, self.woken = call, woken

    def done(self):
        return False

    def set_result(self, _):
        self.woken.append(self.call)


class Player:
    """A limiter and a loop, as the lines so far left them."""

    def __init__(self):
        self.policies, self.ends, self.woken = [], deque(), deque()
        # By the number of the call: grants, reservations, holds, and places in the hub's line.
        self.grants, self.reservations, self.holds, self.places = {}, {}, {}, {}

    def drain(self):
        while True:
            self.hub.wake()
            if not self.woken:
                return
            while self.woken:
                call = self.woken.popleft()
                try:
                    grant = self.hub.collect(self.limiter, self.places[call])
                except Exception as error:
                    self.ends.append((call, error))
                    continue
                if grant is not None:
                    self.grants[call] = grant
                    self.ends.append((call, grant))

    def line(self, line):
        word, _, rest = line.partition(" ")
        getattr(self, f"on_{word}")(rest)

    def on_tape(self, version):
        assert version == "1"

    def on_name(self, name):
        pass

    def on_limit(self, body):
        self.policies.append(Table(body))

    def on_begin(self, rest):
        given = fields(rest.split())
        self.clock, self.hub = ManualClock(), Hub()
        self.clock.set_ns(int(given["clock"]))
        debt = {"debt": given["debt"]}
        if "max_debt" in given:
            debt["max_debt"] = f"{given['max_debt']}ns"
        if "permits" in given:
            debt["max_waiting_permits"] = int(given["permits"])
        self.limiter = Limiter(
            self.policies,
            clock=self.clock,
            max_waiting=int(given["waiters"]),
            when_full=given["full"],
            **debt,
        )
        self.policies = []

    def on_clock(self, now_ns):
        self.clock.set_ns(int(now_ns))
        self.drain()

    def on_idle(self, _):
        assert not self.ends

    def on_serve(self, _):
        self.limiter.remaining
        self.drain()

    def on_end(self, rest):
        call, *result = rest.split()
        ended, end = self.ends.popleft()
        assert (ended, shown(end)) == (int(call), result)

    def on_call(self, rest):
        assert not self.ends
        call, result = rest.split(" -> ")
        number, verb, *arguments = call.split()
        *result, remaining = result.split()
        done = getattr(self, f"call_{verb}")(int(number), fields(arguments))
        assert done == result, rest
        self.drain()
        assert remaining == f"remaining={self.limiter.remaining}"

    def on_remaining(self, number):
        assert self.limiter.remaining == int(number)

    def on_close(self, _):
        assert not self.ends
        self.limiter.close()
        self.drain()

    def call_try(self, number, given):
        try:
            decision = self.limiter.check(int(given["permits"]))
        except ExceedsCapacity:
            return ["never"]
        if decision:
            self.grants[number] = decision.grant
            return shown(decision.grant)
        return denied("denied", decision.retry_after_ns)

    def call_peek(self, _, given):
        try:
            return denied("peeked", self.limiter.peek(int(given["permits"])) or None)
        except ExceedsCapacity:
            return ["never"]

    def call_wait(self, number, given):
        future = Future(number, self.woken)
        timeout = f"{given['timeout']}ns" if "timeout" in given else None
        try:
            place = self.hub.begin(self.limiter, int(given["permits"]), timeout, future)
        except Exception as error:
            return shown(error)
        if isinstance(place, Grant):
            self.grants[number] = place
            return shown(place)
        self.places[number] = place
        return ["waiting"]

    def call_leave(self, _, given):
        place = self.places.get(int(given["of"]))
        return ["left" if place is not None and self.hub.cancel(place) else "too-late"]

    def call_reserve(self, number, given):
        timeout = f"{given['timeout']}ns" if "timeout" in given else None
        try:
            reservation = self.limiter.reserve(int(given["permits"]), timeout=timeout)
        except Exception as error:
            return shown(error)
        self.reservations[number] = reservation
        return ["granted", f"start={reservation.promised_at_ns}"]

    def call_hold(self, number, given):
        permits, ttl = int(given["permits"]), int(given["ttl"])
        try:
            hold = self.limiter.try_hold(permits, f"{ttl}ns")
        except Exception as error:
            return shown(error)
        assert hold.permits == permits
        self.holds[number] = hold
        return ["held", f"start={hold.ends_at_ns - ttl}"]

    def call_commit(self, _, given):
        hold, actual = self.holds.pop(int(given["of"])), int(given["actual"])
        end = hold.commit(actual)
        if isinstance(end, Settled):
            return ["committed", *corrected(end, hold.permits, actual)]
        return ["late", f"debt={end.debt}", f"forgiven={end.forgiven}"]

    def call_cancel(self, _, given):
        call = int(given["of"])
        of = self.holds.pop(call, None) or self.reservations.pop(call, None)
        return ["cancelled" if of is not None and of.cancel() else "too-late"]

    def call_charge(self, _, given):
        try:
            charged = self.limiter.charge(int(given["permits"]))
        except ExceedsCapacity:
            return ["not-for-this-limit"]
        return ["charged", f"debt={charged.debt}", f"forgiven={charged.forgiven}"]

    def call_release(self, _, given):
        if "of" in given:
            self.limiter.release_with_outcome(self.granted(given), given["outcome"])
        else:
            self.limiter.release(int(given["permits"]))
        return ["set"]

    def call_refill(self, _, given):
        self.limiter.refill(int(given["permits"]))
        return ["set"]

    def call_set(self, _number, _given):
        self.limiter.reconfigure(self.policies)
        self.policies = []
        return ["set"]

    def granted(self, given):
        call = int(given["of"])
        if call in self.reservations:
            self.grants[call] = self.reservations.pop(call).keep()
        return self.grants[call]


def fields(words):
    """Return the keys and values of words like ``permits=1``."""
    return dict(word.split("=", 1) for word in words)


def denied(word, retry_after_ns):
    """Return a denial as a tape writes it."""
    return [word] if retry_after_ns is None else [word, f"retry_after={retry_after_ns}"]


def corrected(settled, estimate, actual):
    """Return the correction of an estimate as a tape writes it."""
    words = []
    if actual < estimate:
        words.append(f"back={settled.refunded}")
    # Operations in flight owe nothing.
    if actual > estimate and settled.charged + settled.forgiven > 0:
        words.append(f"owed={settled.charged}")
    if settled.forgiven:
        words.append(f"forgiven={settled.forgiven}")
    return words


def shown(end):
    """Return the end of a call as a tape writes it."""
    match end:
        case Grant():
            return ["granted", f"start={end.promised_at_ns}", f"scheduled={end.scheduled_at_ns}"]
        case DeadlinePassed():
            return ["deadline-passed"]
        case RateLimited():
            return denied("denied", end.retry_after_ns)
        case TimeCannotHelp():
            return ["denied"]
        case ExceedsCapacity():
            return ["never"]
        case Evicted():
            return ["evicted"]
        case Full():
            return ["full"]
        case Closed():
            return ["closed"]
    raise end


@pytest.mark.skipif(not TAPES, reason="RATEGATE_TAPES names no folder with tapes")
def test_every_tape_plays():
    for tape in TAPES:
        player = Player()
        for number, line in enumerate(tape.read_text("ascii").splitlines(), 1):
            try:
                player.line(line)
            except Exception as error:
                raise AssertionError(f"{tape.name}, line {number}: {line}") from error
        assert not player.ends and player.hub.waiting == 0, tape.name
    assert len(TAPES) > 700
    record()


def record():
    """Write which files were played, and why others have no tape, where a folder is named."""
    if records := os.environ.get("RATEGATE_CONFORMANCE"):
        played = [f"{tape.stem}\t\n" for tape in TAPES if not tape.stem.startswith("seed-")]
        left_out = (Path(FOLDER) / "left-out.txt").read_text("utf-8")
        Path(records, "python.txt").write_text("".join(played) + left_out, "utf-8")
