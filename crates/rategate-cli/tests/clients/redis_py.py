"""redis-py against a service: `redis_py.py PORT TOKEN`, with the token to send, or an empty one. Ends with a line `ok`."""

import sys

import redis


def main(port: int, token: str) -> None:
    for protocol in (2, 3):
        client = redis.Redis(
            host="127.0.0.1", port=port, protocol=protocol, password=token or None, client_name="guide"
        )
        assert client.ping() is True
        key = f"py-{protocol}-\0\r\n".encode() + b"\xff"
        throttle = ("CL.THROTTLE", key, 4, 5, 60)
        first = client.execute_command(*throttle)
        assert first == [0, 5, 4, -1, 12], first

        # Six in one write: four permits are left, and the first denial waits for one of five a minute.
        pipeline = client.pipeline(transaction=False)
        for _ in range(6):
            pipeline.execute_command(*throttle)
        replies = pipeline.execute()
        assert [reply[0] for reply in replies] == [0, 0, 0, 0, 1, 1], replies
        assert [reply[2] for reply in replies] == [3, 2, 1, 0, 0, 0], replies
        assert 1 <= replies[4][3] <= 12, replies

        # An error is one reply: the connection stays usable.
        try:
            client.execute_command("CL.THROTTLE", key, "many", 5, 60)
            raise AssertionError("not an integer")
        except redis.ResponseError:
            pass
        assert client.echo("still here") == b"still here"

        # A new connection uses the same counters.
        client.connection_pool.disconnect()
        assert client.execute_command(*throttle)[0] == 1
        assert client.execute_command("THROTTLE", key, 3, 10, 60)[:3] == [1, 3, 2]
        client.close()
    print("ok")


main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
