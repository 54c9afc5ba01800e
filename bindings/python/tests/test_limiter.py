"""Decisions on a clock that stands still: exact to the nanosecond."""

import asyncio
import copy
import importlib.metadata
import pickle
import re
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path

import pyrategate
import pytest
from pyrategate import (
    Charged,
    Closed,
    Decision,
    ExceedsCapacity,
    Full,
    Keyed,
    Limited,
    Limiter,
    ManualClock,
    OpenLoop,
    Policy,
    RateLimited,
    Settled,
    Shared,
    TooLong,
)

SECOND = 1_000_000_000


@pytest.fixture
def clock():
    return ManualClock()


def test_a_bucket_denies_until_the_nanosecond_it_names(clock):
    limiter = Limiter("3/s burst 1", clock=clock)
    assert limiter.try_acquire()
    denied = limiter.check()
    assert (denied.granted, denied.remaining) == (False, 0)
    # A third of a second, rounded up.
    assert denied.retry_after_ns == 333_333_334
    clock.set_ns(333_333_333)
    assert not limiter.try_acquire()
    assert limiter.peek() == 1
    clock.set_ns(333_333_334)
    assert limiter.peek() == 0
    assert limiter.try_acquire()


def test_a_log_allows_n_in_any_window(clock):
    limiter = Limiter("2 per any second", clock=clock)
    starts = []
    for at in range(20 * SECOND, 30 * SECOND, SECOND // 10):
        clock.set_ns(at)
        if limiter.try_acquire():
            starts.append(at)
    assert len(starts) == 20
    assert all(later - first >= SECOND for first, later in zip(starts, starts[2:]))


def test_several_limits_take_from_all_or_none(clock):
    limiter = Limiter("2/s; 3 per any minute", clock=clock)
    assert limiter.try_acquire(2)
    clock.advance(1)
    assert limiter.try_acquire(1)
    before = limiter.remaining
    assert not limiter.try_acquire()
    assert limiter.check().retry_after_ns == 59 * SECOND
    assert limiter.remaining == before == 0


def test_a_text_without_a_burst_frees_what_it_says(clock):
    assert Limiter("5/minute", clock=clock).remaining == 5
    assert Limiter("5/minute burst 1", clock=clock).remaining == 1
    assert repr(Limiter("5 per minute", clock=clock)) == 'Limiter("5/min")'


def test_policies_and_lists(clock):
    window = Policy("fixed-window", permits=2, period="1min")
    limiter = Limiter([window, "10/s"], clock=clock)
    assert [limiter.try_acquire() for _ in range(3)] == [True, True, False]
    assert Policy("gcra", rate="1/s") == Policy("gcra", rate="1/s") != window
    assert pickle.loads(pickle.dumps(window)) == window
    damped = Policy("two-timeline", rate="10/s", mode={"damped": 0.25})
    assert Limiter(damped, clock=clock).try_acquire()


def test_reservations_promise_and_come_back(clock):
    limiter = Limiter("1/s burst 1", clock=clock)
    first, second = limiter.reserve(), limiter.reserve()
    assert (first.promised_at_ns, second.promised_at_ns) == (0, SECOND)
    assert second.cancel() and not second.cancel()
    third = limiter.reserve()
    assert third.promised_at_ns == SECOND
    grant = third.keep()
    assert (grant.permits, grant.promised_at_ns) == (1, SECOND)
    assert third.keep() is None
    with pytest.raises(TooLong) as caught:
        limiter.reserve(timeout="1s")
    assert caught.value.retry_after_ns == SECOND


def test_costs_known_afterwards(clock):
    limiter = Limiter("1000/s", clock=clock)
    charged = limiter.charge(1700)
    assert (charged.booked, charged.forgiven, charged.debt) == (1700, 0, 700)
    assert limiter.check().retry_after_ns == 701_000_000
    clock.advance(timedelta(seconds=2))
    settled = limiter.hold(400, "1min").commit(100)
    assert (settled.refunded, settled.charged) == (300, 0)
    assert limiter.hold(100, "1min").commit(150).charged == 50
    before = limiter.remaining
    assert limiter.hold(200, "1min").cancel()
    assert limiter.remaining == before


def test_the_states_of_a_table_take_no_more_bytes_than_it_may_have(clock):
    def passed(**options):
        keyed = Keyed("100 per any minute", clock=clock, **options)
        granted = 0
        for key in range(40):
            for _ in range(100):
                clock.advance("1us")
                try:
                    granted += keyed.try_acquire(key)
                except Full:
                    pass
        return granted

    assert passed() == passed(max_bytes=2**20) == 4000
    assert 40 < passed(max_bytes=2**14) < 2000
    for most in [0, -1, 2**63]:
        with pytest.raises(ValueError, match="max_bytes is from 1 to 9223372036854775807"):
            Keyed("1/s", max_bytes=most)
    with pytest.raises(TypeError, match="max_bytes"):
        Keyed("1/s", max_bytes="64 MiB")


def test_a_subclass_may_have_an_init_of_its_own(clock):
    class Named(Limiter):
        def __init__(self, service, *, permits=2):
            with pytest.raises(RuntimeError, match="call super"):
                self.try_acquire()
            with pytest.raises(RuntimeError, match="call super"):
                self.acquire_async().send(None)
            assert repr(self) == "Limiter(without a limit)"
            super().__init__(f"{permits}/s", clock=clock, name=service)
            self.service = service

    limiter = Named("search")
    assert (limiter.service, limiter.name, limiter.clock) == ("search", "search", clock)
    assert [limiter.try_acquire() for _ in range(3)] == [True, True, False]
    with pytest.raises(TypeError, match="unexpected keyword argument 'limit'"):
        Named("search", limit="1/s")
    with pytest.raises(TypeError, match="reconfigure"):
        Limiter.__init__(limiter, "1/s")
    with pytest.raises(TypeError, match="limit"):
        Limiter()

    class Silent(Limiter):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="call super"):
        Silent().remaining

    class Clock(ManualClock):
        def __init__(self, start):
            self.advance(start)

    assert Clock("1s").now_ns == SECOND
    with pytest.raises(TypeError):
        ManualClock("1s")

    class Store(Shared):
        def __init__(self, port):
            with pytest.raises(RuntimeError, match="call super"):
                self.status
            super().__init__(f"redis://127.0.0.1:{port}", "1/s", name="mine")

    assert Store(1).status in ("healthy", "unavailable") and Store(1).try_acquire() is False

    @Named("decorated")
    def called():
        return 7

    assert called() == 7


