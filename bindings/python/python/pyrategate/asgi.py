"""Limits for any application of ASGI: Starlette, FastAPI, Litestar, Quart, Django.

>>> limits = Limits("100/minute")
>>> async def app(scope, receive, send):
...     await send({"type": "http.response.start", "status": 204, "headers": []})
...     await send({"type": "http.response.body", "body": b""})
>>> app = limits.middleware(app)

With FastAPI::

    app = FastAPI()
    app.add_middleware(limits.middleware)

    @app.get("/search")
    @limits.limit("5/minute")
    async def search(text: str): ...

    @app.get("/report", dependencies=[Depends(limits.depends("1 per 10 seconds"))])
    def report(): ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from . import keys, server
from ._fields import Statuses, lines_as_bytes
from ._shared import Shared
from ._types import Limit

__all__ = ["Limits"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Head(keys.Head):
    """The head of a scope, which is read only as far as a source needs it."""

    __slots__ = ()

    def __init__(self, scope: Scope) -> None:
        client = scope.get("client")
        self.peer = client[0] if client else None
        self.raw = scope
        self.refusal = None
        self.statuses = ()

    def lines(self, name: str) -> list[str]:
        wanted = name.encode()
        # Servers send names in lower case, and the specification wants it.
        headers = self.raw.get("headers", ())
        return [value.decode("latin-1") for key, value in headers if key == wanted]


class Limits(server.Limits):
    """The limits of an application of ASGI. A function of `keys.by`, and ``cost``, gets the scope.

    A request over the limit gets a 429 with ``Retry-After`` and a problem as its body, before the
    application sees it. Responses of others have the ``RateLimit`` fields. A WebSocket over the
    limit is refused before it is accepted: with a 429 where the server can send one, else as the
    server does. No decision blocks the event loop: the reply of a store is awaited.

    A server that replaces the client's address by what a header says, as uvicorn does by default
    for proxies on the same machine, has to trust the same proxies as the key's source. Let one of
    the two do it.
    """

    def middleware(self, app: App) -> App:
        """Return the application behind these limits, and those of its decorated functions."""
        if not callable(app):
            raise TypeError(f"an application of ASGI can be called, not {app!r}")
        rule, serving = self.rule, server.serving

        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            kind = scope["type"]
            if kind != "http" and kind != "websocket":
                return await app(scope, receive, send)
            head = _Head(scope)
            has_started = is_replaced = False

            # No coroutine of its own: it would cost as much as the decision.
            def send_with_fields(message: Message) -> Awaitable[None]:
                nonlocal has_started, is_replaced
                kind = message["type"]
                if is_replaced:
                    return _nothing()
                if kind == "http.response.start" or kind == "websocket.accept":
                    if head.refusal is not None and message.get("status", 0) >= 500:
                        # An application that is mounted in this one takes it for an error.
                        is_replaced = True
                        return _nothing()
                    has_started = True
                    if head.statuses:
                        fields = lines_as_bytes(head.statuses)
                        message["headers"] = [*message.get("headers", ()), *fields]
                return send(message)

            token = serving.set(head)
            try:
                if rule is not None:
                    # No coroutine for a limit of this process.
                    head.statuses = (
                        rule.decide(head) if rule.shared is None else await rule.decide_async(head)
                    )
                await app(scope, receive, send_with_fields)
                refused = head.refusal if is_replaced else None
            except server.Refusal as refusal:
                if has_started:
                    # The response says something else by now.
                    raise
                refused = refusal
            finally:
                serving.reset(token)
            if refused is not None:
                await _refuse(refused, head.statuses, scope, send)

        return limited

    def depends(
        self,
        limit: Limit | Shared,
        *,
        name: str = "route",
        cost: Callable[[Any], int] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        """Return a dependency, for ``Depends`` of FastAPI. The middleware has to be there too."""
        rule = server.Rule(self, limit, name, cost)

        async def limited() -> None:
            await server.current_async(rule)

        return limited


async def _nothing() -> None:
    """Send nothing."""


async def _refuse(
    refusal: server.Refusal,
    statuses: Statuses,
    scope: Scope,
    send: Send,
) -> None:
    prefix = ""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            # Before it was accepted, a close is an error of HTTP.
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.detail})
            return
        prefix = "websocket."
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
    headers += lines_as_bytes(statuses)
    start = {"type": f"{prefix}http.response.start", "status": refusal.status, "headers": headers}
    await send(start)
    await send({"type": f"{prefix}http.response.body", "body": refusal.body})
