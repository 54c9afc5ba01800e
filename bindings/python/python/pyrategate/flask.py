"""Limits for Flask.

>>> from flask import Flask
>>> app = Flask("example")
>>> limits = Limits("100/minute", app=app)

>>> @app.get("/search")
... @limits.limit("5/minute")
... def search():
...     return "found"

>>> @app.get("/health")
... @limits.exempt
... def health():
...     return "well"

>>> app.test_client().get("/search").headers.getlist("RateLimit")
['"default";r=99;t=1', '"search";r=4;t=12']
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Flask, Response, request

from . import server
from ._shared import Shared
from ._types import Limit
from .wsgi import around

__all__ = ["Limits"]

F = TypeVar("F", bound=Callable[..., Any])


class Limits(server.Limits):
    """The limits of a Flask application. A function of `keys.by`, and ``cost``, gets the environ.

    ``limit`` is for each client over all views but those that `exempt` decorates. `limit` of a
    view comes in addition; it stands below the decorator of the route. A request over the limit
    gets a 429 with ``Retry-After`` and a problem as its body; responses of others have the
    ``RateLimit`` fields.
    """

    def __init__(
        self, limit: Limit | Shared | None = None, *, app: Flask | None = None, **options: Any
    ) -> None:
        super().__init__(limit, **options)
        self._exempt: set[Callable[..., Any]] = set()
        self._views: list[dict[str, Callable[..., Any]]] = []
        self._limited: list[Callable[..., Any]] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Put an application behind these limits."""
        if not isinstance(app, Flask):
            raise TypeError(f"the limits of Flask are for an application of it, not {app!r}")
        if "rategate" in app.extensions:
            raise ValueError(f"{app!r} has limits already: one Limits is for all of its views")
        app.extensions["rategate"] = self
        self._views.append(app.view_functions)
        for function in self._limited:
            self._warn_of_order(function)
        setattr(app, "wsgi_app", around(app.wsgi_app, None))
        rule, exempt, views = self.rule, self._exempt, app.view_functions
        if rule is None:
            return

        def decide() -> Response | None:
            head = server.serving.get(None)
            if head is None:
                # Without the application's call there is nothing to protect, as in a test's
                # context of a request.
                return None
            if exempt and views.get(request.endpoint or "") in exempt:
                return None
            try:
                head.statuses = rule.decide(head)
            except server.Refusal as refusal:
                return _response(refusal)
            return None

        app.before_request(decide)

    def exempt(self, view: F) -> F:
        """Decorate a view: the limit of all views does not count it."""
        if not callable(view):
            raise TypeError(f"a view is a function, not {view!r}")
        self._exempt.add(view)
        return view

    def _warn_of_order(self, function: Callable[..., Any]) -> None:
        if any(function is view for views in self._views for view in views.values()):
            warnings.warn(
                f"the route of {function.__qualname__} has the view without its limit: write "
                "@limits.limit below the decorator of the route",
                RuntimeWarning,
                stacklevel=4,
            )

    def _decorated(self, function: F, rule: server.Rule) -> F:
        self._limited.append(function)
        self._warn_of_order(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limited(*args: Any, **kwargs: Any) -> Any:
                try:
                    await server.current_async(rule)
                except server.Refusal as refusal:
                    return _response(refusal)
                return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def limited(*args: Any, **kwargs: Any) -> Any:
                try:
                    server.current(rule)
                except server.Refusal as refusal:
                    return _response(refusal)
                return function(*args, **kwargs)

        if function in self._exempt:
            self._exempt.add(limited)
        return limited  # type: ignore[return-value]


def _response(refusal: server.Refusal) -> Response:
    # A response, not an exception: handlers of the application's own exceptions would see that.
    return Response(refusal.body, refusal.status, refusal.headers)