def test_the_numbers_of_a_closed_limiter_can_be_read(clock):
    for limit in ("1/s", Policy("concurrency", permits=2)):
        limiter = Limiter(limit, clock=clock)
        limiter.close()
        read = (limiter.remaining, limiter.waiting, limiter.max_in_flight, limiter.closed)
        assert read == (0, 0, None, True)


def test_errors_name_the_option_and_what_helps(clock):
    limiter = Limiter("1/s", clock=clock)
    for call in (limiter.acquire, limiter.reserve):
        with pytest.raises(ValueError, match="timeout: a span is from 0"):
            call(timeout=-1)
        with pytest.raises(TypeError, match="timeout: a span is a number of seconds"):
            call(timeout=[])
    with pytest.raises(ValueError, match="ttl: a span"):
        limiter.try_hold(1, ttl=-1)
    with pytest.raises(ValueError, match="max_debt: the span"):
        Limiter("1/s", max_debt="soon")
    with pytest.raises(ValueError, match="budget: a span"):
        Shared("redis://127.0.0.1:1", "1/s", budget=-1)
    with pytest.raises(ValueError, match="this package has no TLS.*stunnel"):
        Shared("rediss://127.0.0.1:1", "1/s")
    begins = r'must begin with "redis://" or "unix:/"'
    port = "the port must be a number from 0 to 65535"
    wrong = {
        "redis://:secret@h:65536": port,
        "redis://secret:65536/0": port,
        "redis://secret:x": port,
        "http://secret": begins,
        "127.0.0.1:6379": begins,
        "unix:": 'a path must follow "unix:"',
        "redis://:secret@": "followed by a host and a port",
    }
    for url, message in wrong.items():
        with pytest.raises(ValueError, match=f"the address of the store.*{message}") as raised:
            Shared(url, "1/s")
        assert not re.search("rediss|secret", str(raised.value))
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a number of a policy is finite"):
            Limiter(Policy("two-timeline", rate="5/s", mode={"burst": number}))


def test_a_key_that_is_an_int_has_64_bits():
    keyed = Keyed("5/s")
    shared = Shared("redis://127.0.0.1:1", "5/s")
    for key in (-(2**63), -1, 2**63 - 1, True):
        assert keyed.try_acquire(key)
        assert shared.waiting(key) == 0
    for key in (-(2**63) - 1, 2**63):
        for call in (keyed.try_acquire, shared.waiting):
            with pytest.raises(ValueError, match="from -2\\*\\*63 to 2\\*\\*63 - 1"):
                call(key)
    for call in (keyed.try_acquire, shared.waiting):
        with pytest.raises(TypeError, match="64 bits"):
            call(1.5)


