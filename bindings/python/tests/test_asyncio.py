"""Tasks: order, lateness, cancelling, loops and threads."""

import asyncio
import gc
import threading
import time
import weakref

import pytest
from pyrategate import (
    Closed,
    ExceedsCapacity,
    Grant,
    Keyed,
    Limiter,
    ManualClock,
    Policy,
    Settled,
    TooLong,
    _loop,
)

SECOND = 1_000_000_000


@pytest.fixture(autouse=True, params=["asyncio", "uvloop", "asyncio and a thread"])
def loops(request, monkeypatch):
    """Have ``asyncio.run`` take loops of asyncio, then of uvloop, then as Windows has them."""
    if request.param == "asyncio and a thread":
        monkeypatch.setattr(_loop, "WATCHES_FILES", False)
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


def test_permits_that_are_free_are_awaited_in_no_time():
    async def main():
        limiter = Limiter("4/h")
        assert (await limiter.acquire_async()).permits == 1
        assert (await asyncio.create_task(limiter.acquire_async())).permits == 1
        async with limiter as grant:
            assert (grant.permits, limiter.remaining) == (1, 1)
        acquire = limiter.acquire_async()
        await acquire
        with pytest.raises(RuntimeError, match="awaited already"):
            await acquire

    asyncio.run(main())


def test_a_wait_holds_nothing_until_it_is_awaited():
    async def main():
        limiter = Limiter(Policy("concurrency", permits=1))
        limiter.acquire_async()
        limiter.acquire_async().close()
        with pytest.raises(KeyError):
            limiter.acquire_async().throw(KeyError())
        with pytest.raises(KeyError):
            limiter.acquire_async().throw(KeyError, KeyError("x"), None)
        task = asyncio.create_task(limiter.acquire_async())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acquire_async(), 0)
        assert limiter.remaining == 1
        # Instants count from the await, and the order is that of the awaits.
        clock = ManualClock()
        limiter = Limiter("1 per any 200ms", clock=clock)
        acquire = limiter.acquire_async()
        clock.advance("190ms")
        assert (await acquire).released_at_ns == 190_000_000
        assert limiter.peek() == 200_000_000

    asyncio.run(main())


def test_tasks_start_in_order_and_none_early():
    async def main():
        limiter = Limiter("10000/s burst 1")
        starts = []

        async def work(number):
            await limiter.acquire_async()
            starts.append((number, limiter.now_ns))

        await asyncio.gather(*(work(number) for number in range(2_000)))
        return starts, limiter

    begin = time.monotonic_ns()
    starts, limiter = asyncio.run(main())
    assert [number for number, _ in starts] == list(range(2_000))
    # Real starts, by the limiter's clock read by each task after its wait.
    first = starts[0][1]
    assert all(at - first >= number * 100_000 - 100_000 for number, at in starts)
    assert time.monotonic_ns() - begin >= 199_800_000
    assert limiter.waiting == 0


def test_waits_end_when_a_clock_is_moved():
    async def main():
        clock = ManualClock()
        limiter = Limiter("1/s burst 1", clock=clock)
        ended = []

        async def work(number):
            await limiter.acquire_async()
            ended.append((number, clock.now_ns))

        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await clock.settle()
        assert ended == [(0, 0)]
        clock.advance("0.999999999s")
        await clock.settle()
        assert len(ended) == 1
        while clock.step() is not None:
            await clock.settle()
        assert ended == [(0, 0), (1, SECOND), (2, 2 * SECOND)]
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_permits_count_from_when_their_tasks_run():
    async def main(limit, permits, period_ns):
        clock = ManualClock()
        limiter = Limiter(limit, clock=clock)
        starts = []

        async def work():
            await limiter.acquire_async()
            starts.append(clock.now_ns)
            if len(starts) <= 10:
                clock.advance("3ms")  # The loop is busy, and the next tasks run later.

        tasks = [asyncio.create_task(work()) for _ in range(20)]
        while len(starts) < 20:
            await clock.settle()
            clock.step()
        await asyncio.gather(*tasks)
        windows = zip(starts, starts[permits:], strict=False)
        assert all(after - before >= period_ns for before, after in windows), starts

    asyncio.run(main("5 per any second", 5, SECOND))
    asyncio.run(main("100/s burst 1", 1, SECOND // 100))
    asyncio.run(main("500 per any second; 2 per any 20ms", 2, SECOND // 50))


def test_a_stalled_loop_keeps_the_order():
    async def main():
        clock = ManualClock()
        limiter = Limiter("1/s burst 3", clock=clock)
        assert limiter.try_acquire(3)
        order = []

        async def work(name):
            await limiter.acquire_async()
            order.append(name)

        first = asyncio.create_task(work("first"))
        await asyncio.sleep(0)
        clock.advance(3)  # The loop is busy meanwhile.
        await work("second")
        await first
        assert order == ["first", "second"]

        # A task that is ready in the very round in which the others are delivered.
        clock.advance(3)
        assert limiter.try_acquire(limiter.remaining)
        order.clear()
        early = asyncio.create_task(work("early"))
        await asyncio.sleep(0)
        clock.advance(3)
        await asyncio.sleep(0)
        late = [asyncio.create_task(work(f"late {n}")) for n in range(2)]
        await asyncio.gather(early, *late)
        assert order == ["early", "late 0", "late 1"]

    asyncio.run(main())


def test_a_cancelled_wait_makes_way():
    async def main():
        clock = ManualClock()
        limiter = Limiter("10/s burst 1", clock=clock)
        assert limiter.try_acquire()
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(5)]
        await asyncio.sleep(0)
        assert limiter.waiting == 5
        for task in tasks[:4]:
            task.cancel()
        await asyncio.sleep(0)
        assert limiter.waiting == 1
        # The fifth has moved up.
        clock.advance("100ms")
        await asyncio.wait_for(tasks[4], 5)

    asyncio.run(main())


def test_a_grant_of_a_task_that_is_cancelled_before_it_runs_comes_back():
    async def main(rounds):
        clock = ManualClock()
        limiter = Limiter("1/s burst 2", clock=clock)
        assert limiter.try_acquire(2)
        task = asyncio.create_task(limiter.acquire_async())
        await asyncio.sleep(0)
        clock.advance(2)
        for _ in range(rounds):
            await asyncio.sleep(0)
        if rounds == 5:
            await clock.settle()
        if task.done():
            return False
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert limiter.waiting == 0
        assert limiter.remaining == 2, rounds
        return True

    cancelled = [asyncio.run(main(rounds)) for rounds in range(6)]
    assert cancelled[0] and cancelled[1] and not cancelled[-1]


def test_a_storm_of_cancels_leaves_nothing():
    async def main():
        limiter = Limiter("1000/s burst 10")
        await limiter.acquire_async(10)
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(3_000)]
        await asyncio.sleep(0.05)
        for number, task in enumerate(tasks):
            if number % 7:
                task.cancel()
            if number % 100 == 0:
                await asyncio.sleep(0)
        kept = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(end, Grant) for end in kept) >= 3_000 // 7
        assert limiter.waiting == 0
        assert not limiter._untaken

    asyncio.run(main())


def test_limiters_of_one_key_are_one_line():
    async def main():
        keyed, order = Keyed("50/s burst 3"), []
        assert keyed.try_acquire("k", 3)

        async def go(number):
            async with keyed["k"]:
                order.append(number)

        tasks = [asyncio.create_task(go(number)) for number in range(3)]
        await asyncio.sleep(0)
        # The loop is busy until all are free.
        time.sleep(0.1)
        # Without a wait, it would go on before them.
        tasks.append(asyncio.create_task(go(3)))
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3]

    asyncio.run(main())


