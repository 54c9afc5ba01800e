"""The start of requests by what a server reported: of the layer for Rust, behind a Pace."""

import asyncio
import contextlib
import threading
import time

import pytest

from pyrategate import Full, Limiter, ManualClock, Policy, TooLong
from pyrategate._core import _Pacing
from pyrategate.hints import ServerHints, ServerLimit
from pyrategate.pace import Pace, Tokens, span_ns

MS = 1_000_000
SECOND = 1_000_000_000


def follow(pacing, now_ns, hints, tokens=Tokens()):
    request = pacing.join(*tokens)
    assert request.start(now_ns) is None and request.send(now_ns)
    request.follow(now_ns, hints)


def next_start(pacing, now_ns, tokens=Tokens()):
    """Return the start of one more request, which is given up."""
    request = pacing.join(*tokens)
    again_ns = request.start(now_ns)
    request.close()
    return now_ns if again_ns is None else again_ns


@pytest.mark.parametrize(
    ("jitter_ns", "hold_s", "most_s"),
    [(None, 10, 2), (None, 3600, 30), (0, 10, 0), (4 * SECOND, 10, 4)],
)
def test_a_hold_ends_later_than_asked_and_never_sooner(jitter_ns, hold_s, most_s):
    starts = set()
    for _ in range(8):
        pacing = _Pacing(jitter_ns=jitter_ns)
        follow(pacing, 0, ServerHints(hold_s * SECOND))
        starts.add(next_start(pacing, 1))
    assert hold_s * SECOND <= min(starts) <= max(starts) <= (hold_s + most_s) * SECOND
    assert (len(starts) == 1) == (most_s == 0)


def test_what_remains_is_spread_unless_it_may_be_used_at_once():
    limit = ServerLimit("l", "requests", 10, None, 4, 10 * SECOND)
    for spreads, expected in [(True, 2 * SECOND), (False, 0)]:
        pacing = _Pacing(spreads=spreads, jitter_ns=0)
        follow(pacing, 0, ServerHints(limits=[limit]))
        assert next_start(pacing, 0) == expected


def test_tokens_hold_when_exhausted_unless_the_cost_of_requests_is_known():
    limit = ServerLimit("t", "tokens", 100, None, 0, 10 * SECOND, True)
    for knows, tokens, expected in [(False, Tokens(), 10), (True, Tokens(10, 10), 2)]:
        pacing = _Pacing(spreads=False, jitter_ns=0)
        pacing = pacing.with_tokens() if knows else pacing
        follow(pacing, 0, ServerHints(limits=[limit]), tokens)
        assert next_start(pacing, 0, tokens) == expected * SECOND


def test_a_request_starts_is_sent_and_is_followed_once():
    pacing = _Pacing(jitter_ns=0, max_waiting=1)
    request = pacing.join(0, 0)
    assert pacing.join(0, 0) is None
    assert not request.send(0), "it has not started"
    request.follow(0, ServerHints(SECOND))
    assert request.start(0) is None
    follow(pacing, 0, ServerHints(SECOND))
    assert not request.send(0), "a hold has begun"
    assert request.start(0) == SECOND
    request.close()
    assert (request.start(0), request.send(0)) == (None, False)
    assert next_start(pacing, 0) == SECOND
    for tokens in [(-1, 0), (0, 1 << 64)]:
        with pytest.raises(ValueError, match="put tokens is from 0 to"):
            pacing.join(*tokens)


def test_threads_share_one_pacing():
    pacing, starts = _Pacing(jitter_ns=0, max_waiting=10_000), []

    def run():
        for number in range(500):
            follow(pacing, number, ServerHints())
            starts.append(next_start(pacing, number))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(starts) == sorted([*range(500)] * 4)


def test_waiting_requests_are_bounded_and_one_that_leaves_makes_room():
    pace = Pace(max_waiting=1)
    first = pace._join(Tokens())
    with pytest.raises(Full, match="1 requests wait already"):
        pace._join(Tokens())
    first._close()
    with pace.request():
        pass


def hold(pace, seconds):
    with pace.request() as sent:
        sent.response(429, [("retry-after", str(seconds))])


