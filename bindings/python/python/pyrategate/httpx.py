"""A transport for httpx whose calls keep below a limit, and follow what the server says.

>>> import httpx
>>> client = httpx.Client(transport=Transport("20/s"))
>>> aclient = httpx.AsyncClient(transport=AsyncTransport("20/s"))
"""

from __future__ import annotations

import httpx

from ._limiter import Limiter
from ._types import Limit
from .pace import Pace, pace_of

__all__ = ["AsyncTransport", "Transport"]


class Transport(httpx.BaseTransport):
    """A transport whose requests wait for their start. Make one for each server.

    ``pace`` is a limit, or a `pyrategate.pace.Pace`, which has the options and which several
    transports may share. ``inner`` sends the requests: httpx's own, by default.
    """

    def __init__(
        self,
        pace: Pace | Limiter | Limit | None = None,
        *,
        inner: httpx.BaseTransport | None = None,
    ) -> None:
        self.pace: Pace = pace_of(pace)
        self._inner = httpx.HTTPTransport() if inner is None else inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request at its start."""
        with self.pace.request() as sent:
            response = self._inner.handle_request(request)
            sent.response(response.status_code, response.headers.multi_items())
            return response

    def close(self) -> None:
        """Close the transport that sends the requests."""
        self._inner.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """A transport for ``AsyncClient``, as `Transport` is for ``Client``."""

    def __init__(
        self,
        pace: Pace | Limiter | Limit | None = None,
        *,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.pace: Pace = pace_of(pace)
        self._inner = httpx.AsyncHTTPTransport() if inner is None else inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request at its start."""
        async with self.pace.request_async() as sent:
            response = await self._inner.handle_async_request(request)
            sent.response(response.status_code, response.headers.multi_items())
            return response

    async def aclose(self) -> None:
        """Close the transport that sends the requests."""
        await self._inner.aclose()
