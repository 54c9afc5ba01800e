"""Tasks of trio: order, cancelling, one line with threads and other loops."""

import asyncio
import threading

import pytest
from pyrategate import Closed, Limiter, ManualClock, Policy, TooLong, _loop
from pyrategate.pace import Pace

trio = pytest.importorskip("trio")
pytest.importorskip("trio.testing")

SECOND = 1_000_000_000


@pytest.fixture(autouse=True, params=["file", "thread"])
def watches(request, monkeypatch):
    """Have loops watch a file descriptor, then a thread wake them, as on Windows."""
    monkeypatch.setattr(_loop, "WATCHES_FILES", request.param == "file")


def test_permits_that_are_free_are_awaited_in_no_time():
    async def main():
        limiter = Limiter("3/h")
        assert (await limiter.acquire_async()).permits == 1
        async with limiter as grant:
            assert (grant.permits, limiter.remaining) == (1, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limiter.acquire_async)
        assert limiter.remaining == 0

    trio.run(main)


def test_no_task_starts_early():
    async def main():
        limiter = Limiter("20000/s burst 1")
        starts = []

        async def work(number):
            await limiter.acquire_async()
            starts.append((number, limiter.now_ns))

        async with trio.open_nursery() as nursery:
            for number in range(2_000):
                nursery.start_soon(work, number)
        return starts, limiter

    starts, limiter = trio.run(main)
    assert sorted(number for number, _ in starts) == list(range(2_000))
    # Real starts, by the limiter's clock read by each task after its wait.
    first = starts[0][1]
    assert all(at - first >= place * 50_000 - 50_000 for place, (_, at) in enumerate(starts))
    assert limiter.waiting == 0


def test_waits_that_end_together_go_on_in_order():
    # Trio would shuffle them.
    async def main():
        clock = ManualClock()
        limiter = Limiter("100 per any second", clock=clock)
        assert limiter.try_acquire(100)
        order = []

        async def work(number):
            await limiter.acquire_async()
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(work, number)
                await trio.testing.wait_all_tasks_blocked()
            clock.advance("1s")
            await clock.settle()
            assert order == list(range(100))

    trio.run(main)


def test_waits_end_when_a_clock_is_moved():
    async def main():
        clock = ManualClock()
        limiter = Limiter("1/s burst 1", clock=clock)
        ended = []

        async def work():
            await limiter.acquire_async()
            ended.append(clock.now_ns)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)
            await clock.settle()
            clock.advance("0.999999999s")
            await clock.settle()
            assert ended == [0]
            while clock.step() is not None:
                await clock.settle()
        assert ended == [0, SECOND, 2 * SECOND]

    trio.run(main)


def test_permits_count_from_when_their_tasks_run():
    async def main():
        clock = ManualClock()
        limiter = Limiter("2 per any second", clock=clock)
        starts = []

        async def work():
            await limiter.acquire_async()
            starts.append(clock.now_ns)
            clock.advance("3ms")  # The loop is busy, and the next tasks run later.

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(work)
            while len(starts) < 12:
                await clock.settle()
                clock.step()
        assert all(later - at >= SECOND for at, later in zip(starts, starts[2:]))

    trio.run(main)