def test_a_grant_is_released_once_and_by_its_limiter(clock):
    limiter, other = Limiter("10/s", clock=clock), Limiter("10/s", clock=clock)
    decision = limiter.check(4)
    assert decision.grant is decision.grant
    for grant in (
        limiter.acquire(),
        limiter.reserve().keep(),
        asyncio.run(waited(limiter)),
        Keyed("10/s", clock=clock).check("a").grant,
    ):
        with pytest.raises(ValueError, match="another limiter"):
            other.release_with_outcome(grant, "served")
        with pytest.raises(ValueError, match="a copy"):
            limiter.release_with_outcome(pickle.loads(pickle.dumps(grant)), "served")
    flights = Limiter(Policy("adaptive", ceiling=4, first=2), clock=clock)
    grant = flights.acquire()
    assert flights.release_with_outcome(grant, "served")
    with pytest.raises(ValueError, match="released once"):
        flights.release_with_outcome(grant, "served")
    # What has failed is not counted as done.
    grant = limiter.acquire()
    limiter.close()
    for _ in range(2):
        with pytest.raises(Closed):
            limiter.release_with_outcome(grant, "served")


async def waited(limiter):
    return await limiter.acquire_async()


def test_an_estimate_is_held_until_its_cost_is_known(clock):
    limiter = Limiter("10/s burst 100", clock=clock)
    hold = limiter.try_hold(80, 60)
    assert (hold.permits, hold.ends_at_ns, limiter.remaining) == (80, 60 * SECOND, 20)
    with pytest.raises(RateLimited, match="80 permits cannot be held now: retry in 6s") as caught:
        limiter.try_hold(80, 60)
    assert caught.value.retry_after_ns == 6 * SECOND
    settled = hold.commit(15)
    assert (type(settled), settled.refunded, limiter.remaining) == (Settled, 65, 85)
    with pytest.raises(ValueError, match="only once"):
        hold.commit(15)
    assert not hold.cancel()
    with pytest.raises(ExceedsCapacity):
        limiter.try_hold(101, 1)


def test_a_hold_is_waited_for_in_line():
    limiter = Limiter("100/s burst 100")
    first = limiter.hold(100, "1min")
    with pytest.raises(TooLong):
        limiter.hold(60, "1min", timeout="1ms")
    held = []
    thread = threading.Thread(target=lambda: held.append(limiter.hold(60, "1min")))
    thread.start()
    while limiter.waiting < 1:
        time.sleep(0.001)
    first.commit(20)
    thread.join()
    (second,) = held
    assert (second.permits, second.commit(60).charged) == (60, 0)
    third = limiter.hold(10, "1min")
    limiter.reset()
    third.keep()
    assert limiter.remaining == 100
    limiter.charge(20)
    # The main thread handles signals meanwhile.
    limiter.charge(80)
    assert limiter.hold(10, "1min").cancel()
    with pytest.raises(ExceedsCapacity):
        limiter.hold(101, "1min")
    for permits, ttl in [(-1, 1), (1, "soon"), (1, None)]:
        with pytest.raises((TypeError, ValueError)):
            limiter.hold(permits, ttl)


def test_a_hold_ends_with_its_block_or_by_itself(clock):
    limiter = Limiter("1/h burst 100", clock=clock)
    with limiter.try_hold(90, "1min"):
        assert limiter.remaining == 10
    assert limiter.remaining == 100
    with limiter.try_hold(90, "1min") as hold:
        hold.commit(40)
    assert limiter.remaining == 60
    late = limiter.try_hold(10, "1min")
    clock.advance("1min")
    assert limiter.remaining == 60
    charged = late.commit(7)
    assert (type(charged), charged.booked, limiter.remaining) == (Charged, 7, 53)
    expired = limiter.try_hold(10, 0)
    assert not expired.cancel()
    dropped = limiter.try_hold(10, 60)
    assert limiter.remaining == 43
    del dropped
    assert limiter.remaining == 53


def test_an_adaptive_limit_follows_outcomes(clock):
    policy = Policy("adaptive", floor=2, first=4, ceiling=5, method="aimd")
    limiter = Limiter(policy, clock=clock)
    grants = [limiter.check(2).grant for _ in range(2)]
    assert limiter.max_in_flight == 4
    clock.advance(1)
    assert limiter.release_with_outcome(grants[0], "served")
    assert limiter.max_in_flight == 5
    with pytest.raises(ValueError, match=r'"served", "dropped" or "ignored", not "lost"'):
        limiter.release_with_outcome(grants[1], "lost")
    assert limiter.release_with_outcome(grants[1], "dropped")
    assert (limiter.max_in_flight, limiter.remaining) == (4, 2)
    bucket = Limiter("1/s", clock=clock)
    assert bucket.max_in_flight is None
    assert not bucket.release_with_outcome(bucket.check().grant, "ignored")


