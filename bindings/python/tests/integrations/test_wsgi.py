"""Limits of applications of WSGI, and of Flask, on a real server."""

import gc
import json
import warnings

import pytest

from serving import get, needs, wsgi_server

needs("flask", "werkzeug")

from flask import Blueprint, Flask  # noqa: E402

from pyrategate import Shared, flask, keys, wsgi  # noqa: E402


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


def test_the_call_at_the_second_of_retry_after_passes_and_none_before(clock):
    limits = wsgi.Limits("2/minute", clock=clock)
    with wsgi_server(limits.middleware(hello)) as port:
        assert get(port)[1]["ratelimit"] == ['"default";r=1;t=30']
        status, fields, body = get(port)
        assert (status, body, fields["ratelimit"]) == (200, b"hello", ['"default";r=0;t=30'])
        clock.advance("1ns")
        status, fields, body = get(port)
        assert (status, fields["retry-after"]) == (429, ["30"])
        assert fields["ratelimit-policy"] == ['"default";q=2;w=60']
        assert json.loads(body)["retry_after_ms"] == 30_000
        clock.advance("29s")
        assert get(port)[0] == 429
        clock.advance("1s")
        assert get(port)[0] == 200
    assert limits.refused == {"over-limit": 2}


def test_reports_count_as_far_as_they_are_trusted(clock):
    source = keys.client(hops=1)
    with wsgi_server(wsgi.Limits("1/h", key=source, clock=clock).middleware(hello)) as port:
        def status(*lines):
            return get(port, headers=[("X-Forwarded-For", line) for line in lines])[0]

        # Several lines are one list, which the server joins.
        assert status("6.6.6.6", "192.0.2.1") == 200
        assert status("7.7.7.7", "192.0.2.1") == 429
        assert status("2001:db8::1") == 200
        assert status("2001:db8::2") == 429
        # Underscores are no dashes: a client cannot write what the proxy writes by them.
        underscored = [("X-Forwarded-For", "192.0.2.1"), ("X_Forwarded_For", "192.0.2.9")]
        assert get(port, headers=underscored)[0] == 429


def test_a_missing_peer_is_an_error_of_the_server(clock):
    limits = wsgi.Limits("1/h", clock=clock)
    sent = []
    for environ in ({}, {"REMOTE_ADDR": ""}):
        limits.middleware(hello)(environ, lambda status, headers: sent.append(status))
    assert sent == ["500 Internal Server Error"] * 2
    assert limits.refused == {"key-not-provided": 2}


def test_a_function_deep_in_the_application_may_have_a_limit(clock):
    limits = wsgi.Limits(clock=clock)

    @limits.limit("1/h")
    def part():
        return b"part"

    def app(environ, start_response):
        body = part()
        start_response("200 OK", [])
        return [body]

    with wsgi_server(limits.middleware(app)) as port:
        status, fields, _ = get(port)
        assert (status, fields["ratelimit"]) == (200, ['"part";r=0;t=3600'])
        status, fields, _ = get(port)
        assert (status, fields["retry-after"]) == (429, ["3600"])
    limits.middleware(hello)({"REMOTE_ADDR": "192.0.2.1"}, lambda *_started: None)
    with pytest.raises(LookupError, match="not within a request"):
        part()


def application(limits):
    app = Flask("test")
    limits.init_app(app)

    @app.get("/")
    def index():
        return "index"

    @app.get("/search")
    @limits.limit("2/minute")
    def search():
        return "found"

    @app.get("/health")
    @limits.exempt
    def health():
        return "well"

    @app.get("/both")
    @limits.limit("1/h", name="both")
    @limits.exempt
    def both():
        return "both"

    @app.errorhandler(Exception)
    def any_error(error):
        return "an error of the application", 500

    @app.get("/boom")
    def boom():
        raise RuntimeError("boom")

    part = Blueprint("part", __name__)

    @part.errorhandler(Exception)
    def any_error_of_the_part(error):
        return "an error of the part", 500

    @part.get("/part")
    @limits.limit("1/h", name="part")
    def view():
        return "part"

    app.register_blueprint(part)
    return app


@pytest.mark.parametrize("is_late", [False, True])
def test_flask_warns_of_a_limit_above_its_route(clock, is_late):
    app = Flask("order")
    limits = flask.Limits(clock=clock, **({} if is_late else {"app": app}))

    @app.get("/right")
    @limits.limit("1/h")
    def right():
        return "right"

    def wrong():
        @limits.limit("1/h")
        @app.get("/wrong")
        def above():
            return "not limited"

    if is_late:
        wrong()
    with pytest.warns(RuntimeWarning, match="the route of .*above has the view without its limit"):
        limits.init_app(app) if is_late else wrong()


def test_flask_counts_all_views_but_the_exempt(clock):
    limits = flask.Limits("5/minute", clock=clock)
    with wsgi_server(application(limits)) as port:
        status, fields, _ = get(port, "/search")
        assert (status, fields["ratelimit"]) == (200, ['"default";r=4;t=12', '"search";r=1;t=30'])
        assert [get(port, "/search")[0] for _ in range(2)] == [200, 429]
        status, fields, body = get(port, "/search")
        assert (status, fields["retry-after"]) == (429, ["30"])
        assert json.loads(body)["violated-policies"] == ["search"]
        # Handlers of any exception do not see a refusal. Unknown paths count, too.
        assert get(port, "/unknown")[0] == 500
        assert get(port, "/")[0] == 429
        status, fields, body = get(port, "/health")
        assert (status, body) == (200, b"well") and "ratelimit" not in fields
        assert [get(port, "/both")[0] for _ in range(2)] == [200, 429]
        clock.advance("11s")
        assert get(port, "/")[0] == 429
        clock.advance("1s")
        assert get(port, "/")[0] == 200
    assert limits.refused == {"over-limit": 5}


def test_handlers_of_a_blueprint_do_not_see_refusals(clock):
    with wsgi_server(application(flask.Limits(clock=clock))) as port:
        assert [get(port, "/part")[0] for _ in range(2)] == [200, 429]
        assert get(port, "/boom")[0] == 500


def test_wrong_arguments_are_refused(clock):
    limits = flask.Limits("1/h", clock=clock)
    app = Flask("test")
    limits.init_app(app)
    assert app.extensions["rategate"] is limits
    for call, kind, fault in [
        (lambda: limits.init_app(app), ValueError, "limits already"),
        (lambda: limits.init_app("app"), TypeError, "an application of it"),
        (lambda: limits.exempt("view"), TypeError, "a view is a function"),
        (lambda: wsgi.Limits().middleware("app"), TypeError, "WSGI"),
    ]:
        with pytest.raises(kind, match=fault):
            call()


def test_two_limits_that_count_together_without_a_name_are_reported():
    url, limit = "redis://127.0.0.1:1", "7 per any 77s"
    kept = [Shared(url, limit)]
    limits = wsgi.Limits(kept[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The same object is one limit, and a name or another text tells two apart.
        limits.limit(kept[0])(print)
        kept += [Shared(url, limit, name="other"), Shared(url, "8 per any 77s")]
        limits.limit(kept[1])(print), limits.limit(kept[2])(print)
    kept.append(Shared(url, limit))
    with pytest.warns(RuntimeWarning, match="the limit 'print' counts together.*give each a name="):
        limits.limit(kept[-1])(print)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limits.limit(kept[-1])(print)
    assert limits.rule.shared is kept[0]


def test_a_limit_that_is_gone_is_no_other():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            wsgi.Limits(Shared("redis://127.0.0.1:1", "6 per any 66s"))
            gc.collect()