def test_a_cancelled_wait_leaves_the_line_and_those_behind_move_up():
    async def main():
        clock = ManualClock()
        limiter = Limiter("1/s burst 1", clock=clock)
        assert limiter.try_acquire()
        ended = []

        async def work(number, scope):
            with scope:
                await limiter.acquire_async()
                ended.append((number, clock.now_ns))

        scopes = [trio.CancelScope() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(work, number, scope)
                await trio.testing.wait_all_tasks_blocked()
            for scope in scopes[:4]:
                scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert limiter.waiting == 1
            clock.advance("1s")
            await clock.settle()
        assert ended == [(4, SECOND)]
        with trio.move_on_after(0):
            await limiter.acquire_async()
        assert limiter.waiting == 0

    trio.run(main)


def test_a_task_that_is_cancelled_while_it_is_due_takes_nothing():
    async def main():
        clock = ManualClock()
        limiter = Limiter("3 per any second", clock=clock)
        assert limiter.try_acquire(3)
        ended = []
        scopes = [trio.CancelScope() for _ in range(3)]

        async def work(number):
            with scopes[number]:
                await limiter.acquire_async()
                ended.append(number)
                if number == 0:
                    # The last is due as well, and goes on after the second.
                    scopes[2].cancel()

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(work, number)
                await trio.testing.wait_all_tasks_blocked()
            clock.advance("1s")
            await clock.settle()
        assert ended == [0, 1]
        assert limiter.remaining == 1 and limiter.waiting == 0

    trio.run(main)


def test_a_cancel_storm_leaves_the_line_empty():
    async def main():
        limiter = Limiter("10000/s burst 1")
        granted = 0

        async def work(number):
            nonlocal granted
            with trio.move_on_after(number % 7 / 100):
                await limiter.acquire_async()
                granted += 1

        async with trio.open_nursery() as nursery:
            for number in range(1_000):
                nursery.start_soon(work, number)
        assert limiter.waiting == 0 and granted > 0
        await limiter.acquire_async()

    trio.run(main)


def test_an_end_of_a_limiter_and_a_timeout_are_raised():
    async def main():
        limiter = Limiter("1/h burst 1")
        assert limiter.try_acquire()
        with pytest.raises(TooLong):
            await limiter.acquire_async(timeout="1s")

        async def work():
            with pytest.raises(Closed):
                await limiter.acquire_async()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            limiter.close()

    trio.run(main)


def test_a_run_that_ends_leaves_the_line():
    limiter = Limiter("1/h burst 1")
    assert limiter.try_acquire()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limiter.acquire_async)
            await trio.testing.wait_all_tasks_blocked()
            assert limiter.waiting == 1
            nursery.cancel_scope.cancel()

    trio.run(main)
    trio.run(main)  # With a hub of its own.
    assert limiter.waiting == 0


def test_trio_asyncio_and_threads_share_a_line():
    limiter = Limiter("1000/s burst 1")
    starts, lock = [], threading.Lock()

    def start():
        with lock:
            starts.append(limiter.now_ns)

    async def of_trio():
        for _ in range(20):
            await limiter.acquire_async()
            start()

    async def of_asyncio():
        for _ in range(20):
            await limiter.acquire_async()
            start()

    def of_a_thread():
        for _ in range(20):
            limiter.acquire()
            start()

    threads = [
        threading.Thread(target=trio.run, args=[of_trio]),
        threading.Thread(target=lambda: asyncio.run(of_asyncio())),
        threading.Thread(target=of_a_thread),
    ]
    first = limiter.now_ns
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(starts) == 60 and limiter.waiting == 0
    assert max(starts) - first >= 59_000_000


def test_operations_in_flight_end_with_their_block():
    async def main():
        limiter = Limiter(Policy("concurrency", permits=2))
        most = running = 0

        async def work():
            nonlocal most, running
            async with limiter:
                running += 1
                most = max(most, running)
                await trio.sleep(0.001)
                running -= 1

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(work)
        assert most == 2 and limiter.remaining == 2

    trio.run(main)


def test_a_blocking_wait_in_a_run_is_warned_of():
    async def main():
        limiter = Limiter("100/s burst 1")
        limiter.acquire()
        with pytest.warns(RuntimeWarning, match="acquire_async"):
            limiter.acquire()

    trio.run(main)


def test_a_pace_waits_in_a_run():
    pace = Pace("100/s burst 1")
    starts = []

    async def call():
        async with pace.request_async() as sent:
            starts.append(pace.limiter.now_ns)
            # The server has nothing left for a while.
            if len(starts) == 2:
                sent.response(429, [("Retry-After", "1")])

    async def main():
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)

    trio.run(main)
    assert starts[1] - starts[0] >= 10_000_000
    assert starts[2] - starts[1] >= SECOND
