"""Hints of a server's responses for the next requests of its client.

>>> hints = parse_hints(429, [("Retry-After", "7")])
>>> hints.hold_ns
7000000000
>>> (limit,) = parse_hints(200, [("RateLimit", '"default";r=50;t=30')]).limits
>>> limit.remaining, limit.reset_ns
(50, 30000000000)
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_tz

__all__ = ["DEFAULT_BACKOFF_NS", "MAX_HOLD_NS", "ServerHints", "ServerLimit", "parse_hints"]

_MS = 1_000_000
_SECOND = 1_000_000_000

#: The default of the longest time that a server can make a client hold.
MAX_HOLD_NS = 3600 * _SECOND

#: The hold after a 429 without a time, or with the time 0: some servers send 0 when less than a
#: second is left.
DEFAULT_BACKOFF_NS = _SECOND

# GitHub Docs, "Rate limits for the REST API": after a refusal without a time, wait a minute.
_GITHUB_BACKOFF_NS = 60 * _SECOND

# shopify.dev, "REST Admin API rate limits": the time in which a full bucket is empty.
_CALL_LIMIT_DRAINS_NS = 20 * _SECOND
_CALL_LIMIT = "x-shopify-shop-api-call-limit"

_MAX_LIMITS = 32
_MAX_ITEMS = 32
_MAX_VALUE = 8192

# The values from which a reset is a Unix time in seconds, and in milliseconds.
_UNIX_FROM = 1_000_000_000
_UNIX_MS_FROM = 1_000_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class ServerLimit:
    """A limit as a server reports it."""

    #: The name of the policy or of GitHub's resource; without one, that of a header field.
    name: str
    #: ``requests``, ``tokens``, ``input-tokens`` and so on; None for one that is not known.
    unit: str | None
    #: The number that is available at most, where the server says so.
    quota: int | None
    #: The time for which the quota is, where the server says so.
    window_ns: int | None
    #: The number that was available when the response was sent.
    remaining: int
    #: The time until the limit is reset.
    reset_ns: int
    #: True if it refills evenly until the reset, as a token bucket does.
    is_gradual: bool = False

    def opens_after_ns(self, amount: int) -> int:
        """Return the time until so much, or the whole quota, is available."""
        missing = max(amount - self.remaining, 0)
        used = max((self.quota or 0) - self.remaining, 0)
        if missing == 0:
            return 0
        if self.is_gradual and missing < used:
            return -(-self.reset_ns * missing // used)
        return self.reset_ns

    @property
    def counts_tokens(self) -> bool:
        """True for a limit of a language model's tokens."""
        return self.unit in ("tokens", "input-tokens", "output-tokens")


@dataclass(frozen=True)
class ServerHints:
    """The hints of a response."""

    #: The time in which nothing should be sent.
    hold_ns: int = 0
    #: True if the server refused the request and did not say until when.
    is_guess: bool = False
    #: The limits under which the response was sent.
    limits: list[ServerLimit] = field(default_factory=list)


def parse_hints(
    status: int,
    headers: Iterable[tuple[str, str]],
    now_unix_ns: int | None = None,
    max_hold_ns: int = MAX_HOLD_NS,
) -> ServerHints:
    """Return the hints of a response's status and header fields, of any bytes.

    After a 429, 403 or 503 the hold is ``Retry-After``, or else the reset of an exhausted limit;
    a 429 without either is a second, or GitHub's minute. After any other status it is the time
    until an exhausted limit has something again, and ``Retry-After`` has another meaning. An
    exhausted limit of tokens is no hold: it depends on what the next request takes.

    The limits are those of ``RateLimit``, ``RateLimit-*``, ``X-RateLimit-*``, and the fields of
    OpenAI, Anthropic and Shopify. Dates count from the response's own ``Date``. A response from a
    cache has no limits. No hold is longer than ``max_hold_ns``.
    """
    fields = _Fields(headers)
    now_ns = next(
        (at for text in fields.of("date")[:1] if (at := _http_date(text)) is not None),
        time.time_ns() if now_unix_ns is None else now_unix_ns,
    )
    resource = fields.of("x-ratelimit-resource")
    is_stored = any(age > 0 for age in fields.numbers("age"))
    limits = [] if is_stored else list(_limits(fields, now_ns))[:_MAX_LIMITS]
    is_over_limit = status == 429
    is_refusal = status in (429, 403, 503)
    waits = [wait for it in fields.of("retry-after") if (wait := _wait(it, now_ns)) is not None]
    retry_after = max(waits) if waits and is_refusal else None
    exhausted = [limit for limit in limits if limit.remaining == 0]
    is_guess = False
    if is_refusal:
        backoff = _GITHUB_BACKOFF_NS if resource else DEFAULT_BACKOFF_NS
        least = backoff if is_over_limit else 0
        named = retry_after
        if named is None:
            named = max((limit.reset_ns for limit in exhausted), default=0)
        is_guess = not named and least == DEFAULT_BACKOFF_NS
        hold_ns = named or least
    else:
        opens = [limit.opens_after_ns(1) for limit in exhausted if not limit.counts_tokens]
        hold_ns = max(opens, default=0)
    kept = []
    for limit in limits:
        reset_ns = limit.reset_ns
        if limit.remaining == 0:
            reset_ns = min(reset_ns, max_hold_ns)
            if retry_after is not None and not limit.is_gradual:
                # Retry-After takes precedence over a reset.
                reset_ns = min(reset_ns, retry_after)
        if 0 < reset_ns <= max_hold_ns:
            window_ns = None if limit.window_ns is None else min(limit.window_ns, max_hold_ns)
            kept.append(replace(limit, reset_ns=reset_ns, window_ns=window_ns))
    return ServerHints(min(hold_ns, max_hold_ns), is_guess, kept)


