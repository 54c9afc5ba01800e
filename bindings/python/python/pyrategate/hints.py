"""Hints of a server's responses for the next requests of its client.

>>> hints = parse_hints(429, [("Retry-After", "7")])
>>> hints.hold_ns
7000000000
>>> (limit,) = parse_hints(200, [("RateLimit", '"default";r=50;t=30')]).limits
>>> limit.remaining, limit.reset_ns
(50, 30000000000)
>>> limit.opens_after_ns(51)
30000000000
"""

from ._core import DEFAULT_BACKOFF_NS, MAX_HOLD_NS, ServerHints, ServerLimit, parse_hints

__all__ = ["DEFAULT_BACKOFF_NS", "MAX_HOLD_NS", "ServerHints", "ServerLimit", "parse_hints"]
