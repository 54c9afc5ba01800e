"""Hints of responses, by the vectors of the layer for Rust's clients."""

import random
import time

import pytest

from pyrategate.hints import (
    DEFAULT_BACKOFF_NS,
    MAX_HOLD_NS,
    ServerLimit,
    _go_duration,
    _items,
    _rfc3339,
    _seconds,
    _split,
    _time_until,
    parse_hints,
)

SECOND = 1_000_000_000
MS = 1_000_000
NOW = 1_700_000_000 * SECOND
DATE = "Tue, 14 Nov 2023 22:13:50 GMT"  # NOW + 30 s
DEFAULT, MAX = DEFAULT_BACKOFF_NS / SECOND, MAX_HOLD_NS / SECOND


def hints(status, fields):
    return parse_hints(status, fields, NOW)


@pytest.mark.parametrize(
    ("status", "fields", "hold"),
    [
        (429, [("retry-after", "7")], 7.0),
        (503, [("Retry-After", "7")], 7.0),
        (429, [("retry-after", "2.5")], 2.5),
        (429, [("retry-after", DATE)], 30.0),
        # The server's own clock takes precedence over the client's.
        (429, [("retry-after", DATE), ("date", "Tue, 14 Nov 2023 22:13:48 GMT")], 2.0),
        (429, [("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")], DEFAULT),
        (429, [("retry-after", "0")], DEFAULT),
        (429, [("retry-after", "soon")], DEFAULT),
        (429, [], DEFAULT),
        (503, [], 0.0),
        (503, [("retry-after", "0")], 0.0),
        # Absurd values cannot hold a client for longer than its own maximum.
        (429, [("retry-after", "99999999999999999999")], MAX),
        (429, [("retry-after", "9" * 8000)], MAX),
        (429, [("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], MAX),
        # Retry-After takes precedence over a reset.
        (429, [("ratelimit", '"p";r=0;t=60'), ("retry-after", "5")], 5.0),
        (429, [("ratelimit", '"p";r=0;t=60')], 60.0),
        (429, [("ratelimit", '"p";r=9;t=60')], DEFAULT),
        (429, [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], 42.0),
        # GitHub refuses with a 403 too, which is no refusal without a time.
        (403, [("retry-after", "7")], 7.0),
        (403, [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], 42.0),
        (403, [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "1700000042")], 0.0),
        (403, [], 0.0),
        (429, [("x-ratelimit-resource", "core")], 60.0),
        (429, [("x-ratelimit-resource", "core"), ("retry-after", "7")], 7.0),
        # A bucket has permits again before it is full, but then the request was refused.
        (429, [("x-shopify-shop-api-call-limit", "40/40")], 20.0),
    ],
)
def test_refusals_hold_as_in_rust(status, fields, hold):
    assert hints(status, fields).hold_ns == hold * SECOND


def test_retry_after_shortens_the_reset_of_an_exhausted_limit():
    (limit,) = hints(429, [("ratelimit", '"p";r=0;t=60'), ("retry-after", "5")]).limits
    assert (limit.remaining, limit.reset_ns) == (0, 5 * SECOND)


@pytest.mark.parametrize(
    ("fields", "hold_ms", "limits"),
    [
        ([], 0, []),
        ([("retry-after", "7")], 0, []),
        ([("ratelimit", '"default";r=50;t=30')], 0, [(50, 30_000)]),
        ([("ratelimit", '"default";r=0;t=30')], 30_000, [(0, 30_000)]),
        ([("ratelimit", '"default";r=0')], 0, []),
        ([("ratelimit", '"default";r=50;t=0')], 0, []),
        ([("ratelimit", '"burst";r=10;t=1, "daily";r=120;t=60')], 0, [(10, 1000), (120, 60_000)]),
        (
            [("ratelimit", '"a";r=0;t=5'), ("ratelimit", '"b";r=0;t=9')],
            9000,
            [(0, 5000), (0, 9000)],
        ),
        ([("ratelimit-remaining", "3"), ("ratelimit-reset", "6")], 0, [(3, 6000)]),
        ([("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000006")], 0, [(3, 6000)]),
        ([("x-ratelimit-remaining", "3")], 0, []),
        # A day's quota is not spread over the day.
        ([("ratelimit", '"daily";r=999;t=86400')], 0, []),
        ([("ratelimit", '"daily";r=0;t=86400')], 3_600_000, [(0, 3_600_000)]),
        # Of a bucket one is back before the whole.
        ([("x-shopify-shop-api-call-limit", "40/40")], 500, [(0, 20_000)]),
        # Tokens depend on the next request; a unit that is not known holds every request.
        (
            [
                ("ratelimit-policy", '"tpm";q=9;w=60;qu="tokens", "x";q=9;qu="smiles"'),
                ("ratelimit", '"tpm";r=0;t=30, "x";r=0;t=2'),
            ],
            2000,
            [(0, 30_000), (0, 2000)],
        ),
    ],
)
def test_responses_that_passed_hold_as_in_rust(fields, hold_ms, limits):
    found = hints(200, fields)
    brief = [(limit.remaining, limit.reset_ns // MS) for limit in found.limits]
    assert (found.hold_ns // MS, brief) == (hold_ms, limits)


RESPONSES = [
    # GitHub Docs, "Rate limits for the REST API".
    (
        """x-ratelimit-limit: 5000
x-ratelimit-remaining: 4987
x-ratelimit-used: 13
x-ratelimit-reset: 1700001800
x-ratelimit-resource: core""",
        ["core requests 5000 4987 1800000 False"],
    ),
    # OpenAI, "Rate limits", section "Rate limits in headers".
    (
        """x-ratelimit-limit-requests: 60
x-ratelimit-limit-tokens: 150000
x-ratelimit-remaining-requests: 59
x-ratelimit-remaining-tokens: 149984
x-ratelimit-reset-requests: 1s
x-ratelimit-reset-tokens: 6m0s""",
        [
            "x-ratelimit-remaining-requests requests 60 59 1000 True",
            "x-ratelimit-remaining-tokens tokens 150000 149984 360000 True",
        ],
    ),
    # Anthropic, "Rate limits", section "Response headers". Whole seconds count as their end.
    (
        """date: Tue, 14 Nov 2023 22:13:20 GMT
anthropic-ratelimit-requests-limit: 1000
anthropic-ratelimit-requests-remaining: 999
anthropic-ratelimit-requests-reset: 2023-11-14T22:13:20Z
anthropic-ratelimit-input-tokens-limit: 80000
anthropic-ratelimit-input-tokens-remaining: 20000
anthropic-ratelimit-input-tokens-reset: 2023-11-14T22:14:05Z
anthropic-ratelimit-output-tokens-limit: 16000
anthropic-ratelimit-output-tokens-remaining: 16000
anthropic-ratelimit-output-tokens-reset: 2023-11-14T22:13:20Z
anthropic-ratelimit-tokens-limit: 96000
anthropic-ratelimit-tokens-remaining: 36000
anthropic-ratelimit-tokens-reset: 2023-11-14T22:14:05Z""",
        [
            "anthropic-ratelimit-requests-remaining requests 1000 999 1000 True",
            "anthropic-ratelimit-tokens-remaining tokens 96000 36000 46000 True",
            "anthropic-ratelimit-input-tokens-remaining input-tokens 80000 20000 46000 True",
            "anthropic-ratelimit-output-tokens-remaining output-tokens 16000 16000 1000 True",
        ],
    ),
    # shopify.dev, "REST Admin API rate limits".
    (
        "x-shopify-shop-api-call-limit: 32/40",
        ["x-shopify-shop-api-call-limit requests 40 8 16000 True"],
    ),
    # The draft, with units told apart.
    (
        """ratelimit-policy: "permin";q=50;w=60, "tpm";q=90000;w=60;qu="tokens"
ratelimit: "permin";r=12;t=30
ratelimit: "tpm";r=800;t=30""",
        ["permin requests 50 12 30000 False", "tpm tokens 90000 800 30000 False"],
    ),
    # Envoy.
    (
        """x-ratelimit-limit: 100, 100;w=60
x-ratelimit-remaining: 9
x-ratelimit-reset: 5""",
        ["x-ratelimit-remaining requests 100 9 5000 False"],
    ),
]


@pytest.mark.parametrize(("response", "expected"), RESPONSES)
def test_responses_of_vendors_are_read_as_documented(response, expected):
    found = hints(200, [line.split(": ", 1) for line in response.splitlines()])
    assert found.hold_ns == 0
    brief = [
        f"{it.name} {it.unit} {it.quota} {it.remaining} {it.reset_ns // MS} {it.is_gradual}"
        for it in found.limits
    ]
    assert brief == expected


def test_windows_are_cut_to_the_longest_hold():
    policy = ("ratelimit-policy", '"p";q=5;w=31536000')
    assert hints(200, [policy, ("ratelimit", '"p";r=1;t=9')]).limits[0].window_ns == MAX_HOLD_NS


def test_a_bucket_opens_before_its_reset():
    limit = ServerLimit("", "tokens", 1000, None, 400, 60 * SECOND, True)
    opens = [limit.opens_after_ns(amount) // MS for amount in (400, 401, 700, 1000, 5000)]
    assert opens == [0, 100, 30_000, 60_000, 60_000]
    fixed = ServerLimit("", "tokens", 1000, None, 400, 60 * SECOND)
    assert fixed.opens_after_ns(401) == 60 * SECOND


def test_a_stored_response_has_no_limits():
    for age, number in [("0", 1), ("7", 0), ("old", 1)]:
        assert len(hints(200, [("ratelimit", '"a";r=1;t=1'), ("age", age)]).limits) == number


def test_a_long_value_is_not_read_and_many_are_cut():
    assert hints(429, [("retry-after", "7" + ";" * 8192)]).hold_ns == DEFAULT_BACKOFF_NS
    many = [("ratelimit", '"b";r=1;t=1'), ("x-shopify-shop-api-call-limit", "1/40")] * 40
    assert len(hints(200, [("ratelimit", '"a";r=1;t=1,' * 600), *many]).limits) == 32


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"default";r=50;t=30', [(50, 30)]),
        ('"default" ; r=50 ; t=30 ', [(50, 30)]),
        ("default;r=50;t=30", [(50, 30)]),
        ('"a";r=1;t=2,"b";r=3;t=4', [(1, 2), (3, 4)]),
        ('"a";t=2;pk=:cHsdsRa894==:;r=1;x', [(1, 2)]),
        ('"a;r=9;t=9,b";r=1;t=2', [(1, 2)]),
        ('"a\\";r=9;t=9\\\\";r=1;t=2', [(1, 2)]),
        ('"default";r=50', [(50, None)]),
        ('"default"', []),
        ("limit=100, remaining=50, reset=5", [(50, 5)]),
        ('"a";r=999999999999999;t=0', [(999_999_999_999_999, 0)]),
        ('"a";r=1000000000000000;t=0', []),
        ('"a";r=-1;t=2', []),
        ('"a";r=1.5;t=2', []),
        ('"a";r=;t=2', []),
        ('"a";r=1;t=2,"b";r=x;t=4', []),
        ('"a";r=1;t=2,"b;r=3;t=4', []),
        ('"a"b;r=1;t=2', []),
        ('"a";r=1;t=2;w=0', []),
        ("", []),
    ],
)
def test_structured_fields_are_read_as_in_rust(line, expected):
    assert [(item.remaining, item.reset) for item in _items(line)] == expected


def test_items_find_their_policies():
    def of(policies, status):
        found = hints(200, [("ratelimit-policy", policies), ("ratelimit", status)]).limits
        return [(it.name, it.quota, it.window_ns and it.window_ns // SECOND, it.unit) for it in found]

    two = '"u";q=1;w=1;pk=:YQ==:, "u";q=2;w=2;pk=:Yg==:'
    assert of(two, '"u";r=1;t=2;pk=:Yg==:') == [("u:Yg==:", 2, 2, "requests")]
    units = '"a";q=5;w=9;qu="tokens", "b";q=5;qu="smiles"'
    assert of(units, '"a";r=1;t=2, "b";r=1;t=2, "c";r=1;t=2') == [
        ("a", 5, 9, "tokens"),
        ("b", 5, None, None),
        ("c", None, None, "requests"),
    ]
    # A malformed field is ignored, and the other one is not.
    for malformed in ['"a";q=x;w=9', '"a";q=5;w=0', '"a;q=5', "100;w=60"]:
        assert of(malformed, '"a";r=1;t=2') == [("a", None, None, "requests")]


def test_borders_within_quotes_are_none():
    assert _split('a, "b,c" ,d', ",") == ["a", '"b,c"', "d"]
    assert _split('"a\\",b",c', ",") == ['"a\\",b"', "c"]
    assert _split('"open, for ever', ",") == ['"open, for ever']


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("7", 7 * SECOND),
        ("2.0", 2 * SECOND),
        ("1.5", 1500 * MS),
        ("0.0000000001", 1),
        ("0.00000000000000000001", 1),
        ("+1", None),
        ("-1", None),
        ("1e9", None),
        ("1.", None),
        (".5", None),
        ("1.5.1", None),
        ("0x10", None),
        ("١", None),
        ("7s", None),
        ("", None),
    ],
)
def test_seconds_are_decimal_and_rounded_up(text, ns):
    assert _seconds(text) == ns


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1s", 1000),
        ("12ms", 12),
        ("6m0s", 360_000),
        ("2m52.8s", 172_800),
        ("1h2m3.5s", 3_723_500),
        ("33.023s", 33_023),
        ("1.5h", 5_400_000),
        ("7us", 0.007),
        ("7µs", 0.007),
        ("0.1ns", 0.000_001),
        ("", None),
        ("1", None),
        ("s", None),
        ("1d", None),
        ("1s2", None),
        ("-1s", None),
        ("1 s", None),
        ("1..5s", None),
    ],
)
def test_durations_are_those_of_go(text, ms):
    assert _go_duration(text) == (None if ms is None else round(ms * MS))


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        # Whole seconds count as their end.
        ("2025-08-21T12:40:59Z", 1000),
        ("2025-08-21t12:40:59z", 1000),
        ("2025-08-21T12:40:59.25Z", 250),
        ("2025-08-21T07:40:59.5-05:00", 500),
        ("2025-08-21T18:10:59.5+05:30", 500),
        ("2025-02-29T12:40:59Z", None),
        ("2025-13-01T12:40:59Z", None),
        ("2025-00-01T12:40:59Z", None),
        ("2025-08-21 12:40:59Z", None),
        ("2025-08-21T12:40Z", None),
        ("2025-08-21T12:40:59", None),
        ("2025-08-21T12:40:59.Z", None),
        ("2025-08-21T12:40:59Zz", None),
        ("2025-08-21T12:40:59+0530", None),
        ("2025-8-21T12:40:59Z", None),
        ("10000-08-21T12:40:59Z", None),
        ("", None),
    ],
)
def test_instants_are_those_of_rfc_3339(text, ms):
    assert _rfc3339(text) == (None if ms is None else 1_755_780_059 * SECOND + ms * MS)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30", 30_000),
        ("1.01", 1010),
        ("30, 30;w=60", 30_000),
        ("1755780042", 42_000),
        ("1755780042500", 42_500),
        ("1755779999", 0),
        ("6m0s", 360_000),
        ("2025-08-21T12:40:30.5Z", 30_500),
        ("2025-08-21T12:39:00Z", 0),
        ("soon", None),
        ("", None),
    ],
)
def test_resets_are_read_in_any_form(text, ms):
    assert _time_until(text, 1_755_780_000 * SECOND) == (None if ms is None else ms * MS)


