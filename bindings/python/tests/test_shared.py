"""One limit of several processes, over a real redis-server that the tests start."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from pyrategate import (
    ExceedsCapacity,
    Policy,
    Shared,
    TooLong,
    Unavailable,
)
from redis_server import running

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="there is no redis-server here"
)

# Longer than any delay of a busy machine: what is tested is not how soon a reply comes.
BUDGET = "2s"


@pytest.fixture(scope="module")
def server():
    with running() as server:
        yield server


@pytest.fixture
def shared(server, request):
    """Make limits, each with a name of the test."""

    def make(limit, **options):
        options = {"budget": BUDGET, "name": re.sub(r"[^a-z_]", "", request.node.name)[:29], **options}
        return Shared(server.url, limit, **options)

    return make


def started(source, *arguments):
    """Start a program of Python."""
    program = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True)


def fullest(starts, window_ns):
    """Return the most starts in any window, by pairs of loops: too simple to be wrong."""
    starts = sorted(starts)
    return max(sum(first <= at < first + window_ns for at in starts) for first in starts)


def test_a_key_has_its_own_permits(shared):
    limit = shared("1/h burst 3")
    assert [limit.try_acquire("a") for _ in range(4)] == [True, True, True, False]
    assert limit.remaining("a") == 0
    assert limit.remaining("b") == 3
    assert limit.check("b", 2).remaining == 1


def test_text_bytes_and_digits_name_one_key_in_every_language(shared):
    limit = shared("1/h burst 3")
    assert limit.try_acquire("7") and limit.try_acquire(b"7") and limit.try_acquire(7)
    assert not limit.try_acquire(7)
    with pytest.raises(TypeError, match="a key is"):
        limit.try_acquire(7.5)


def test_a_denial_says_when_to_come_again(shared):
    limit = shared("1/h burst 1")
    granted, denied = limit.check(), limit.check()
    assert granted and granted.grant.permits == 1 and granted.retry_after_ns is None
    assert not denied and denied.grant is None and denied.by == "store"
    assert 3590 < denied.retry_after <= 3600
    with pytest.raises(TooLong) as late:
        limit.acquire(timeout="10s")
    assert 3590 < late.value.retry_after <= 3600


def test_a_refund_brings_permits_back(shared):
    limit = shared("1/h burst 3")
    grant = limit.acquire(permits=3)
    limit.refund(grant, permits=2)
    with pytest.raises(ValueError, match="2 permits of the grant cannot come back: 1 are left"):
        limit.refund(grant, permits=2)
    with pytest.raises(ValueError, match="another limiter or key"):
        limit.refund(grant, "k", permits=1)
    until = time.monotonic() + 30
    while limit.remaining() != 2:
        assert time.monotonic() < until


def test_two_handles_of_one_limit_share_it_and_other_numbers_without_a_name_do_not(server):
    one, two = (Shared(server.url, "1/h burst 2", budget=BUDGET) for _ in range(2))
    assert one.try_acquire("x") and two.try_acquire("x") and not one.try_acquire("x")
    assert Shared(server.url, "2/h burst 2", budget=BUDGET).try_acquire("x")
    # A name keeps the count when the numbers change.
    assert Shared(server.url, "1/h burst 2", name="n", budget=BUDGET).try_acquire("x", 2)
    assert not Shared(server.url, "1/h burst 3", name="n", budget=BUDGET).try_acquire("x", 2)


def test_a_call_passes_all_of_several_limits_or_takes_nothing(shared):
    limit = shared("1/h burst 4; 3 per any hour")
    assert limit.try_acquire("a", 3) and not limit.try_acquire("a")
    fixed = shared(Policy("fixed-window", permits=2, period="1h"), name="window")
    assert fixed.try_acquire("a", 2) and not fixed.try_acquire("a")


def test_mistakes_are_errors_of_the_constructor(server):
    for url in ["http://127.0.0.1", "redis://:secret@h:port", "redis://"]:
        with pytest.raises(ValueError, match="the address of the store") as wrong:
            Shared(url, "1/s")
        assert "secret" not in str(wrong.value)
    with pytest.raises(ValueError, match=r"does not know the policy .*it knows gcra"):
        Shared(server.url, Policy("concurrency", permits=3))
    for wrong in [
        {"mode": "shared"},
        {"when_gone": "raise"},
        {"when_gone": "local"},
        {"processes": 2},
        {"lease": 1},
        {"name": "a b"},
        {"prefix": "a{b"},
        {"mode": "leased", "lease_permits": 0},
        {"mode": "leased", "lease": 0},
    ]:
        with pytest.raises(ValueError):
            Shared(server.url, "1/s", **wrong)
    with pytest.raises(ExceedsCapacity):
        Shared(server.url, "1/s burst 2", budget=BUDGET).acquire("k", 3)


def test_a_password_is_not_shown():
    assert "secret" not in repr(Shared("redis://:secret@127.0.0.1:1", "1/s"))


def test_tasks_pass_in_the_order_of_their_calls_and_none_early(shared):
    limit = shared("200/s burst 1")

    async def main():
        passed, begin = [], time.monotonic()

        async def one(number):
            await limit.acquire_async("k")
            passed.append((number, time.monotonic() - begin))

        await asyncio.gather(*(one(number) for number in range(40)))
        return passed

    passed = asyncio.run(main())
    assert [number for number, _ in passed] == list(range(40))
    # The store may have had its first permit before the clock was read.
    assert all(at >= (number - 1) / 200 for number, at in passed)
    # One request of the first in line for each permit and each wait, not one of each waiter.
    granted, denied = limit.counts["store"]
    assert granted == 40 and denied < 40 + 2 * 40
    assert limit.waiting("k") == 0


def test_threads_and_tasks_stand_in_one_line(shared):
    limit = shared("100/s burst 1")
    limit.acquire()
    passed = []

    def thread():
        limit.acquire()
        passed.append("thread")

    async def main():
        async def one():
            await limit.acquire_async()
            passed.append("task")

        for _ in range(3):
            worker = threading.Thread(target=thread)
            worker.start()
            while limit.waiting() % 2 == 0:
                await asyncio.sleep(0)
            task = asyncio.create_task(one())
            while limit.waiting() % 2 == 1:
                await asyncio.sleep(0)
            yield task, worker

    async def play():
        # Slow enough that all six stand in line before the first passes.
        pairs = [pair async for pair in main()]
        for task, worker in pairs:
            await task
            await asyncio.to_thread(worker.join)

    limit = shared("4/s burst 1", name="line")
    limit.acquire()
    asyncio.run(play())
    assert passed == ["thread", "task"] * 3


def test_a_cancelled_task_leaves_the_line_and_gives_back_what_it_was_granted(shared):
    limit = shared("1/h burst 2")

    async def main():
        assert await limit.acquire_async("k", 2)
        waits = [asyncio.create_task(limit.acquire_async("k")) for _ in range(5)]
        while limit.waiting("k") < 5:
            await asyncio.sleep(0.001)
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert limit.waiting("k") == 0
        # Cancelled at each step of a call that is granted: its permits come back.
        for steps in range(12):
            key = f"cancelled {steps}"
            task = asyncio.create_task(limit.acquire_async(key))
            for _ in range(steps):
                await asyncio.sleep(0.0001)
            if task.done():
                continue
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                continue
            until = time.monotonic() + 30
            while await limit.remaining_async(key) != 2:
                assert time.monotonic() < until

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before the loop sees the reply", "after it"])
def test_a_grant_that_its_task_does_not_take_comes_back(shared, when):
    limit = shared("1/h burst 2")

    async def main():
        task = asyncio.create_task(limit.acquire_async("k"))
        await asyncio.sleep(0)
        # The reply comes while the loop is busy, and the task is cancelled before it runs.
        while limit.counts["store"] == (0, 0):
            time.sleep(0.001)
        time.sleep(0.01)
        loop = asyncio.get_running_loop()
        if when == "after it":
            # One turn later, when the future has its result and the task has not run.
            loop.call_soon(loop.call_soon, task.cancel)
        else:
            loop.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        until = time.monotonic() + 30
        while await limit.remaining_async("k") != 2:
            assert time.monotonic() < until

    asyncio.run(main())


def test_the_loop_goes_on_while_the_store_stands_still():
    with running() as server:
        limit = Shared(server.url, "1/h burst 100", budget="1s")
        limit.ready()
        server.process.send_signal(signal.SIGSTOP)

        async def main():
            call = asyncio.create_task(limit.check_async("k"))
            turns = 0
            while not call.done():
                await asyncio.sleep(0.001)
                turns += 1
            return turns, await call

        turns, decision = asyncio.run(main())
        server.process.send_signal(signal.SIGCONT)
        assert turns > 20
        assert not decision and decision.by == "fallback"


def test_two_processes_never_exceed_one_limit(server):
    source = """
        import asyncio, sys, time
        from pyrategate import Shared
        limit = Shared(sys.argv[1], "20 per any 400ms", name="bound", budget="100ms")
        limit.ready()
        starts, turns = [], []
        async def work(until):
            while time.monotonic() < until:
                await limit.acquire_async("k")
                starts.append(time.monotonic_ns())
        async def turn(until):
            while time.monotonic() < until:
                turns.append(time.monotonic_ns())
                await asyncio.sleep(0.002)
        async def main():
            until = time.monotonic() + 2
            await asyncio.gather(turn(until), *(work(until) for _ in range(30)))
        asyncio.run(main())
        print(max(after - before for before, after in zip(turns, turns[1:])), *starts)
    """
    for _round in range(10):
        processes = [started(source, server.url) for _ in range(2)]
        logs = [[int(at) for at in each.communicate(timeout=60)[0].split()] for each in processes]
        assert all(each.returncode == 0 for each in processes)
        # What a process does comes within the budget after the decision of the store, unless the
        # machine stops the process then.
        if max(log[0] for log in logs) < 40_000_000:
            break
    starts = logs[0][1:] + logs[1][1:]
    assert fullest(starts, 300_000_000) == 20, "never more, and reached, or nothing is tested"
    assert all(len(log) > 1 for log in logs)
    assert len(starts) >= 80


def test_leased_permits_keep_the_bound_and_the_rate(server):
    source = """
        import sys, time
        from pyrategate import Shared
        limit = Shared(sys.argv[1], "100 per any 500ms", mode="leased", lease="50ms",
                       lease_permits=10, guard=sys.argv[2] == "guard", name=sys.argv[2],
                       budget="100ms")
        limit.ready()
        until = time.monotonic() + 2
        starts = []
        while time.monotonic() < until:
            limit.acquire("k")
            starts.append(time.monotonic_ns())
        print(limit.counts["lease"][0], *starts)
    """
    for guard, most in [("guard", 100), ("none", 100 + 2 * 10)]:
        processes = [started(source, server.url, guard) for _ in range(2)]
        logs = [[int(at) for at in each.communicate(timeout=60)[0].split()] for each in processes]
        assert all(each.returncode == 0 for each in processes)
        starts = [at for log in logs for at in log[1:]]
        assert fullest(starts, 400_000_000) <= most
        assert sum(log[0] for log in logs) > 0, "nothing was borrowed"
        assert len(starts) >= 200


def test_a_process_grants_its_part_once_an_earlier_one_cannot_have_used_it():
    options = {"when_gone": "local", "processes": 3, "budget": "50ms"}
    limit = Shared("redis://127.0.0.1:1", "10 per any 1s", **options)
    begin = time.monotonic()
    denied = limit.check("k")
    assert (denied.granted, denied.by) == (False, "fallback")
    assert 0 < denied.retry_after <= 1.01
    while not limit.try_acquire("k"):
        assert time.monotonic() < begin + 30
        time.sleep(0.01)
    assert time.monotonic() >= begin + 1
    # A key that is new has all of the part, which is rounded down.
    assert [limit.try_acquire("new") for _ in range(5)] == [True] * 3 + [False] * 2
    none = Shared("redis://127.0.0.1:1", "2 per any 1ms", **options)
    assert not none.try_acquire("k")
    time.sleep(0.01)
    assert not none.try_acquire("k")


@pytest.mark.parametrize("quarantine", [False, True])
def test_a_killed_store_is_followed_as_when_gone_says(quarantine):
    with running() as server:
        options = {"quarantine": quarantine, "budget": "100ms"}
        limits = {
            gone: Shared(server.url, "10 per any 1s", when_gone=gone, name=gone, **options, **more)
            for gone, more in [("deny", {}), ("allow", {}), ("local", {"processes": 2})]
        }
        starts = []

        def play(seconds):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if limits["deny"].try_acquire("k"):
                    starts.append(time.monotonic_ns())

        until = time.monotonic() + 30
        while not limits["deny"].check("other").granted:
            assert time.monotonic() < until
            time.sleep(0.05)
        play(0.5)
        assert len(starts) == 10
        server.kill()
        gone = time.monotonic_ns()
        play(0.3)
        assert all(at < gone for at in starts)
        denied = limits["deny"].check("k")
        assert not denied and denied.by == "fallback" and denied.retry_after > 0
        assert limits["deny"].counts["fallback"][1] > 0
        with pytest.raises(Unavailable) as unavailable:
            limits["deny"].acquire("k")
        assert unavailable.value.retry_after > 0
        assert limits["deny"].last_failure is not None
        assert all(limits["allow"].try_acquire("k") for _ in range(20))
        assert limits["allow"].counts["fallback"] == (20, 0)
        assert sum(limits["local"].try_acquire("k") for _ in range(20)) <= 5
        assert sum(limits["local"].counts["fallback"]) == 20
        server.start()
        until = time.monotonic() + 20
        while max(starts) < gone and time.monotonic() < until:
            play(0.1)
        assert max(starts) > gone, "it grants again"
        play(2)
        most = fullest(starts, 900_000_000)
        # A store without a file has lost the window.
        assert most <= 10 if quarantine else most <= 20
        assert limits["deny"].status == "healthy"


def test_a_store_that_cannot_be_used_is_a_typed_error_and_no_wait(server):
    with running("--requirepass", "sesame") as guarded:
        right = guarded.url.replace("redis://", "redis://:sesame@")
        assert Shared(right, "1/s", budget=BUDGET).try_acquire()
        wrong = guarded.url.replace("redis://", "redis://:wrong@")
        with socket.create_server(("127.0.0.1", 0)) as free:
            nothing = f"redis://127.0.0.1:{free.getsockname()[1]}"
        for url, reason in [
            (wrong, "WRONGPASS"),
            (guarded.url, "NOAUTH"),
            (nothing, "refused"),
            (server.url.replace("redis://", "redis://:sesame@"), "without any password"),
            (f"{server.url}/999", "no database of this number"),
        ]:
            begin = time.monotonic()
            limit = Shared(url, "1/s", budget=BUDGET)
            with pytest.raises(Unavailable, match=reason):
                limit.acquire()
            with pytest.raises(Unavailable, match=reason):
                asyncio.run(limit.acquire_async())
            with pytest.raises(Unavailable, match=reason):
                limit.ready(timeout="1s")
            assert not limit.try_acquire()
            assert reason in limit.last_failure
            assert time.monotonic() - begin < 20


def test_an_error_about_a_timeout_names_it(server):
    limit = Shared(server.url, "1/s")
    for wrong, kind in [("soon", ValueError), (-1, ValueError), (None, TypeError)]:
        for call in (limit.ready, lambda given: asyncio.run(limit.ready_async(given))):
            with pytest.raises(kind, match="^timeout: "):
                call(wrong)
    with pytest.raises(ValueError, match="^timeout: "):
        limit.acquire(timeout="soon")


def test_a_key_of_another_program_is_a_typed_error_and_other_keys_go_on(server):
    limit = Shared(server.url, "1/h burst 5", name="typed", prefix="app", budget=BUDGET)
    assert limit.try_acquire("k")
    keys = [word for word in server.send("KEYS", "app:*{k}*").split() if b"{k}" in word]
    assert keys
    for key in keys:
        server.send("DEL", key)
        server.send("RPUSH", key, "data of another program")
    with pytest.raises(Unavailable):
        limit.acquire("k")
    assert not limit.try_acquire("k")
    assert limit.last_failure
    assert limit.try_acquire("other") and limit.status == "healthy"


def test_ctrl_c_ends_a_blocked_acquire_and_its_place(server):
    source = """
        import signal, sys
        from pyrategate import Shared
        signal.signal(signal.SIGINT, signal.default_int_handler)
        limit = Shared(sys.argv[1], "1/h burst 1", name="ctrl-c", budget="2s")
        limit.acquire()
        print("waits", flush=True)
        try:
            limit.acquire()
        except KeyboardInterrupt:
            print("interrupted", limit.waiting(), flush=True)
    """
    with started(source, server.url) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=30)[0] == "interrupted 0\n"
        finally:
            process.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("mode", ["exact", "leased"])
def test_a_forked_child_has_connections_and_leases_of_its_own(server, mode):
    source = """
        import asyncio, os, sys
        from pyrategate import Shared
        options = {"lease": "30s", "lease_permits": 4} if sys.argv[2] == "leased" else {}
        limit = Shared(sys.argv[1], "1/h burst 8", mode=sys.argv[2], name=f"fork-{sys.argv[2]}",
                       budget="2s", **options)
        took = [limit.try_acquire("k")]
        asyncio.run(limit.acquire_async("other"))
        child = os.fork()
        if child == 0:
            passed = sum(limit.try_acquire("k") for _ in range(20))
            asyncio.run(limit.acquire_async("another"))
            os._exit(passed)
        passed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        own = sum(limit.try_acquire("k") for _ in range(20))
        print(passed, own, 1 + passed + own)
    """
    with started(source, server.url, mode) as process:
        passed, own, total = map(int, process.communicate(timeout=60)[0].split())
    assert passed > 0
    assert total == 8 if mode == "exact" else total <= 8, (passed, own)


def test_a_process_ends_with_calls_that_wait(server):
    source = """
        import asyncio, sys, threading, time
        from pyrategate import Shared
        limit = Shared(sys.argv[1], "1/h burst 1", name="ends", budget="2s")
        limit.acquire()
        threading.Thread(target=limit.acquire, daemon=True).start()
        async def main():
            task = asyncio.create_task(limit.acquire_async())
            while limit.waiting() < 2:
                await asyncio.sleep(0.001)
        asyncio.run(main())
        print("ends", limit.waiting())
    """
    with started(source, server.url) as process:
        assert process.communicate(timeout=30)[0] == "ends 1\n"


def test_a_wait_outside_of_asyncio_says_what_to_do():
    limit = Shared("redis://127.0.0.1:1", "5/s")
    for call in [limit.check_async, limit.acquire_async, limit.remaining_async, limit.ready_async]:
        with pytest.raises(RuntimeError, match="trio.to_thread.run_sync"):
            call().send(None)
