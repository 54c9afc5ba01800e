"""Limits of Django, on its server of WSGI and on uvicorn."""

import asyncio
import json
import shutil

import pytest

from redis_server import running
from serving import get, needs, threaded, uvicorn_server

needs("django", "uvicorn")

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    ALLOWED_HOSTS=["*"],
    DEBUG=False,
    MIDDLEWARE=[f"{__name__}.middleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
)
django.setup()

from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.test import RequestFactory  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402

from pyrategate import ManualClock, Shared, keys  # noqa: E402
from pyrategate.django import Limits  # noqa: E402

CLOCK = ManualClock()
LIMITS = Limits("5/minute", key=keys.client(networks=["127.0.0.1"]), clock=CLOCK)
middleware = LIMITS.middleware


def index(request):
    return HttpResponse("index")


@LIMITS.limit("2/minute")
def search(request, text):
    return HttpResponse(text)


@LIMITS.limit("1/minute", cost=lambda request: 0 if request.method == "HEAD" else 1)
async def tasks(request):
    return HttpResponse("tasks")


class Class(View):
    @method_decorator(LIMITS.limit("1/minute", name="class"))
    def get(self, request):
        return HttpResponse("class")


urlpatterns = [
    path("", index),
    path("search/<text>", search),
    path("tasks", tasks),
    path("class", Class.as_view()),
]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_line):
        pass


def wsgi():
    server = ThreadedWSGIServer(("127.0.0.1", 0), Quiet)
    server.set_app(WSGIHandler())
    return threaded(server)


@pytest.mark.parametrize("serve", [wsgi, lambda: uvicorn_server(ASGIHandler(), lifespan="off")])
def test_views_and_all_requests_are_limited(serve):
    LIMITS.rule.table.reset("127.0.0.1")
    CLOCK.advance("1h")
    before = LIMITS.refused.get("over-limit", 0)
    with serve() as port:
        status, fields, body = get(port, "/search/a")
        assert (status, body) == (200, b"a")
        assert fields["ratelimit"] == ['"search";r=1;t=30, "default";r=4;t=12']
        assert [get(port, "/search/a")[0] for _ in range(2)] == [200, 429]
        assert [get(port, "/tasks")[0] for _ in range(2)] == [200, 429]
        # Of other requests nothing is left.
        status, fields, body = get(port, "/")
        assert (status, fields["retry-after"]) == (429, ["12"])
        assert json.loads(body)["violated-policies"] == ["default"]
        CLOCK.advance("11s")
        assert get(port)[0] == 429
        CLOCK.advance("1s")
        assert get(port)[0] == 200
        # Another client, as the trusted proxy on this machine reports it.
        other = [("X-Forwarded-For", "6.6.6.6, 192.0.2.1")]
        assert [get(port, "/class", other)[0] for _ in range(2)] == [200, 429]
        assert get(port, "/class", [("X-Forwarded-For", "7.7.7.7, 192.0.2.1")])[0] == 429
    assert LIMITS.refused["over-limit"] - before == 6


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="needs the limit of all requests"):
        Limits().middleware(index)
    with pytest.raises(TypeError, match="method_decorator"):
        search("no request", "a")


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server here")
def test_views_of_threads_and_tasks_count_in_a_store():
    with running() as redis:
        limits = Limits()
        limit = limits.limit(Shared(redis.url, "2/h", budget="2s"))

        @limit
        def in_thread(request):
            return HttpResponse("thread")

        @limit
        async def in_task(request):
            return HttpResponse("task")

        request = RequestFactory().get("/")
        views = [lambda: in_thread(request), lambda: asyncio.run(in_task(request))] * 2
        responses = [view() for view in views]
        assert [response.status_code for response in responses] == [200, 200, 429, 429]
        assert responses[1]["ratelimit"] == '"in_thread";r=0'
        assert limits.refused == {"over-limit": 2}
