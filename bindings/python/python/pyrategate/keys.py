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
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._fields import Statuses
    from .server import Refusal

__all__ = ["Head", "KeySource", "by", "client", "constant", "header", "joined", "peer"]

#: The maximum number of reports that are read, from the right.
MAX_HOPS = 32

# The maximum length of a report.
_MAX_REPORT = 256

# The number of peers whose names are kept.
_CACHED = 4096

_MAPPED = b"\0" * 10 + b"\xff\xff"


class Head:
    """The part of a request that a source reads.

    ``raw`` is the framework's own object: a scope of ASGI, an environ of WSGI, Django's request.
    """

    __slots__ = ("_headers", "peer", "raw", "refusal", "statuses")

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
    __slots__ = ("groups",)

    def __init__(self, groups: _Groups) -> None:
        self.groups = groups

    def name(self, head: Head) -> str | None:
        return self.groups.name_of_text(head.peer) if head.peer else None

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
    return _Peer(_Groups(group_v4, group_v6))


class _Client(KeySource):
    __slots__ = ("field", "groups", "hops", "networks")

    def __init__(
        self, groups: _Groups, field: str, hops: int | None, networks: list[_Network]
    ) -> None:
        self.groups = groups
        self.field = field
        self.hops = hops
        self.networks = networks

    def name(self, head: Head) -> str | None:
        text = head.peer
        address = _packed(text.partition("%")[0]) if text else None
        if self.hops is None and not (address and self._trusts(address)):
            # The peer is the client itself, whatever it reports.
            return self.groups.name_of_text(text) if text else None
        lines = head.lines(self.field)
        reports = _forwarded(lines) if self.field == "forwarded" else _x_forwarded_for(lines)
        found: bytes | str | None
        if self.hops is None:
            assert address is not None
            found = self._behind_networks(address, reports)
        else:
            found = self._behind_hops(address or text or None, self.hops, reports)
        return self.groups.name(found) if isinstance(found, bytes) else found

    def lacks(self, head: Head) -> str | None:
        return None if head.peer else "the peer's address"

    def _trusts(self, address: bytes) -> bool:
        return any(network.contains(address) for network in self.networks)

    def _behind_networks(self, address: bytes, reports: Iterator[_Report]) -> bytes | str:
        while self._trusts(address):
            report = next(reports, None)
            if isinstance(report, str):
                return f"{report}@{_text(address)}"
            if report is None or report is _UNKNOWN:
                break
            address = report
        return address

    def _behind_hops(
        self, given: bytes | str | None, hops: int, reports: Iterator[_Report]
    ) -> bytes | str | None:
        # A peer without an address, as of a test's client, names itself.
        reporter = last = given
        for _ in range(hops):
            report = next(reports, None)
            if report is None:
                # A proxy has been bypassed.
                return given
            if report is _UNKNOWN:
                last = reporter
            elif isinstance(report, str):
                by = _text(reporter) if isinstance(reporter, bytes) else reporter
                last = report if by is None else f"{report}@{by}"
            else:
                reporter = last = report
        return last


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
    found = [_Network(network) for network in networks or ()]
    hops = None if hops is None else min(hops, MAX_HOPS)
    return _Client(_Groups(group_v4, group_v6), _field_name(field), hops, found)


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


class _Groups:
    """The numbers of leading bits by which addresses count as one client."""

    __slots__ = ("name_of_text", "v4", "v6")

    def __init__(self, v4: int, v6: int) -> None:
        for name, bits, most in (("group_v4", v4, 32), ("group_v6", v6, 128)):
            if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= most:
                raise ValueError(f"{name} is a number of bits from 0 to {most}, not {bits!r}")
        self.v4 = v4
        self.v6 = v6
        # Clients come again. The bound is what a flood of new addresses can fill.
        self.name_of_text = functools.lru_cache(maxsize=_CACHED)(self._name_of_text)

    def name(self, address: bytes) -> str:
        is_v4 = len(address) == 4
        bits, most = (self.v4, 32) if is_v4 else (self.v6, 128)
        if bits == most:
            return _text(address)
        if bits == 64:
            return inet_ntop(AF_INET6, address[:8] + b"\0\0\0\0\0\0\0\0") + "/64"
        number = int.from_bytes(address, "big") >> (most - bits) << (most - bits)
        return f"{_text(number.to_bytes(len(address), 'big'))}/{bits}"

    def _name_of_text(self, text: str) -> str:
        if "%" in text:
            text = text.partition("%")[0]
        address = _packed(text)
        # A peer without an address, as of a test's client, names itself: the server chose it.
        return text if address is None else self.name(address)


