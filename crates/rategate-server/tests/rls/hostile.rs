//! Header fields of one client, as a proxy passes them on: whatever their bytes, an exhausted
//! limit denies, and no error occurs on which the proxy would admit requests.

use bytes::Bytes;
use http_body_util::BodyExt;
use proptest::prelude::*;
use prost::Message as _;
use rategate_server::engine::{Decided, EngineError, Request};
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::net::{RefusalReason, Rights};
use rategate_server::protocol::grpc::{Grpc, Health, Settings};
use rategate_server::protocol::rls::{Decide, Options, RlsRequest, json};
use tonic::Code;

use crate::rls::common::{Server, engine, rules, runtime};
use crate::rls::unary::{Client, PATH};

/// Encodes a field of a message: its number, and bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = varint(u64::try_from(bytes.len()).unwrap());
    [&[number << 3 | 2], &length[..], bytes].concat()
}

/// Encodes a field of a message: its number, and an integer.
fn integer(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3], &varint(value)[..]].concat()
}

/// Encodes an integer with seven bits in each byte, the lowest first.
fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = value;
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// Encodes a request with descriptors of one entry each, as Envoy writes it: with the bytes of
/// header fields.
fn message(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut message = field(1, b"edge");
    for (key, value) in entries {
        let entry = [field(1, key), field(2, value)].concat();
        message.extend(field(2, &field(1, &entry)));
    }
    message
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// Sends a request. Returns the code of the answer, or the status in place of one.
fn ask(client: &mut Client, message: &[u8]) -> Result<i32, Code> {
    let reply = client.call(PATH, message.to_vec()).map_err(|status| status.code())?;
    Ok(RateLimitResponse::decode(reply).unwrap().overall_code)
}

const OVER: Result<i32, Code> = Ok(2);

fn server() -> (Server, Client) {
    let server = Server::start(engine(rules()).0, Settings::default());
    let client = Client::new(server.address);
    (server, client)
}

/// Encodes a request of one descriptor with an exhausted limit, and one with the malicious value.
fn used_up<'a>(key: &'a [u8], value: &'a [u8]) -> Vec<u8> {
    message(&[(b"remote_address", b"50.0.0.5"), (key, value)])
}

#[test]
fn a_value_that_is_no_text_is_a_value() {
    let (_server, mut client) = server();
    for value in [&b"\xff\xfe"[..], b"\xed\xa0\x80", b"\0", b""] {
        for message in [used_up(b"plan", value), used_up(value, b"x")] {
            assert_eq!(ask(&mut client, &message), OVER, "{value:?}");
        }
    }
    let own = RateLimitRequest::decode(&*message(&[(b"pl\xff", b"\xff\xfe")])).unwrap();
    let ask = RlsRequest::of(&own).unwrap();
    assert_eq!(ask.descriptors[0].entries.as_slice(), [(&b"pl\xff"[..], &b"\xff\xfe"[..])]);
}

#[test]
fn values_that_are_no_text_have_counters_of_their_own() {
    let (_server, mut client) = server();
    // Ten a minute for each value; no two of them share a counter.
    for value in [&b"\xff"[..], b"\xfe", "\u{fffd}".as_bytes()] {
        for nth in 0..11 {
            let expected = Ok(if nth < 10 { 1 } else { 2 });
            let message = message(&[(b"remote_address", value)]);
            assert_eq!(ask(&mut client, &message), expected, "{value:?} {nth}");
        }
    }
}

#[test]
fn a_request_that_is_too_long_is_denied() {
    let long = message(&[(b"unheard", &b"x".repeat(70_000))]);
    let (_server, mut client) = server();
    assert_eq!(ask(&mut client, &long), OVER);
    assert_eq!(ask(&mut client, &message(&[(b"unheard", b"x")])), Ok(1), "the others go on");
}