def test_a_wait_beyond_the_longest_is_refused_at_once():
    pace = Pace(max_wait="100ms", max_waiting=1)
    hold(pace, 60)
    begin = time.monotonic()
    with pytest.raises(TooLong) as refused, pace.request():
        pass
    assert time.monotonic() - begin < 10
    assert 59 < refused.value.retry_after < 75
    assert pace._pacing.join(0, 0) is not None, "it has left"
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
    pace = Pace(jitter=0, max_waiting=1)
    hold(pace, 60)

    async def main():
        async def wait():
            async with pace.request_async():
                pass

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        assert pace._pacing.join(0, 0) is None, "it waits"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert pace._pacing.join(0, 0) is not None, "it has left"
    other = Pace(spreads=False)
    with other.request() as sent:
        sent.response(200, [("ratelimit", '"p";r=1;t=60')])
    with pytest.raises(OSError), other.request():
        raise OSError
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


def fails(_sent):
    raise OSError


def adaptive_after(*responses):
    """Return the pace of requests that ended so, and the time until its limiter's next permit."""
    clock = ManualClock()
    pace = Pace(Limiter(Policy("adaptive-rate", ceiling="16/s", floor="1/s"), clock=clock))
    for respond in responses:
        with contextlib.suppress(OSError), pace.request() as sent:
            respond(sent)
        clock.advance("2s")
    assert pace.limiter.try_acquire()
    return pace, pace.limiter.peek()


def test_an_adaptive_limiter_follows_how_requests_end():
    def refused(sent):
        sent.response(429, [])

    def served(sent):
        sent.response(200, [])

    fastest = SECOND // 16
    for status, headers in [(429, []), (503, []), (529, []), (403, [("retry-after", "0.01")])]:
        assert adaptive_after(lambda sent: sent.response(status, headers))[1] == SECOND, status
    for status in [200, 403, 404, 500]:
        assert adaptive_after(lambda sent: sent.response(status, []))[1] == fastest, status
    assert adaptive_after(fails)[1] == fastest
    # What is served lets the rate rise again, and what is lost does not.
    assert adaptive_after(refused, fails, fails, fails)[1] == SECOND
    assert adaptive_after(refused, served, served, served)[1] < SECOND


def test_an_adaptive_limiter_takes_the_place_of_a_guess_and_of_nothing_else():
    for headers, holds in [([], False), ([("retry-after", "60")], True)]:
        pace, _ = adaptive_after(lambda sent: sent.response(429, headers))
        now_ns = time.monotonic_ns()
        assert (next_start(pace._pacing, now_ns) > now_ns) == holds
    plain = Pace("16/s")
    with plain.request() as sent:
        sent.response(429, [])
    now_ns = time.monotonic_ns()
    assert next_start(plain._pacing, now_ns) > now_ns


def test_a_limiter_that_is_closed_meanwhile_needs_no_outcome():
    pace = Pace(Limiter(Policy("adaptive", ceiling=2)))
    with pace.request() as sent:
        pace.limiter.close()
        sent.response(429, [])


def test_a_hold_ends_exactly_as_asked_without_jitter():
    pace = Pace(jitter=0)
    begin_ns = time.monotonic_ns()
    hold(pace, 3000)
    end_ns = time.monotonic_ns()
    assert begin_ns <= next_start(pace._pacing, end_ns) - 3000 * SECOND <= end_ns


def test_tokens_that_are_known_are_no_hold_of_requests_without_any():
    exhausted = [("ratelimit-policy", '"t";q=9;w=60;qu="tokens"'), ("ratelimit", '"t";r=0;t=60')]
    for knows in (False, True):
        pace = Pace(max_wait="1ms")
        if knows:
            pace._count_tokens(None)
        with pace.request(Tokens(5, 4)) as sent:
            sent.response(200, exhausted)
        assert (next_start(pace._pacing, 0) == 0) == knows


def test_permits_and_tokens_of_a_request_that_is_not_sent_come_back():
    pace = Pace(Limiter(Policy("concurrency", permits=2)), jitter=0)
    pace._count_tokens("9/h")

    def started():
        sent = pace._join(Tokens(3, 2))
        assert sent._start() is None
        sent._grant, sent._held = pace.limiter.acquire(), pace._tokens.hold(5, 60)
        return sent

    started()._close()
    assert (pace.limiter.remaining, pace._tokens.remaining) == (2, 9)
    sent = started()
    hold(pace, 60)
    assert not sent._is_sent(), "a hold has begun"
    assert (pace.limiter.remaining, pace._tokens.remaining) == (2, 9)


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
