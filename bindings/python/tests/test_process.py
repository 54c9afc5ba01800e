"""Signals and forks, in processes of their own."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest


def run(source, *arguments, **options):
    """Run a program to its end. Returns what it printed."""
    program = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_ctrl_c_ends_a_blocked_acquire_and_its_place():
    source = """
        import signal
        from pyrategate import Limiter
        # A shell starts what is in its background with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        limiter = Limiter("1/h burst 1")
        limiter.acquire()
        print("waits", flush=True)
        try:
            limiter.acquire()
        except KeyboardInterrupt:
            print("interrupted", limiter.waiting, flush=True)
    """
    program = [sys.executable, "-c", textwrap.dedent(source)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=30)[0] == "interrupted 0\n"
        finally:
            process.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_goes_on_from_its_copy():
    assert run("""
        import asyncio, os
        from pyrategate import Limiter
        limiter = Limiter("100/s burst 1")

        async def waits(limiter, count):
            await asyncio.gather(*(limiter.acquire_async() for _ in range(count)))

        asyncio.run(waits(limiter, 5))
        child = os.fork()
        if child == 0:
            asyncio.run(waits(limiter, 5))
            limiter.acquire()
            asyncio.run(waits(Limiter("100/s burst 1"), 3))
            assert limiter.waiting == 0
            os._exit(7)
        asyncio.run(waits(limiter, 5))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), limiter.waiting)
    """) == ["7", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_within_a_loop_leaves_the_parents_waits_alone():
    assert run("""
        import asyncio, os
        from pyrategate import Limiter
        limiter = Limiter("20/s burst 1")

        async def main():
            tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(5)]
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                # Behind the copies of the parent's waits, none of which comes.
                limiter.acquire()
                os._exit(7)
            await asyncio.gather(*tasks)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        print(asyncio.run(main()), limiter.waiting)
    """) == ["7", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_a_child_finds_no_lock_held_by_a_thread_that_it_lacks(kind):
    assert run("""
        import asyncio, os, signal, sys, threading, time
        from pyrategate import Limiter
        limiter = Limiter("20000/s burst 1")
        stop = False

        async def work():
            while not stop:
                async with limiter:
                    pass

        async def main():
            await asyncio.gather(*(work() for _ in range(4)))

        def block():
            while not stop:
                limiter.acquire()

        if sys.argv[1] == "tasks":
            threads = [threading.Thread(target=lambda: asyncio.run(main()))]
        else:
            threads = [threading.Thread(target=block) for _ in range(3)]
        for thread in threads:
            thread.start()
        hung = 0
        for at in range(200):
            time.sleep(0.001 + at % 7 / 7000)
            child = os.fork()
            if child == 0:
                signal.alarm(5)
                limiter.try_acquire()
                limiter.close()
                os._exit(0)
            hung += os.waitpid(child, 0)[1] != 0
        stop = True
        for thread in threads:
            thread.join()
        print(hung)
    """, kind) == ["0"]


def test_a_process_ends_with_waiters():
    assert run("""
        import threading
        from pyrategate import Limiter
        limiter = Limiter("1/h burst 1")
        limiter.acquire()
        threading.Thread(target=limiter.acquire, daemon=True).start()
        while limiter.waiting < 1:
            pass
        print("ends")
    """) == ["ends"]