def test_timeouts_are_known_at_once():
    async def main():
        clock = ManualClock()
        limiter = Limiter("1/s burst 1", clock=clock)
        assert limiter.try_acquire()
        with pytest.raises(TooLong) as caught:
            await limiter.acquire_async(timeout="250ms")
        assert caught.value.retry_after_ns == 750_000_000
        with pytest.raises(ExceedsCapacity):
            await limiter.acquire_async(2)
        with pytest.raises(ValueError, match="span"):
            await limiter.acquire_async(timeout=float("nan"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acquire_async(), 0.01)
        assert limiter.waiting == 0

    asyncio.run(main())


def test_closing_ends_waits():
    async def main():
        limiter = Limiter("1/h burst 1")
        await limiter.acquire_async()
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(3)]
        await asyncio.sleep(0)
        limiter.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [Closed] * 3

    asyncio.run(main())


def test_operations_in_flight_end_with_their_block():
    async def main():
        limiter = Limiter(Policy("concurrency", permits=2))
        running = most = 0

        async def work():
            nonlocal running, most
            async with limiter:
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(work() for _ in range(40)))
        assert most == 2
        assert limiter.remaining == 2

        @limiter
        async def fetch():
            return limiter.remaining

        assert await fetch() == 1

    asyncio.run(main())


def test_loops_and_threads_share_one_limit():
    limiter = Limiter("2000/s burst 1")
    starts = []

    def thread():
        for _ in range(100):
            limiter.acquire()
            starts.append(limiter.now_ns)

    def loop():
        async def work():
            await limiter.acquire_async()
            starts.append(limiter.now_ns)

        async def main():
            await asyncio.gather(*(work() for _ in range(100)))

        asyncio.run(main())

    threads = [threading.Thread(target=target) for target in [thread] * 4 + [loop] * 2]
    begin = time.monotonic_ns()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(starts) == 600
    assert time.monotonic_ns() - begin >= 599 * 500_000
    assert limiter.waiting == 0


def test_waits_of_a_closed_loop_leave():
    limiter = Limiter("1/h burst 1")
    limiter.acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(limiter.acquire_async())
    loop.run_until_complete(asyncio.sleep(0))
    assert limiter.waiting == 1
    task._log_destroy_pending = False
    loop.close()

    async def other():
        _loop.hub_of(asyncio.get_running_loop())

    asyncio.run(other())
    assert limiter.waiting == 0


def test_loops_are_collected():
    async def main():
        limiter = Limiter("100000/s burst 1")
        await asyncio.gather(*(limiter.acquire_async() for _ in range(10)))
        return weakref.ref(asyncio.get_running_loop()), weakref.ref(limiter)

    refs = [ref for _ in range(5) for ref in asyncio.run(main())]
    gc.collect()
    assert [ref for ref in refs if ref() is not None] == []


def test_tasks_wait_to_hold_what_they_will_use():
    async def main():
        limiter = Limiter("100/s burst 100")
        first = await limiter.hold_async(80, "1min")
        second = asyncio.create_task(limiter.hold_async(60, "1min"))
        third = asyncio.create_task(limiter.hold_async(90, "1min"))
        while limiter.waiting < 2:
            await asyncio.sleep(0)
        with pytest.raises(TooLong):
            await limiter.hold_async(1, "1min", timeout=0)
        third.cancel()
        first.commit(10)
        with await second as held:
            assert (held.permits, type(held.commit(50))) == (60, Settled)
        assert limiter.waiting == 0

    asyncio.run(main())
