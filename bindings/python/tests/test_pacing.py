"""The start of requests by what a server reported: seeded clients and servers in virtual time."""

import asyncio
import heapq
import random
import threading
import time
from fractions import Fraction

import pytest

from pyrategate import Full, Limiter, ManualClock, Policy, TooLong
from pyrategate._pacing import Cost, Pacing
from pyrategate.hints import ServerHints, ServerLimit, parse_hints
from pyrategate.pace import Pace, span_ns

MS = 1_000_000
SECOND = 1_000_000_000


class Server:
    """A server that decides by the plain list of what it let pass."""

    def __init__(self, kind, quota, window_ns, tick_ns):
        self.kind, self.quota, self.window_ns, self.tick_ns = kind, quota, window_ns, tick_ns
        self.log = []

    def status(self, now_ns):
        """Return what is available, and the reset."""
        if self.kind == "fixed":
            begin_ns = now_ns - now_ns % self.window_ns
            used = sum(at >= begin_ns for at in self.log)
            return self.quota - used, begin_ns + self.window_ns - now_ns
        if self.kind == "sliding":
            recent = [at for at in self.log if at > now_ns - self.window_ns]
            return self.quota - len(recent), (recent[0] + self.window_ns - now_ns if recent else 0)
        full_ns = 0
        for at in self.log:
            full_ns = max(full_ns, at) + self.window_ns // self.quota
        left_ns = max(full_ns - now_ns, 0)
        return max(self.quota - -(-left_ns * self.quota // self.window_ns), 0), left_ns

    def serve(self, now_ns):
        """Serve a request. Return False if it is over the limit."""
        if self.status(now_ns)[0] < 1:
            return False
        self.log.append(now_ns)
        return True

    def report(self, now_ns):
        remaining, reset_ns = self.status(now_ns)
        reset_ns = -(-reset_ns // self.tick_ns) * self.tick_ns
        window_ns = self.window_ns if self.kind == "sliding" else None
        limit = ServerLimit(
            "l", "requests", self.quota, window_ns, remaining, reset_ns, self.kind == "bucket"
        )
        return [limit] if reset_ns else []


def run(seed, kind, spreads):
    """Run a client against a server. Return the refusals after the first response, and more."""
    generator = random.Random(seed)
    server = Server(
        kind, generator.randrange(1, 9), generator.randrange(1, 20) * 100 * MS,
        generator.choice([1, 1000 * MS]),
    )
    pacing = Pacing(spreads, jitter_ns=0)
    events, count, refused, served = [], 0, 0, 0

    def at(time_ns, kind, *what):
        nonlocal count
        count += 1
        heapq.heappush(events, (time_ns, count, kind, what))

    way_ns = lambda: generator.randrange(1, 50 * MS)  # noqa: E731
    at(0, "arrives")
    for _ in range(60):
        at(generator.randrange(100 * MS, 10 * SECOND), "arrives")
    started = []
    while events:
        now_ns, _, kind, what = heapq.heappop(events)
        if kind == "arrives":
            ticket = pacing.join(Cost())
            at(now_ns, "attempts", ticket)
        elif kind == "attempts":
            again_ns = pacing.start(now_ns, *what)
            if again_ns is None:
                started.append(now_ns)
                at(now_ns + way_ns(), "served", *what)
            else:
                assert again_ns > now_ns
                at(again_ns, "attempts", *what)
        elif kind == "served":
            passed = server.serve(now_ns)
            served += passed
            refused += not passed
            at(now_ns + way_ns(), "responds", *what, server.report(now_ns))
        else:
            ticket, limits = what
            hold = max([it.opens_after_ns(1) for it in limits if it.remaining == 0], default=0)
            pacing.follow(now_ns, ticket, ServerHints(hold, False, limits), lambda: Fraction(0))
    assert not pacing._waiting and pacing._in_flight == Cost(0)
    return refused, served


@pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
@pytest.mark.parametrize("spreads", [True, False])
def test_once_a_response_was_followed_nothing_more_is_refused(kind, spreads):
    for seed in range(60):
        refused, served = run(seed, kind, spreads)
        assert (refused, served) == (0, 61), (seed, kind)


def follow(pacing, now_ns, hold_ns, part=Fraction(0)):
    ticket = pacing.join(Cost())
    while (again_ns := pacing.start(now_ns, ticket)) is not None:
        now_ns = again_ns
    pacing.follow(now_ns, ticket, ServerHints(hold_ns), lambda: part)
    return now_ns


def next_start(pacing, now_ns):
    ticket = pacing.join(Cost())
    again_ns = pacing.start(now_ns, ticket)
    if again_ns is None:
        pacing.take_back(ticket)
    else:
        pacing.leave(ticket)
    return now_ns if again_ns is None else again_ns


@pytest.mark.parametrize(
    ("jitter_ns", "hold_s", "part", "added_ns"),
    [
        # By default a fifth of the hold, and at most 30 s; never sooner.
        (None, 10, Fraction(0), 0),
        (None, 10, Fraction(1, 2), SECOND),
        (None, 10, Fraction(2**64 - 1, 2**64), 2 * SECOND - 1),
        (None, 3600, Fraction(1, 2), 15 * SECOND),
        (0, 10, Fraction(1, 2), 0),
        (4 * SECOND, 10, Fraction(1, 4), SECOND),
    ],
)
def test_a_hold_ends_later_than_asked_and_never_sooner(jitter_ns, hold_s, part, added_ns):
    pacing = Pacing(jitter_ns=jitter_ns)
    follow(pacing, 0, hold_s * SECOND, part)
    assert next_start(pacing, 1) == hold_s * SECOND + added_ns
    # An older response with a shorter hold changes nothing.
    assert pacing.holds(hold_s * SECOND - 1)


def test_those_that_waited_start_evenly_over_a_jitter_of_their_own():
    pacing = Pacing(jitter_ns=8 * SECOND)
    follow(pacing, 0, 10 * SECOND)
    tickets = [pacing.join(Cost()) for _ in range(4)]
    starts = []
    waiting = {it.number: (pacing.start(1, it), it) for it in tickets}
    while waiting:
        number, (at_ns, ticket) = min(waiting.items(), key=lambda it: it[1][0])
        again_ns = pacing.start(at_ns, ticket)
        if again_ns is None:
            starts.append((at_ns, number))
            del waiting[number]
        else:
            waiting[number] = (again_ns, ticket)
    assert starts == [((10 + 2 * it) * SECOND, ticket.number) for it, ticket in enumerate(tickets)]


def test_a_window_is_at_least_as_long_as_the_longest_reset():
    pacing = Pacing(spreads=False, jitter_ns=0)
    for now_s, reset_s in [(0, 10), (8, 2)]:
        ticket = pacing.join(Cost())
        assert pacing.start(now_s * SECOND, ticket) is None
        limit = ServerLimit("l", "requests", 10, None, 5, reset_s * SECOND)
        pacing.follow(now_s * SECOND, ticket, ServerHints(0, False, [limit]), lambda: Fraction(0))
    for _ in range(10):
        assert pacing.start(10 * SECOND, pacing.join(Cost())) is None
    # A tenth of ten seconds, and not of the two that were left.
    assert next_start(pacing, 10 * SECOND) == 11 * SECOND


def test_tokens_hold_when_exhausted_unless_the_cost_of_requests_is_known():
    limit = ServerLimit("t", "tokens", 100, None, 0, 10 * SECOND, True)
    for knows, cost, expected in [(False, Cost(), 10), (True, Cost(1, 10, 10), 2)]:
        pacing = Pacing(False, knows, 0)
        ticket = pacing.join(cost)
        assert pacing.start(0, ticket) is None
        pacing.follow(0, ticket, ServerHints(0, False, [limit]), lambda: Fraction(0))
        ticket = pacing.join(cost)
        assert pacing.start(0, ticket) == expected * SECOND


def test_waiting_requests_are_bounded_and_one_that_leaves_makes_room():
    pace = Pace(max_waiting=1)
    first = pace._join(Cost())
    with pytest.raises(Full, match="1 requests wait already"):
        pace._join(Cost())
    first._close()
    with pace.request():
        pass


def hold(pace, seconds):
    with pace.request() as sent:
        sent.response(429, [("retry-after", str(seconds))])


def test_a_wait_beyond_the_longest_is_refused_at_once():
    pace = Pace(max_wait="100ms")
    hold(pace, 60)
    begin = time.monotonic()
    with pytest.raises(TooLong) as refused, pace.request():
        pass
    assert time.monotonic() - begin < 10
    assert 59 < refused.value.retry_after < 75
    assert not pace._pacing._waiting
    slow = Pace("1/h", max_wait="100ms")
    with slow.request():
        pass
    with pytest.raises(TooLong), slow.request():
        pass


def test_a_hold_of_a_server_is_no_longer_than_the_clients_own_bound():
    pace = Pace(max_hold="1s", jitter=0)
    with pace.request() as sent:
        sent.response(429, [("retry-after", "9999")])
        ended_ns = time.monotonic_ns()
    with pace.request():
        assert SECOND - 50 * MS < time.monotonic_ns() - ended_ns < 30 * SECOND


def test_a_cancelled_wait_leaves_and_a_lost_request_counts():
    pace = Pace(jitter=0)
    hold(pace, 60)

    async def main():
        async def wait():
            async with pace.request_async():
                pass

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        assert len(pace._pacing._waiting) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not pace._pacing._waiting
    other = Pace(spreads=False)
    with other.request() as sent:
        sent.response(200, [("ratelimit", '"p";r=1;t=60')])
    with pytest.raises(OSError), other.request():
        raise OSError
    assert other._pacing._in_flight == Cost(0)
    assert next_start(other._pacing, time.monotonic_ns()) > time.monotonic_ns() + 50 * SECOND


def test_permits_in_flight_end_with_the_response():
    pace = Pace(Limiter(Policy("concurrency", permits=1)))
    for _ in range(3):
        with pace.request() as sent:
            assert pace.limiter.remaining == 0
            sent.response(200, [])
            assert pace.limiter.remaining == 1
    with pytest.raises(OSError), pace.request():
        raise OSError
    assert pace.limiter.remaining == 1


def test_a_hold_that_begins_while_a_request_waits_for_a_permit_holds_it_too():
    pace = Pace("5/s burst 1", jitter=0)
    with pace.request() as first:
        starts = []

        def second():
            with pace.request():
                starts.append(time.monotonic_ns())

        thread = threading.Thread(target=second)
        thread.start()
        while not pace.limiter.waiting:
            time.sleep(0.001)
        first.response(429, [("retry-after", "1")])
        held_ns = time.monotonic_ns()
        thread.join()
    # What was read after the response was followed is later than the hold's begin by some time.
    assert starts[0] >= held_ns + SECOND - 100 * MS


def test_wrong_arguments_are_refused():
    for call, kind in [
        (lambda: Pace(5), TypeError),
        (lambda: Pace("5"), ValueError),
        (lambda: Pace(max_waiting=0), ValueError),
        (lambda: Pace(max_wait=-1), ValueError),
        (lambda: Pace(jitter="soon"), ValueError),
    ]:
        with pytest.raises(kind):
            call()
    assert span_ns("1.5s") == span_ns(1.5) == 1500 * MS
