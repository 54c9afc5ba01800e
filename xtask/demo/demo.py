"""Shows each promise of the packages for Python and Node by one line, and fails at the first that
is not kept: cargo xtask demo"""

import argparse
import asyncio
import collections
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

from aiolimiter import AsyncLimiter
from pyrategate import Limiter, ManualClock, Shared

MS = 1_000_000
SECOND = 1_000_000_000


def show(promise, seen):
    """Print a promise and what was seen of it."""
    print(f"{promise:62} {seen}", flush=True)


def run(*command, **options):
    """Run a program to its end. Returns what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def interpreters(pythons):
    """Import the one wheel in each interpreter, and take a permit."""
    program = """
        import sys, pyrategate
        assert pyrategate.Limiter("1/h").try_acquire()
        print(f"{sys.version_info[0]}.{sys.version_info[1]}")
    """
    versions = [run(python, "-c", textwrap.dedent(program)) for python in pythons]
    show("one wheel for all interpreters", ", ".join(versions))


async def crowd(acquire, now, tasks, rate):
    """Return how long tasks took as a multiple of the ideal, and how many were early or passed
    another."""
    starts = []

    async def work(number):
        await acquire()
        starts.append((number, now()))

    begin = now()
    await asyncio.gather(*(work(number) for number in range(tasks)))
    took = (now() - begin) / SECOND * rate / tasks
    first = starts[0][1]
    # Of a burst of 1, the nth starts n periods after the first, or later.
    early = sum(at - first < place * SECOND // rate for place, (_, at) in enumerate(starts))
    passed = sum(a[0] > b[0] for a, b in zip(starts, starts[1:], strict=False))
    return took, early, passed


def crowds():
    """Pass a crowd of tasks, here and by another library."""
    limiter = Limiter("10000/s burst 1")
    took, early, passed = asyncio.run(
        crowd(limiter.acquire_async, lambda: limiter.now_ns, 10_000, 10_000)
    )
    assert early == passed == 0, (early, passed)

    async def other():
        return await crowd(AsyncLimiter(1, 1 / 10_000).acquire, time.monotonic_ns, 10_000, 10_000)

    others, _, _ = asyncio.run(other())
    seen = f"in {took:.3f} of the ideal time, aiolimiter {others:.1f}"
    show("10 000 tasks at 10 000/s: in order, none early", seen)


def interrupt():
    """Interrupt a blocked thread."""
    program = """
        import signal, time
        from pyrategate import Limiter
        signal.signal(signal.SIGINT, signal.default_int_handler)
        limiter = Limiter("1/h burst 1")
        limiter.acquire()
        print("waits", flush=True)
        try:
            limiter.acquire()
        except KeyboardInterrupt:
            print(time.monotonic_ns(), limiter.waiting)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        sent = time.monotonic_ns()
        process.send_signal(signal.SIGINT)
        ended, waiting = process.communicate(timeout=30)[0].split()
    assert waiting == "0"
    show("Ctrl-C ends a blocked acquire", f"after {(int(ended) - sent) / MS:.1f} ms, nobody waits")


def free_port():
    """Return a port of the loopback that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def get(port, path="/"):
    """Send a request. Returns its response, once the body is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        response.body = response.read()
        return response


@contextlib.contextmanager
def serving(command, port, folder):
    """Start a server, and wait until it answers. Stops it at the end."""
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as process:
        try:
            end = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    get(port, "/ready")
                    break
                assert time.monotonic() < end and process.poll() is None, process.stderr.read()
                time.sleep(0.02)
            yield process
        finally:
            process.terminate()


def preload(folder):
    """Fork four workers of gunicorn from a process whose limiter has had waits."""
    (folder / "preloaded.py").write_text(textwrap.dedent("""
        import asyncio, os
        from pyrategate import Limiter

        limiter = Limiter("50/s burst 1")

        async def waits(count):
            await asyncio.gather(*(limiter.acquire_async() for _ in range(count)))

        asyncio.run(waits(3))

        def app(environ, start_response):
            asyncio.run(waits(2))
            limiter.acquire()
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(os.getpid()).encode()]
    """))
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "4", "--log-level"]
    command += ["error", "--bind", f"127.0.0.1:{port}", "preloaded:app"]
    workers = collections.Counter()
    with serving(command, port, folder):
        lock = threading.Lock()

        def client():
            for _ in range(10):
                response = get(port)
                assert response.status == 200
                with lock:
                    workers[response.body] += 1

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    show("gunicorn --preload, 4 workers that wait", f"80 answers of {len(workers)} workers")


def stalled():
    """Block a loop for longer than waiters wait for each other, while permits become free."""

    async def main():
        limiter = Limiter("100/s burst 3")
        await limiter.acquire_async(3)
        order = []

        async def work(number):
            await limiter.acquire_async()
            order.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(20)]
        await asyncio.sleep(0)
        time.sleep(0.3)
        tasks += [asyncio.create_task(work(number)) for number in range(20, 30)]
        await asyncio.gather(*tasks)
        assert order == list(range(30)), order

    asyncio.run(main())
    show("a loop that was busy for 0.3 s", "30 tasks in order")


