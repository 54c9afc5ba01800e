"""Keys of clients, by the vectors of the layer for Rust's servers."""

import random
import time

import pytest

from pyrategate import keys
from pyrategate.keys import Head, _forwarded, _node, _text, _UNKNOWN, _x_forwarded_for


def brief(report):
    """Return an address as text, and a name in parentheses."""
    if report is _UNKNOWN:
        return None
    return f"({report})" if isinstance(report, str) else _text(report)


def head(peer, lines):
    return Head(peer or None, {"x-forwarded-for": lines, "forwarded": lines})


@pytest.mark.parametrize(
    ("peer", "hops", "lines", "expected"),
    [
        ("10.0.0.1", 0, ["6.6.6.6"], "10.0.0.1"),
        ("10.0.0.1", 1, ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", 1, ["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", 1, ["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", 2, ["6.6.6.6, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", 2, ["192.0.2.1:4711, [fd00::2]:80"], "192.0.2.1"),
        # The second proxy was bypassed.
        ("10.0.0.1", 2, ["192.0.2.1"], "10.0.0.1"),
        ("10.0.0.1", 2, [], "10.0.0.1"),
        # An invalid report stands for the proxy that wrote it.
        ("10.0.0.1", 1, ["192.0.2.1, garbage"], "10.0.0.1"),
        ("10.0.0.1", 2, ["garbage, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", 2, ["192.0.2.1, unknown"], "192.0.2.1"),
        ("::ffff:10.0.0.1", 1, [], "10.0.0.1"),
        ("10.0.0.1", 255, ["192.0.2.1"], "10.0.0.1"),
    ],
)
def test_so_many_hops_count_and_no_more(peer, hops, lines, expected):
    assert keys.client(hops=hops).name(head(peer, lines)) == expected


@pytest.mark.parametrize(
    ("peer", "lines", "expected"),
    [
        # A peer that is not a proxy may report anything.
        ("192.0.2.9", ["6.6.6.6"], "192.0.2.9"),
        ("192.0.2.9", ["6.6.6.6, 10.0.0.2"], "192.0.2.9"),
        ("10.0.0.1", ["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["6.6.6.6, 192.0.2.1, 10.0.0.3, fd00::2"], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["6.6.6.6, 192.0.2.1, ::ffff:10.0.0.3"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.1, garbage, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["192.0.2.1, unknown"], "10.0.0.1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::/64"),
    ],
)
def test_own_networks_are_trusted_and_no_others(peer, lines, expected):
    source = keys.client(networks=["10.0.0.0/8", "fd00::/8"])
    assert source.name(head(peer, lines)) == expected


def test_a_name_is_a_key_together_with_the_proxy_that_gave_it():
    given = head("10.0.0.1", ["_a, 10.0.0.2"])
    assert keys.client(networks=["10.0.0.0/8"]).name(given) == "_a@10.0.0.2"
    assert keys.client(hops=2).name(given) == "_a@10.0.0.2"


@pytest.mark.parametrize(
    ("peer", "line", "expected"),
    [
        ("192.0.2.9", "6.6.6.6", "192.0.2.9"),
        ("::ffff:10.0.0.1", "6.6.6.6, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("10.0.0.1", "_a", "_a@10.0.0.1"),
        ("", "192.0.2.1", None),
    ],
)
def test_names_are_of_one_client_each(peer, line, expected):
    assert keys.client(networks=["10.0.0.0/8"]).name(head(peer, [line])) == expected


def test_without_a_peer_only_hops_say_who_it_is():
    unix_socket = head("", ["192.0.2.1"])
    assert keys.client(hops=1).name(unix_socket) == "192.0.2.1"
    assert keys.client(hops=2).name(unix_socket) is None
    assert keys.client(hops=0).name(unix_socket) is None
    assert keys.client(hops=1).name(head("", ["garbage"])) is None
    assert keys.client(networks=["0.0.0.0/0"]).name(unix_socket) is None
    assert keys.peer().name(unix_socket) is None
    assert keys.peer().lacks(unix_socket) == "the peer's address"


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


def test_addresses_that_rotate_in_a_64_are_one_client():
    source, generator = keys.peer(), random.Random(1)
    names = {source.name(Head(f"2001:db8:1:2::{generator.randrange(1, 1 << 16):x}"))
             for _ in range(1000)}
    assert names == {"2001:db8:1:2::/64"}
    assert source.name(Head("fe80::1%eth0")) == source.name(Head("fe80::2%eth1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("192.0.2.1:_obf", "192.0.2.1"),
        ("192.0.2.1:", None),
        ("192.0.2.1:x", None),
        ("192.0.2.1:123456", None),
        ("192.0.2.1:80:80", None),
        ("192.0.2.256", None),
        ("192.0.2", None),
        ("0192.0.2.1", None),
        ("192.0.2.1 192.0.2.2", None),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]:", None),
        ("[2001:db8::1]4711", None),
        ("[2001:db8::1", None),
        ("2001:db8::1]", None),
        ("[192.0.2.1]", None),
        ("[]", None),
        ("fe80::1%eth0", None),
        ("_hidden", "(_hidden)"),
        ("_SEVKISEK:80", "(_SEVKISEK)"),
        ("_a.b-c_1:_p", "(_a.b-c_1)"),
        ("_", None),
        ("_no spaces", None),
        ("unknown", None),
        ("unknown:80", None),
        ("example.com", None),
        ("-1", None),
        ('"192.0.2.1"', None),
        ("", None),
        ("\xff\xfe", None),
        ("192.0.2.1\0", None),
        ("١٩٢.0.2.1", None),
        ("_" * 300, None),
    ],
)
def test_reports_are_read_as_in_rust(text, expected):
    assert brief(_node(text)) == expected


def test_lines_and_lists_are_read_from_the_right():
    read = map(brief, _x_forwarded_for(["6.6.6.6, 192.0.2.1", " 192.0.2.2 ,, ,192.0.2.3,"]))
    assert list(read) == ["192.0.2.3", "192.0.2.2", "192.0.2.1", "6.6.6.6"]


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("proto=http; FOR = 192.0.2.60 ;by=203.0.113.43", "192.0.2.60"),
        ('For="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ('for="192.0.2.60:80"', "192.0.2.60"),
        ('for="_gazonk"', "(_gazonk)"),
        ("for=unknown", None),
        ("by=192.0.2.60", None),
        ("for", None),
        ("for=", None),
        ('for="', None),
        ('for=""', None),
        ("for=1.1.1.1;for=2.2.2.2", None),
        # The client's text for the host is not a parameter of its own.
        ('host="a;for=6.6.6.6";for=192.0.2.60', "192.0.2.60"),
        ('for=192.0.2.60;host="a\\";for=6.6.6.6;x=\\\\"', "192.0.2.60"),
        ('for="192.0.2.60\\""', None),
    ],
)
def test_elements_of_forwarded_are_read_as_in_rust(element, expected):
    assert list(map(brief, _forwarded([element]))) == [expected]


def test_an_open_quote_further_left_spoils_nothing():
    for line in [
        'for="6.6.6.6, for=192.0.2.1',
        'for="6.6.6.6\\, for=192.0.2.1',
        'for=6.6.6.6", for="192.0.2.1"',
    ]:
        assert brief(next(_forwarded([line]))) == "192.0.2.1"
    both = list(map(brief, _forwarded(['for=1.1.1.1, for=2.2.2.2;host="a,b\\""'])))
    assert both == ["2.2.2.2", "1.1.1.1"]


def test_nothing_further_left_changes_what_the_nearest_proxy_says():
    pieces = ['"', "\\", ";", ",", "=", "for=", 'for="', "6.6.6.6", "[::1]:80", "_x", "unknown",
              " ", "\t", "host=", "é", "\x80"]
    generator = random.Random(1)
    for _ in range(3000):
        client = "".join(generator.choices(pieces, k=generator.randrange(12)))
        for read, own in [
            (_x_forwarded_for, "192.0.2.1"),
            (_forwarded, 'by=_me;for="192.0.2.1:80"'),
        ]:
            for lines in [[f"{client}, {own}"], [client, own]]:
                assert brief(next(read(lines))) == "192.0.2.1", client


def test_a_header_of_ten_thousand_hops_is_read_as_far_as_it_counts():
    read = list(map(brief, _x_forwarded_for(["6.6.6.6," * 10_000 + "192.0.2.1"])))
    assert (len(read), read[0]) == (keys.MAX_HOPS, "192.0.2.1")
    read = list(map(brief, _x_forwarded_for(["6" * 8192 + ", 192.0.2.1"])))
    assert read == ["192.0.2.1", None]
    read = list(map(brief, _forwarded(["for=6.6.6.6," * 10_000 + "for=192.0.2.1"])))
    assert (len(read), read[0]) == (keys.MAX_HOPS, "192.0.2.1")
    through = keys.client(networks=["0.0.0.0/0"])
    assert through.name(head("10.0.0.1", ["6.6.6.6," * 10_000 + "192.0.2.1"])) == "6.6.6.6"


def test_hostile_lists_take_time_in_proportion_to_their_length():
    def longest(number):
        times = []
        for piece in [",", '"', '\\"', '"\\', "\\", " ,", ";", '";']:
            begin = time.process_time()
            for read in (_x_forwarded_for, _forwarded):
                list(read([piece * number]))
            times.append(time.process_time() - begin)
        return max(times)

    # Squared it would be four hundred times as long, and minutes.
    assert longest(100_000) < 100 * max(longest(5_000), 0.001)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("10.0.0.1/8", "bits are set beyond"),
        ("fd00::1/8", "bits are set beyond"),
        ("10.0.0.0/33", "more bits than"),
        ("::/129", "more bits than"),
        ("10.0.0.0/", "not a network"),
        ("10.0.0.0/+8", "not a network"),
        ("10.0.0.0/-1", "not a network"),
        ("10.0.0.0/256", "not a network"),
        ("10.0.0/8", "not a network"),
        ("::ffff:10.0.0.0/104", "not a network"),
        ("::ffff:10.0.0.1", "not a network"),
        ("", "not a network"),
        ("example.com/8", "not a network"),
    ],
)
def test_what_is_no_network_is_refused_with_a_reason(text, fault):
    with pytest.raises(ValueError, match=fault):
        keys.client(networks=[text])


def test_networks_of_all_lengths_are_read():
    for text in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "192.0.2.7", "192.0.2.7/32", "fd00::/8", "::/96"]:
        keys.client(networks=[text])
    # A mapped address lies in no network of IPv6.
    assert keys.client(networks=["::/0"]).name(head("::ffff:10.1.2.3", ["6.6.6.6"])) == "10.1.2.3"


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
        (lambda: keys.header("x api"), ValueError),
        (lambda: keys.by("path"), TypeError),
        (lambda: keys.joined("path"), TypeError),
    ]:
        with pytest.raises(kind, match="not|needs"):
            call()


def test_the_names_of_4096_peers_are_kept_and_that_used_longest_ago_is_read_again(monkeypatch):
    read = []
    packed = keys._packed
    monkeypatch.setattr(keys, "_packed", lambda text: read.append(text) or packed(text))
    source = keys.peer()
    peers = [f"10.0.{number >> 8}.{number & 255}" for number in range(4096)]

    def names(of):
        read.clear()
        for peer in of:
            assert source.name(Head(peer)) == peer
        return len(read)

    assert names(peers) == 4096
    assert names(peers) == 0
    assert names(["10.1.0.0"]) == 1
    assert names(peers[1:]) == 0
    assert names(peers[:1]) == 1