#[test]
fn a_string_of_json_that_is_no_text_is_a_value() {
    let (engine, _) = engine(rules());
    let mut text = br#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"50.0.0.5"}]},{"entries":[{"key":"plan","value":""#.to_vec();
    text.extend(b"\xff\xfe\", \"key\":\"");
    assert_eq!(
        runtime().block_on(json(&text, &engine, &Options::default(), true)).status,
        400,
        "cut short"
    );
    for value in [&b"\xff\xfe"[..], br"\ud800", br"\u0000", b""] {
        let mut text = br#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"50.0.0.5"}]},{"entries":[{"key":"plan","value":""#.to_vec();
        text.extend([value, b"\"}]}]}"].concat());
        let answer = runtime().block_on(json(&text, &engine, &Options::default(), true));
        assert_eq!(answer.status, 429, "{value:?}: {}", answer.body);
    }
}

/// An engine without capacity for another key or limit.
struct Full(EngineError);

impl Decide for Full {
    fn decide(&self, _: &Request<'_>) -> Decided {
        Decided::Now(Err(self.0.clone()))
    }
}

/// A client can invent keys and limits until the capacity is exhausted: then its calls are
/// denied, and counted as such.
#[test]
fn requests_over_capacity_are_denied_and_counted() {
    for fault in [EngineError::NoCapacity, EngineError::TooManyLimits { max: 31 }] {
        denied_for(&fault);
    }
}

fn denied_for(fault: &EngineError) {
    let text =
        br#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"x"}]}]}"#;
    let full = || Full(fault.clone());
    let outcome = runtime().block_on(json(text, &full(), &Options::default(), true));
    let denied = r#"{"overallCode":"OVER_LIMIT","statuses":[]}"#;
    assert_eq!((outcome.status, &*outcome.body), (429, denied), "{fault}");
    assert_eq!(outcome.refusal, Some(RefusalReason::NoCapacity), "{fault}");
    let health = runtime().block_on(Health::new(true));
    let grpc = Grpc::new(full(), &health, Settings::default());
    let body =
        http_body_util::Full::new(Bytes::from(framed(&message(&[(b"remote_address", b"x")]))));
    let request = http::Request::post(PATH).header("content-type", "application/grpc").body(body);
    let response = runtime().block_on(grpc.call(request.unwrap(), Rights::ALL));
    assert_eq!(response.extensions().get(), Some(&RefusalReason::NoCapacity), "{fault}");
    let body = runtime().block_on(response.into_body().collect()).unwrap().to_bytes();
    assert_eq!(body.as_ref(), framed(&[8, 2]), "over the limit");
}

/// Generates integers around all borders.
fn extreme() -> impl Strategy<Value = u64> {
    let bits = (0..64_u32, 0..3_u64)
        .prop_map(|(bit, more)| (1_u64 << bit).wrapping_add(more).wrapping_sub(1));
    prop_oneof![Just(0), Just(u64::MAX), Just(u64::from(u32::MAX)), bits]
}

/// Generates fields that no message here has: of every kind, and with numbers that other messages
/// use.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        Just(Vec::new()),
        extreme().prop_map(|value| integer(9, value)),
        bytes.prop_map(|bytes| field(15, &bytes)),
        any::<[u8; 8]>().prop_map(|bytes| [&[10 << 3 | 1][..], &bytes].concat()),
        any::<[u8; 4]>().prop_map(|bytes| [&[11 << 3 | 5][..], &bytes].concat()),
        // A group within a group.
        Just(vec![12 << 3 | 3, 13 << 3 | 3, 8, 1, 13 << 3 | 4, 12 << 3 | 4]),
    ]
}

