"""Times the package beside others, in one run, and prints each figure as a ratio.

Each figure is the best of several rounds, so that what else the machine did counts least. The last
column says how much faster the package is than the other.
"""

import asyncio
import gc
import os
import time

import pyrategate
import shared_limits
from pyrategate import Keyed, Limiter, Policy

ROUNDS = 7


def best(call, number):
    """Return the nanoseconds of a call, in the best round."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        begin = time.perf_counter_ns()
        for _ in range(number):
            call()
        times.append((time.perf_counter_ns() - begin) / number)
    return min(times)


def row(what, ours, others):
    """Print a row of figures."""
    print(f"{what:34} {ours:10.0f} ns", end="")
    for name, other in others.items():
        print(f"   {name} {other:.0f} ({other / ours:.1f}x)", end="")
    print(flush=True)


def tries():
    """Return the calls that try for a permit, of each package."""
    calls = {}
    try:
        import token_bucket

        bucket = token_bucket.Limiter(10**9, 10**9, token_bucket.MemoryStorage())
        calls["token-bucket"] = lambda: bucket.consume("key")
    except ImportError:
        pass
    try:
        import ratelimit

        limited = ratelimit.limits(calls=10**9, period=1)(lambda: None)
        calls["ratelimit"] = limited
    except ImportError:
        pass
    try:
        import limits

        store = limits.storage.MemoryStorage()
        item = limits.parse("1000000000/second")
        for name, strategy in [
            ("limits fixed", limits.strategies.FixedWindowRateLimiter(store)),
            ("limits moving", limits.strategies.MovingWindowRateLimiter(store)),
        ]:
            calls[name] = lambda strategy=strategy: strategy.hit(item, "key")
    except ImportError:
        pass
    try:
        from throttled import RateLimiterType, Throttled, rate_limiter

        throttle = Throttled(
            key="key",
            using=RateLimiterType.GCRA.value,
            quota=rate_limiter.per_sec(10**9, burst=10**9),
        )
        calls["throttled-py"] = throttle.limit
    except Exception as error:  # noqa: BLE001 - another version has other names
        print("throttled-py:", error)
    return calls


def free_permits():
    """Time calls that need not wait."""
    limiter = Limiter("1000000000/s")
    ours = best(limiter.try_acquire, 300_000)
    others = {"monotonic()": best(time.monotonic, 300_000)}
    for name, call in tries().items():
        others[name] = best(call, 5_000)
    row("try", ours, others)

    # A key of the second limit is fresh again at its next call, and gives its place to others.
    for what, limit, number, seconds in [
        ("try, 10 000 keys", "100000/h", 100_000, 3600),
        ("try, 10 000 fresh keys", "1000000000/s", 10**9, 1),
    ]:
        keyed_tries(what, Keyed(limit).try_acquire, number, seconds)


def keyed_tries(what, ours, number, seconds):
    """Time tries for permits of keys in turn."""
    keys, others = [str(number) for number in range(10_000)], {}

    def all_keys(call):
        def run():
            for key in keys:
                call(key)

        return best(run, 1) / len(keys)

    try:
        import token_bucket

        bucket = token_bucket.Limiter(number / seconds, number, token_bucket.MemoryStorage())
        others["token-bucket"] = all_keys(bucket.consume)
    except ImportError:
        pass
    row(what, all_keys(ours), others)


async def awaits():
    """Time awaits of free permits, and joining and leaving the line."""
    from aiolimiter import AsyncLimiter

    limiter, other = Limiter("1000000000/s"), AsyncLimiter(10**9, 1)
    number = 50_000

    async def time_of(run):
        times = []
        for _ in range(ROUNDS):
            begin = time.perf_counter_ns()
            await run()
            times.append((time.perf_counter_ns() - begin) / number)
        return min(times)

    async def ours():
        for _ in range(number):
            await limiter.acquire_async()

    async def theirs():
        for _ in range(number):
            await other.acquire()

    async def our_with():
        for _ in range(number):
            async with limiter:
                pass

    async def their_with():
        for _ in range(number):
            async with other:
                pass

    row("await, granted", await time_of(ours), {"aiolimiter": await time_of(theirs)})
    row("async with, granted", await time_of(our_with), {"aiolimiter": await time_of(their_with)})

    async def join_and_cancel(make):
        tasks = [asyncio.ensure_future(make()) for _ in range(20_000)]
        begin = time.perf_counter_ns()
        await asyncio.sleep(0)
        joined = time.perf_counter_ns()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return (joined - begin) / 20_000, (time.perf_counter_ns() - joined) / 20_000

    full, other = Limiter("1/h burst 1"), AsyncLimiter(1, 3600)
    await full.acquire_async()
    await other.acquire()
    mine = await join_and_cancel(full.acquire_async)
    theirs = await join_and_cancel(other.acquire)
    row("join the line, of 20 000", mine[0], {"aiolimiter": theirs[0]})
    row("cancel, of 20 000", mine[1], {"aiolimiter": theirs[1]})


async def crowd(make, tasks, rate, burst):
    """Return how long a crowd took as a multiple of the ideal, the median lateness, and how many
    tasks ran out of order and early: before the instants of a bucket that is full as they come."""
    making = time.perf_counter_ns()
    acquire, now = make()
    # A schedule begins as it is made.
    making = time.perf_counter_ns() - making
    starts = []

    async def work(number):
        await acquire()
        starts.append((number, now()))

    begin = now()
    await asyncio.gather(*(work(number) for number in range(tasks)))
    ideal = (tasks - burst) / rate
    took = (starts[-1][1] - begin) / 1e9 / ideal
    due = [begin + max(0, place - burst + 1) * 1e9 / rate for place in range(tasks)]
    late = sorted(at - when for (_, at), when in zip(starts, due))
    inversions = sum(a[0] > b[0] for a, b in zip(starts, starts[1:]))
    early = sum(at < when - making for (_, at), when in zip(starts, due))
    return took, late[len(late) // 2] / 1e3, inversions, early


def crowds(loop_name, run):
    """Time crowds of tasks on a limit, beside aiolimiter."""
    from aiolimiter import AsyncLimiter

    def ours(limit):
        def make():
            limiter = Limiter(limit)
            return limiter.acquire_async, lambda: limiter.now_ns

        return make

    def theirs(rate, burst):
        def make():
            limiter = AsyncLimiter(burst, burst / rate)
            return limiter.acquire, time.perf_counter_ns

        return make

    for tasks, rate, burst in [(10_000, 10_000, 1), (10_000, 10_000, 100), (1_000, 500, 1)]:
        what = f"{tasks} tasks at {rate}/s burst {burst}, {loop_name}"
        schedule = Policy("two-timeline", rate=f"{rate}/s", mode="average")
        for name, make in [
            ("pyrategate", ours(f"{rate}/s burst {burst}")),
            *([("a schedule", ours(schedule))] if burst == 1 else []),
            ("aiolimiter", theirs(rate, burst)),
        ]:
            if name == "aiolimiter" and loop_name == "uvloop":
                continue
            cpu = time.process_time()
            took, late, inversions, early = run(crowd(make, tasks, rate, burst))
            cpu = time.process_time() - cpu
            print(
                f"{what:46} {name:11} {took:6.3f} of the ideal, half are {late:9.0f} us late or"
                f" less, {inversions} out of order, {early} early, {cpu:.1f} s of processor",
                flush=True,
            )


def added(cost, apps):
    """Return what each application takes more than the first, in rounds that take turns."""
    least = {}
    for _ in range(30):
        gc.collect()
        for name, app in apps.items():
            least[name] = min(cost(app), least.get(name, float("inf")))
    bare, *others = least.values()
    return [other - bare for other in others]


async def asgi_calls(app):
    """Time requests of an application of ASGI."""
    headers = [(b"host", b"example.com"), (b"accept", b"*/*"), (b"user-agent", b"bench")]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "root_path": "",
             "query_string": b"", "scheme": "http", "http_version": "1.1", "headers": headers,
             "client": ("192.0.2.1", 4711), "server": ("192.0.2.2", 80)}

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 200

    begin = time.thread_time_ns()
    for _ in range(300):
        await app(dict(scope), receive, send)
    return (time.thread_time_ns() - begin) / 300


def asgi():
    """Time what a limit of all requests adds to an application of Starlette."""
    from slowapi import Limiter as SlowLimiter
    from slowapi.middleware import SlowAPIASGIMiddleware, SlowAPIMiddleware
    from slowapi.util import get_remote_address
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from pyrategate.asgi import Limits

    async def hello(request):
        return PlainTextResponse("hello")

    def application(*middleware):
        app = Starlette(routes=[Route("/", hello)])
        app.state.limiter = SlowLimiter(
            get_remote_address, default_limits=["1000000000/second"], headers_enabled=True
        )
        for kind in middleware:
            app.add_middleware(kind)
        return app

    apps = {
        "bare": application(),
        "ours": application(Limits("1000000000/s").middleware),
        "theirs for ASGI": application(SlowAPIASGIMiddleware),
        "theirs": application(SlowAPIMiddleware),
    }
    ours, slow, slowest = added(lambda app: asyncio.run(asgi_calls(app)), apps)
    row("ASGI, added to a request", ours, {"slowapi for ASGI": slow, "slowapi": slowest})


def flask():
    """Time what a limit of all requests adds to an application of Flask."""
    from flask import Flask
    from flask_limiter import Limiter as FlaskLimiter
    from flask_limiter.util import get_remote_address
    from werkzeug.test import create_environ

    from pyrategate.flask import Limits

    def application():
        app = Flask("bench")

        @app.get("/")
        def hello():
            return "hello"

        return app

    def start_response(status, headers, info=None):
        assert status.startswith("200")

    def cost(app):
        begin = time.thread_time_ns()
        for _ in range(300):
            app.wsgi_app(dict(environ), start_response)
        return (time.thread_time_ns() - begin) / 300

    environ = create_environ("/", environ_overrides={"REMOTE_ADDR": "192.0.2.1"})
    limited, other = application(), application()
    Limits("1000000000/s", app=limited)
    FlaskLimiter(
        get_remote_address,
        app=other,
        default_limits=["1000000000/second"],
        headers_enabled=True,
        storage_uri="memory://",
    )
    ours, theirs = added(cost, {"bare": application(), "ours": limited, "theirs": other})
    row("Flask, added to a request", ours, {"flask-limiter": theirs})


def busy():
    """Return the share of the machine that others took since it was last called."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:]]
    own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
    total, idle = sum(fields), fields[3] + fields[4]
    last, busy.last = getattr(busy, "last", (total, idle, own)), (total, idle, own)
    passed = max(1, total - last[0])
    return max(0.0, (passed - (idle - last[1]) - (own - last[2])) / passed)


if __name__ == "__main__":
    print("pyrategate", pyrategate.__name__, "on", os.uname().sysname, os.cpu_count(), "cores")
    busy()
    free_permits()
    asyncio.run(awaits())
    shared_limits.run()
    asgi()
    flask()
    crowds("asyncio", asyncio.run)
    try:
        import uvloop

        crowds("uvloop", uvloop.run)
    except ImportError:
        pass
    print(f"others took {busy():.0%} of the machine")
