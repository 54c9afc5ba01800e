//! Denials in debt through each protocol: at the instant that a denial names the same call passes,
//! and a nanosecond sooner it does not.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rategate::{Clock as _, ManualClock};
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings, Verb};

use crate::engine::common::SMALL;
use crate::scenarios::carrier::{Carrier, ItemAnswer, TestEngine};
use crate::scenarios::engine::Directly;
use crate::scenarios::http::OverHttp;
use crate::scenarios::resp::OverResp;
use crate::scenarios::rls::OverRls;

/// The denials of each rule. `RATEGATE_DENIALS` says how many.
fn denials() -> u64 {
    let said = std::env::var("RATEGATE_DENIALS").ok();
    said.map_or(100, |said| said.parse().expect("RATEGATE_DENIALS is a number"))
}

/// The begin of each debt but the first few hundred, so that calendars stay within their years.
const NOW_NS: u64 = 1_790_000_000_123_456_789;
const DEBTS_AT_A_TIME: u64 = 100;
const CAPACITY: u64 = 7;

/// Each algorithm that takes charges. Where debts may be forgotten or carried, both.
const LIMITS: [&str; 8] = [
    "limit = '7/3s'\nburst = 7",
    "limit = '7/3s'\nburst = 7\nmost_debt = '10s'",
    "limit = '7/s'\nalgorithm = 'fixed-window'",
    "limit = '7/s'\nalgorithm = 'sliding-log'",
    "limit = '7/s'\nalgorithm = 'compact-log'",
    "limit = '7/s'\nalgorithm = 'fixed-window'\nover = 'charge'",
    "limit = { permits = 7, per = 'day', zone = 'America/New_York', anchor = '2026-01-01T02:30' }
    algorithm = 'calendar'",
    "limit = { permits = 7, per = 'month', zone = 'Europe/Rome', anchor = '2026-01-31' }
    algorithm = 'calendar'",
];

fn limits() -> impl Iterator<Item = String> {
    let with = |limit: &str, debt: &str| format!("{limit}\n{debt}\n");
    let carried = LIMITS.map(|limit| with(limit, "debt = 'carry'"));
    let forgotten = LIMITS.iter().skip(2).map(|limit| with(limit, "debt = 'forget'"));
    carried.into_iter().chain(forgotten.collect::<Vec<_>>())
}

/// A rule in a service of its own, through a protocol.
struct Tried<W> {
    carrier: W,
    clock: ManualClock,
    rule: [Arc<str>; 1],
    /// The verb that asks and counts nothing if it is denied.
    ask: Verb,
}

impl<W: Carrier> Tried<W> {
    fn new(limit: &str, carry: &impl Fn(TestEngine) -> W) -> Self {
        let clock = ManualClock::new();
        clock.set(Duration::from_nanos(NOW_NS));
        let settings = EngineSettings { max_keys: 1_000, ..SMALL };
        let engine = Engine::new(clock.clone(), settings);
        let rules = format!("[[rule]]\nname = 'r'\ndomain = 'scenario'\nmatch = ['r']\n{limit}");
        let loaded = load_text("rules.toml", &rules).unwrap_or_else(|it| panic!("{limit}: {it}"));
        engine.load(loaded.rules.set().as_ref().clone()).unwrap();
        let ask = if limit.contains("over = 'charge'") { Verb::Peek } else { Verb::Take };
        Self { carrier: carry(engine), clock, rule: ["r".into()], ask }
    }

    fn call(&self, verb: Verb, permits: u64) -> ItemAnswer {
        let answer = self.carrier.ask(verb, &self.rule, b"x", permits);
        let [result] = answer.results.try_into().expect("one item");
        assert_eq!(answer.allowed, !result.is_over);
        result
    }

    /// Plays some debts, and returns how many calls were denied in debt.
    fn play(&self, name: &str, random: &mut Rng) -> u64 {
        let mut count = 0;
        for _ in 0..DEBTS_AT_A_TIME {
            let mut charges = 0;
            while self.call(Verb::Charge, 1 + random.u64(..CAPACITY * 2)).debt == 0 {
                charges += 1;
                assert!(charges <= CAPACITY, "{name}: no debt after {charges} charges");
            }
            let permits = 1 + random.u64(..CAPACITY);
            let mut now_ns = self.clock.now_ns();
            let wait = |at_ns: u64| {
                let denied = self.call(self.ask, permits);
                assert!(denied.is_over, "{name}: granted at {at_ns}");
                (denied.retry_after_ns.unwrap(), denied.debt > 0)
            };
            let passes_ns = now_ns + wait(now_ns).0;
            for _ in 0..4 {
                let (wait_ns, is_in_debt) = wait(now_ns);
                assert_eq!(now_ns + wait_ns, passes_ns, "{name} at {now_ns}");
                if is_in_debt {
                    count += 1;
                    assert!(self.call(Verb::Peek, 0).is_over, "{name}: a look passes in debt");
                }
                now_ns += random.u64(..passes_ns - now_ns);
                self.set(now_ns);
            }
            self.set(passes_ns - 1);
            assert_eq!(wait(passes_ns - 1).0, 1, "{name}: before {passes_ns}");
            self.set(passes_ns);
            assert!(!self.call(Verb::Take, permits).is_over, "{name}: passes at {passes_ns}");
        }
        count
    }

    fn set(&self, now_ns: u64) {
        self.clock.set(Duration::from_nanos(now_ns));
    }
}

/// Plays each rule until there are enough denials.
fn play<W: Carrier>(carry: impl Fn(TestEngine) -> W) {
    let mut all = 0;
    for limit in limits() {
        let (mut random, mut count) = (Rng::with_seed(19), 0);
        while count < denials() {
            let played = Tried::new(&limit, &carry).play(&limit, &mut random);
            assert!(played > 0, "{limit}: no call was denied in debt");
            count += played;
        }
        all += count;
    }
    println!("{all} denials in debt");
}

#[test]
fn denials_in_debt_of_the_engine_name_the_instant_at_which_calls_pass() {
    play(Directly);
}

#[test]
fn denials_in_debt_over_http_name_the_instant_at_which_calls_pass() {
    play(OverHttp::new);
}

#[test]
fn denials_in_debt_over_envoys_protocol_end_when_the_engine_says() {
    play(OverRls::new);
}

/// The reply has the time in whole milliseconds, rounded up.
#[test]
fn denials_in_debt_over_redis_protocol_name_the_instant_at_which_calls_pass() {
    play(OverResp::new);
}