prop_compose! {
    /// Generates a descriptor: entries without a key, a value or both, of any bytes; its own
    /// limit; hits.
    fn hostile()(
        entries in prop::collection::vec(
            (
                prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
                prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
                unknown(),
            ),
            0..6,
        ),
        own in prop::option::of((extreme(), 1..8_u64)),
        hits in prop::option::of(prop::option::of(extreme())),
        more in unknown(),
    ) -> Vec<u8> {
        let mut descriptor = more;
        for (key, value, more) in entries {
            let mut entry = more;
            entry.extend(key.map_or_else(Vec::new, |key| field(1, &key)));
            entry.extend(value.map_or_else(Vec::new, |value| field(2, &value)));
            descriptor.extend(field(1, &entry));
        }
        if let Some((permits, unit)) = own {
            descriptor.extend(field(2, &[integer(1, permits), integer(2, unit)].concat()));
        }
        if let Some(hits) = hits {
            descriptor.extend(field(3, &hits.map_or_else(Vec::new, |hits| integer(1, hits))));
        }
        descriptor
    }
}

/// Only malformed messages are answered by a status, and the connection continues.
#[test]
fn malformed_messages_are_answered_with_a_status() {
    let (_server, mut client) = server();
    let whole = message(&[(b"remote_address", b"10.0.0.1")]);
    for malformed in [&whole[..whole.len() - 1], b"\xff", b"\x0f", &[8; 3]] {
        assert_eq!(ask(&mut client, malformed), Err(Code::Internal));
    }
    assert_eq!(ask(&mut client, &whole), Ok(1));
}

/// More descriptors, or entries of one, than a request may have.
#[test]
fn a_request_of_too_many_parts_is_denied() {
    let entry = field(1, &[field(1, b"a"), field(2, b"b")].concat());
    let many = [field(1, b"edge"), field(2, &entry).repeat(65)].concat();
    let wide = [field(1, b"edge"), field(2, &entry.repeat(65))].concat();
    let max = [field(1, b"edge"), field(2, &entry).repeat(6_000)].concat();
    let (_server, mut client) = server();
    for question in [&many, &wide, &max] {
        assert_eq!(ask(&mut client, question), OVER);
    }
}

thread_local! {
    static SERVER: std::cell::RefCell<(Server, Client)> = std::cell::RefCell::new(server());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    /// Any well-formed message with a domain and at least one descriptor gets a decision.
    #[test]
    fn no_message_is_an_error(
        descriptors in prop::collection::vec(hostile(), 1..70),
        domain in prop_oneof![Just(b"edge".to_vec()), "[a-zé]{1,9}".prop_map(String::into_bytes)],
        hits in prop::option::of(extreme()),
        more in unknown(),
    ) {
        let mut bytes = [more, field(1, &domain)].concat();
        for descriptor in &descriptors {
            bytes.extend(field(2, descriptor));
        }
        bytes.extend(hits.map_or_else(Vec::new, |hits| integer(3, hits)));
        let outcome = SERVER.with_borrow_mut(|(_, client)| ask(client, &bytes));
        prop_assert!(matches!(outcome, Ok(1 | 2)), "{:?}", outcome);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    /// All that a client can control: any bytes of any length in any of the values, and any
    /// number of hits.
    #[test]
    fn no_bytes_of_a_client_are_an_error(
        values in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..300), 1..300_usize),
            1..6,
        ),
        hits in any::<u64>(),
        own_hits in any::<bool>(),
    ) {
        let mut bytes = field(1, b"edge");
        let blocked = [field(1, b"remote_address"), field(2, b"50.0.0.5")].concat();
        bytes.extend(field(2, &field(1, &blocked)));
        for (is_key, value, times) in values {
            let value = value.repeat(times);
            let entry = if is_key {
                field(1, &value)
            } else {
                [field(1, b"plan"), field(2, &value)].concat()
            };
            let mut descriptor = field(1, &entry);
            if own_hits {
                descriptor.extend(field(3, &integer(1, hits)));
            }
            bytes.extend(field(2, &descriptor));
        }
        let outcome = SERVER.with_borrow_mut(|(_, client)| ask(client, &bytes));
        prop_assert_eq!(outcome, OVER);
    }
}