def test_a_change_keeps_what_is_left(clock):
    limiter = Limiter("10/s", clock=clock)
    assert limiter.try_acquire(7)
    limiter.reconfigure("100/s")
    assert limiter.remaining == 3
    # Three of a hundred are left, and so of another policy.
    limiter.reconfigure("200 per any second")
    assert limiter.remaining == 6
    with pytest.raises(ValueError, match="count operations in flight"):
        limiter.reconfigure(Policy("concurrency", permits=1))


def test_operations_in_flight_end_with_their_block(clock):
    limiter = Limiter(Policy("concurrency", permits=1), clock=clock)
    with limiter:
        assert not limiter.try_acquire()
    with pytest.raises(RuntimeError):
        with limiter:
            raise RuntimeError
    assert limiter.remaining == 1
    assert limiter.try_acquire() and limiter.release()
    assert not Limiter("1/s").release()


def test_decorators(clock):
    limiter = Limiter("2/h", clock=clock)

    @limiter.or_raise
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    assert (double(1), double(number=2)) == (2, 4)
    assert (double.__name__, double.__doc__) == ("double", "Double.")
    with pytest.raises(RateLimited) as caught:
        double(3)
    assert caught.value.retry_after_ns == 1800 * SECOND
    assert caught.value.retry_after == 1800.0
    in_flight = Limiter(Policy("concurrency", permits=1), clock=clock)

    @in_flight.or_raise
    def fails() -> None:
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fails()
    assert in_flight.remaining == 1


def test_what_is_no_function_is_not_decorated(clock):
    limiter = Limiter("1/h", clock=clock)

    def numbers():
        yield 1

    async def later():
        yield 1

    for wrong in [numbers, later, 2, None]:
        for decorate in [limiter, limiter.or_raise]:
            with pytest.raises(TypeError, match="a limiter decorates"):
                decorate(wrong)
    assert limiter.remaining == 1


def test_operations_in_flight_of_a_key_end(clock):
    keyed = Keyed(Policy("concurrency", permits=1), clock=clock)
    assert keyed.try_acquire("ann") and not keyed.try_acquire("ann")
    assert keyed.release("ann")
    assert keyed.try_acquire("ann")
    assert not Keyed("1/s", clock=clock).release("ann")


