//! The first player of tapes: every scenario that a tape can have, on limiters and hubs.
//!
//! It is written from docs/conformance.md, as those of other languages are.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rategate::adaptive::Outcome;
use rategate::charge::{Committed, Debt, Settled};
use rategate::error::ChargeError;
use rategate::wait::{QueueBounds, WhenFull};
use rategate::{AcquireError, Decision, Grant, ManualClock, TryAcquireError};
use rategate_ffi::{Begun, Clock, Hub, Limiter, Policies, Taken, WaitId};
use rategate_testkit::player::{LeftOut, random, tape};
use rategate_testkit::scenario::Scenario;
use rategate_testkit::suite;

/// Plays a tape, and more often with what decides the same: each limit twice, and callers that
/// take what is free later than they ask.
fn assert_plays(tape: &str) {
    play(tape, 1, false);
    play(tape, 2, false);
    play(tape, 1, true);
}

#[test]
fn every_tape_plays() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios");
    let played =
        suite::each(folder, |name, scenario| tape(name, &scenario).map(|tape| assert_plays(&tape)));
    let played = played.unwrap();
    assert!(played.played.len() > 48, "{played:?}");
    played.record("ffi").unwrap();
}

#[test]
fn random_tapes_play() {
    let mut played = 0;
    for seed in 0..1_500 {
        let scenario = Scenario::parse(&random(seed)).unwrap();
        match tape(&format!("seed-{seed}"), &scenario) {
            Ok(tape) => {
                assert_plays(&tape);
                played += 1;
            }
            Err(LeftOut::Waiters) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(played > 700, "{played}");
}

/// A limiter and a loop, as the lines so far left them.
struct Player<'t> {
    clock: ManualClock,
    hub: Hub,
    goes_on_later: bool,
    has_ended: Arc<AtomicBool>,
    limiter: Limiter,
    /// The waits that ended and whose line has not come.
    ended: VecDeque<(WaitId, Result<Grant, AcquireError>)>,
    waits: BTreeMap<&'t str, WaitId>,
    grants: BTreeMap<&'t str, Grant>,
    reserved: BTreeMap<&'t str, rategate_ffi::Reservation>,
    held: BTreeMap<&'t str, rategate_ffi::Hold>,
}

/// Plays a tape with each limit so many times.
fn play(tape: &str, times: usize, goes_on_later: bool) {
    let mut lines = tape.lines();
    assert_eq!(lines.next(), Some("tape 1"));
    let mut limits = Vec::new();
    let mut player: Option<Player<'_>> = None;
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, &mut player) {
            ("name", None) => {}
            ("limit", _) => {
                let policies = Policies::from_table(&rest.replace("; ", "\n")).unwrap();
                limits.extend(policies.policies().repeat(times));
            }
            ("begin", None) => {
                let policies = Policies::new(limits.drain(..)).unwrap();
                player = Some(Player::new(&policies, rest, goes_on_later));
            }
            (_, Some(player)) => {
                let policies = (rest.split(' ').nth(1) == Some("set"))
                    .then(|| Policies::new(limits.drain(..)).unwrap());
                let waits = player.ended.is_empty();
                let is_met = waits || !matches!(word, "idle" | "call" | "close");
                assert!(
                    is_met,
                    "with each {times} times, before `{line}` {:?} ended of\n{tape}",
                    player.ended
                );
                let (expected, seen) = player.line(word, rest, policies.as_ref());
                assert_eq!(
                    seen, expected,
                    "with each {times} times, later: {goes_on_later}, at `{line}` of\n{tape}"
                );
            }
            _ => panic!("`{line}` before `begin`"),
        }
    }
    let player = player.unwrap();
    assert!(player.ended.is_empty() && player.hub.waiting() == 0, "{tape}");
}