class _Fields:
    """The header fields, by name in lower case. A value that is too long is not read."""

    def __init__(self, headers: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            text = value.strip()
            if len(text) <= _MAX_VALUE:
                self._values.setdefault(name.lower(), []).append(text)

    def of(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def numbers(self, name: str) -> list[int]:
        """Return the numbers at the starts of the lines, rounded down: some send fractions."""
        read = (_seconds(_first(text)) for text in self.of(name))
        return [ns // _SECOND for ns in read if ns is not None]


def _limits(fields: _Fields, now_ns: int) -> Iterator[ServerLimit]:
    yield from _draft(fields)
    requests = "requests"
    yield from _triple(fields, requests, "ratelimit-{}", False, now_ns)
    resource = fields.of("x-ratelimit-resource")
    for limit in _triple(fields, requests, "x-ratelimit-{}", False, now_ns):
        yield replace(limit, name=resource[0]) if resource else limit
    for unit in (requests, "tokens"):
        yield from _triple(fields, unit, f"x-ratelimit-{{}}-{unit}", True, now_ns)
    for unit in (requests, "tokens", "input-tokens", "output-tokens"):
        yield from _triple(fields, unit, f"anthropic-ratelimit-{unit}-{{}}", True, now_ns)
    for text in fields.of(_CALL_LIMIT):
        yield from _call_limit(text)


def _triple(
    fields: _Fields, unit: str, names: str, is_gradual: bool, now_ns: int
) -> Iterator[ServerLimit]:
    """Read the three fields of a limit. Of several lines the strictest counts."""
    name = names.format("remaining")
    remaining = fields.numbers(name)
    read = (_time_until(text, now_ns) for text in fields.of(names.format("reset")))
    resets = [reset for reset in read if reset is not None]
    if remaining and resets:
        quota = min(fields.numbers(names.format("limit")), default=None)
        yield ServerLimit(name, unit, quota, None, min(remaining), max(resets), is_gradual)


def _call_limit(text: str) -> Iterator[ServerLimit]:
    """Read the requests in Shopify's leaky bucket, and its size: ``32/40``."""
    match = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text)
    if match and int(match[2]):
        used, quota = int(match[1]), int(match[2])
        drains_ns = _CALL_LIMIT_DRAINS_NS * min(used, quota) // quota
        left = max(quota - used, 0)
        yield ServerLimit(_CALL_LIMIT, "requests", quota, None, left, drains_ns, True)


_UNITS_OF_QUOTA = (
    "requests",
    "content-bytes",
    "concurrent-requests",
    "tokens",
    "input-tokens",
    "output-tokens",
)


@dataclass
class _Item:
    name: str = ""
    partition: str = ""
    remaining: int | None = None
    reset: int | None = None
    quota: int | None = None
    window: int | None = None
    unit: str | None = "requests"


def _draft(fields: _Fields) -> Iterator[ServerLimit]:
    """Read ``RateLimit`` and ``RateLimit-Policy``: draft-ietf-httpapi-ratelimit-headers-11."""

    def items(name: str) -> list[_Item]:
        return [item for line in fields.of(name) for item in _items(line)][:_MAX_ITEMS]

    policies = items("ratelimit-policy")
    for item in items("ratelimit"):
        named = [policy for policy in policies if policy.name == item.name]
        exact = [policy for policy in named if policy.partition == item.partition]
        policy = next(iter(exact or named), None)
        if item.remaining is None or item.reset is None:
            # What remains without a time means nothing.
            continue
        window = policy.window if policy else None
        yield ServerLimit(
            item.name + item.partition,
            policy.unit if policy else "requests",
            policy.quota if policy and policy.quota is not None else item.quota,
            None if window is None else window * _SECOND,
            item.remaining,
            item.reset * _SECOND,
        )


class _Malformed(Exception):
    """A line that is ignored as a whole."""


def _items(line: str) -> list[_Item]:
    """Read a line: a list of items, or a dictionary, which has one limit without a name."""
    try:
        return list(_items_of(line))
    except _Malformed:
        return []


def _items_of(line: str) -> Iterator[_Item]:
    entries = _Item()
    for member in _split(line, ",")[:_MAX_ITEMS]:
        name, *parameters = _split(member, ";")
        key, equals, value = name.partition("=")
        if equals and not name.startswith('"'):
            if key == "limit":
                entries.quota = _integer(value)
            elif key == "remaining":
                entries.remaining = _integer(value)
            elif key == "reset":
                entries.reset = _integer(value)
        item = _Item(_unquoted(name))
        for parameter in parameters:
            key, equals, value = parameter.partition("=")
            if not equals:
                continue
            if key == "q":
                item.quota = _integer(value)
            elif key == "r":
                item.remaining = _integer(value)
            elif key == "t":
                item.reset = _integer(value)
            elif key == "w":
                item.window = _integer(value)
                if item.window == 0:
                    raise _Malformed
            elif key == "qu":
                unit = _unquoted(value)
                item.unit = unit if unit in _UNITS_OF_QUOTA else None
            elif key == "pk":
                item.partition = value
        if item.remaining is not None or item.quota is not None:
            yield item
    if entries.remaining is not None or entries.quota is not None:
        yield entries


def _integer(text: str) -> int:
    """Read an integer that is not negative: up to 15 digits (RFC 9651, 3.3.1)."""
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise _Malformed
    return int(text)


def _unquoted(text: str) -> str:
    """Read a string, or a token as it stands."""
    if not text.startswith('"'):
        return text
    match = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    if match is None:
        raise _Malformed
    return re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL)


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside of quotes."""
    part = rf'((?:[^"{separator}]|"(?:[^"\\]|\\.)*(?:"|\\?\Z))*)(?:{separator}|(\Z))'
    parts = []
    for match in re.finditer(part, text, re.DOTALL):
        parts.append(match[1].strip())
        if match[2] is not None:
            break
    return parts


def _digits(text: str) -> int | None:
    if not re.fullmatch(r"[0-9]+", text):
        return None
    # More digits are beyond any time, and slow to read.
    return int(text[:30]) if len(text) <= 30 else 10**30


def _decimal(text: str, unit_ns: int) -> int | None:
    """Read digits with or without a fraction as a count of a unit, in nanoseconds rounded up."""
    whole, dot, fraction = text.partition(".")
    number = _digits(whole)
    if number is None or (dot and not re.fullmatch(r"[0-9]+", fraction)):
        return None
    if not dot:
        return number * unit_ns
    # Twelve digits are less than a nanosecond of an hour. Those behind them round up.
    read, cut = fraction[:12], fraction[12:]
    part = int(read) + (1 if cut.strip("0") else 0)
    scale: int = 10 ** len(read)
    return number * unit_ns + -(-part * unit_ns // scale)


def _seconds(text: str) -> int | None:
    return _decimal(text, _SECOND)


_UNITS = {
    "ms": _MS,
    "us": 1000,
    "µs": 1000,
    "ns": 1,
    "h": 3600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
}


_GO_PART = re.compile(r"([0-9.]+)(ms|us|µs|ns|h|m|s)")


def _go_duration(text: str) -> int | None:
    """Read a duration as Go writes it: ``6m0s``, ``2m52.8s``, ``12ms``."""
    total, end = 0, 0
    while match := _GO_PART.match(text, end):
        part = _decimal(match[1], _UNITS[match[2]])
        if part is None:
            return None
        total, end = total + part, match.end()
    return total if text and end == len(text) else None


_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def _rfc3339(text: str) -> int | None:
    """Read an instant. One in whole seconds counts as its end: a fraction may have been cut off."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        return None
    try:
        instant = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
    except ValueError:
        return None
    fraction_ns = _SECOND if match[3] is None else _seconds(f"0.{match[3]}")
    assert fraction_ns is not None
    offset_s = 0
    if match[4]:
        offset_s = int(match[5]) * 3600 + int(match[6]) * 60
        offset_s = -offset_s if match[4] == "-" else offset_s
    return _unix_ns(instant) + fraction_ns - offset_s * _SECOND


def _http_date(text: str) -> int | None:
    """Read a date of HTTP, in any of its three forms."""
    try:
        read = parsedate_tz(text)
        if read is None or not re.search(r"[0-9]:[0-9]{2}:[0-9]{2}", text):
            return None
        year, month, day, hour, minute, second = read[:6]
        instant = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    offset_s: int = read[9] or 0
    return _unix_ns(instant) - offset_s * _SECOND


def _unix_ns(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(seconds=1) * _SECOND


def _wait(text: str, now_ns: int) -> int | None:
    """Read ``Retry-After``: seconds, with a fraction in some services, or a date."""
    seconds = _seconds(_first(text))
    if seconds is not None:
        return seconds
    until = _http_date(text)
    return None if until is None else max(until - now_ns, 0)


def _time_until(text: str, now_ns: int) -> int | None:
    """Read a reset in any form: seconds, a Unix time, a duration of Go, or an instant."""
    text = _first(text)
    ns = _seconds(text)
    if ns is not None:
        whole = ns // _SECOND
        if whole >= _UNIX_MS_FROM:
            return max(whole * _MS - now_ns, 0)
        return max(ns - now_ns, 0) if whole >= _UNIX_FROM else ns
    duration = _go_duration(text)
    if duration is not None:
        return duration
    instant = _rfc3339(text)
    return None if instant is None else max(instant - now_ns, 0)


def _first(text: str) -> str:
    """Return the first part of a value such as ``100, 100;w=60``."""
    return re.split("[,;]", text, maxsplit=1)[0].strip()