def test_keys_have_limits_of_their_own(clock):
    keyed = Keyed("2/s", clock=clock)
    assert [keyed.try_acquire("ann") for _ in range(3)] == [True, True, False]
    # The same characters as bytes, and numbers, are other keys.
    for key in ["bob", b"ann", 7, "7", b"7", -7, ""]:
        assert keyed.try_acquire(key, 2)
    assert len(keyed) == 8
    decision = keyed.check("ann")
    assert (decision.granted, decision.retry_after_ns) == (False, SECOND // 2)
    assert keyed.peek("ann") == SECOND // 2
    assert keyed.reset("ann") and keyed.try_acquire("ann", 2)
    keyed.reconfigure("4/s")
    assert keyed.try_acquire("new", 4)
    full = Keyed("1/s", max_keys=1, when_full="refuse", clock=clock)
    with pytest.raises(Full):
        for key in range(10_000):
            full.try_acquire(key)
    assert full.overflows == 1


def test_a_key_has_a_limiter_with_all_verbs(clock):
    keyed = Keyed("3 per any second", clock=clock)
    ann = keyed["ann"]
    assert (type(ann), repr(ann)) == (Limiter, 'Limiter("3 per any 1s")')
    assert (ann.clock, ann.name) == (clock, None)
    with ann as grant:
        assert grant.permits == 1
    assert keyed.try_acquire("ann") and keyed["ann"].try_acquire()
    assert not ann.try_acquire() and not keyed.try_acquire("ann")
    assert (ann.remaining, keyed["bob"].remaining, keyed[b"ann"].remaining) == (0, 3, 3)
    reserved = ann.reserve()
    assert reserved.promised_at_ns == SECOND and not keyed.try_acquire("ann")
    assert reserved.cancel()
    clock.advance("1s")
    with ann.try_hold(2, "1s") as held:
        assert (held.permits, keyed.peek("ann"), keyed.peek("ann", 2)) == (2, 0, SECOND)
    assert (ann.charge(2).booked, ann.remaining) == (2, 1)
    assert asyncio.run(ann.acquire_async()).permits == 1
    assert keyed.reset("ann") and ann.remaining == 3
    assert Limiter.restore("3 per any second", ann.save(), clock=clock).remaining == 3
    keyed.reconfigure("5 per any second")
    assert ann.remaining == 5

    @ann.or_raise
    def work():
        return "done"

    assert work() == "done" and ann.remaining == 4
    with pytest.raises(TypeError, match="has been made"):
        ann.__init__("1/s")
    ann.close()
    with pytest.raises(Closed):
        keyed.try_acquire("ann")
    assert keyed.try_acquire("bob")


def test_a_limiter_of_a_key_counts_operations_in_flight(clock):
    keyed = Keyed(Policy("concurrency", permits=1), clock=clock)
    with keyed["ann"]:
        assert not keyed.try_acquire("ann")
    assert keyed.try_acquire("ann")
    assert keyed["ann"].release() and keyed.try_acquire("ann")


def test_grants_of_a_key_are_released_by_its_limiters(clock):
    keyed = Keyed("99/h", clock=clock)
    ann = keyed["ann"]
    grant = keyed.check("ann", 3).grant
    assert not ann.release_with_outcome(grant, "served")
    with pytest.raises(ValueError, match="released once"):
        keyed["ann"].release_with_outcome(grant, "served")
    for key in ["bob", b"ann", 7]:
        with pytest.raises(ValueError, match="of another limiter or key"):
            keyed[key].release_with_outcome(keyed.check("ann").grant, "served")
    with pytest.raises(ValueError, match="of another limiter or key"):
        other = Keyed("99/h", clock=clock)["ann"]
        other.release_with_outcome(keyed.check("ann").grant, "served")


def test_a_table_with_a_subscript_is_no_sequence(clock):
    keyed = Keyed("9/h", clock=clock)
    with pytest.raises(TypeError, match="not iterable"):
        iter(keyed)
    with pytest.raises(TypeError, match="not .*(container|iterable)"):
        _ = "ann" in keyed
    assert len(keyed) == 0
    for key in [1.5, None, slice(2)]:
        with pytest.raises(TypeError, match="a key is a str, bytes or an int"):
            keyed[key]
    with pytest.raises(ValueError, match="a key that is an int"):
        keyed[2**63]
    full = Keyed("1/h", max_keys=1, when_full="refuse", clock=clock)
    assert full.try_acquire("ann")
    with pytest.raises(Full):
        full["bob"]


def test_numbers_in_any_form(clock):
    limiter = Limiter("1/s burst 1", clock=clock)
    assert limiter.try_acquire()
    for half in [0.5, "0.5s", "500ms", timedelta(milliseconds=500)]:
        with pytest.raises(TooLong) as caught:
            limiter.acquire(timeout=half)
        assert caught.value.retry_after_ns == SECOND // 2, half
    # A float is its shortest decimal.
    with pytest.raises(TooLong) as caught:
        limiter.acquire(timeout=0.1)
    assert caught.value.retry_after_ns == 900_000_000
    assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, Limited)


@pytest.mark.parametrize("permits", [-1, 2**64, 10**30])
def test_numbers_of_permits_out_of_range(permits):
    with pytest.raises(ValueError, match="permits is an int|permits is from|permits"):
        Limiter("1/s").try_acquire(permits)


@pytest.mark.parametrize("permits", [1.0, "1", None, float("nan"), [], object()])
def test_permits_that_are_no_int(permits):
    limiter = Limiter("1/s")
    for call in [limiter.try_acquire, limiter.check, limiter.peek, limiter.acquire, limiter.reserve]:
        with pytest.raises(TypeError, match="permits"):
            call(permits)
    assert limiter.remaining == 1


@pytest.mark.parametrize(
    "span", [-1, -0.5, float("nan"), float("inf"), 1e300, "1", "x", "-1s", timedelta(-1), 10**30]
)
def test_spans_without_a_meaning(span):
    limiter = Limiter("1/s")
    with pytest.raises(ValueError, match="span"):
        limiter.acquire(timeout=span)
    with pytest.raises(ValueError, match="span"):
        ManualClock().advance(span)
    assert limiter.remaining == 1


@pytest.mark.parametrize("span", [[], object(), b"1s"])
def test_spans_of_other_types(span):
    with pytest.raises(TypeError, match="span"):
        Limiter("1/s").acquire(timeout=span)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("", "rate"),
        ("10", "rate"),
        ("0/s", "zero|at least|never"),
        ("10/s burst 0", "permit"),
        ("10/fortnight", "unit|period|fortnight"),
        ([], "at least one"),
        ("5/minute;", "rate"),
    ],
)
def test_limits_without_a_meaning(limit, message):
    with pytest.raises(ValueError, match=message):
        Limiter(limit)


@pytest.mark.parametrize("limit", [None, 10, 1.5, object(), [None]])
def test_limits_of_other_types(limit):
    with pytest.raises(TypeError, match="a limit is"):
        Limiter(limit)


