"""The health of a gRPC service over TLS: `address authority [cert key]`. Prints the status, or the code."""

import sys

import grpc

address, authority, *own = sys.argv[1:]
read = lambda name: open(name, "rb").read()
cert, key = (read(own[0]), read(own[1])) if own else (None, None)
credentials = grpc.ssl_channel_credentials(read(authority), key, cert)
options = [("grpc.ssl_target_name_override", "envoy-ratelimit")]
with grpc.secure_channel(address, credentials, options) as channel:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    try:
        print(list(check(b"", timeout=20)))
    except grpc.RpcError as error:
        print(error.code().name)
