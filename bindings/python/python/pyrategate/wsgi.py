"""Limits for any application of WSGI.

>>> limits = Limits("100/minute")

>>> @limits.middleware
... def app(environ, start_response):
...     start_response("200 OK", [("Content-Type", "text/plain")])
...     return [b"hello"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from . import keys, server
from ._fields import Statuses, lines

__all__ = ["Limits"]

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Head(keys.Head):
    """The head of an environ, which is read only as far as a source needs it."""

    __slots__ = ("environ",)

    environ: Environ
    peer: str | None
    raw: Any
    statuses: Statuses

    def __init__(self, environ: Environ, raw: Any = None) -> None:
        self.peer = environ.get("REMOTE_ADDR")
        self.environ = environ
        self.statuses = ()
        self.raw = environ if raw is None else raw

    def lines(self, name: str) -> list[str]:
        # Servers join the lines of a header by commas.
        value = self.environ.get("HTTP_" + name.upper().replace("-", "_"))
        return [] if value is None else [value]


class Limits(server.Limits):
    """The limits of an application of WSGI. A function of `keys.by`, and ``cost``, gets the environ.

    A request over the limit gets a 429 with ``Retry-After`` and a problem as its body, before the
    application sees it. Responses of others have the ``RateLimit`` fields. A function that
    `limit` decorates has to be called before the application returns its body.
    """

    def middleware(self, app: App) -> App:
        """Return the application behind these limits, and those of its decorated functions."""
        if not callable(app):
            raise TypeError(f"an application of WSGI can be called, not {app!r}")
        return around(app, self.rule)


def around(app: App, rule: server.Rule | None) -> App:
    """Return an application whose requests a rule decides on, and those of decorated functions."""
    serving = server.serving

    def limited(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        head = Head(environ)
        has_started = False

        def start_with_fields(status: str, headers: list[tuple[str, str]], *info: Any) -> Any:
            nonlocal has_started
            has_started = True
            return start_response(status, [*headers, *lines(head.statuses)], *info)

        token = serving.set(head)
        try:
            if rule is not None:
                head.statuses = rule.decide(head)
            return app(environ, start_with_fields)
        except server.Refusal as refusal:
            if has_started:
                # The response says something else by now.
                raise
            status = f"{refusal.status} {HTTPStatus(refusal.status).phrase}"
            start_response(status, [*refusal.headers, *lines(head.statuses)])
            return [refusal.body]
        finally:
            serving.reset(token)

    return limited
