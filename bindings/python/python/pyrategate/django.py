"""Limits for Django, under WSGI and ASGI.

In a module of the project, as ``project/limits.py``:

>>> limits = Limits("100/minute")
>>> middleware = limits.middleware

and in its settings ``MIDDLEWARE = ["project.limits.middleware", ...]``, before all that costs
time. A view may have a limit of its own, with or without the middleware:

>>> @limits.limit("5/minute")
... def search(request):
...     ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse

from . import server
from ._fields import Statuses, lines
from .wsgi import Head

__all__ = ["Limits"]

F = TypeVar("F", bound=Callable[..., Any])


class Limits(server.Limits):
    """The limits of a Django project. A function of `keys.by`, and ``cost``, gets the request.

    A request over the limit gets a 429 with ``Retry-After`` and a problem as its body, before the
    view sees it. Responses of others have the ``RateLimit`` fields. A method of a class is
    decorated by Django's ``method_decorator``.
    """

    def middleware(self, get_response: Callable[[HttpRequest], Any]) -> Callable[..., Any]:
        """Return the rest of the project behind the limit. Django calls this."""
        if self.rule is None:
            raise ValueError("the middleware needs the limit of all requests: Limits('100/minute')")
        return _limited(get_response, self.rule)

    # Django asks these of what it makes a middleware with.
    middleware.sync_capable = True  # type: ignore[attr-defined]
    middleware.async_capable = True  # type: ignore[attr-defined]

    def _decorated(self, function: F, rule: server.Rule) -> F:
        limited = _limited(function, rule)
        functools.update_wrapper(limited, function)
        return limited


def _limited(function: F, rule: server.Rule) -> F:
    def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            statuses = rule.decide(_head(request))
        except server.Refusal as refusal:
            return _response(refusal)
        return _with(statuses, function(request, *args, **kwargs))

    async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            statuses = await rule.decide_async(_head(request))
        except server.Refusal as refusal:
            return _response(refusal)
        return _with(statuses, await function(request, *args, **kwargs))

    chosen = limited_async if iscoroutinefunction(function) else limited
    return chosen  # type: ignore[return-value]


def _head(request: HttpRequest) -> Head:
    if not isinstance(request, HttpRequest):
        raise TypeError(
            f"a view of Django gets its request first, not {request!r}; decorate a method by "
            "django.utils.decorators.method_decorator"
        )
    return Head(request.META, request)


def _response(refusal: server.Refusal) -> HttpResponse:
    response = HttpResponse(refusal.body, status=refusal.status)
    for name, value in refusal.headers:
        response[name] = value
    return response


def _with(statuses: Statuses, response: Any) -> Any:
    # A response of Django has one line of each name. Both fields are lists.
    for name, value in lines(statuses):
        known = response.get(name)
        response[name] = value if known is None else f"{known}, {value}"
    return response