NAMES = """ratelimit ratelimit-policy ratelimit-remaining ratelimit-reset x-ratelimit-limit
x-ratelimit-remaining x-ratelimit-reset x-ratelimit-resource x-ratelimit-limit-tokens
x-ratelimit-remaining-tokens x-ratelimit-reset-tokens anthropic-ratelimit-requests-limit
anthropic-ratelimit-requests-remaining anthropic-ratelimit-requests-reset
x-shopify-shop-api-call-limit retry-after date age""".split()

PIECES = [
    *'" \\ ; , = r t r= ;t= pk : 0 1 999999999999999 . - limit GMT w=60'.split(),
    *"18446744073709551615 remaining= reset= é \x80 / h ms 2025-08-21".split(),
    *["T12:40:59", "+05:30", " ", "\t", "\0", "٣"],
    *["Tue, 14 Nov 2023 22:13:50 GMT", "Tue, 31 Feb 9999 25:61:61 GMT"],
]


def test_any_characters_give_hints_or_none():
    generator, understood, rounds = random.Random(1), 0, 3000
    for _ in range(rounds):
        fields = [
            (name, "".join(generator.choices(PIECES, k=generator.randrange(6))))
            for name in generator.sample(NAMES, 9)
        ]
        found = parse_hints(generator.choice([200, 403, 429]), fields, 0)
        assert 0 <= found.hold_ns <= MAX_HOLD_NS
        assert all(0 < limit.reset_ns <= MAX_HOLD_NS for limit in found.limits)
        understood += bool(found.limits) or found.hold_ns not in (0, DEFAULT_BACKOFF_NS)
    assert understood > rounds / 50


def test_hostile_values_take_time_in_proportion_to_their_length():
    for name in NAMES:
        for piece in ['"', '\\"', '"\\', ",", ";", "1s", "1", ".", " ", '"a";', "=", "9:99:"]:
            begin = time.process_time()
            parse_hints(429, [(name, piece * (8000 // len(piece)))], NOW)
            # A quadratic reader takes seconds.
            assert time.process_time() - begin < 1, (name, piece)
