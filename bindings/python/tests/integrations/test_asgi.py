"""Limits of applications of ASGI, on a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from serving import get, needs, uvicorn_server

needs("uvicorn", "starlette", "fastapi")

from fastapi import Depends, FastAPI, WebSocket  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.responses import PlainTextResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from pyrategate import Policy, keys  # noqa: E402
from pyrategate.asgi import Limits  # noqa: E402

SECOND = 1_000_000_000


async def hello(_request):
    return PlainTextResponse("hello")


def starlette(limits):
    app = Starlette(routes=[Route("/", hello), Route("/other", hello)])
    app.add_middleware(limits.middleware)
    return app


def test_the_call_at_the_second_of_retry_after_passes_and_none_before(clock):
    limits = Limits("3/minute", clock=clock)
    with uvicorn_server(starlette(limits)) as port:
        for left, more in [(2, 20), (1, 20), (0, 20)]:
            status, fields, body = get(port)
            assert (status, body) == (200, b"hello")
            assert fields["ratelimit-policy"] == ['"default";q=3;w=60']
            assert fields["ratelimit"] == [f'"default";r={left};t={more}']
            assert "retry-after" not in fields
        # Half a second later the exact wait is 19.5 s, which the field rounds up.
        clock.advance("500ms")
        status, fields, body = get(port)
        assert (status, fields["retry-after"]) == (429, ["20"])
        assert fields["ratelimit"] == ['"default";r=0;t=20']
        assert fields["content-type"] == ["application/problem+json"]
        assert json.loads(body) == {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "The limit is reached.",
            "retry_after": 20,
            "retry_after_ms": 19_500,
            "violated-policies": ["default"],
        }
        after = int(fields["retry-after"][0])
        clock.advance(f"{after - 1}s")
        status, fields, _ = get(port)
        assert (status, fields["retry-after"]) == (429, ["1"])
        clock.advance("1s")
        assert get(port)[0] == 200
    assert limits.refused == {"over-limit": 2}


@pytest.mark.parametrize(
    ("limit", "policy", "status"),
    [
        ("10/s burst 20", '"default";q=20;w=2', '"default";r=19;t=1'),
        ("100 per any hour", '"default";q=100;w=3600', '"default";r=99;t=3600'),
        (Policy("fixed-window", permits=5, period="1min"), '"default";q=5;w=60', '"default";r=4;t=60'),
    ],
)
def test_the_fields_are_of_the_policy(clock, limit, policy, status):
    with uvicorn_server(starlette(Limits(limit, clock=clock))) as port:
        _, fields, _ = get(port)
        assert (fields["ratelimit-policy"], fields["ratelimit"]) == ([policy], [status])


def test_a_spoofed_report_changes_nothing_and_a_trusted_one_names_the_client(clock):
    networks = ["10.0.0.0/8"]
    spoofed = Limits("1/h", key=keys.client(networks=networks), clock=clock)
    with uvicorn_server(starlette(spoofed)) as port:
        # The peer is 127.0.0.1, which is no proxy here.
        statuses = [get(port, headers=[("X-Forwarded-For", f"192.0.2.{it}")])[0] for it in range(9)]
        assert statuses == [200] + [429] * 8
    behind = Limits("1/h", key=keys.client(networks=[*networks, "127.0.0.1"]), clock=clock)
    with uvicorn_server(starlette(behind)) as port:
        def status(*lines):
            return get(port, headers=[("X-Forwarded-For", line) for line in lines])[0]

        assert status("6.6.6.6, 192.0.2.1") == 200
        assert status("7.7.7.7, 192.0.2.1") == 429
        assert status("8.8.8.8", "192.0.2.1, 10.0.0.2") == 429
        assert status("192.0.2.2") == 200
        # One subscriber has all addresses of a /64.
        assert [status(f"2001:db8:1:2::{it:x}") for it in range(1, 9)] == [200] + [429] * 7
        assert status("2001:db8:1:3::1") == 200
        # A header of ten thousand hops fits into no server's bound but a large one.
        assert status("6.6.6.6," * 7_000 + "192.0.2.3") == 200
        assert status("6.6.6.7," * 7_000 + "192.0.2.3") == 429


def test_keys_that_lack_or_come_twice_are_handled_as_configured(clock, caplog):
    key = keys.header("x-api-key")
    for missing, without, twice in [(None, 200, 400), ("share", 200, 200), ("refuse", 400, 400),
                                    ("pass", 200, 200)]:
        limits = Limits("2/h", key=key, missing=missing, clock=clock)
        with uvicorn_server(starlette(limits)) as port:
            both = [("x-api-key", "a"), ("x-api-key", "b")]
            assert get(port)[0] == without
            assert get(port, headers=both)[0] == twice
            # Those without a key share two an hour, unless they pass or are refused.
            last = {None: 200, "share": 429, "refuse": 400, "pass": 200}[missing]
            assert get(port)[0] == last
            assert get(port, headers=[("x-api-key", "a")])[0] == 200


def call(app, scope):
    """Call an application without a server. Return what it sent."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    asyncio.run(app(scope, receive, send))
    return sent


