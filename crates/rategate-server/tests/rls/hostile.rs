//! Header fields of one client, as a proxy passes them on: whatever their bytes, an exhausted
//! limit denies, and no error occurs on which the proxy would admit requests.

use proptest::prelude::*;
use prost::Message as _;
use rategate_server::engine::{Decided, EngineError, Request};
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::{Entry, RateLimitOverride};
use rategate_server::messages::rls::RateLimitRequest;
use rategate_server::net::RefusalReason;
use rategate_server::protocol::grpc::{Grpc, Health, Settings};
use rategate_server::protocol::rls::{Decide, Options, json};
use tokio::runtime::Runtime;
use tonic::Code;

use crate::rls::common::{engine, rules, runtime};
use crate::rls::wires::send;

/// The service, called with bytes as a proxy writes them.
struct Called(Runtime, Grpc);

impl Called {
    fn new(engine: impl Decide + Send + Sync + 'static) -> Self {
        let runtime = runtime();
        let health = runtime.block_on(Health::new(true));
        Self(runtime, Grpc::new(engine, &health, Settings::default()))
    }

    /// Returns the code of the reply, or the status in place of one.
    fn ask(&self, message: &[u8]) -> Result<i32, Code> {
        let reply = send(&self.0, &self.1, message).map_err(|status| status.code())?;
        Ok(reply.overall_code)
    }
}

fn called() -> Called {
    Called::new(engine(rules()).0)
}

/// Encodes a request with descriptors of one entry each.
fn message(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let descriptors = entries.iter().map(|(key, value)| RateLimitDescriptor {
        entries: vec![Entry { key: key.to_vec(), value: value.to_vec() }],
        ..RateLimitDescriptor::default()
    });
    encoded(descriptors.collect(), 0)
}

fn encoded(descriptors: Vec<RateLimitDescriptor>, hits_addend: u32) -> Vec<u8> {
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend }.encode_to_vec()
}

const OVER: Result<i32, Code> = Ok(2);
/// An entry with an exhausted limit.
const BLOCKED: (&[u8], &[u8]) = (b"remote_address", b"50.0.0.5");

#[test]
fn a_value_that_is_no_text_is_a_value_with_a_counter_of_its_own() {
    let called = called();
    for value in [&b"\xff\xfe"[..], b"\xed\xa0\x80", b"\0", b""] {
        for other in [(&b"plan"[..], value), (value, b"x")] {
            assert_eq!(called.ask(&message(&[BLOCKED, other])), OVER, "{value:?}");
        }
    }
    let (engine, _) = engine(rules());
    let ask = |value: &[u8], end: &[u8]| {
        let text = br#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"50.0.0.5"}]},{"entries":[{"key":"plan","value":""#;
        let text = [&text[..], value, end].concat();
        runtime().block_on(json(&text, &engine, &Options::default(), true)).status
    };
    for value in [&b"\xff\xfe"[..], br"\ud800", br"\u0000", b""] {
        assert_eq!(ask(value, b"\"}]}]}"), 429, "{value:?}");
    }
    assert_eq!(ask(b"\xff", b"\"}]"), 400, "cut short");
    // Ten a minute for each value; no two of them share a counter.
    for value in [&b"\xff"[..], b"\xfe", "\u{fffd}".as_bytes()] {
        for nth in 0..11 {
            let expected = Ok(if nth < 10 { 1 } else { 2 });
            let message = message(&[(b"remote_address", value)]);
            assert_eq!(called.ask(&message), expected, "{value:?} {nth}");
        }
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
    let text =
        br#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"x"}]}]}"#;
    for fault in [EngineError::NoCapacity, EngineError::TooManyLimits { max: 31 }] {
        let full = || Full(fault.clone());
        let outcome = runtime().block_on(json(text, &full(), &Options::default(), true));
        let denied = r#"{"overallCode":"OVER_LIMIT","statuses":[]}"#;
        assert_eq!((outcome.status, &*outcome.body), (429, denied), "{fault}");
        assert_eq!(outcome.refusal, Some(RefusalReason::NoCapacity), "{fault}");
        // That it is counted over gRPC, too, `serve::capacity` says.
        assert_eq!(Called::new(full()).ask(&message(&[BLOCKED])), OVER, "{fault}");
    }
}

/// Too long a request, or one of more descriptors, or entries of one, than it may have, is denied.
/// Only malformed messages are answered by a status.
#[test]
fn requests_that_are_not_read_are_denied_or_malformed() {
    let called = called();
    let entry = || Entry { key: b"a".to_vec(), value: b"b".to_vec() };
    let wide = |entries| RateLimitDescriptor {
        entries: vec![entry(); entries],
        ..RateLimitDescriptor::default()
    };
    for question in [
        message(&[(b"unheard", &b"x".repeat(70_000))]),
        encoded(vec![wide(1); 65], 0),
        encoded(vec![wide(65)], 0),
        encoded(vec![wide(1); 6_000], 0),
    ] {
        assert_eq!(called.ask(&question), OVER);
    }
    let whole = message(&[(b"remote_address", b"10.0.0.1")]);
    for malformed in [&whole[..whole.len() - 1], b"\xff", b"\x0f", &[8; 3]] {
        assert_eq!(called.ask(malformed), Err(Code::Internal));
    }
    assert_eq!(called.ask(&whole), Ok(1));
}

/// Generates integers around all borders.
fn extreme() -> impl Strategy<Value = u64> {
    let bits = (0..64_u32, 0..3_u64)
        .prop_map(|(bit, more)| (1_u64 << bit).wrapping_add(more).wrapping_sub(1));
    prop_oneof![Just(0), Just(u64::MAX), Just(u64::from(u32::MAX)), bits]
}

/// Generates bytes, of which few are long: most requests are to be read.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        99 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (prop::collection::vec(any::<u8>(), 0..300), 1..60_usize)
            .prop_map(|(bytes, times)| bytes.repeat(times)),
    ]
}

prop_compose! {
    /// Generates a descriptor: entries of any bytes, its own limit, and hits.
    fn hostile()(
        entries in prop::collection::vec((bytes(), bytes()), 0..6),
        own in prop::option::of((any::<u32>(), 1..8_i32)),
        hits_addend in prop::option::of(extreme()),
        is_negative_hits in any::<bool>(),
    ) -> RateLimitDescriptor {
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| Entry { key, value };
        let limit = own.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
        let entries = entries.into_iter().map(entry).collect();
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    }
}

thread_local! {
    static CALLED: Called = called();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    /// Any message with a domain and at least one descriptor gets a decision, and whatever a client
    /// can control, an exhausted limit beside it denies.
    #[test]
    fn no_message_is_an_error(
        descriptors in prop::collection::vec(hostile(), 1..70),
        hits in any::<u32>(),
        is_blocked in any::<bool>(),
    ) {
        let mut bytes = encoded(descriptors, hits);
        if is_blocked {
            // The order of fields has no meaning.
            bytes.extend(message(&[BLOCKED]));
        }
        let outcome = CALLED.with(|called| called.ask(&bytes));
        prop_assert!(outcome == OVER || (!is_blocked && outcome == Ok(1)), "{:?}", outcome);
    }
}
