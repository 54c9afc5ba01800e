"""An adapter for requests whose calls keep below a limit, and follow what the server says.

>>> import requests
>>> session = requests.Session()
>>> session.mount("https://api.example.com/", Adapter("20/s"))
"""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from ._limiter import Limiter
from ._types import Limit
from .pace import Pace, pace_of

__all__ = ["Adapter"]


class Adapter(HTTPAdapter):
    """An adapter whose requests wait for their start. Mount one for each server.

    ``pace`` is a limit, or a `pyrategate.pace.Pace`, which has the options and which several
    adapters may share. Other arguments are those of ``HTTPAdapter``; retries of urllib3
    (``max_retries``) happen within a request, and do not wait here.
    """

    def __init__(self, pace: Pace | Limiter | Limit | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.pace: Pace = pace_of(pace)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send a request at its start."""
        with self.pace.request() as sent:
            response = super().send(request, *args, **options)
            # Those of urllib3 have each line, where those of requests join them.
            sent.response(response.status_code, list(response.raw.headers.iteritems()))
            return response
