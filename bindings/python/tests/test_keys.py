"""Keys of clients. Reports of proxies are read by the layer for Rust, whose tests have them."""

import pytest

from pyrategate import keys
from pyrategate.keys import Head


def head(peer, lines):
    return Head(peer or None, {"x-forwarded-for": lines, "forwarded": lines})


@pytest.mark.parametrize(
    ("peer", "trust", "lines", "expected"),
    [
        ("10.0.0.1", {"hops": 0}, ["6.6.6.6"], "10.0.0.1"),
        ("10.0.0.1", {"hops": 1}, ["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", {"hops": 2}, ["_a, 10.0.0.2"], "_a@10.0.0.2"),
        # A proxy was bypassed.
        ("10.0.0.1", {"hops": 255}, ["192.0.2.1"], "10.0.0.1"),
        ("", {"hops": 1}, ["192.0.2.1"], "192.0.2.1"),
        ("", {"hops": 2}, ["192.0.2.1"], None),
        ("testclient", {"hops": 1}, [], "testclient"),
        ("10.0.0.1", {"networks": ["10.0.0.0/8"]}, ["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.0.1", {"networks": ["10.0.0.0/8"]}, ["2001:db8::1"], "2001:db8::/64"),
        # A peer that is not a proxy may report anything.
        ("192.0.2.9", {"networks": ["10.0.0.0/8", "fd00::/8"]}, ["6.6.6.6"], "192.0.2.9"),
        ("10.0.0.1", {"networks": []}, ["6.6.6.6"], "10.0.0.1"),
        ("", {"networks": ["0.0.0.0/0"]}, ["192.0.2.1"], None),
        # What is no report stands for the proxy that wrote it.
        ("10.0.0.1", {"networks": ["10.0.0.0/8"]}, ["192.0.2.1, \xe9"], "10.0.0.1"),
        ("10.0.0.1", {"networks": ["10.0.0.0/8"]}, ["192.0.2.1\0", "\udc80"], "10.0.0.1"),
    ],
)
def test_a_client_is_named_as_far_as_proxies_are_trusted(peer, trust, lines, expected):
    assert keys.client(**trust).name(head(peer, lines)) == expected


def test_without_a_peer_the_server_lacks_it():
    for source in (keys.peer(), keys.client(hops=1)):
        assert source.lacks(head("", [])) == "the peer's address"
        assert source.lacks(head("10.0.0.1", [])) is None
    assert keys.peer().name(head("", [])) is None


def test_one_field_is_read_and_the_others_are_not():
    given = Head(
        "10.0.0.1",
        {
            "x-forwarded-for": ["192.0.2.1"],
            "forwarded": ["for=192.0.2.2"],
            "x-real-ip": ["192.0.2.3"],
        },
    )
    for field, expected in [
        ("X-Forwarded-For", "192.0.2.1"),
        ("Forwarded", "192.0.2.2"),
        ("X-Real-IP", "192.0.2.3"),
    ]:
        assert keys.client(hops=1, field=field).name(given) == expected


def test_a_client_is_grouped_as_a_peer_is():
    source = keys.client(hops=1, group_v6=56)
    key = lambda line: source.name(head("10.0.0.1", [line]))  # noqa: E731
    assert key("2001:db8:0:12::1") == key("[2001:db8:0:34::9]:80") == "2001:db8::/56"
    assert key("2001:db8:0:12::1") != key("2001:db8:1:12::1")
    assert key("::ffff:192.0.2.1") == key("192.0.2.1:99")
    assert keys.peer(group_v4=24).name(head("192.0.2.9", [])) == "192.0.2.0/24"
    assert keys.peer(group_v6=128).name(head("2001:db8::1", [])) == "2001:db8::1"
    assert keys.peer(group_v6=0).name(head("2001:db8::1", [])) == "::/0"


def test_peers_of_one_network_are_one_client():
    name = lambda peer: keys.peer().name(Head(peer))  # noqa: E731
    assert name("fe80::1%eth0") == name("fe80::2%eth1") == "fe80::/64"
    assert name("testclient") == "testclient"


def test_the_names_of_4096_peers_are_kept():
    source = keys.peer()
    for number in range(5000):
        peer = f"10.0.{number >> 8}.{number & 255}"
        assert source.name(Head(peer)) == source.name(Head(peer)) == peer
    kept = source.name_of.cache_info()
    assert (kept.hits, kept.currsize) == (5000, 4096)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("10.0.0.1/8", "bits are set beyond"),
        ("10.0.0.0/33", "more bits than"),
        ("example.com/8", "not a network"),
    ],
)
def test_what_is_no_network_is_refused_with_a_reason(text, fault):
    with pytest.raises(ValueError, match=f'{fault}.*; given "{text}"'):
        keys.client(networks=[text])


def test_a_header_is_a_key_if_it_comes_once():
    source = keys.header("X-Api-Key")
    of = lambda lines: Head(None, {"x-api-key": lines})  # noqa: E731
    assert source.name(of([])) is None and not source.is_ambiguous(of([]))
    assert source.name(of(["a", "b"])) is None and source.is_ambiguous(of(["a", "b"]))
    assert source.name(of(["a"])) == "a"


def test_a_composite_is_unambiguous():
    source = keys.joined(keys.header("a"), keys.header("b"))
    of = lambda a, b: source.name(Head(None, {"a": [a], "b": [b]}))  # noqa: E731
    assert of("ab", "c") != of("a", "bc")
    assert of("é", "b") == "2:é,1:b,"
    assert source.name(Head(None, {"a": ["x"]})) is None


def test_wrong_arguments_are_refused_with_what_would_be_accepted():
    for call, kind in [
        (lambda: keys.client(), ValueError),
        (lambda: keys.client(hops=1, networks=[]), ValueError),
        (lambda: keys.client(hops=256), ValueError),
        (lambda: keys.client(hops=True), ValueError),
        (lambda: keys.client(networks="10.0.0.0/8"), TypeError),
        (lambda: keys.peer(group_v4=33), ValueError),
        (lambda: keys.peer(group_v6=-1), ValueError),
        (lambda: keys.peer(group_v6="64"), TypeError),
        (lambda: keys.client(hops=1, group_v4=256), ValueError),
        (lambda: keys.client(hops=1, field="x ip"), ValueError),
        (lambda: keys.header("x api"), ValueError),
        (lambda: keys.by("path"), TypeError),
        (lambda: keys.joined("path"), TypeError),
    ]:
        with pytest.raises(kind, match="not|needs"):
            call()