class _Network:
    """A range of addresses, such as ``10.0.0.0/8``. Without a length it is one address."""

    __slots__ = ("first", "length", "shift")

    def __init__(self, text: str) -> None:
        address, slash, bits = text.partition("/")
        first = _packed(address)
        # An IPv4 network is written as such, not mapped into IPv6.
        is_mapped = first is not None and len(first) == 4 and ":" in address
        is_number = re.fullmatch(r"[0-9]{1,3}", bits) is not None if slash else not bits
        if first is None or is_mapped or not is_number or (slash and int(bits) > 255):
            raise ValueError(
                f"not a network: {text!r}; write 10.0.0.0/8, 2001:db8::/32 or one address"
            )
        most = 8 * len(first)
        length = int(bits) if slash else most
        if length > most:
            raise ValueError(f"more bits than an address of this kind has: {text!r}")
        self.length = len(first)
        self.shift = most - length
        self.first = int.from_bytes(first, "big") >> self.shift
        if self.first << self.shift != int.from_bytes(first, "big"):
            fixed = ipaddress.ip_network(text, strict=False)
            raise ValueError(
                f"bits are set beyond the length of the network: {text!r}; write {fixed} or {address}"
            )

    def contains(self, address: bytes) -> bool:
        return (
            len(address) == self.length
            and int.from_bytes(address, "big") >> self.shift == self.first
        )


def _packed(text: str) -> bytes | None:
    """Read an address. One that is mapped into IPv6 is the IPv4 address."""
    try:
        if ":" in text:
            packed = inet_pton(AF_INET6, text)
            return packed[12:] if packed.startswith(_MAPPED) else packed
        return inet_pton(AF_INET, text)
    except (OSError, ValueError):
        return None


def _text(address: bytes) -> str:
    return inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address)


class _Unknown:
    """A report that could not be read."""


_UNKNOWN = _Unknown()

# The report of one proxy about its client: an address, a name that it made up, or neither.
_Report = Any


def _x_forwarded_for(lines: list[str]) -> Iterator[_Report]:
    """Read the reports from the right: the nearest proxy writes last.

    Text further left may have any length, and is not looked at.
    """
    left = MAX_HOPS
    for line in reversed(lines):
        rest = line.rstrip(", \t")
        while rest and left:
            rest, _, report = rest.rpartition(",")
            yield _node(report.strip(" \t"))
            rest = rest.rstrip(", \t")
            left -= 1


def _right_to_left(separator: str) -> re.Pattern[str]:
    """Return the pattern of a part of a list that is written backwards.

    Separators within quotes do not count. Quotes are paired from the right, so that text further
    left cannot split a part: outside of quotes any quote closes them, and within them only one
    that no backslash escapes opens them.
    """
    escaped = r"\"(?=(?:\\\\)*\\(?!\\))"
    return re.compile(rf'((?:[^"{separator}]|"(?:[^"]|{escaped})*(?:"|\Z))*)(?:{separator}|\Z)')


_ELEMENT = _right_to_left(",")
_PAIR = _right_to_left(";")


def _forwarded(lines: list[str]) -> Iterator[_Report]:
    """Read the reports of RFC 7239 from the right."""
    left = MAX_HOPS
    for line in reversed(lines):
        for match in _ELEMENT.finditer(line[::-1]):
            element = match[1][::-1].strip(" \t")
            if element:
                yield _element(element)
                left -= 1
                if not left:
                    return


def _element(element: str) -> _Report:
    """Read one element: ``for=192.0.2.60;proto=http;by=203.0.113.43``."""
    if len(element) > _MAX_REPORT:
        return _UNKNOWN
    found = None
    for match in _PAIR.finditer(element[::-1]):
        name, equals, value = match[1][::-1].partition("=")
        if equals and name.strip(" \t").lower() == "for":
            if found is not None:
                # Each parameter may occur once. Of two, it is unknown which one is meant.
                return _UNKNOWN
            found = value.strip(" \t")
    if found is None:
        return _UNKNOWN
    if len(found) > 1 and found[0] == found[-1] == '"':
        # Addresses and names have no escapes. With one it is read as neither.
        found = found[1:-1]
    return _node(found)


_MADE_UP = re.compile(r"_[A-Za-z0-9._-]+")
_PORT = re.compile(r"[0-9]{1,5}|_[A-Za-z0-9._-]+")
_BRACKETED = re.compile(r"\[([^\]]*)\](?::(.*))?", re.DOTALL)


def _node(text: str) -> _Report:
    """Read an address with or without a port, a name that a proxy made up, or neither."""
    if not text or len(text) > _MAX_REPORT or not text.isascii():
        return _UNKNOWN
    address = _packed(text)
    if address is not None:
        return address
    if text[0] == "[":
        match = _BRACKETED.fullmatch(text)
        if match is None or ":" not in match[1]:
            return _UNKNOWN
        if match[2] is not None and not _PORT.fullmatch(match[2]):
            return _UNKNOWN
        return _packed(match[1]) or _UNKNOWN
    name, colon, port = text.partition(":")
    if colon and not _PORT.fullmatch(port):
        return _UNKNOWN
    if _MADE_UP.fullmatch(name):
        return name
    # What has a colon is no address of IPv6 here, and its name has none.
    return _packed(name) or _UNKNOWN
