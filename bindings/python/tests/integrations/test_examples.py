"""The examples, each with a real server or client."""

import importlib
import os
import subprocess
import sys

import pytest

from serving import get, needs, scripted, uvicorn_server, wsgi_server

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_the_service_of_fastapi_limits_its_clients(example):
    needs("fastapi", "uvicorn")
    with uvicorn_server(example("fastapi_app").app) as port:
        assert [get(port, "/search")[0] for _ in range(6)] == [200] * 5 + [429]
        assert get(port, "/report")[2] == b'{"refused":{"over-limit":1}}'
        assert get(port, "/report")[0] == 429


@pytest.mark.parametrize(
    ("name", "path", "package"),
    [
        ("wsgi_app", "/", "werkzeug"),
        ("flask_app", "/search", "flask"),
    ],
)
def test_a_service_of_wsgi_limits_its_clients(example, name, path, package):
    needs("werkzeug", package)
    with wsgi_server(example(name).app) as port:
        assert [get(port, path)[0] for _ in range(6)] == [200] * 5 + [429]


OF_DJANGO = """
from django_app import app
from serving import get, wsgi_server

with wsgi_server(app) as port:
    assert [get(port, "/search")[0] for _ in range(6)] == [200] * 5 + [429]
"""


def test_the_service_of_django_limits_its_clients():
    needs("django", "werkzeug")
    # Django has settings once in a process, which may be those of another test.
    path = os.pathsep.join([EXAMPLES, os.path.dirname(__file__)])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-B", "-c", OF_DJANGO], check=True, env=environment)


@pytest.mark.parametrize(
    ("name", "package"),
    [("httpx_client", "httpx"), ("requests_client", "requests"), ("aiohttp_client", "aiohttp")],
)
def test_a_client_keeps_below_its_limit(example, name, package):
    needs(package)
    with scripted() as (url, script):
        assert list(example(name).main(url)) == [200] * 3
    assert len(script.came_ns) == 3


def test_openais_client_gets_its_reply(example):
    needs("openai", "httpx2")
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."},
              "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [choice], "usage": {"total_tokens": 12}}
    with scripted((200, {"content-type": "application/json"}, body)) as (url, _):
        assert example("openai_client").main(f"{url}/v1") == "Hello."


def test_langchains_model_gets_its_replies(example):
    needs("langchain_core")
    assert example("langchain_model").main() == ["hello"] * 3
