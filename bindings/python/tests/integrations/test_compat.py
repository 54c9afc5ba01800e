"""Names of other libraries, and each listed difference beside the library itself."""

import asyncio
import time

import pytest

from serving import needs

needs("aiolimiter", "limits")

import aiolimiter  # noqa: E402
import limits as theirs  # noqa: E402

from pyrategate import ManualClock  # noqa: E402
from pyrategate.compat import limits as ours  # noqa: E402
from pyrategate.compat.aiolimiter import AsyncLimiter  # noqa: E402


@pytest.mark.parametrize("kind", [aiolimiter.AsyncLimiter, AsyncLimiter])
def test_both_have_the_same_names_and_the_same_bucket(kind):
    async def main():
        limiter = kind(3, 0.3)
        assert (limiter.max_rate, limiter.time_period) == (3, 0.3)
        assert limiter.has_capacity() and limiter.has_capacity(3) and not limiter.has_capacity(4)
        begin = time.monotonic()
        async with limiter:
            await limiter.acquire(2)
        assert not limiter.has_capacity(3)
        await limiter.acquire()
        # The fourth waits for a tenth of a second.
        assert 0.09 < time.monotonic() - begin < 10
        with pytest.raises(ValueError):
            await limiter.acquire(4)

    asyncio.run(main())


async def order(limiter):
    passed = []

    async def take(amount):
        await limiter.acquire(amount)
        passed.append(amount)

    await limiter.acquire(4)
    await asyncio.gather(*(take(amount) for amount in (4, 1, 3, 2)))
    return passed


def test_tasks_pass_in_the_order_of_their_calls_and_not_by_amount():
    assert asyncio.run(order(AsyncLimiter(4, 0.1))) == [4, 1, 3, 2]
    assert asyncio.run(order(aiolimiter.AsyncLimiter(4, 0.1))) != [4, 1, 3, 2]


def test_one_limiter_is_for_all_loops():
    clock = ManualClock()
    limiter = AsyncLimiter(2, 60, clock=clock)
    for _ in range(2):
        asyncio.run(limiter.acquire())
    assert not limiter.has_capacity()
    clock.advance("30s")
    assert limiter.has_capacity() and not limiter.has_capacity(2)
    other = aiolimiter.AsyncLimiter(2, 60)
    asyncio.run(other.acquire())
    with pytest.warns(RuntimeWarning, match="re-used across loops"):
        asyncio.run(other.acquire())


def test_a_cancelled_wait_returns_its_permits():
    async def main():
        limiter = AsyncLimiter(1, 3600)
        await limiter.acquire()
        task = asyncio.ensure_future(limiter.acquire())
        await asyncio.sleep(0.01)
        assert limiter.limiter.waiting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert limiter.limiter.waiting == 0

    asyncio.run(main())


def test_numbers_are_whole():
    aiolimiter.AsyncLimiter(1.5, 1)
    for call, kind in [
        (lambda: AsyncLimiter(1.5, 1), ValueError),
        (lambda: AsyncLimiter(float("nan")), ValueError),
        (lambda: AsyncLimiter(float("inf")), ValueError),
        (lambda: AsyncLimiter("3"), TypeError),
        (lambda: AsyncLimiter(0), ValueError),
        (lambda: AsyncLimiter(3, 0), ValueError),
        (lambda: AsyncLimiter(3, -1), ValueError),
        (lambda: AsyncLimiter(3).has_capacity(0.5), ValueError),
    ]:
        with pytest.raises(kind):
            call()
    assert AsyncLimiter(3.0, 2).has_capacity(3.0)


@pytest.mark.parametrize(
    "text",
    ["5/minute", "1 per second", "10 per 2 hours", "3/day; 1/minute", "2/months", "7 PER YEAR",
     "1/second,2/2minutes|3/hour"],
)
def test_texts_are_read_as_theirs(text):
    brief = lambda items: [(repr(item), item.get_expiry()) for item in items]  # noqa: E731
    assert brief(ours.parse_many(text)) == brief(theirs.parse_many(text))
    assert repr(ours.parse(text)) == repr(theirs.parse(text))


@pytest.mark.parametrize("text", ["", "5", "five/minute", "5/fortnight", "5/minute;", None, 5])
def test_what_they_refuse_is_refused(text):
    with pytest.raises(ValueError, match="couldn't parse"):
        ours.parse_many(text)
    with pytest.raises(ValueError):
        theirs.parse_many(text)


STRATEGIES = pytest.mark.parametrize(
    "name",
    ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"],
)