def test_policies_say_what_they_take():
    wrong = [
        (Policy("slidinglog", permits=1), "unknown word `slidinglog`, expected one of `gcra`"),
        (Policy("sliding-log", permits=1), "needs the key `period`"),
        (
            Policy("sliding-log", permits=1, period="1s", permit=2),
            "unknown keys: permit, available keys: permits",
        ),
        (Policy("gcra", rate=5), "`rate`: invalid type: integer `5`, expected text"),
        (Policy("gcra", rate="1/s", burst=-1), "`burst`: invalid value: integer `-1`, expected a whole"),
        (Policy("gcra", rate="1/s", burst=0), "gcra: "),
    ]
    for policy, message in wrong:
        with pytest.raises(ValueError, match=re.escape(f"the limit {policy!r}: {message}")) as no:
            Limiter(policy)
        assert not re.search(r"\bfile\b|\bline \d", str(no.value)), no.value
    with pytest.raises(TypeError, match="number of a policy"):
        Limiter(Policy("sliding-log", permits=object(), period="1s"))
    with pytest.raises(ValueError):
        Limiter(Policy('gcra"\nrate = "1/s', rate="1/s"))


def test_more_than_ever_passes_is_an_error():
    limiter = Limiter("10/s burst 5")
    for call in [limiter.try_acquire, limiter.check, limiter.peek, limiter.acquire, limiter.reserve]:
        with pytest.raises(ExceedsCapacity, match="5"):
            call(6)
    assert limiter.remaining == 5


def test_a_closed_limiter_says_so():
    limiter = Limiter("10/s")
    grant = limiter.check().grant
    limiter.close()
    assert limiter.closed
    for call in [limiter.try_acquire, limiter.check, limiter.peek, limiter.acquire, limiter.reserve]:
        with pytest.raises(Closed):
            call()
    with pytest.raises(Closed):
        limiter.release_with_outcome(grant, "served")


def test_a_full_line_refuses():
    limiter = Limiter("1/h burst 1", max_waiting=1)
    assert limiter.try_acquire()
    thread = threading.Thread(target=lambda: pytest.raises(Closed, limiter.acquire))
    thread.start()
    while limiter.waiting < 1:
        time.sleep(0.001)
    with pytest.raises(Full):
        limiter.acquire()
    limiter.close()
    thread.join()
    for most in [-1, 0, 2**32, 2**64]:
        with pytest.raises(ValueError, match="max_waiting"):
            Limiter("1/s", max_waiting=most)


def test_copies_are_the_limiter_and_pickles_are_refused(clock):
    limiter = Limiter("1/s", clock=clock)
    assert copy.copy(limiter) is limiter
    assert copy.deepcopy([limiter])[0] is limiter
    with pytest.raises(TypeError, match="limits by itself"):
        pickle.dumps(limiter)
    # As its message says.
    assert Limiter.restore("1/s", limiter.save(), clock=clock).peek() == limiter.peek()
    with pytest.raises(TypeError, match="limits by itself"):
        pickle.dumps(Keyed("1/s"))
    decision = limiter.check()
    read = pickle.loads(pickle.dumps(decision))
    assert (read.granted, read.reset_after_ns) == (True, SECOND)
    assert read == decision and hash(read) == hash(decision)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        for result in (
            limiter.check(),
            limiter.check(),
            limiter.reserve().keep(),
            limiter.charge(3),
            Limiter("1/s").try_hold(1, 1).commit(5),
        ):
            assert pickle.loads(pickle.dumps(result, protocol)) == result
            assert copy.deepcopy(result) == result
    assert Decision(False, 0, 5) == Decision(False, 0, 5)


LIMITS = [
    "10/s burst 2",
    "3 per any second",
    "10/s burst 2; 5 per any second",
    Policy("fixed-window", permits=3, period="1s", anchor="first-call"),
    Policy("two-timeline", rate="5/s", mode="strict"),
    Policy("pacer", rate="5/s"),
    Policy("warm-up", rate="5/s", period="10s"),
    Policy("backfill-pool", pool=3, rate="5/s"),
    Policy("adaptive-rate", ceiling="5/s", floor="1/s"),
]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_restored_limiter_decides_as_the_saved_one(limit, clock):
    clock.advance("1h")
    limiter = Limiter(limit, clock=clock)
    while limiter.try_acquire():
        clock.advance("20ms")
    saved = limiter.save()
    assert isinstance(saved, bytes)
    clock.advance("150ms")
    restored = Limiter.restore(limit, bytearray(saved), clock=clock)
    assert restored.clock is clock
    for _ in range(30):
        assert restored.peek() == limiter.peek()
        assert restored.try_acquire() == limiter.try_acquire()
        clock.advance("70ms")