async def plain(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_missing_client_address_is_an_error_of_the_server_and_logged_once(clock, caplog):
    limits = Limits("1/h", clock=clock)
    app = limits.middleware(plain)
    for client in (None, ("", 0)):
        scope = {"type": "http", "client": client, "headers": []}
        assert call(app, scope)[0]["status"] == 500
    assert limits.refused == {"key-not-provided": 2}
    assert len(caplog.records) == 1 and "peer's address" in caplog.text
    shared = Limits("1/h", missing="share", clock=clock).middleware(plain)
    assert [call(shared, {"type": "http"})[0]["status"] for _ in range(2)] == [204, 429]


def test_keyed_state_is_bounded_and_a_full_table_refuses_or_shares_without_a_wait(clock):
    scope = lambda it: {"type": "http", "client": (f"10.0.{it // 256}.{it % 256}", 1)}  # noqa: E731
    refusing = Limits("1/h", max_keys=64, when_full="refuse", clock=clock)
    app = refusing.middleware(plain)
    begin = time.monotonic()
    statuses = [call(app, scope(it))[0]["status"] for it in range(500)]
    assert time.monotonic() - begin < 60
    assert set(statuses) == {204, 503}
    assert refusing.refused["too-many-keys"] == refusing.rule.table.overflows > 0
    assert len(refusing.rule.table) <= 500 - refusing.refused["too-many-keys"]
    sharing = Limits("1/h", max_keys=64, clock=clock)
    app = sharing.middleware(plain)
    assert {call(app, scope(it))[0]["status"] for it in range(500)} == {204, 429}
    assert sharing.rule.table.overflows > 0


def test_a_request_of_another_cost_takes_so_much_and_one_of_none_nothing(clock):
    cost = lambda scope: {"/": 2, "/other": 0, "/big": 9}[scope["path"]]  # noqa: E731
    limits = Limits("5/h", cost=cost, clock=clock)
    with uvicorn_server(starlette(limits)) as port:
        assert [get(port)[0] for _ in range(3)] == [200, 200, 429]
        assert "ratelimit" not in get(port, "/other")[1]
        status, fields, body = get(port, "/big")
        assert status == 400 and "retry-after" not in fields
        assert json.loads(body)["detail"].startswith("The request costs more")
    assert limits.refused == {"over-limit": 1, "too-costly": 1}


def test_a_cost_that_is_no_number_of_permits_is_an_error_of_the_application(clock):
    for cost, kind in [(-1, ValueError), (1.5, TypeError), (None, TypeError)]:
        app = Limits("5/h", cost=lambda _scope, cost=cost: cost, clock=clock).middleware(plain)
        with pytest.raises(kind, match=f"cost= returns .* not {cost}"):
            call(app, {"type": "http", "client": ("10.0.0.1", 1), "headers": []})


def test_what_fastapi_refuses_by_itself_is_counted_by_depends_and_not_by_a_decorator(clock):
    limits = Limits(clock=clock)
    app = FastAPI()
    app.add_middleware(limits.middleware)

    @app.get("/decorated")
    @limits.limit("1/h")
    async def decorated(number: int):
        return number

    @app.get("/depends", dependencies=[Depends(limits.depends("1/h", name="b"))])
    async def depends(number: int):
        return number

    with uvicorn_server(app) as port:
        statuses = {
            path: [get(port, f"{path}?number={given}")[0] for given in ("x", "x", "1")]
            for path in ("/decorated", "/depends")
        }
    assert statuses == {"/decorated": [422, 422, 200], "/depends": [422, 429, 429]}


def test_fastapi_needs_no_request_parameter(clock):
    limits = Limits("100/minute", clock=clock)
    app = FastAPI()
    app.add_middleware(limits.middleware)

    @app.get("/search")
    @limits.limit("2/minute")
    async def search(text: str, number: int = 3):
        return {"text": text, "number": number}

    @app.get("/threads")
    @limits.limit("1/minute", name="by threads")
    def by_threads():
        return threading.current_thread().name

    @app.get("/report", dependencies=[Depends(limits.depends("1 per 10 seconds", name="report"))])
    def report():
        return "a report"

    @app.get("/boom")
    async def boom():
        raise RuntimeError("boom")

    with uvicorn_server(app, log_level="critical") as port:
        status, fields, body = get(port, "/search?text=a&number=4")
        assert (status, json.loads(body)) == (200, {"text": "a", "number": 4})
        assert fields["ratelimit-policy"] == ['"default";q=100;w=60', '"search";q=2;w=60']
        assert fields["ratelimit"] == ['"default";r=99;t=1', '"search";r=1;t=30']
        # What the framework refuses itself does not count.
        assert get(port, "/search?text=a&number=x")[0] == 422
        assert get(port, "/search?text=a")[0] == 200
        status, fields, body = get(port, "/search?text=a")
        assert (status, fields["retry-after"]) == (429, ["30"])
        assert json.loads(body)["violated-policies"] == ["search"]
        # The limit of all requests is told as well.
        assert fields["ratelimit"] == ['"search";r=0;t=30', '"default";r=96;t=1']
        assert [get(port, "/threads")[0] for _ in range(2)] == [200, 429]
        assert [get(port, "/report")[0] for _ in range(2)] == [200, 429]
        assert get(port, "/report")[1]["retry-after"] == ["10"]
        clock.advance("29s")
        assert get(port, "/search?text=a")[0] == 429
        clock.advance("1s")
        assert get(port, "/search?text=a")[0] == 200
        assert get(port, "/boom")[0] == 500


def test_a_websocket_over_the_limit_is_refused_before_it_is_accepted(clock):
    limits = Limits("1/h", clock=clock)

    async def app(scope, receive, send):
        await send({"type": "websocket.accept"})

    app = limits.middleware(app)
    scope = {"type": "websocket", "client": ("10.0.0.1", 1), "headers": []}
    (accepted,) = call(app, scope)
    assert dict(accepted["headers"])[b"ratelimit"].startswith(b'"default";r=0')
    assert call(app, scope)[0]["type"] == "websocket.close"
    scope["extensions"] = {"websocket.http.response": {}}
    start, body = call(app, scope)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert dict(start["headers"])[b"retry-after"] == b"3600"


def test_a_websocket_of_a_real_server_gets_a_429(clock):
    needs("websockets")
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    app = FastAPI()
    limits = Limits("1/h", clock=clock)
    app.add_middleware(limits.middleware)

    @app.websocket("/")
    async def echo(socket: WebSocket):
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    with uvicorn_server(app) as port:
        with connect(f"ws://127.0.0.1:{port}/") as socket:
            assert socket.recv() == "hello"
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{port}/")
        assert refused.value.response.status_code == 429
        assert refused.value.response.headers["retry-after"] == "3600"


def test_a_lifespan_passes(clock):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    call(Limits("1/h", clock=clock).middleware(app), {"type": "lifespan"})
    assert seen == ["lifespan"]


def test_a_function_of_a_mounted_application_is_refused_as_any_other(clock):
    limits = Limits(clock=clock)
    mounted, app = FastAPI(), FastAPI()
    app.add_middleware(limits.middleware)

    @mounted.get("/limited")
    @limits.limit("1/minute")
    async def limited():
        return "hello"

    @mounted.get("/boom")
    async def boom():
        raise RuntimeError("boom")

    starlette = Starlette(routes=[Route("/limited", limits.limit("1/minute", name="own")(hello))])
    app.mount("/fastapi", mounted)
    app.mount("/starlette", starlette)
    with uvicorn_server(app, log_level="critical") as port:
        for path in ["/fastapi/limited", "/starlette/limited"]:
            assert get(port, path)[0] == 200
            status, fields, body = get(port, path)
            assert (status, fields["retry-after"]) == (429, ["60"])
            assert json.loads(body)["title"] == "Quota Exceeded"
        # Its own errors stay what they are.
        assert get(port, "/fastapi/boom")[0] == 500


def test_a_refusal_after_the_response_began_is_an_error_of_the_application(clock):
    limits = Limits(clock=clock)

    @limits.limit("1/h")
    async def part():
        pass

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await part()

    app = limits.middleware(app)
    scope = {"type": "http", "client": ("10.0.0.1", 1)}
    call(app, scope)
    from pyrategate.server import Refusal

    with pytest.raises(Refusal, match="'part' refuses a request: The limit is reached"):
        call(app, scope)


def test_a_decorated_function_outside_of_a_request_is_an_error_and_takes_nothing(clock):
    limits = Limits(clock=clock)

    @limits.limit("1/h")
    def part():
        pass

    with pytest.raises(LookupError, match="'part' is not within a request"):
        part()


def test_a_request_ends_with_its_response(clock):
    limits = Limits(clock=clock)

    @limits.limit("1/h")
    async def part():
        pass

    async def send(_message):
        pass

    async def main():
        await limits.middleware(plain)({"type": "http", "client": ("10.0.0.1", 1)}, None, send)
        with pytest.raises(LookupError):
            await part()

    asyncio.run(main())


def test_each_refusal_reaches_the_hook_with_the_clients_key(clock):
    seen = []
    limits = Limits("1/h", on_refused=seen.append, clock=clock)
    with uvicorn_server(starlette(limits)) as port:
        get(port), get(port)
    (refusal,) = seen
    assert (refusal.reason, refusal.key, refusal.policy) == ("over-limit", "127.0.0.1", "default")
    assert refusal.retry_after_ns == 3600 * SECOND


def test_ten_tasks_at_once_get_no_more_than_the_limit(clock):
    limits = Limits("5/h", clock=clock)
    app = limits.middleware(plain)
    statuses = []

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def all_at_once():
        scope = {"type": "http", "client": ("10.0.0.1", 1)}
        await asyncio.gather(*(app(dict(scope), None, send) for _ in range(50)))

    asyncio.run(all_at_once())
    assert sorted(statuses) == [204] * 5 + [429] * 45


def test_wrong_arguments_are_refused(clock):
    for call_it, kind, fault in [
        (lambda: Limits("5"), ValueError, "5"),
        (lambda: Limits("1/h; 2/h"), ValueError, "one policy"),
        (lambda: Limits(Policy("concurrency", permits=8)), ValueError, "by time alone"),
        (lambda: Limits("1/h", key="ip"), TypeError, "pyrategate.keys"),
        (lambda: Limits("1/h", missing="ignore"), ValueError, "missing is"),
        (lambda: Limits("1/h", name="é"), ValueError, "printable ASCII"),
        (lambda: Limits("1/h", name="a\r\nSet-Cookie: b"), ValueError, "printable ASCII"),
        (lambda: Limits("1/h", name="x" * 129), ValueError, "1 to 128"),
        (lambda: Limits("1/h", when_full="drop"), ValueError, "when_full"),
        (lambda: Limits().middleware(None), TypeError, "ASGI"),
        (lambda: Limits("1/h", cost=5), TypeError, "cost= is a function, not 5"),
        (lambda: Limits("1/h", on_refused=3), TypeError, "on_refused= is a function, not 3"),
        (lambda: Limits().limit(plain), TypeError, r"as in limit\('5/minute'\)"),
        (lambda: Limits().limit(5), TypeError, "5"),
        (lambda: Limits().limit("5"), ValueError, "5"),
        (lambda: Limits().limit("5/s", cost=1), TypeError, "cost="),
        (lambda: Limits().limit("5/s")(5), TypeError, "decorates a function, not 5"),
    ]:
        with pytest.raises(kind, match=fault):
            call_it()
    assert Limits("1/h", name='q";q=9\\').rule.policy.item == '"q\\";q=9\\\\";q=1;w=3600'
