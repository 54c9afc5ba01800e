"""Sources of keys, which tell the clients of a server apart.

| requests are distinguished by | source |
|---|---|
| the address of the peer | `peer` |
| the client's address, behind trusted proxies | `client` |
| a header, such as an API key | `header` |
| anything else of the request | `by` |
| several of these together | `joined` |
| nothing: one limit for all | `constant` |

The names, the defaults and the results are those of the layer for Rust's servers.

>>> source = client(networks=["10.0.0.0/8"])
>>> source.name(Head("10.0.0.7", {"x-forwarded-for": ["6.6.6.6, 192.0.2.1"]}))
'192.0.2.1'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._core import _ClientNames

if TYPE_CHECKING:
    from ._fields import Statuses
    from .server import Refusal

__all__ = ["Head", "KeySource", "by", "client", "constant", "header", "joined", "peer"]

# The number of peers whose names are kept. Clients come again.
_CACHED = 4096


class Head:
    """The part of a request that a source reads.

    ``raw`` is the framework's own object: a scope of ASGI, an environ of WSGI, Django's request.
    """

    __slots__ = ("_headers", "peer", "raw", "refusal", "statuses")

    #: The address of the peer, if the server knows it.
    peer: str | None
    #: The framework's own object.
    raw: Any
    #: What the response reports of the request's limits.
    statuses: Statuses
    #: How a decorated function was refused.
    refusal: Refusal | None

    def __init__(
        self,
        peer: str | None,
        headers: Mapping[str, list[str]] | None = None,
        raw: Any = None,
    ) -> None:
        self.peer = peer
        self._headers = headers
        self.raw = raw
        self.refusal = None
        self.statuses = ()

    def lines(self, name: str) -> list[str]:
        """Return the lines of a header, in their order. The name is in lower case."""
        return [] if self._headers is None else self._headers.get(name, [])


class KeySource:
    """A source of keys. A key is a text, and equal for the requests of one client."""

    __slots__ = ()

    def name(self, head: Head) -> str | None:
        """Return the key, or None if the request lacks the data for it."""
        raise NotImplementedError

    def lacks(self, head: Head) -> str | None:
        """Return what the server should have added, if its absence is why there is no key."""
        return None

    def is_ambiguous(self, head: Head) -> bool:
        """Return True if there is no key because the request names its client more than once."""
        return False


class _Peer(KeySource):
    __slots__ = ("name_of",)

    def __init__(self, names: _ClientNames) -> None:
        self.name_of = functools.lru_cache(maxsize=_CACHED)(names.name)

    def name(self, head: Head) -> str | None:
        return self.name_of(head.peer)

    def lacks(self, head: Head) -> str | None:
        return None if head.peer else "the peer's address"


def peer(*, group_v4: int = 32, group_v6: int = 64) -> KeySource:
    """Return a source of keys by the peer's address.

    The peer is the other end of the connection. Behind a proxy that is the proxy, for every
    client: use `client` there. IPv6 addresses count as one client per /64, which is the smallest
    network of a subscriber; many providers assign a /56. An IPv4 address that is mapped into
    IPv6 counts as the IPv4 address.

    >>> peer().name(Head("2001:db8:1:2::7"))
    '2001:db8:1:2::/64'
    """
    return _Peer(_ClientNames(group_v4, group_v6))


class _Client(KeySource):
    __slots__ = ("field", "names")

    def __init__(self, names: _ClientNames, field: str) -> None:
        self.names = names
        self.field = field

    def name(self, head: Head) -> str | None:
        return self.names.name(head.peer, head.lines(self.field))

    def lacks(self, head: Head) -> str | None:
        return None if head.peer else "the peer's address"


def client(
    *,
    hops: int | None = None,
    networks: Iterable[str] | None = None,
    field: str = "x-forwarded-for",
    group_v4: int = 32,
    group_v6: int = 64,
) -> KeySource:
    """Return a source of keys by the client's address behind trusted proxies.

    Exactly one of two says which proxies are trusted:

    * ``networks``: those in these networks. The client is the first address, from the right,
      outside of them. A peer outside of them is the client itself, whatever it reports.
    * ``hops``: this number of proxies in front of the server, which clients cannot bypass.

    ``field`` is the one that the proxies write: ``x-forwarded-for``, ``forwarded`` (RFC 7239), or
    another in the format of the first, such as ``x-real-ip`` with one hop. All others are
    ignored, since a proxy passes them through as the client wrote them.

    A report that is no address stands for the proxy that wrote it.
    """
    if (hops is None) == (networks is None):
        raise ValueError("a client's address needs either hops= or networks=: which are trusted")
    if hops is not None and (isinstance(hops, bool) or not 0 <= hops <= 255):
        raise ValueError(f"hops is a number from 0 to 255, not {hops!r}")
    if isinstance(networks, (str, bytes)):
        raise TypeError(f"networks is a list of texts such as '10.0.0.0/8', not {networks!r}")
    field = _field_name(field)
    trusted = None if networks is None else list(networks)
    return _Client(_ClientNames(group_v4, group_v6, field, hops, trusted), field)


class _Header(KeySource):
    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field

    def name(self, head: Head) -> str | None:
        lines = head.lines(self.field)
        return lines[0] if len(lines) == 1 else None

    def is_ambiguous(self, head: Head) -> bool:
        return len(head.lines(self.field)) > 1


def header(name: str) -> KeySource:
    """Return a source of keys by the value of a header.

    A repeated header gives no key, and the request is refused with a 400: the service may use one
    value, while the other is new in each request. WSGI joins such lines before they are seen.

    A client chooses its headers. If authentication has not checked the value, a client can choose
    a new limit for each request.
    """
    return _Header(_field_name(name))


class _By(KeySource):
    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], str | None]) -> None:
        self.function = function

    def name(self, head: Head) -> str | None:
        return self.function(head.raw)


def by(function: Callable[[Any], str | None]) -> KeySource:
    """Return a source of keys by a function of the framework's own request, or scope, or environ.

    >>> tenant = by(lambda scope: scope["path"].split("/")[1])
    >>> tenant.name(Head(None, raw={"path": "/blue/orders"}))
    'blue'
    """
    if not callable(function):
        raise TypeError(f"a source of keys is made of a function, not {function!r}")
    return _By(function)


class _Joined(KeySource):
    __slots__ = ("sources",)

    def __init__(self, sources: tuple[KeySource, ...]) -> None:
        self.sources = sources

    def name(self, head: Head) -> str | None:
        names = [source.name(head) for source in self.sources]
        # The lengths keep `ab` and `c` apart from `a` and `bc`.
        known = [f"{len(name.encode())}:{name}," for name in names if name is not None]
        return "".join(known) if len(known) == len(names) else None

    def lacks(self, head: Head) -> str | None:
        return next((it for source in self.sources if (it := source.lacks(head))), None)

    def is_ambiguous(self, head: Head) -> bool:
        return any(source.is_ambiguous(head) for source in self.sources)


def joined(*sources: KeySource) -> KeySource:
    """Return a source that joins the keys of all. There is no key if any of them is missing.

    >>> source = joined(header("x-user"), by(lambda raw: raw["method"]))
    >>> source.name(Head(None, {"x-user": ["u1"]}, {"method": "GET"}))
    '2:u1,3:GET,'
    """
    return _Joined(tuple(source_of(source) for source in sources))


def constant(name: str = "all") -> KeySource:
    """Return a source with one key for all requests."""
    return _By(lambda _raw: name)


def source_of(given: object) -> KeySource:
    """Return a source as it is."""
    if isinstance(given, KeySource):
        return given
    raise TypeError(f"a source of keys is made by pyrategate.keys, such as peer(), not {given!r}")


def _field_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError(f"a header has a name such as 'x-api-key', not {name!r}")
    return name.lower()