def test_the_time_away_counts_as_far_as_it_is_trusted(clock):
    limiter = Limiter("1/h", clock=clock)
    limiter.try_acquire()
    saved = limiter.save()
    clock.advance("1h")
    assert Limiter.restore("1/h", saved, clock=clock).peek() == 0
    half = Limiter.restore("1/h", saved, max_downtime="30min", clock=clock)
    assert half.peek() == 1800 * SECOND
    # By the wall clock no time to speak of has passed.
    assert Limiter.restore("1/h", saved).peek() > 3500 * SECOND
    assert Limiter.restore("1/h", saved, max_downtime=0).peek() > 3599 * SECOND


def test_a_message_names_the_classes_that_are_public():
    clock, limiter = ManualClock(), Limiter("1/s")
    calls = [
        (lambda: Limiter("1/s", clock=5), "ManualClock"),
        (lambda: Keyed("1/s", clock=5), "ManualClock"),
        (lambda: OpenLoop("constant:1/s", clock=5), "ManualClock"),
        (lambda: limiter.try_acquire(1, 2), r"Limiter.try_acquire\(\)"),
        (lambda: Limiter(), r"Limiter.__init__\(\)"),
        (lambda: Keyed(), r"Keyed.__init__\(\)"),
        (lambda: OpenLoop(), r"OpenLoop.__new__\(\)"),
        (lambda: Shared(), r"Shared.__init__\(\)"),
        (lambda: clock.advance(), r"ManualClock.advance\(\)"),
        (lambda: limiter.release_with_outcome(5, "served"), "'?Grant'?"),
    ]
    for call, name in calls:
        with pytest.raises(TypeError, match=rf"(^|[ '.]){name}") as raised:
            call()
        assert not re.search(r"\b_[A-Z]", str(raised.value)), raised.value


def test_a_table_has_subclasses(clock):
    class Tenants(Keyed):
        def __init__(self, name, limit="2/s", **options):
            super().__init__(limit, **options)
            self.name = name

    tenants = Tenants("api", clock=clock, max_keys=3)
    assert [tenants.try_acquire("ann") for _ in range(3)] == [True, True, False]
    assert (tenants.name, len(tenants), repr(tenants)) == ("api", 1, 'Keyed("2/s")')
    assert tenants["ann"].clock is clock
    with pytest.raises(TypeError, match="the table has been made; reconfigure"):
        tenants.__init__("again")

    class Unmade(Keyed):
        def __init__(self):
            pass

    assert repr(Unmade()) == "Keyed(without a limit)"
    for use in (len, lambda table: table["a"], lambda table: table.check("a")):
        with pytest.raises(RuntimeError, match=r"call super\(\).__init__\(limit\) first"):
            use(Unmade())
    # One whose `__init__` failed may be made again.
    unmade = Keyed.__new__(Keyed)
    with pytest.raises(ValueError, match="no limit"):
        unmade.__init__("no limit")
    unmade.__init__("1/s")
    assert unmade.try_acquire(1)


def test_a_restored_limiter_has_the_options_given(clock):
    class Named(Limiter):
        pass

    saved = Limiter("1/s", clock=clock).save()
    limiter = Named.restore("3/s", saved, clock=clock, name="api", max_waiting=1)
    assert (type(limiter), limiter.name, repr(limiter)) == (Named, "api", 'Limiter("3/s")')
    with pytest.raises(TypeError, match="colour"):
        Limiter.restore("1/s", saved, colour="red")


def test_a_class_of_fewer_or_other_arguments_is_restored_without_knowing_of_it(clock):
    class Plain(Limiter):
        def __init__(self, limit, clock=None):
            super().__init__(limit, clock=clock)
            self.made_with = limit

    class Daily(Limiter):
        def __init__(self, limit, **options):
            super().__init__(f"{limit}/day", **options)

    class Retried(Limiter):
        def __init__(self, limit, **options):
            try:
                super().__init__("no limit", **options)
            except ValueError:
                super().__init__(limit, **options)

    for kind, limit in [(Plain, "2/day"), (Daily, 2), (Retried, "2/day")]:
        limiter = kind(limit, clock=clock)
        assert limiter.try_acquire()
        clock.advance("1h")
        restored = kind.restore(limit, limiter.save(), clock=clock)
        assert type(restored) is kind
        assert restored.remaining == 1 and restored.peek(2) == limiter.peek(2) > 0
    assert Plain.restore("2/day", Plain("2/day").save()).made_with == "2/day"
    with pytest.raises(TypeError, match="unexpected keyword argument 'name'"):
        Plain.restore("2/day", limiter.save(), name="n")

    class Tenant(Limiter):
        def __init__(self, tenant, limit="5/day", **options):
            super().__init__(limit, **options)
            self.tenant = tenant

    restored = Tenant.restore("2/day", limiter.save(), tenant="ann", clock=clock)
    assert (restored.tenant, restored.remaining, repr(restored)) == (
        "ann",
        1,
        'Limiter("2/d")',
    )
    with pytest.raises(TypeError, match="missing a required argument: 'tenant'. Give restore all"):
        Tenant.restore("2/day", limiter.save())

    class Fixed(Limiter):
        def __init__(self, tenant="ann"):
            super().__init__("2/day")

    with pytest.raises(TypeError, match=r"calls Fixed\(limit=.*give __init__ a parameter named"):
        Fixed.restore("2/day", limiter.save())

    class Unmade(Limiter):
        def __init__(self, *_arguments, **_options):
            pass

    with pytest.raises(RuntimeError, match=r"call super\(\).__init__"):
        Unmade.restore("2/day", limiter.save()).try_acquire()

    class One(Limiter):
        def __new__(cls, *arguments, **options):
            return limiter

    with pytest.raises(TypeError, match="the limiter has been made"):
        One.restore("2/day", limiter.save())


