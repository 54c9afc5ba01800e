"""A service of WSGI whose clients have a limit: gunicorn wsgi_app:app"""

from pyrategate.wsgi import Limits

limits = Limits("5/minute")


@limits.middleware
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]
