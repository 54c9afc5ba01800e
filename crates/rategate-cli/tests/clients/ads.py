"""A control plane: envoyproxy/ratelimit's aggregated stream, by grpcio and by hand-written messages.

Arguments: a port, or 0, and the files of a certificate, its key and the clients' authority for TLS.
Each line of stdin is a configuration to send, as JSON: {"version": "1", "domains": [...]}; a domain is
{"domain": "d", "descriptors": [{"key": "k", "unit": 2, "requests": 5}]}. Each request that arrives is a
line of stdout.
"""

import json
import queue
import sys
import threading
from concurrent import futures

import grpc

TYPE = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
METHOD = "StreamAggregatedResources"
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The fields of a message: numbers, and integers or bytes."""
    at, found = 0, []

    def read():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = read()
        if key & 7 == 0:
            found.append((key >> 3, read()))
        else:
            length = read()
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def first(message, number, default=b""):
    return next((value for known, value in fields(message) if known == number), default)


def config(domain):
    out = field(1, domain["domain"]) + field(2, domain["domain"])
    for descriptor in domain["descriptors"]:
        limit = field(2, descriptor["requests"])
        if "unit" in descriptor:
            limit += field(1, descriptor["unit"])
        out += field(3, field(1, descriptor["key"]) + field(3, limit))
    return out


def response(wanted):
    out = field(1, wanted["version"])
    for domain in wanted["domains"]:
        out += field(2, field(1, TYPE) + field(2, config(domain)))
    return out + field(4, TYPE) + field(5, "nonce-" + wanted["version"])


state = {"latest": None, "streams": []}
lock = threading.Lock()


def say(**line):
    print(json.dumps(line), flush=True)


def stream(requests, context):
    own = queue.Queue()
    with lock:
        state["streams"].append(own)
        if state["latest"]:
            own.put(state["latest"])

    def read():
        try:
            for request in requests:
                error = first(request, 6)
                say(
                    node=first(first(request, 2), 1).decode(),
                    type=first(request, 4).decode(),
                    version=first(request, 1).decode(),
                    nonce=first(request, 5).decode(),
                    error=first(error, 2).decode() if error else "",
                )
        except grpc.RpcError:
            pass
        own.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        wanted = own.get()
        if wanted is None:
            return
        yield response(wanted)


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    # Raw bytes: the messages above.
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    address, files = f"127.0.0.1:{sys.argv[1]}", sys.argv[2:]
    if files:
        cert, key, authority = (open(name, "rb").read() for name in files)
        credentials = grpc.ssl_server_credentials(
            [(key, cert)], root_certificates=authority, require_client_auth=True
        )
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    server.start()
    say(port=port)
    for line in sys.stdin:
        wanted = json.loads(line)
        with lock:
            state["latest"] = wanted
            for own in state["streams"]:
                own.put(wanted)
    server.stop(None)


main()
