"""Clients that keep below a limit and follow a real server, by each library."""

import asyncio
import threading
import time

import pytest

from serving import needs, scripted

needs("httpx", "requests", "aiohttp")

import aiohttp  # noqa: E402
import httpx  # noqa: E402
import requests  # noqa: E402

from pyrategate import Limiter, TooLong  # noqa: E402
from pyrategate.aiohttp import Middleware  # noqa: E402
from pyrategate.httpx import AsyncTransport, Transport  # noqa: E402
from pyrategate.pace import Pace  # noqa: E402
from pyrategate.requests import Adapter  # noqa: E402

SECOND = 1_000_000_000
MS = 1_000_000


def by_httpx(pace, url, number):
    with httpx.Client(transport=Transport(pace)) as client:
        for _ in range(number):
            yield client.get(url).status_code


def by_requests(pace, url, number):
    with requests.Session() as session:
        session.mount(url, Adapter(pace))
        for _ in range(number):
            yield session.get(url).status_code


def in_a_loop(one):
    def run(pace, url, number):
        async def main():
            return [status async for status in one(pace, url, number)]

        yield from asyncio.run(main())

    return run


@in_a_loop
async def by_async_httpx(pace, url, number):
    async with httpx.AsyncClient(transport=AsyncTransport(pace)) as client:
        for _ in range(number):
            yield (await client.get(url)).status_code


@in_a_loop
async def by_aiohttp(pace, url, number):
    async with aiohttp.ClientSession(middlewares=(Middleware(pace),)) as session:
        for _ in range(number):
            async with session.get(url) as response:
                yield response.status


CLIENTS = pytest.mark.parametrize("client", [by_httpx, by_async_httpx, by_requests, by_aiohttp])


@CLIENTS
def test_after_a_refusal_nothing_is_sent_before_the_time_that_it_names(client):
    refusal = (429, {"Retry-After": "1"}, b"")
    with scripted(refusal) as (url, script):
        # By default each hold is up to a fifth longer.
        assert list(client(Pace(), url, 3)) == [429, 200, 200]
    refused_ns, second_ns, third_ns = script.came_ns
    assert second_ns - refused_ns >= SECOND
    assert third_ns - second_ns < SECOND


@CLIENTS
@pytest.mark.parametrize(
    "fields",
    [
        {"RateLimit": '"default";r=0;t=1'},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
    ],
)
def test_when_nothing_remains_nothing_is_sent_before_the_reset(client, fields):
    with scripted((200, fields, b"")) as (url, script):
        assert list(client(Pace(jitter=0), url, 2)) == [200, 200]
    first_ns, second_ns = script.came_ns
    assert second_ns - first_ns >= SECOND


@CLIENTS
def test_calls_keep_below_the_limit(client):
    with scripted() as (url, script):
        assert set(client(Limiter("20/s burst 1"), url, 6)) == {200}
    # The starts are 50 ms apart. What arrives may be later by what the network takes.
    assert script.came_ns[-1] - script.came_ns[0] >= 200 * MS


@CLIENTS
def test_a_refused_wait_is_an_error_and_sends_nothing(client):
    with scripted((503, {"Retry-After": "60"}, b"")) as (url, script):
        with pytest.raises(TooLong, match="would wait for"):
            list(client(Pace(max_wait="1s"), url, 2))
    assert len(script.came_ns) == 1


def test_tasks_and_threads_share_a_pace_and_send_no_more_than_remains():
    pace = Pace(spreads=False, jitter=0)
    first = (200, {"RateLimit": '"p";r=4;t=1', "RateLimit-Policy": '"p";q=5;w=1'}, b"")
    with scripted(first) as (url, script):
        assert list(by_httpx(pace, url, 1)) == [200]
        thread = threading.Thread(target=lambda: list(by_requests(pace, url, 3)))
        thread.start()

        async def main():
            async with httpx.AsyncClient(transport=AsyncTransport(pace)) as client:
                await asyncio.gather(*(client.get(url) for _ in range(3)))

        asyncio.run(main())
        thread.join()
    # Four of the six at once, and the rest after the reset.
    assert len(script.came_ns) == 7
    late = [it for it in script.came_ns if it - script.came_ns[0] >= SECOND]
    assert len(late) == 2


def test_a_failed_connection_is_raised_as_it_is_and_holds_nothing():
    pace = Pace()
    with pytest.raises(httpx.ConnectError):
        list(by_httpx(pace, "http://127.0.0.1:1", 1))
    with pytest.raises(requests.ConnectionError):
        list(by_requests(pace, "http://127.0.0.1:1", 1))
    with pytest.raises(aiohttp.ClientConnectionError):
        list(by_aiohttp(pace, "http://127.0.0.1:1", 1))
    with scripted() as (url, _):
        begin = time.monotonic()
        assert list(by_httpx(pace, url, 2)) == [200, 200]
        assert time.monotonic() - begin < 20
