"""Times limits of several processes over a redis-server, beside other packages."""

import asyncio
import shutil
import socket
import subprocess
import time

from pyrategate import Shared

TASKS = 100
ROUNDS = 5
MANY = 10**9


async def rate_of(call, number):
    """Return the calls of a second that many tasks make at once, in the best round."""
    best = 0.0

    async def work():
        for _ in range(number // TASKS):
            await call()

    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(TASKS)))
        best = max(best, number / (time.perf_counter() - begin))
    return best


def contenders(url):
    """Return the calls of each package, with a number of calls that takes a moment."""
    exact = Shared(url, f"{MANY}/s", name="bench", budget="5s")
    leases = {"mode": "leased", "lease_permits": 100_000, "budget": "5s"}
    leased = Shared(url, f"{MANY}/s", name="bench-leased", **leases)
    for limit in (exact, leased):
        limit.ready()
    yield "ours", lambda: exact.check_async("key"), 50_000
    yield "ours, acquire", lambda: exact.acquire_async("key"), 50_000
    yield "ours, leased", lambda: leased.check_async("key"), 200_000
    try:
        from limits import parse
        from limits.aio.storage import RedisStorage
        from limits.aio.strategies import FixedWindowRateLimiter

        strategy = FixedWindowRateLimiter(
            RedisStorage("async+" + url, implementation="redispy", max_connections=TASKS)
        )
        item = parse(f"{MANY}/second")
        yield "limits", lambda: strategy.hit(item, "key"), 10_000
    except Exception as error:  # noqa: BLE001 - another version has other names
        print("limits:", error)
    try:
        from throttled.asyncio import RateLimiterType, RedisStore, Throttled, rate_limiter

        throttle = Throttled(
            key="key",
            using=RateLimiterType.GCRA.value,
            quota=rate_limiter.per_sec(MANY, burst=MANY),
            store=RedisStore(server=url),
        )
        yield "throttled-py", throttle.limit, 10_000
    except Exception as error:  # noqa: BLE001 - another version has other names
        print("throttled-py:", error)


async def rows(url):
    rates = {}
    for name, call, number in contenders(url):
        rates[name] = await rate_of(call, number)
    ours = rates["ours"]
    for name, rate in rates.items():
        ratio = "" if name == "ours" else f"   {ours / rate:6.2f}x"
        if not name.startswith("ours"):
            ratio += f", leased {rates['ours, leased'] / rate:6.1f}x"
        print(f"Redis, {TASKS} tasks, {name:14} {rate / 1e3:9.1f} thousand calls/s{ratio}", flush=True)


def run():
    """Start a server, and print a row for each package."""
    if shutil.which("redis-server") is None:
        print("Redis: there is no redis-server here")
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        asyncio.run(rows(f"redis://127.0.0.1:{port}"))
    finally:
        server.kill()


if __name__ == "__main__":
    run()
