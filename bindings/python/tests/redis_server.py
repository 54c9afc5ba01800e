"""A real redis-server that tests start, stop and kill."""

import socket
import subprocess
import time
from contextlib import contextmanager


class Server:
    """A redis-server on a free port, without a file."""

    def __init__(self, *options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.options = options
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--save", "", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.01)
        raise AssertionError("redis-server does not start")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, *words):
        """Send a command, and return the reply as it comes."""
        parts = [word if isinstance(word, bytes) else word.encode() for word in words]
        text = b"*%d\r\n" % len(parts)
        text += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(text)
            return connection.recv(65536)


@contextmanager
def running(*options):
    server = Server(*options)
    try:
        yield server
    finally:
        server.kill()
