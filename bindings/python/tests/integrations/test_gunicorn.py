"""A limiter of before the fork, in the workers of gunicorn."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

from serving import get, needs, until

needs("gunicorn")

# It waits before the fork, by a task and by a thread, as a program that warms up does.
APP = """
import asyncio, os, threading
from pyrategate import Limiter

limiter = Limiter("200/s burst 1")

async def wait(count):
    await asyncio.gather(*(limiter.acquire_async() for _ in range(count)))
    return limiter.now_ns

asyncio.run(wait(5))
thread = threading.Thread(target=limiter.acquire)
thread.start()
thread.join()

def app(environ, start_response):
    first = limiter.now_ns
    if environ["PATH_INFO"] == "/task":
        last = asyncio.run(wait(4))
    else:
        for _ in range(4):
            limiter.acquire()
        last = limiter.now_ns
    body = f"{os.getpid()} {last - first} {limiter.waiting}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def test_each_of_four_preloaded_workers_goes_on_from_its_copy(tmp_path):
    (tmp_path / "served.py").write_text(textwrap.dedent(APP))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-B", "-m", "gunicorn", "--preload", "--workers=4"]
    command += ["--log-level=error", f"--bind=127.0.0.1:{port}", "served:app"]
    seen = {}

    def call(path):
        status, _, body = get(port, path)
        assert status == 200
        worker, took_ns, waiting = map(int, body.split())
        # Four permits of a bucket that had one at most.
        assert took_ns >= 15_000_000 and waiting == 0
        seen.setdefault(path, set()).add(worker)

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen(command, cwd=tmp_path) as server, ThreadPoolExecutor(8) as callers:
        try:
            until(listens)
            for path in ("/task", "/thread"):
                while len(seen.get(path, ())) < 4:
                    # Workers that are busy leave the connection to another.
                    list(callers.map(call, [path] * 8))
        finally:
            os.kill(server.pid, signal.SIGTERM)
    assert seen["/task"] == seen["/thread"]
