//! A real Envoy and rules in quota mode: a call is denied only if all of its quotas are over, each
//! is charged, and the metadata of a reply names one that has room.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::Options;

use crate::rls::common::{Clock, Driver, Server, engine};
use crate::rls::envoy::{Envoy, left_of, program, until};

/// Two pools, of which the smaller one is named first.
const RULES: &str = "\
domain: edge
descriptors:
  - key: pool
    value: small
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
    metadata: { room: { pool: small } }
  - key: pool
    value: large
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 2 }
    metadata: { room: { pool: large } }
";

/// Writes the pool of the reply's metadata into the request that goes on.
const SHOW_POOL: &str = r#"
- name: envoy.filters.http.header_mutation
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
    mutations:
      request_mutations:
        - append:
            header:
              key: x-pool
              value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:room:pool)%"
            append_action: OVERWRITE_IF_EXISTS_OR_ADD
"#;

/// Returns lines of a file at this depth.
fn indented(depth: usize, lines: &str) -> String {
    lines.trim().lines().map(|line| format!("{:depth$}{line}\n", "")).collect()
}

/// Starts an upstream that records the pool of each request.
fn pools() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, seen) = (listener.local_addr().unwrap().port(), Arc::default());
    let log: Arc<Mutex<Vec<String>>> = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
            let pool = head.iter().find_map(|line| line.strip_prefix("x-pool: "));
            // A connection without a request is none.
            if !head.is_empty() {
                log.lock().unwrap().push(pool.unwrap_or("none").to_owned());
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    (port, seen)
}

/// A service with the rules, an Envoy whose route has these `rate_limits`, and what the upstream
/// sees.
struct Played {
    envoy: Envoy,
    engine: rategate_server::engine::Engine<Clock>,
    clock: Clock,
    pools: Arc<Mutex<Vec<String>>>,
    _server: Server,
}

impl Played {
    fn start(rate_limits: &str) -> Option<Self> {
        let program = program()?;
        let loaded = rategate_server::config::load_text("edge.yaml", RULES).unwrap();
        let (engine, clock) = engine(loaded.rules.rules.clone());
        let options = Options { dynamic_metadata: true, ..Options::default() };
        let settings = Settings { options, ..Settings::default() };
        let server = Server::start(Driver::Own, engine.clone(), settings);
        let (service, pools) = pools();
        let route = "                        - match: { prefix: / }\n";
        let config = "typed_per_filter_config:\n  envoy.filters.http.ratelimit:\n    \"@type\": \
            type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute\n    \
            rate_limits:\n";
        let limits = indented(26, config) + &indented(32, rate_limits);
        let router = "                  - name: envoy.filters.http.router\n";
        let words = [
            (route, &*format!("{route}{limits}")),
            (router, &*(indented(18, SHOW_POOL) + router)),
            // Long enough for a busy machine.
            ("timeout: 0.25s", "timeout: 20s"),
        ];
        let envoy = Envoy::with(&program, service, server.address.port(), &words);
        Some(Self { envoy, engine, clock, pools, _server: server })
    }

    fn status(&self) -> u16 {
        self.envoy.get("").0
    }

    /// Returns what is left of the small pool and of the large one, and their debts.
    fn left(&self) -> [(u64, u64); 2] {
        ["small", "large"].map(|pool| left_of(&self.engine, ("pool", pool)))
    }
}

const BOTH: &str = "
- actions: [{ generic_key: { descriptor_key: pool, descriptor_value: small } }]
- actions: [{ generic_key: { descriptor_key: pool, descriptor_value: large } }]
";

#[test]
fn a_call_is_denied_by_envoy_if_all_its_quotas_are_over() {
    let Some(played) = Played::start(BOTH) else { return };
    let calls = [(); 3].map(|()| (played.status(), played.left()));
    let expected = [(200, [(0, 0), (1, 0)]), (200, [(0, 1), (0, 0)]), (429, [(0, 2), (0, 1)])];
    assert_eq!(calls, expected, "each is charged, over or not");
    // The minute has begun 10 s ago.
    played.clock.advance(Duration::from_secs(50));
    assert_eq!((played.status(), played.left()), (200, [(0, 0), (1, 0)]));
    // The metadata of all that has room is merged; the first of a name stays.
    assert_eq!(*played.pools.lock().unwrap(), ["small", "large", "small"]);
}

/// The request asks about both pools without a hit, goes to one with room, and is charged to that
/// one when it is done.
#[test]
fn envoy_sends_calls_to_a_pool_with_room_and_charges_that_one() {
    let rate_limits = "
- actions: [{ generic_key: { descriptor_key: pool, descriptor_value: small } }]
  hits_addend: { number: 0 }
- actions: [{ generic_key: { descriptor_key: pool, descriptor_value: large } }]
  hits_addend: { number: 0 }
- actions: [{ request_headers: { header_name: x-pool, descriptor_key: pool } }]
  hits_addend: { number: 1 }
  apply_on_stream_done: true
";
    let Some(played) = Played::start(rate_limits) else { return };
    // A pool that is just full passes a look, so each has a call beyond its limit.
    let small = [[(0, 0), (2, 0)], [(0, 1), (2, 0)]];
    let large = [[(0, 1), (1, 0)], [(0, 1), (0, 0)], [(0, 1), (0, 1)]];
    for left in small.into_iter().chain(large) {
        assert_eq!(played.status(), 200, "before {left:?}");
        until("the charge", || played.left() == left);
    }
    assert_eq!(played.status(), 429, "both are over");
    let expected = ["small", "small", "large", "large", "large"];
    assert_eq!(*played.pools.lock().unwrap(), expected);
    played.clock.advance(Duration::from_secs(50));
    assert_eq!(played.status(), 200);
    assert_eq!(played.pools.lock().unwrap().last().unwrap(), "small");
}
