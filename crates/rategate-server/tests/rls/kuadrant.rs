//! Kuadrant's service: its four methods.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::Message;
use rategate_server::engine::{Engine, MAX_TTL, Verdict};
use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::Options;
use tonic::{Code, Status};

use crate::rls::common::{Clock, Driver, Server, engine, rule};
use crate::rls::unary::Client;

pub(crate) const CHECK: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit";
pub(crate) const REPORT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Report";
const RESERVE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";
const COMMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

/// Messages as Kuadrant's file declares them.
#[derive(Clone, PartialEq, Message)]
struct Reserve {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint64, tag = "3")]
    amount: u64,
    #[prost(message, optional, tag = "4")]
    ttl: Option<Ttl>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Ttl {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Reserved {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    pub(crate) reservation_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Commit {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RateLimitDescriptor>,
    #[prost(string, tag = "3")]
    reservation_id: String,
    #[prost(uint64, tag = "4")]
    actual_amount: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Committed {
    #[prost(bool, tag = "1")]
    reservation_released: bool,
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry =
        |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// Calls the service about descriptors of the domain `edge`.
pub(crate) struct Gateway {
    client: Client,
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
}

impl Gateway {
    pub(crate) fn new(server: &Server, entries: &[(&str, &str)]) -> Self {
        Self::at(server.address, entries)
    }

    pub(crate) fn at(address: SocketAddr, entries: &[(&str, &str)]) -> Self {
        Self { client: Client::new(address), descriptors: vec![descriptor(entries)] }
    }

    pub(crate) fn rate_limit(&mut self, path: &'static str, hits_addend: u32) -> i32 {
        let (domain, descriptors) = ("edge".to_owned(), self.descriptors.clone());
        let message = RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec();
        let reply = self.client.call(path, message).unwrap();
        RateLimitResponse::decode(reply).unwrap().overall_code
    }

    pub(crate) fn reserve(&mut self, amount: u64, ttl: Option<Ttl>) -> Result<Reserved, Status> {
        let (domain, descriptors) = ("edge".to_owned(), self.descriptors.clone());
        let message = Reserve { domain, descriptors, amount, ttl }.encode_to_vec();
        Ok(Reserved::decode(self.client.call(RESERVE, message)?).unwrap())
    }

    pub(crate) fn commit(&mut self, id: &str, actual_amount: u64) -> Result<bool, Status> {
        let (domain, descriptors) = ("edge".to_owned(), self.descriptors.clone());
        let reservation_id = id.to_owned();
        let message = Commit { domain, descriptors, reservation_id, actual_amount };
        let reply = self.client.call(COMMIT, message.encode_to_vec())?;
        Ok(Committed::decode(reply).unwrap().reservation_released)
    }
}

/// Returns how much of its limit a rule of one value has left, and by how much it is exceeded.
pub(crate) fn left(engine: &Engine<Clock>, name: &str, value: &str) -> (u64, u64) {
    use rategate_server::engine::{Decided, Item, Request, Target, Verb};
    let values: &[&[u8]] = &[value.as_bytes()];
    let items = [Item::of(Target::Rule { name, values }, 0)];
    let request = Request { verb: Verb::Peek, items: &items, counts_denied: false };
    let Decided::Now(Ok(answer)) = engine.decide(&request) else { panic!("{name}") };
    let result = &answer.results[0];
    assert!(matches!(result.verdict, Verdict::Granted | Verdict::Denied { .. }), "{result:?}");
    (result.remaining.unwrap(), result.debt)
}

fn tokens(permits: u64, driver: Driver) -> (Engine<Clock>, Clock, Server) {
    let (engine, clock) = engine(vec![rule("tokens", &[("user", "")], permits)]);
    let server = Server::start(driver, engine.clone(), Settings::default());
    (engine, clock, server)
}

#[test]
fn a_check_asks_for_room_and_a_report_is_never_refused() {
    for driver in [Driver::Own, Driver::Hyper] {
        let (engine, _, server) = tokens(10, driver);
        let mut gateway = Gateway::new(&server, &[("user", "a")]);
        for _ in 0..3 {
            assert_eq!(gateway.rate_limit(CHECK, 7), OK, "nothing is taken");
        }
        assert_eq!(gateway.rate_limit(REPORT, 9), OK);
        assert_eq!((gateway.rate_limit(CHECK, 0), left(&engine, "tokens", "a")), (OK, (1, 0)));
        // No hits are one.
        assert_eq!(gateway.rate_limit(REPORT, 0), OK);
        assert_eq!(gateway.rate_limit(CHECK, 0), OVER_LIMIT, "a full limit has no room");
        assert_eq!(gateway.rate_limit(REPORT, 5), OK);
        assert_eq!(left(&engine, "tokens", "a"), (0, 5));
        let mut other = Gateway::new(&server, &[("user", "b")]);
        assert_eq!(other.rate_limit(CHECK, 0), OK);
        let mut unknown = Gateway::new(&server, &[("unknown", "b")]);
        assert_eq!((unknown.rate_limit(CHECK, 0), unknown.rate_limit(REPORT, 3)), (OK, OK));
    }
}

#[test]
fn an_estimate_is_held_until_its_commit_which_counts_once() {
    for (driver, times) in
        [(Driver::Own, 1), (Driver::Own, 2), (Driver::Own, 5), (Driver::Hyper, 3)]
    {
        let (engine, _, server) = tokens(1_000, driver);
        let mut gateway = Gateway::new(&server, &[("user", "a")]);
        let held = gateway.reserve(800, None).unwrap();
        assert_eq!((held.code, held.reservation_id.len()), (OK, 32));
        assert_eq!(left(&engine, "tokens", "a"), (200, 0));
        let refused = gateway.reserve(300, None).unwrap();
        assert_eq!(refused, Reserved { code: OVER_LIMIT, reservation_id: String::new() });
        for _ in 0..times {
            assert!(gateway.commit(&held.reservation_id, 650).unwrap());
            assert_eq!(left(&engine, "tokens", "a"), (350, 0), "{times}");
        }
        // More than was held is charged.
        let held = gateway.reserve(300, None).unwrap();
        for _ in 0..times {
            assert!(gateway.commit(&held.reservation_id, 450).unwrap());
            assert_eq!(left(&engine, "tokens", "a"), (0, 100));
        }
    }
}

#[test]
fn a_reservation_ends_by_itself_and_a_later_commit_is_charged_once() {
    let (engine, clock, server) = tokens(1_000, Driver::Own);
    let mut gateway = Gateway::new(&server, &[("user", "a")]);
    let held = gateway.reserve(800, Some(Ttl { seconds: 0, nanos: 500_000_000 })).unwrap();
    clock.advance(Duration::from_millis(499));
    assert_eq!(left(&engine, "tokens", "a"), (200, 0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(left(&engine, "tokens", "a"), (1_000, 0));
    for _ in 0..3 {
        assert!(!gateway.commit(&held.reservation_id, 650).unwrap(), "nothing was held any more");
        assert_eq!(left(&engine, "tokens", "a"), (350, 0));
    }
}

#[test]
fn without_a_reservation_what_was_used_is_charged() {
    let (engine, _, server) = tokens(1_000, Driver::Own);
    let mut gateway = Gateway::new(&server, &[("user", "a")]);
    for used in [100, 200] {
        assert!(!gateway.commit("", 100).unwrap(), "an empty id is a report");
        assert_eq!(left(&engine, "tokens", "a"), (1_000 - used, 0));
    }
    // An id that nothing was reserved under: as after a restart. It counts once.
    for id in ["0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef"] {
        assert!(!gateway.commit(id, 300).unwrap());
        assert_eq!(left(&engine, "tokens", "a"), (500, 0));
    }
    // What it was first sent with cannot change.
    let other = gateway.commit("0123456789abcdef0123456789abcdef", 301).unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument);
    assert_eq!(left(&engine, "tokens", "a"), (500, 0));
}

#[test]
fn what_is_wrong_is_named_and_counts_nothing() {
    let (engine, _, server) = tokens(1_000, Driver::Own);
    let mut gateway = Gateway::new(&server, &[("user", "a")]);
    for id in ["7", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0"] {
        let refused = gateway.commit(id, 5).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{id}");
        assert!(refused.message().starts_with("`reservation_id`: "), "{refused:?}");
    }
    let too_long = i64::try_from(MAX_TTL.as_secs()).unwrap() + 1;
    for (seconds, nanos) in [(0, 0), (too_long, 0), (-1, 0), (1, -1), (1, 1_000_000_000)] {
        let refused = gateway.reserve(5, Some(Ttl { seconds, nanos })).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{seconds} {nanos}");
        assert!(refused.message().contains("ttl"), "{refused:?}");
    }
    let held = gateway.reserve(5, None).unwrap().reservation_id;
    gateway.descriptors.push(descriptor(&[("user", "b")]));
    let refused = gateway.commit(&held, 5).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    gateway.descriptors.truncate(1);
    gateway.descriptors[0].is_negative_hits = true;
    for refused in [gateway.commit(&held, 5).unwrap_err(), gateway.reserve(5, None).unwrap_err()] {
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("is_negative_hits"), "{refused:?}");
    }
    gateway.descriptors.clear();
    assert_eq!(gateway.reserve(5, None).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(left(&engine, "tokens", "a"), (995, 0));
}

/// Callers may admit requests on errors, so a request that is too long is denied.
#[test]
fn a_request_of_too_many_parts_is_denied() {
    let (engine, _, server) = tokens(1_000, Driver::Own);
    let mut gateway = Gateway::new(&server, &[("user", "a")]);
    gateway.descriptors = vec![gateway.descriptors[0].clone(); 65];
    assert_eq!(gateway.rate_limit(CHECK, 0), OVER_LIMIT);
    assert_eq!(gateway.reserve(1, None).unwrap().code, OVER_LIMIT);
    assert_eq!(gateway.commit("", 1).unwrap_err().code(), Code::InvalidArgument);
    gateway.descriptors = vec![descriptor(&[("user", &"a".repeat(70_000))])];
    assert_eq!(gateway.rate_limit(CHECK, 0), OVER_LIMIT);
    assert_eq!(gateway.reserve(1, None).unwrap().code, OVER_LIMIT);
    assert_eq!(gateway.commit("", 1).unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(left(&engine, "tokens", "a"), (1_000, 0));
}

/// Under `shadow` every call passes, and what does not fit has no reservation.
#[test]
fn in_shadow_mode_an_estimate_that_does_not_fit_passes_without_an_id() {
    let (engine, _) = engine(vec![rule("tokens", &[("user", "")], 10)]);
    let options = Options { shadow: true, ..Options::default() };
    let settings = Settings { options, ..Settings::default() };
    let server = Server::start(Driver::Own, engine.clone(), settings);
    let mut gateway = Gateway::new(&server, &[("user", "a")]);
    let passed = gateway.reserve(11, None).unwrap();
    assert_eq!(passed, Reserved { code: OK, reservation_id: String::new() });
    assert!(!gateway.commit(&passed.reservation_id, 11).unwrap());
    assert_eq!(left(&engine, "tokens", "a"), (0, 1));
}