def test_bytes_of_another_state_are_refused(clock):
    saved = Limiter("1/s", clock=clock).save()
    other = "`1 per any 1s` cannot continue from these bytes: the limit is of another policy, gcra"
    with pytest.raises(ValueError, match=f"^{other}$"):
        Limiter.restore("1 per any second", saved)
    with pytest.raises(ValueError, match="has 1 limits, but 2 policies were given"):
        Limiter.restore("1/s; 5/min", saved)
    for length in range(len(saved)):
        with pytest.raises(ValueError, match="ends early|not a rategate snapshot"):
            Limiter.restore("1/s", saved[:length])
    for at in range(len(saved)):
        with pytest.raises(ValueError, match="cannot continue from these bytes"):
            Limiter.restore("1/s", saved[:at] + bytes([saved[at] ^ 1]) + saved[at + 1 :])
    with pytest.raises(ValueError, match=f"malformed at byte {len(saved)}"):
        Limiter.restore("1/s", saved + b" ")
    for wrong in (saved.hex(), None, 7, [1]):
        with pytest.raises(TypeError, match=r"saved is the bytes of Limiter.save\(\), not"):
            Limiter.restore("1/s", wrong)


def test_an_hour_in_no_time(clock):
    limiter = Limiter("1000/s burst 1", clock=clock)
    granted = 0
    for _ in range(3600):
        granted += limiter.try_acquire()
        clock.advance(1)
    assert granted == 3600
    assert clock.now_ns == 3600 * SECOND


def test_the_version_is_that_of_the_distribution():
    assert pyrategate.__version__ == importlib.metadata.version("pyrategate")


def test_a_wait_that_blocks_a_loop_is_warned_of_once_per_place():
    def in_a_loop(call):
        async def main():
            for _ in range(3):
                call()

        asyncio.run(main())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        limiter = Limiter("50/s burst 1")
        for _ in range(3):
            limiter.acquire()  # No loop is blocked.
        thread = threading.Thread(target=in_a_loop, args=[limiter.acquire])
        thread.start()
        thread.join()
        assert len(caught) == 1
        in_a_loop(Limiter("1000/s").acquire)  # It does not wait.
        assert len(caught) == 1

        @limiter
        def decorated():
            pass

        def block():
            with limiter:
                pass

        in_a_loop(lambda: decorated())
        in_a_loop(block)
    assert len(caught) == 3
    assert all(warning.category is RuntimeWarning for warning in caught)
    assert all("acquire_async" in str(warning.message) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            in_a_loop(limiter.acquire)
    assert limiter.waiting == 0
    asyncio.run(asyncio.to_thread(limiter.acquire))


def test_a_wait_without_a_loop_says_what_wakes_it():
    limiter = Limiter("1/h burst 1")
    assert limiter.try_acquire()
    with pytest.raises(RuntimeError, match="asyncio or trio.*acquire"):
        limiter.acquire_async().send(None)
    assert limiter.waiting == 0


def test_the_policies_of_the_readme_are_accepted_with_all_of_their_keys():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    table = readme[readme.index("### Policies by name") : readme.index("### Options of")]
    policies = [eval(text, {"Policy": Policy}) for text in re.findall(r"`(Policy\(.*?\))`", table)]
    assert len({policy.name for policy in policies}) == len(policies) == 11
    for policy in policies:
        Limiter(policy)
    slow = dict(re.findall(r'`(slow_start\w*)="(.*?)"`', table))
    Limiter(Policy("gcra", rate="5/s", **slow))
    with pytest.raises(ValueError, match="slow_started"):
        Limiter(Policy("gcra", rate="5/s", slow_started="30s"))


def test_bytes_are_no_limit():
    with pytest.raises(TypeError, match="several of them, not b'5/s'"):
        Limiter(b"5/s")
