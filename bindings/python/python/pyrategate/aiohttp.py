"""A middleware for clients of aiohttp whose calls keep below a limit, and follow the server.

>>> import aiohttp
>>> async def main():
...     async with aiohttp.ClientSession(middlewares=(Middleware("20/s"),)) as session:
...         ...
"""

from __future__ import annotations

from aiohttp import ClientError, ClientHandlerType, ClientRequest, ClientResponse

from ._errors import TooLong
from ._limiter import Limiter
from ._types import Limit
from .pace import Pace, pace_of

__all__ = ["Middleware", "WaitTooLong"]


class WaitTooLong(ClientError, TooLong):
    """A `TooLong` of a request. A session would take it for a failure of the system else."""


class Middleware:
    """A middleware whose requests wait for their start. Make one for each server.

    ``pace`` is a limit, or a `pyrategate.pace.Pace`, which has the options and which several
    sessions may share. Each redirect is a request.
    """

    def __init__(self, pace: Pace | Limiter | Limit | None = None) -> None:
        self.pace: Pace = pace_of(pace)

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request at its start."""
        try:
            async with self.pace.request_async() as sent:
                response = await handler(request)
                sent.response(response.status, response.headers.items())
                return response
        except TooLong as error:
            raise WaitTooLong(str(error), error.retry_after_ns) from None