@STRATEGIES
def test_both_count_the_same_within_a_period(name):
    def run(strategy, item):
        found = [strategy.hit(item, "user", "42") for _ in range(2)]
        found += [strategy.test(item, "user", "42"), strategy.test(item, "user", "42", cost=2)]
        found += [strategy.get_window_stats(item, "user", "42").remaining]
        found += [strategy.hit(item, "user", "42")]
        found += [strategy.hit(item, "user", "43", cost=3), strategy.hit(item, "user", "44", cost=4)]
        found += [strategy.hit(item, "user", "42")]
        strategy.clear(item, "user", "42")
        return [*found, strategy.hit(item, "user", "42")]

    mine = getattr(ours, name)(ours.MemoryStorage(clock=ManualClock()))
    other = getattr(theirs.strategies, name)(theirs.storage.MemoryStorage())
    assert run(mine, ours.parse("3/year")) == run(other, theirs.parse("3/year"))


def test_a_moving_window_is_exact_and_the_counter_is_the_same():
    for kind in (ours.MovingWindowRateLimiter, ours.SlidingWindowCounterRateLimiter):
        clock = ManualClock()
        limiter, item = kind(ours.MemoryStorage(clock=clock)), ours.parse("2/minute")
        assert limiter.hit(item)
        clock.advance("30s")
        assert limiter.hit(item)
        clock.set_ns(60_000_000_000 - 1)
        assert not limiter.hit(item)
        clock.set_ns(60_000_000_000)
        assert limiter.hit(item) and not limiter.hit(item)
        # The end of what was taken last, and not of the oldest.
        assert limiter.get_window_stats(item).reset_time - time.time() > 59


def test_fixed_windows_follow_one_another():
    clock = ManualClock()
    limiter = ours.FixedWindowRateLimiter(ours.MemoryStorage(clock=clock))
    item = ours.parse("2/minute")
    clock.advance("50s")
    assert limiter.hit(item, cost=2)
    assert limiter.get_window_stats(item).reset_time - time.time() < 11
    clock.advance("10s")
    assert limiter.hit(item, cost=2)
    other = theirs.strategies.FixedWindowRateLimiter(theirs.storage.MemoryStorage())
    assert other.hit(theirs.parse("2/minute"))
    # Theirs begins with the first hit.
    left = other.get_window_stats(theirs.parse("2/minute")).reset_time - time.time()
    assert 58 < left <= 60


def test_what_was_refused_does_not_count():
    def run(strategy, item):
        return [strategy.hit(item, cost=cost) for cost in (2, 2, 1)]

    mine = ours.FixedWindowRateLimiter(ours.MemoryStorage(clock=ManualClock()))
    assert run(mine, ours.parse("3/year")) == [True, False, True]
    other = theirs.strategies.FixedWindowRateLimiter(theirs.storage.MemoryStorage())
    assert run(other, theirs.parse("3/year")) == [True, False, False]


def test_keys_are_bounded_and_those_beyond_share():
    limiter = ours.MovingWindowRateLimiter(ours.MemoryStorage(max_keys=16, clock=ManualClock()))
    item = ours.parse("1/hour")
    passed = sum(limiter.hit(item, str(number)) for number in range(2000))
    assert passed < 2000
    other = theirs.strategies.MovingWindowRateLimiter(theirs.storage.MemoryStorage())
    assert all(other.hit(theirs.parse("1/hour"), str(number)) for number in range(2000))


def test_identifiers_keep_their_borders():
    limiter = ours.MovingWindowRateLimiter(ours.MemoryStorage())
    item, same = ours.parse("1/hour"), theirs.parse("1/hour")
    assert limiter.hit(item, "a/b", "c") and limiter.hit(item, "a", "b/c")
    other = theirs.strategies.MovingWindowRateLimiter(theirs.storage.MemoryStorage())
    assert other.hit(same, "a/b", "c") and not other.hit(same, "a", "b/c")


def test_strategies_of_one_storage_and_namespaces_count_apart_and_a_reset_clears_all():
    storage = ours.MemoryStorage()
    moving, fixed = ours.MovingWindowRateLimiter(storage), ours.FixedWindowRateLimiter(storage)
    item, other = ours.RateLimitItemPerHour(1), ours.RateLimitItemPerHour(1, namespace="other")
    assert moving.hit(item) and fixed.hit(item) and moving.hit(other)
    assert not moving.hit(ours.RateLimitItemPerHour(1))
    assert storage.reset() == 3 and moving.hit(item)
    with pytest.raises(TypeError, match="MemoryStorage of this package"):
        ours.MovingWindowRateLimiter(theirs.storage.MemoryStorage())
