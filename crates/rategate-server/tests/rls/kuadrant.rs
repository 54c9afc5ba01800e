//! Kuadrant's service: its four methods, and Limitador's limits decided by them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use fastrand::Rng;
use prost::Message;
use rategate_server::config::load_text;
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
const TAKE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

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

/// A limit of Limitador's, as plain data.
#[derive(Clone, Debug)]
struct Limit {
    max: u64,
    seconds: u64,
    /// Conditions: an index, a key and a value.
    equal: Vec<(&'static str, &'static str)>,
    variables: Vec<&'static str>,
    descriptor: usize,
}

impl Limit {
    fn yaml(&self) -> String {
        let nth = self.descriptor;
        let condition = |(key, value): &_| format!("\"descriptors[{nth}].{key} == '{value}'\"");
        let variable = |key: &_| format!("\"descriptors[{nth}].{key}\"");
        format!(
            "- namespace: edge\n  max_value: {}\n  seconds: {}\n  conditions: [{}]\n  variables: \
             [{}]\n",
            self.max,
            self.seconds,
            self.equal.iter().map(condition).collect::<Vec<_>>().join(", "),
            self.variables.iter().map(variable).collect::<Vec<_>>().join(", "),
        )
    }

    /// Returns the values that select its counter, if it applies.
    fn counter(&self, call: &[Vec<(&'static str, &'static str)>]) -> Option<Vec<&'static str>> {
        let map: HashMap<_, _> = call.get(self.descriptor)?.iter().copied().collect();
        let applies = self.equal.iter().all(|(key, value)| map.get(key) == Some(value));
        self.variables
            .iter()
            .map(|key| map.get(key).copied())
            .collect::<Option<_>>()
            .filter(|_| applies)
    }
}

/// The counts of Limitador's counters: a call that does not fit into one counts in none.
#[derive(Default)]
struct Oracle(HashMap<(usize, Vec<&'static str>), u64>);

impl Oracle {
    fn call(
        &mut self,
        limits: &[Limit],
        path: &str,
        call: &[Vec<(&'static str, &'static str)>],
        hits: u64,
    ) -> i32 {
        let counters: Vec<_> = limits
            .iter()
            .enumerate()
            .filter_map(|(nth, limit)| Some(((nth, limit.counter(call)?), limit.max)))
            .collect();
        let wanted = if path == CHECK { 1 } else { hits };
        let count = |oracle: &Self, key: &_| oracle.0.get(key).copied().unwrap_or(0);
        let fits = counters.iter().all(|(key, max)| count(self, key) + wanted <= *max);
        if path == REPORT || (path == TAKE && fits) {
            for (key, _) in &counters {
                *self.0.entry(key.clone()).or_default() += hits;
            }
        }
        if path == REPORT || fits { OK } else { OVER_LIMIT }
    }
}

/// Random files of limits and random calls, within one window, decided as Limitador decides them.
#[test]
fn limits_of_limitador_decide_as_there() {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    const VALUES: [&str; 3] = ["x", "y", "z"];
    let seed = 0x4c69_6d69;
    let mut random = Rng::with_seed(seed);
    for file in 0..60 {
        let mut limits: Vec<Limit> = Vec::new();
        for nth in 0..random.u64(1..6) {
            let some =
                |random: &mut Rng| KEYS.into_iter().filter(|_| random.u8(..3) == 0).collect();
            let equal: Vec<&str> = some(&mut random);
            let equal = equal.into_iter().map(|key| (key, *random.choice(&VALUES).unwrap()));
            let equal: Vec<_> = equal.collect();
            let variables: Vec<_> = some(&mut random);
            // Without expressions a limit is for each call.
            let names_none = equal.is_empty() && variables.is_empty();
            limits.push(Limit {
                max: random.u64(0..6),
                // Distinct lengths: limits are the same by namespace, expressions and seconds.
                seconds: 86_400 * (nth + 1),
                equal,
                variables,
                descriptor: if names_none { 0 } else { random.usize(..2) },
            });
        }
        let yaml: String = limits.iter().map(Limit::yaml).collect();
        let loaded = load_text("limits.yaml", &yaml).unwrap_or_else(|e| panic!("{}", e.report()));
        let (engine, _) = engine(loaded.rules.rules.clone());
        let server = Server::start(Driver::Own, engine, Settings::default());
        let mut gateway = Gateway::new(&server, &[]);
        let mut oracle = Oracle::default();
        for step in 0..60 {
            let call: Vec<Vec<_>> = (0..random.usize(1..3))
                .map(|_| {
                    // A key may be there twice: its last value counts.
                    let count = random.usize(..5);
                    let entry = |_| {
                        let pick = |all: &[&'static str; 3], nth: usize| all[nth % 3];
                        (pick(&KEYS, random.usize(..)), pick(&VALUES, random.usize(..)))
                    };
                    (0..count).map(entry).collect()
                })
                .collect();
            let path = *random.choice(&[TAKE, CHECK, REPORT]).unwrap();
            let hits = random.u32(1..4);
            gateway.descriptors = call.iter().map(|entries| descriptor(entries)).collect();
            let expected = oracle.call(&limits, path, &call, hits.into());
            let decided = gateway.rate_limit(path, hits);
            assert_eq!(
                decided, expected,
                "seed {seed}, file {file}, step {step}: {path} {call:?} {hits}\n{yaml}"
            );
        }
    }
}