impl<'t> Player<'t> {
    fn new(policies: &Policies, words: &str, goes_on_later: bool) -> Self {
        let words = Words::of(words);
        let clock = ManualClock::stepped();
        clock.set(Duration::from_nanos(words.number("clock")));
        let debt = match words.0["debt"] {
            "carry" => Debt::CARRIED,
            _ => Debt::FORGOTTEN,
        };
        let debt = match words.time("max_debt") {
            Some(max) => debt.at_most(max),
            None => debt,
        };
        let limiter = Limiter::new(policies, Clock::Manual(clock.clone())).with_debt(debt);
        let bounds = QueueBounds::new(words.number("waiters").try_into().unwrap());
        let bounds = bounds.when_full(match words.0["full"] {
            "evict-newest" => WhenFull::EvictNewest,
            _ => WhenFull::Refuse,
        });
        let has_permits = words.0.contains_key("permits");
        let permits = if has_permits { words.number("permits") } else { u64::MAX };
        limiter.bound_queue(bounds.with_permits(permits)).unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let notified = Arc::clone(&has_ended);
        let hub = Hub::new(move || notified.store(true, Ordering::SeqCst));
        Self {
            clock,
            hub,
            goes_on_later,
            has_ended,
            limiter,
            ended: VecDeque::new(),
            waits: BTreeMap::new(),
            grants: BTreeMap::new(),
            reserved: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Carries out a line. Returns what it expects, and what was seen.
    fn line(&mut self, word: &str, rest: &'t str, set: Option<&Policies>) -> (String, String) {
        if word == "end" {
            let (wait, expected) = rest.split_once(' ').unwrap();
            return (expected.to_owned(), self.end(wait));
        }
        match word {
            "clock" => self.clock.set(Duration::from_nanos(rest.parse().unwrap())),
            "serve" => drop(self.limiter.remaining()),
            "close" => self.limiter.close(),
            "idle" => {}
            "remaining" => {
                return (rest.to_owned(), self.limiter.remaining().unwrap().to_string());
            }
            "call" => {
                let (call, expected) = rest.split_once(" -> ").unwrap();
                let runs = !expected.starts_with("waiting");
                let result = self.call(call, runs, set);
                self.drain();
                let remaining = self.limiter.remaining().unwrap();
                return (expected.to_owned(), format!("{result} remaining={remaining}"));
            }
            other => panic!("no such line: {other}"),
        }
        self.drain();
        (String::new(), String::new())
    }

    fn drain(&mut self) {
        let was_notified = self.has_ended.swap(false, Ordering::SeqCst);
        while let Some(ended) = self.hub.next() {
            assert!(was_notified || self.goes_on_later, "{ended:?}");
            self.ended.push_back((ended.wait, ended.end.map(grant_of)));
        }
    }

    fn begin(&self, permits: u64, timeout: Option<Duration>) -> Result<Begun, AcquireError> {
        let begin = if self.goes_on_later { Hub::begin_later } else { Hub::begin };
        begin(&self.hub, &self.limiter, permits, timeout)
    }

    fn end(&mut self, wait: &'t str) -> String {
        let Some((id, end)) = self.ended.pop_front() else { return "nothing".to_owned() };
        if self.waits.get(wait) != Some(&id) {
            return format!("{} of another wait", words_of(&end));
        }
        self.grants.extend(end.as_ref().ok().map(|grant| (wait, *grant)));
        words_of(&end)
    }

    fn call(&mut self, call: &'t str, runs: bool, set: Option<&Policies>) -> String {
        let (step, call) = call.split_once(' ').unwrap();
        let (verb, words) = call.split_once(' ').unwrap_or((call, ""));
        let words = Words::of(words);
        let permits = || words.number("permits");
        let limiter = &self.limiter;
        match verb {
            "try" => match limiter.try_acquire(permits()) {
                Ok(Decision::Granted(grant)) => {
                    self.grants.insert(step, grant);
                    granted(&grant)
                }
                Ok(Decision::Denied(denial)) => after("denied", denial.retry_after()),
                Err(TryAcquireError::ExceedsCapacity(_)) => "never".to_owned(),
                Err(error) => panic!("{error}"),
            },
            "peek" => match limiter.peek(permits()) {
                Ok(wait) => after("peeked", wait.filter(|wait| !wait.is_zero())),
                Err(TryAcquireError::ExceedsCapacity(_)) => "never".to_owned(),
                Err(error) => panic!("{error}"),
            },
            "wait" => match self.begin(permits(), words.time("timeout")) {
                Ok(Begun::Waits(id)) => {
                    self.waits.insert(step, id);
                    // A caller that goes on later runs before the next line.
                    match runs.then(|| self.hub.collect(id)).flatten() {
                        Some(end) => {
                            let end = end.map(grant_of);
                            self.grants.extend(end.as_ref().ok().map(|grant| (step, *grant)));
                            words_of(&end)
                        }
                        None => "waiting".to_owned(),
                    }
                }
                Ok(Begun::Taken(taken)) => {
                    let grant = grant_of(taken);
                    self.grants.insert(step, grant);
                    granted(&grant)
                }
                Err(error) => words_of(&Err(error)),
            },
            "leave" if self.hub.cancel(self.waits[words.0["of"]]) => "left".to_owned(),
            "reserve" => match limiter.reserve(permits(), words.time("timeout")) {
                Ok(reserved) => {
                    let start_ns = reserved.promised_at().as_nanos();
                    self.reserved.insert(step, reserved);
                    format!("granted start={start_ns}")
                }
                Err(error) => words_of(&Err(error)),
            },
            "hold" => self.hold(step, &words),
            "commit" => self.commit(&words),
            "cancel" if self.held.contains_key(words.0["of"]) => {
                let in_time = rategate_ffi::cancel(self.held.remove(words.0["of"]).unwrap());
                if in_time { "cancelled" } else { "too-late" }.to_owned()
            }
            "cancel" if self.reserved.remove(words.0["of"]).unwrap().cancel() => {
                "cancelled".to_owned()
            }
            "leave" | "cancel" => "too-late".to_owned(),
            "charge" => match limiter.charge(permits()) {
                Ok(charged) => {
                    format!("charged debt={} forgiven={}", charged.debt, charged.forgiven)
                }
                Err(ChargeError::CountsInFlight) => "not-for-this-limit".to_owned(),
                Err(error) => panic!("{error}"),
            },
            "release" if words.0.contains_key("of") => {
                let (grant, outcome) = (self.grant(words.0["of"]), words.outcome());
                self.limiter.release_with_outcome(&grant, outcome).unwrap();
                "set".to_owned()
            }
            "release" | "refill" | "set" => {
                match verb {
                    "release" => drop(limiter.release(permits()).unwrap()),
                    "refill" => drop(limiter.refill(permits()).unwrap()),
                    _ => limiter.reconfigure(set.unwrap()).unwrap(),
                }
                "set".to_owned()
            }
            other => panic!("no such call: {other}"),
        }
    }

    fn hold(&mut self, step: &'t str, words: &Words<'_>) -> String {
        let (permits, ttl_ns) = (words.number("permits"), words.number("ttl"));
        match self.limiter.try_hold(permits, Duration::from_nanos(ttl_ns)) {
            Ok(Ok(hold)) => {
                assert_eq!(hold.permits(), permits);
                let start_ns = hold.ends_at().as_nanos() - u128::from(ttl_ns);
                self.held.insert(step, hold);
                format!("held start={start_ns}")
            }
            Ok(Err(denial)) => after("denied", denial.retry_after()),
            Err(TryAcquireError::ExceedsCapacity(_)) => "never".to_owned(),
            Err(error) => panic!("{error}"),
        }
    }

    fn commit(&mut self, words: &Words<'_>) -> String {
        let hold = self.held.remove(words.0["of"]).unwrap();
        match hold.commit(words.number("actual")).unwrap() {
            Committed::InTime(settled) => self::settled(settled),
            Committed::Late(charged) => {
                format!("late debt={} forgiven={}", charged.debt, charged.forgiven)
            }
        }
    }

    /// Returns the grant of a call. A reservation is kept by then.
    fn grant(&mut self, of: &'t str) -> Grant {
        if let Some(reserved) = self.reserved.remove(of) {
            self.grants.insert(of, reserved.keep());
        }
        self.grants[of]
    }
}

/// The words of a line, `key=value`.
struct Words<'t>(BTreeMap<&'t str, &'t str>);

impl<'t> Words<'t> {
    fn of(words: &'t str) -> Self {
        Self(words.split(' ').filter_map(|word| word.split_once('=')).collect())
    }

    fn number(&self, key: &str) -> u64 {
        self.0[key].parse().unwrap()
    }

    fn outcome(&self) -> Outcome {
        match self.0["outcome"] {
            "served" => Outcome::Served,
            "dropped" => Outcome::Dropped,
            "ignored" => Outcome::Ignored,
            other => panic!("no such outcome: {other}"),
        }
    }

    fn time(&self, key: &str) -> Option<Duration> {
        self.0.contains_key(key).then(|| Duration::from_nanos(self.number(key)))
    }
}

fn granted(grant: &Grant) -> String {
    let [start_ns, scheduled_ns] =
        [grant.promised_at(), grant.scheduled_at()].map(|instant| instant.as_nanos());
    format!("granted start={start_ns} scheduled={scheduled_ns}")
}

fn words_of(end: &Result<Grant, AcquireError>) -> String {
    match end {
        Ok(grant) => granted(grant),
        Err(AcquireError::ExceedsCapacity(_)) => "never".to_owned(),
        Err(AcquireError::TimeCannotHelp | AcquireError::Held) => "denied".to_owned(),
        Err(AcquireError::TooLong(too_long)) => after("denied", Some(too_long.retry_after())),
        Err(AcquireError::DeadlinePassed) => "deadline-passed".to_owned(),
        Err(AcquireError::QueueFull) => "full".to_owned(),
        Err(AcquireError::Evicted) => "evicted".to_owned(),
        Err(AcquireError::Closed) => "closed".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

fn after(outcome: &str, retry_after: Option<Duration>) -> String {
    let mut words = outcome.to_owned();
    if let Some(wait) = retry_after {
        write!(words, " retry_after={}", wait.as_nanos()).unwrap();
    }
    words
}

/// Returns the permits of a wait that does not hold an estimate.
fn grant_of(taken: Taken) -> Grant {
    match taken {
        Taken::Granted(grant) => grant,
        Taken::Held(held) => panic!("{held:?}"),
    }
}

fn settled(settled: Settled) -> String {
    match settled {
        Settled::Even => "committed".to_owned(),
        Settled::Back { permits } => format!("committed back={permits}"),
        Settled::Owed { permits, forgiven: 0 } => format!("committed owed={permits}"),
        Settled::Owed { permits, forgiven } => {
            format!("committed owed={permits} forgiven={forgiven}")
        }
    }
}