def loops_and_threads():
    """Share a limit between two loops and four threads."""
    limiter, starts = Limiter("2000/s burst 1"), []

    def thread():
        for _ in range(200):
            limiter.acquire()
            starts.append(limiter.now_ns)

    async def tasks():
        async def work():
            await limiter.acquire_async()
            starts.append(limiter.now_ns)

        await asyncio.gather(*(work() for _ in range(200)))

    targets = [thread] * 4 + [lambda: asyncio.run(tasks())] * 2
    threads = [threading.Thread(target=target) for target in targets]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    starts.sort()
    took = starts[-1] - starts[0]
    assert len(starts) == 1_200 and took >= 1_199 * SECOND // 2_000
    seen = f"1200 starts in {took / SECOND:.3f} s, no less than 0.599"
    show("two loops and four threads on one limiter of 2000/s", seen)


def cancels():
    """Cancel most of a crowd."""

    async def main():
        limiter = Limiter("1000/s burst 10")
        await limiter.acquire_async(10)
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(10_000)]
        await asyncio.sleep(0.05)
        for task in tasks[:9_990]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limiter.waiting == 0
        return sum(not task.cancelled() for task in tasks)

    show("9 990 of 10 000 waits are cancelled", f"{asyncio.run(main())} passed, nobody waits")


def virtual_hour():
    """Wait for an hour on a clock that is moved."""

    async def main():
        clock = ManualClock()
        limiter = Limiter("1/min", clock=clock)
        begin = time.perf_counter_ns()
        waits = asyncio.gather(*(limiter.acquire_async() for _ in range(61)))
        while not waits.done():
            await clock.settle()
            clock.step()
        took = time.perf_counter_ns() - begin
        assert clock.now_ns >= 3_600 * SECOND
        return took

    show("an hour of waits on a clock that is moved", f"{asyncio.run(main()) / MS:.1f} ms")


def fastapi(folder):
    """Limit a server of FastAPI, and follow its Retry-After."""
    (folder / "limited.py").write_text(textwrap.dedent("""
        from fastapi import FastAPI
        from pyrategate.asgi import Limits

        limits = Limits()
        app = FastAPI()
        app.add_middleware(limits.middleware)

        @app.get("/")
        @limits.limit("2 per any 3s")
        async def hello():
            return {"hello": "you"}
    """))
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--no-proxy-headers", "--log-level", "error"]
    command += ["--port", str(port), "limited:app"]
    with serving(command, port, folder):
        show("FastAPI: 429 until Retry-After is over", follow(port))


def express(node, folder):
    """Limit a server of Express, and follow its Retry-After."""
    port = free_port()
    (folder / "limited.mjs").write_text(textwrap.dedent(f"""
        import express from 'express'
        import {{ rateLimit }} from 'rategate/express'

        const app = express()
        app.get('/', rateLimit('2 per any 3s'), (request, response) => response.send('hello'))
        app.listen({port}, '127.0.0.1')
    """))
    with serving(["node", "limited.mjs"], port, folder):
        show("Express: 429 until Retry-After is over", follow(port))


def follow(port):
    """Use up a limit of 2 in any 3 s. Returns what the server said, which has to be exact."""
    assert [get(port).status for _ in range(2)] == [200, 200]
    refused = get(port)
    retry_after = int(refused.headers["Retry-After"])
    assert (refused.status, retry_after) == (429, 3), refused.body
    time.sleep(retry_after - 1)
    assert get(port).status == 429, "a second earlier"
    time.sleep(1)
    assert get(port).status == 200
    return f"Retry-After: {retry_after}, refused at 2 s, passed at 3 s"


def redis(folder):
    """Keep one limit in two processes over a Redis that is killed and comes back."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--appendonly", "no", "--dir", str(folder), "--loglevel", "warning"]
    start = lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: E731
    server = start()
    program = textwrap.dedent(f"""
        import time
        from pyrategate import Shared
        shared = Shared("redis://127.0.0.1:{port}", "50 per any second", quarantine=True)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            if shared.try_acquire():
                print(time.monotonic_ns())
            time.sleep(0.001)
    """)
    try:
        callers = [
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        time.sleep(3)
        server.kill()
        server.wait()
        time.sleep(0.3)
        server = start()
        printed = [caller.communicate(timeout=60)[0].split() for caller in callers]
    finally:
        server.kill()
        server.wait()
    starts = sorted(int(at) for of in printed for at in of)
    assert all(printed) and len(starts) > 100, [len(of) for of in printed]
    # A caller reads its clock up to a round trip after the store has decided.
    most = max(
        sum(at <= other < at + SECOND - 20 * MS for other in starts[place:])
        for place, at in enumerate(starts)
    )
    assert most <= 50, most
    show("one limit of 50 in Redis, two processes, Redis killed", f"at most {most} in a second")


def main():
    """Show all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable])
    parser.add_argument("--nodes", nargs="+", default=["node"])
    parser.add_argument("--modules", type=pathlib.Path, help="the folder with node_modules")
    given = parser.parse_args()
    interpreters(given.pythons)
    crowds()
    interrupt()
    stalled()
    loops_and_threads()
    cancels()
    virtual_hour()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        preload(folder)
        fastapi(folder)
        redis(folder)
    for node in given.nodes:
        print(run(node, "demo.mjs", cwd=given.modules), flush=True)
    with tempfile.TemporaryDirectory(dir=given.modules) as folder:
        express(given.nodes[0], pathlib.Path(folder))


if __name__ == "__main__":
    main()
