"""Servers of several processes behind one limit, over a real redis-server."""

import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from redis_server import running
from serving import get, needs, uvicorn_server, wsgi_server

needs("uvicorn", "starlette", "fastapi", "flask")

from fastapi import Depends, FastAPI  # noqa: E402
from flask import Flask  # noqa: E402

from pyrategate import Shared, asgi, flask, wsgi  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="there is no redis-server here"
)

# Longer than any delay of a busy machine, where a reply is wanted.
BUDGET = "2s"


def fastapi(limits, view_limit):
    app = FastAPI()
    app.add_middleware(limits.middleware)

    @app.get("/")
    async def index():
        return "index"

    @app.get("/task")
    @limits.limit(view_limit)
    async def task():
        return "task"

    @app.get("/thread")
    @limits.limit(view_limit)
    def thread():
        return "thread"

    @app.get("/depends", dependencies=[Depends(limits.depends(view_limit))])
    def depends():
        return "depends"

    return app


def test_processes_keep_one_limit_and_say_when_the_next_request_passes():
    source = textwrap.dedent(
        """
        import sys
        from pyrategate import Shared, keys
        from pyrategate.asgi import Limits
        from serving import uvicorn_server
        from test_shared_servers import BUDGET, fastapi

        url, = sys.argv[1:]
        key = keys.header("x-user")
        limits = Limits(Shared(url, "6 per any hour", budget=BUDGET), key=key)
        with uvicorn_server(fastapi(limits, "1000/s")) as port:
            print(port, flush=True)
            input()
        """
    )
    with running() as redis, ExitStack() as processes:
        ports = []
        for _ in range(2):
            process = processes.enter_context(
                subprocess.Popen(
                    [sys.executable, "-B", "-c", source, redis.url],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=Path(__file__).parent,
                    env={"PYTHONPATH": ".:.."},
                )
            )
            processes.callback(process.kill)
            ports.append(int(process.stdout.readline()))
        seen = [get(ports[at % 2], headers=[("x-user", "ann")]) for at in range(10)]
        assert [status for status, _, _ in seen] == [200] * 6 + [429] * 4
        assert [fields["ratelimit"] for _, fields, _ in seen[:6]] == [
            [f'"default";r={left}'] for left in range(5, -1, -1)
        ]
        assert {*seen[0][1]["ratelimit-policy"]} == {'"default";q=6;w=3600'}
        _, refused, body = seen[-1]
        assert 3500 < int(refused["retry-after"][0]) <= 3600
        assert refused["ratelimit"] == [f'"default";r=0;t={refused["retry-after"][0]}']
        assert b"quota-exceeded" in body
        # Another client has a limit of its own, and so have those without a name together.
        assert get(ports[0], headers=[("x-user", "bob")])[0] == 200
        anonymous = [get(port)[0] for port in ports * 4]
        assert anonymous == [200] * 6 + [429] * 2


def test_each_kind_of_view_counts_in_the_store():
    with running() as redis:
        limits = asgi.Limits()
        shared = Shared(redis.url, "3/h", budget=BUDGET)
        with uvicorn_server(fastapi(limits, shared)) as port:
            views = ["/task", "/thread", "/depends"]
            assert [get(port, view)[0] for view in views] == [200] * 3
            assert [get(port, view)[0] for view in views] == [429] * 3
        assert shared.counts["store"] == (3, 3)
        assert limits.refused == {"over-limit": 3}


def test_a_store_that_stops_keeps_no_other_request_waiting():
    with running() as redis:
        shared = Shared(redis.url, "1000/s", budget="10s")
        limits = asgi.Limits()
        with uvicorn_server(fastapi(limits, shared)) as port:
            assert get(port, "/task")[0] == 200
            redis.process.send_signal(signal.SIGSTOP)
            try:
                waiting = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)",
                        f"http://127.0.0.1:{port}/task",
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for _ in range(20):
                    time.sleep(0.05)
                    assert get(port)[0] == 200
                assert waiting.poll() is None
            finally:
                redis.process.send_signal(signal.SIGCONT)
            assert waiting.communicate(timeout=30)[0] == "200\n"


@pytest.mark.parametrize(
    ("options", "statuses"),
    [
        ({"when_gone": "deny"}, [503] * 3),
        ({"when_gone": "allow"}, [200] * 3),
    ],
)
def test_without_its_store_a_limit_is_undecided_or_passes_as_it_was_told(options, statuses):
    reports = []
    with running() as redis:
        shared = Shared(redis.url, "2/h", budget="200ms", **options)
        limits = asgi.Limits(shared, on_refused=reports.append)
        with uvicorn_server(fastapi(limits, "1000/s")) as port:
            assert get(port)[0] == 200
            redis.kill()
            seen = [get(port) for _ in range(3)]
            assert [status for status, _, _ in seen] == statuses
            # What is left is not known.
            assert not any("ratelimit" in fields for _, fields, _ in seen)
            if options["when_gone"] == "deny":
                assert b"The limit cannot be decided now." in seen[0][2]
                assert limits.refused == {"undecided": 3}
                assert [report.reason for report in reports] == ["undecided"] * 3
                assert all(int(fields["retry-after"][0]) >= 1 for _, fields, _ in seen[1:])


def test_a_process_keeps_its_part_while_the_store_is_gone():
    with running() as redis:
        shared = Shared(redis.url, "4/s", budget="200ms", when_gone="local", processes=4)
        limits = asgi.Limits(shared)
        with uvicorn_server(fastapi(limits, "1000/s")) as port:
            assert get(port)[0] == 200
            redis.kill()
            begin, seen = time.monotonic(), []
            # Nothing is decided while what the store has granted may still count.
            while {*seen} < {200, 429, 503} and time.monotonic() < begin + 20:
                seen.append(get(port)[0])
            assert {*seen} == {200, 429, 503}
            assert seen.count(200) <= 1 + (time.monotonic() - begin)


def test_flask_and_any_application_of_wsgi_block_their_thread_alone():
    with running() as redis:

        def shared():
            return Shared(redis.url, "4/h", budget=BUDGET)

        app = Flask("test")
        limits = flask.Limits(shared(), app=app)

        @app.get("/")
        def index():
            return "index"

        @app.get("/view")
        @limits.limit(Shared(redis.url, "1/h", budget=BUDGET))
        def view():
            return "view"

        with pytest.warns(RuntimeWarning, match="counts together"):
            other = wsgi.Limits(shared())

        @other.middleware
        def plain(_environ, start_response):
            start_response("200 OK", [("content-length", "0")])
            return [b""]

        with wsgi_server(app) as port, wsgi_server(plain) as other_port:
            assert [get(port, "/view")[0] for _ in range(2)] == [200, 429]
            assert [get(one)[0] for one in [port, other_port] * 2] == [200, 200, 429, 429]


def test_a_limit_of_several_policies_is_refused():
    limit = Shared("redis://127.0.0.1:1", ["5/s", "100/h"])
    with pytest.raises(ValueError, match="one policy, not 2"):
        asgi.Limits(limit)
