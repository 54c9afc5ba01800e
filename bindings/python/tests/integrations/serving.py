"""Servers on the loopback for tests, and a plain client that says exactly what it is told."""

import contextlib
import http.client
import importlib
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def needs(*names):
    """Skip the module without these packages, unless all are promised to be there."""
    for name in names:
        if os.environ.get("RATEGATE_INTEGRATIONS"):
            importlib.import_module(name)
        else:
            pytest.importorskip(name)


def get(port, path="/", headers=(), method="GET"):
    """Send a request. Return its status, its header fields as lists by name, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        fields = {}
        for name, value in response.getheaders():
            fields.setdefault(name.lower(), []).append(value)
        return response.status, fields, response.read()


def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.005)


@contextlib.contextmanager
def uvicorn_server(app, **options):
    """Serve an application of ASGI. Yields the port."""
    import uvicorn

    options = {"proxy_headers": False, "log_level": "warning", **options}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def threaded(server):
    """Run a server of the standard library, or one made as those. Yields the port."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def wsgi_server(app):
    """Serve an application of WSGI by werkzeug. Yields the port."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_line):
            pass

    with threaded(make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)) as port:
        yield port


class Script:
    """The answers of a server, in their order, and when each request came."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.came_ns = []
        self.bodies = []
        self.lock = threading.Lock()

    def answer(self, body):
        with self.lock:
            self.came_ns.append(time.monotonic_ns())
            self.bodies.append(body)
            return self.answers.pop(0) if self.answers else (200, {}, b"")


@contextlib.contextmanager
def scripted(*answers):
    """Serve answers of a status, fields and a body; then 200. Yields the address and the script."""
    script = Script(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, fields, body = script.answer(sent)
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
            self.send_response(status)
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_line):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with threaded(server) as port:
        yield f"http://127.0.0.1:{port}", script
