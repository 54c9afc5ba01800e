"""Hints of responses, which the layer for Rust's clients reads. Its tests have the vectors."""

import pickle
import random
import time

import pytest

from pyrategate.hints import (
    DEFAULT_BACKOFF_NS,
    MAX_HOLD_NS,
    ServerHints,
    ServerLimit,
    parse_hints,
)

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
DATE = "Tue, 14 Nov 2023 22:13:50 GMT"  # NOW + 30 s
TOKENS = ServerLimit("tpm", "tokens", 1000, 60 * SECOND, 400, 60 * SECOND, True)


def hints(status, fields):
    return parse_hints(status, fields, NOW)


@pytest.mark.parametrize(
    ("status", "fields", "hold_s", "is_guess"),
    [
        (429, [("Retry-After", "2.5")], 2.5, False),
        (503, [("retry-after", DATE)], 30, False),
        (429, [], 1, True),
        (429, [("retry-after", "9" * 8000)], 3600, False),
        (429, [("retry-after", "\udcff\0")], 1, True),
        (429, [("retry-after\n", "7"), ("x-ratelimit-resource", "core")], 60, False),
        (403, [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], 42, False),
        (200, [("ratelimit", '"default";r=0;t=30'), ("retry-after", "7")], 30, False),
        (200, [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7µs")], 7e-6, False),
        (0, [("retry-after", "7")], 0, False),
    ],
)
def test_a_hold_is_that_of_the_status_and_the_fields(status, fields, hold_s, is_guess):
    found = hints(status, iter(fields))
    assert (found.hold_ns, found.is_guess) == (hold_s * SECOND, is_guess)


def test_a_limit_has_the_numbers_of_its_fields():
    fields = [
        ("RateLimit-Policy", '"tpm";q=1000;w=60;qu="tokens", "x";q=9;qu="smiles"'),
        ("RateLimit", '"tpm";r=400;t=30, "x";r=3;t=2'),
        ("X-Shopify-Shop-Api-Call-Limit", "32/40"),
    ]
    tokens, unknown, bucket = hints(200, fields).limits
    assert tokens == ServerLimit("tpm", "tokens", 1000, 60 * SECOND, 400, 30 * SECOND)
    assert (tokens.counts_tokens, bucket.counts_tokens) == (True, False)
    assert (unknown.unit, unknown.quota, unknown.window_ns) == (None, 9, None)
    assert (bucket.name, bucket.remaining, bucket.reset_ns, bucket.is_gradual) == (
        "x-shopify-shop-api-call-limit", 8, 16 * SECOND, True,
    )


def test_no_hold_is_longer_than_the_longest_and_dates_count_from_now():
    fields = [("retry-after", "7")]
    assert parse_hints(429, fields, max_hold_ns=SECOND).hold_ns == SECOND
    assert (DEFAULT_BACKOFF_NS, MAX_HOLD_NS) == (SECOND, 3600 * SECOND)
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    assert 0 < parse_hints(429, [("retry-after", at)]).hold_ns <= 100 * SECOND


def test_a_bucket_opens_before_its_reset():
    assert [TOKENS.opens_after_ns(it) for it in (400, 401, 5000)] == [
        0, SECOND // 10, 60 * SECOND,
    ]


def test_hints_and_limits_are_values():
    made = ServerHints(SECOND, True, [TOKENS])
    assert pickle.loads(pickle.dumps(made)) == made
    assert made != ServerHints(SECOND, True) and made.limits == [TOKENS]
    assert eval(repr(made)) == made
    assert len({TOKENS, pickle.loads(pickle.dumps(TOKENS))}) == 1
    with pytest.raises(AttributeError):
        made.hold_ns = 0


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (lambda: parse_hints(1000, []), ValueError, "status is from 0 to 999, not 1000"),
        (lambda: parse_hints("429", []), TypeError, "'429'"),
        (lambda: parse_hints(429, [], -1), ValueError, "now_unix_ns is from 0 to .*, not -1"),
        (lambda: parse_hints(429, [], 0, 1 << 64), ValueError, "max_hold_ns is from 0 to"),
        (lambda: parse_hints(429, [(b"retry-after", b"7")]), TypeError, "str"),
        (lambda: parse_hints(429, 7), TypeError, "iterable"),
        (lambda: ServerLimit("l", "smiles", 1, 1, 1, 1), ValueError, "not \"smiles\""),
    ],
)
def test_wrong_arguments_are_refused_with_what_would_be_accepted(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_any_text_gives_hints_or_none():
    generator, understood, rounds = random.Random(1), 0, 1000
    names = ["ratelimit", "ratelimit-policy", "retry-after", "date", "x-ratelimit-reset", "é", ""]
    pieces = [*'"a";r=1 ;t=9 " \\ ; , = 0 7 µs é \x80 \0 \udc80 7s GMT'.split(" "), DATE]
    for _ in range(rounds):
        fields = [(name, "".join(generator.choices(pieces, k=generator.randrange(4))))
                  for name in names]
        found = parse_hints(generator.choice([200, 403, 429]), fields)
        assert 0 <= found.hold_ns <= MAX_HOLD_NS
        understood += bool(found.limits) or found.hold_ns not in (0, DEFAULT_BACKOFF_NS)
    assert understood > rounds / 100
