"""Loads whose operations are released when they are due, in threads and in tasks."""

import asyncio
import copy
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from pyrategate import Limiter, ManualClock, OpenLoop, Release

trio = pytest.importorskip("trio")

MS = 1_000_000
GUIDE = "ramp:0/s>2/s@2s then constant:2/s@1s"


def works(clock, release):
    """Let the operations of the guide's example take their time."""
    clock.advance("1200ms" if release.number == 1 else "100ms")


def steps(clock, over):
    """Move a clock from wait to wait, in a thread, until there is an end."""

    def run():
        while not over.is_set():
            clock.step()
            time.sleep(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def is_the_guides(releases):
    assert [release.wait_ns // MS for release in releases] == [0, 0, 614, 214, 0]
    assert [release.number for release in releases] == [0, 1, 2, 3, 4]
    assert [release.scheduled_at_ns // MS for release in releases] == [0, 1414, 2000, 2500, 3000]
    for release in releases:
        assert release.wait_ns == release.released_at_ns - release.scheduled_at_ns
        assert release.wait == pytest.approx(release.wait_ns / 1e9)
        assert release.scheduled_at == pytest.approx(release.scheduled_at_ns / 1e9)
        assert release.released_at == pytest.approx(release.released_at_ns / 1e9)


@pytest.mark.parametrize("in_main", [True, False])
def test_the_guides_example_has_the_waits_that_it_has_in_rust_in_a_thread(in_main):
    clock, over, releases = ManualClock(), threading.Event(), []
    loop = OpenLoop(GUIDE, clock=clock)

    def play():
        try:
            for release in loop:
                releases.append(release)
                works(clock, release)
        finally:
            over.set()

    moves = steps(clock, over)
    if in_main:
        play()
    else:
        thread = threading.Thread(target=play)
        thread.start()
        thread.join()
    moves.join()
    is_the_guides(releases)
    assert next(loop, None) is None


async def play_in_a_task(start):
    clock, releases = ManualClock(), []
    loop = OpenLoop(GUIDE, clock=clock)

    async def play():
        async for release in loop:
            releases.append(release)
            works(clock, release)

    ended = start(play)
    while not ended():
        await clock.settle()
        if not ended():
            clock.step()
    is_the_guides(releases)


def test_the_guides_example_has_the_waits_that_it_has_in_rust_in_a_task():
    async def main():
        await play_in_a_task(lambda play: asyncio.ensure_future(play()).done)

    asyncio.run(main())


def test_the_guides_example_has_the_waits_that_it_has_in_rust_in_a_task_of_trio():
    async def main():
        async with trio.open_nursery() as nursery:

            def start(play):
                over = threading.Event()

                async def run():
                    await play()
                    over.set()

                nursery.start_soon(run)
                return over.is_set

            await play_in_a_task(start)

    trio.run(main)


def is_on_time(before, after, release):
    """Compare a release with a stopwatch that was started before and after its loop was made."""
    now = time.perf_counter_ns()
    assert release.released_at_ns >= release.scheduled_at_ns
    # The two clocks may differ by some millionths.
    assert (now - before) * 1.0001 >= release.scheduled_at_ns
    assert release.released_at_ns <= (now - before) * 1.0001
    return now - after - release.released_at_ns


def test_no_operation_is_early_and_its_times_are_those_of_a_stopwatch():
    def stopwatch():
        before = time.perf_counter_ns()
        loop = OpenLoop("constant:1000/s@200ms")
        return before, time.perf_counter_ns(), loop

    def in_a_thread():
        before, after, loop = stopwatch()
        return [is_on_time(before, after, release) for release in loop]

    async def in_a_task():
        before, after, loop = stopwatch()
        return [is_on_time(before, after, release) async for release in loop]

    others = []
    # It has to wait for the interpreter, after its wait for the operation.
    busy = threading.Event()

    def computes():
        while not busy.is_set():
            sum(range(1000))

    thread = threading.Thread(target=lambda: others.extend(in_a_thread()))
    computing = threading.Thread(target=computes)
    computing.start()
    thread.start()
    thread.join()
    busy.set()
    computing.join()
    for late in [others, in_a_thread(), asyncio.run(in_a_task()), trio.run(in_a_task)]:
        assert len(late) == 201
        # A stopwatch in Python sees the instant of the release, but for the odd switch of threads. A
        # fifth would be 5 ms off, if waits for the interpreter did not count.
        assert sorted(late)[180] < 2 * MS, sorted(late)


def test_a_release_counts_from_when_its_task_runs():
    async def main():
        clock = ManualClock()
        loop = OpenLoop("constant:1/s@3s", clock=clock)
        waits = []

        async def work():
            release = await loop.__anext__()
            waits.append(release.wait)
            # Those behind it run later.
            clock.advance("100ms")

        tasks = [asyncio.ensure_future(work()) for _ in range(3)]
        await clock.settle()
        clock.advance("1.9s")
        await asyncio.gather(*tasks)
        assert waits == [0, 1.0, pytest.approx(0.1)]

    asyncio.run(main())


def test_threads_and_tasks_share_a_loop_and_each_operation_goes_to_one():
    loop = OpenLoop("constant:2000/s@150ms")
    released = []

    def in_a_thread():
        released.append([release.number for release in loop])

    async def work():
        released.append([release.number async for release in loop])

    async def tasks():
        await asyncio.gather(work(), work())

    async def tasks_of_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(work)

    targets = [in_a_thread, in_a_thread, lambda: asyncio.run(tasks()), lambda: trio.run(tasks_of_trio)]
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    in_a_thread()
    for thread in threads:
        thread.join()
    assert len(released) == 7
    for numbers in released:
        assert numbers == sorted(numbers)
    assert sorted(number for numbers in released for number in numbers) == list(range(301))


def test_parts_together_are_exactly_the_load():
    clock, load = ManualClock(), "ramp:0/s>40/s@2s then constant:7/s@1s"
    whole = OpenLoop(load, clock=clock)
    parts = [OpenLoop(load, part=(part, 3), clock=clock) for part in range(3)]
    clock.advance(3)
    together = sorted(release.scheduled_at_ns for part in parts for release in part)
    assert together == [release.scheduled_at_ns for release in whole]
    assert len(together) == 48


def test_a_cancelled_task_leaves_its_operation_to_the_next_call():
    async def main():
        clock = ManualClock()
        loop = OpenLoop("constant:1/s@4s", clock=clock)
        assert (await loop.__anext__()).number == 0
        task = asyncio.ensure_future(loop.__anext__())
        await clock.settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        woken = asyncio.ensure_future(loop.__anext__())
        await clock.settle()
        clock.advance(1)
        # Woken, and cancelled before it runs.
        from pyrategate import _loop

        _loop.replies_of(asyncio.get_running_loop()).drain()
        woken.cancel()
        await asyncio.gather(woken, return_exceptions=True)
        assert (await loop.__anext__()).number == 1
        assert _loop.replies_of(asyncio.get_running_loop()).waiting == 0

    asyncio.run(main())


def test_a_cancelled_task_of_trio_leaves_its_operation_to_the_next_call():
    async def main():
        clock = ManualClock()
        loop = OpenLoop("constant:1/s@4s", clock=clock)
        assert (await loop.__anext__()).number == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.__anext__)
            await clock.settle()
            nursery.cancel_scope.cancel()
        clock.advance(1)
        assert (await loop.__anext__()).number == 1

    trio.run(main)


def test_a_close_ends_the_waits_of_threads_and_tasks():
    clock = ManualClock()
    loop = OpenLoop("constant:1/h", clock=clock)
    assert next(loop).number == 0
    ended = []
    threads = [
        threading.Thread(target=lambda: ended.append(list(loop))),
        threading.Thread(target=lambda: ended.append(asyncio.run(task()))),
    ]

    async def task():
        return [release async for release in loop]

    for thread in threads:
        thread.start()
    time.sleep(0.1)
    closes = threading.Timer(0.1, loop.close)
    closes.start()
    assert list(loop) == []
    for thread in threads:
        thread.join()
    assert ended == [[], []]


def test_a_load_that_is_behind_leaves_its_loop_turns():
    async def main():
        loop, limiter = OpenLoop("constant:1000000000/s"), Limiter("100/s burst 1")

        async def runs():
            async for _release in loop:
                pass

        task = asyncio.ensure_future(runs())
        for _ in range(3):
            await limiter.acquire_async()
        loop.close()
        await task

    asyncio.run(main())


def test_a_loop_that_blocks_another_is_warned_of_and_a_task_without_a_loop_raises():
    async def main():
        loop = OpenLoop("constant:100/s@20ms")
        with pytest.warns(RuntimeWarning, match="`for` over an OpenLoop waits.*use `async for`"):
            assert len(list(loop)) == 3

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="outside of tasks, use `for`"):
        OpenLoop("constant:1/s").__anext__().send(None)


def test_ctrl_c_ends_a_wait_at_once_and_leaves_its_operation():
    source = """
        import signal
        from pyrategate import ManualClock, OpenLoop
        signal.signal(signal.SIGINT, signal.default_int_handler)
        clock = ManualClock()
        loop = OpenLoop("constant:1/h", clock=clock)
        next(loop)
        print("waits", flush=True)
        try:
            next(loop)
        except KeyboardInterrupt:
            clock.advance("1h")
            print("interrupted", next(loop).number, flush=True)
    """
    program = [sys.executable, "-c", textwrap.dedent(source)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=30)[0] == "interrupted 1\n"
        finally:
            process.kill()


def test_mistakes_are_errors_that_say_where():
    with pytest.raises(ValueError, match='^the load "ramp:0/s>100@10s": at byte 9: not a rate'):
        OpenLoop("ramp:0/s>100@10s")
    with pytest.raises(ValueError, match="part 3 of 3: parts count from 0"):
        OpenLoop("constant:1/s", part=(3, 3))
    with pytest.raises(ValueError, match="part is from 0 to"):
        OpenLoop("constant:1/s", part=(-1, 3))
    with pytest.raises(TypeError):
        OpenLoop(5)
    with pytest.raises(TypeError):
        OpenLoop("constant:1/s", part="0/3")


def test_a_release_is_a_value():
    release = Release(3, 1_500_000_000, 1_750_000_000)
    assert (release.wait, release.scheduled_at, release.released_at) == (0.25, 1.5, 1.75)
    assert pickle.loads(pickle.dumps(release)) == release == copy.copy(release)
    assert repr(release) == (
        "Release(number=3, scheduled_at_ns=1500000000, released_at_ns=1750000000)"
    )
    loop = OpenLoop("constant:1/s")
    assert repr(loop) == 'OpenLoop("constant:1/s")'
    assert 0 <= loop.now_ns <= loop.now * 1e9 + 1e9
