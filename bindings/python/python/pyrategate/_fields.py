"""Header fields and bodies that tell a client about its limit.

The fields are those of draft-ietf-httpapi-ratelimit-headers-11, written as the layer for Rust's
servers writes them. Times are rounded up, so that a client that follows them is never early.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from . import _core
from ._types import Limit

if TYPE_CHECKING:
    from .server import Refusal

# The largest integer of a structured field (RFC 9651, 3.3.1).
_MAX_INTEGER = 999_999_999_999_999
_MAX_NAME = 128
_SECOND = 1_000_000_000

PROBLEM = "application/problem+json"
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def retry_seconds(ns: int) -> int:
    """Return a time in seconds, rounded up, and at least one: a client with 0 returns at once."""
    return -(-ns // _SECOND) or 1


class QuotaPolicy:
    """A limit as clients see it: the permits at once, and the time in which they come back."""

    __slots__ = ("item", "item_bytes", "name", "quota", "quoted")

    item: str
    item_bytes: bytes
    name: str
    quota: int
    quoted: str

    def __init__(self, name: str, limit: Limit | _core.Shared) -> None:
        self.name = name
        self.quoted = _quoted(name)
        self.quota, window_ns = _core._quota(limit)
        if window_ns is None:
            raise ValueError(
                f"{limit!r} does not recover by time alone, as a limit of requests has to; "
                "write for example '5/minute', '10/s burst 20' or '100 per any hour'"
            )
        quota = min(self.quota, _MAX_INTEGER)
        self.item = f"{self.quoted};q={quota};w={retry_seconds(window_ns)}"
        self.item_bytes = self.item.encode()


# The statuses of a request's limits: a policy, and its item of a status.
Statuses = tuple[tuple[QuotaPolicy, str], ...]


def lines(statuses: Statuses) -> list[tuple[str, str]]:
    """Return the header fields of statuses."""
    found: list[tuple[str, str]] = []
    for policy, status in statuses:
        found += (("ratelimit-policy", policy.item), ("ratelimit", status))
    return found


def lines_as_bytes(statuses: Statuses) -> list[tuple[bytes, bytes]]:
    """Return the header fields of statuses, as ASGI has them."""
    found: list[tuple[bytes, bytes]] = []
    for policy, status in statuses:
        found += ((b"ratelimit-policy", policy.item_bytes), (b"ratelimit", status.encode()))
    return found


def _quoted(name: str) -> str:
    """Write a string (RFC 9651, 3.3.3)."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"a policy's name has 1 to {_MAX_NAME} characters, not {name!r}")
    if not name.isascii() or not name.isprintable():
        # A header field could not hold it, and a line break would begin another field.
        raise ValueError(f"a policy's name is printable ASCII, not {name!r}; give it by name=")
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def problem(refusal: Refusal) -> bytes:
    """Return a refusal as a problem (RFC 9457)."""
    is_over = refusal.reason == "over-limit"
    body: dict[str, object] = {
        "type": _QUOTA_EXCEEDED if is_over else "about:blank",
        "title": "Quota Exceeded" if is_over else HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "detail": refusal.detail,
    }
    if refusal.retry_after_ns is not None:
        body["retry_after"] = retry_seconds(refusal.retry_after_ns)
        body["retry_after_ms"] = max(-(-refusal.retry_after_ns // 1_000_000), 1)
    if is_over:
        body["violated-policies"] = [refusal.policy]
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
