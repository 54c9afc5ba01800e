//! The law of paced clients: once a response was followed, nothing more is refused. Seeded clients
//! and servers in virtual time; a server decides by the plain list of what it let pass.

#![allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::Tokens;
use super::allowance::Cost;
use super::hints::{Refill, ServerHints, ServerLimit};
use super::pace::{Following, PacingState, Ticket};
use crate::headers::QuotaUnit;

const MS: u64 = 1_000_000;
const FOLLOWING: Following =
    Following { spreads: true, knows_tokens: true, jitter_ns: Some(0), release_ns: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bucket,
    /// Windows that begin at multiples of their length.
    Fixed,
    Sliding,
}

/// A limit of a server.
#[derive(Clone, Copy, Debug)]
struct Limit {
    kind: Kind,
    unit: QuotaUnit,
    quota: u64,
    window_ns: u64,
    /// Resets are reported in multiples of this, rounded up.
    tick_ns: u64,
}

/// The list of what passed: the instant and the cost.
type Log = Vec<(u64, Cost)>;

impl Limit {
    /// Returns what is available, and the reset as the server reports it.
    fn status(self, log: &Log, now_ns: u64) -> (u64, u64) {
        let costs = log.iter().map(|(at_ns, cost)| (*at_ns, cost.amount(self.unit).unwrap()));
        let since = |from_ns: u64| costs.clone().filter(move |(at_ns, _)| *at_ns >= from_ns);
        let used = |from_ns| since(from_ns).map(|(_, cost)| cost).sum::<u64>();
        match self.kind {
            Kind::Fixed => {
                let begin_ns = now_ns - now_ns % self.window_ns;
                (self.quota - used(begin_ns), begin_ns + self.window_ns - now_ns)
            }
            Kind::Sliding => {
                let from_ns = (now_ns + 1).saturating_sub(self.window_ns);
                let oldest_ns = since(from_ns).find(|(_, cost)| *cost > 0).map(|(at_ns, _)| at_ns);
                let reset_ns = oldest_ns.map_or(0, |at_ns| at_ns + self.window_ns - now_ns);
                (self.quota - used(from_ns), reset_ns)
            }
            Kind::Bucket => {
                let full_ns = costs.fold(0, |full_ns: u64, (at_ns, cost)| {
                    full_ns.max(at_ns) + cost * self.window_ns / self.quota
                });
                let reset_ns = full_ns.saturating_sub(now_ns);
                let missing = (reset_ns * self.quota).div_ceil(self.window_ns);
                (self.quota.saturating_sub(missing), reset_ns)
            }
        }
    }

    fn report(self, log: &Log, now_ns: u64) -> ServerLimit {
        let (remaining, reset_ns) = self.status(log, now_ns);
        ServerLimit {
            name: format!("{:?}", self.unit).into(),
            unit: Some(self.unit),
            quota: Some(self.quota),
            window: (self.kind == Kind::Sliding).then(|| Duration::from_nanos(self.window_ns)),
            remaining,
            reset: Duration::from_nanos(reset_ns.div_ceil(self.tick_ns) * self.tick_ns),
            refill: if self.kind == Kind::Bucket { Refill::Gradual } else { Refill::AtReset },
        }
    }
}

#[derive(Debug)]
enum Event {
    Arrives { cost: Cost },
    Attempts { ticket: Ticket },
    Served { ticket: Ticket, started_ns: u64 },
    Responds { ticket: Ticket, started_ns: u64, limits: Vec<ServerLimit> },
}

/// A client, a server, and what happens between them.
struct World {
    pacing: PacingState,
    log: Log,
    limits: Vec<Limit>,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    /// The maximum time of one way between client and server.
    way_ns: u64,
    has_followed: bool,
    /// Tickets of requests that started before any response was followed.
    blind: Vec<Ticket>,
    passed: u64,
    refused: u64,
}

impl World {
    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at_ns, self.next_event), event);
    }

    fn attempt(&mut self, now_ns: u64, ticket: Ticket, random: &mut Rng) {
        if let Err(again_ns) = self.pacing.start(now_ns, ticket) {
            assert!(again_ns > now_ns);
            return self.schedule(again_ns, Event::Attempts { ticket });
        }
        if !self.has_followed {
            self.blind.push(ticket);
        }
        let event = Event::Served { ticket, started_ns: now_ns };
        self.schedule(now_ns + random.u64(..self.way_ns), event);
    }

    /// Plays one event. Returns `false` after the last one.
    fn step(&mut self, random: &mut Rng, mut next: impl FnMut(&mut Rng) -> Option<Cost>) -> bool {
        let Some(((now_ns, _), event)) = self.events.pop_first() else { return false };
        match event {
            Event::Arrives { cost } => {
                let ticket = self.pacing.join(cost, usize::MAX).unwrap();
                self.attempt(now_ns, ticket, random);
            }
            Event::Attempts { ticket } => self.attempt(now_ns, ticket, random),
            Event::Served { ticket, started_ns } => {
                let fits = self.limits.iter().all(|limit| {
                    ticket.cost().amount(limit.unit).unwrap() <= limit.status(&self.log, now_ns).0
                });
                if fits {
                    self.log.push((now_ns, ticket.cost()));
                    self.passed += 1;
                } else if !self.blind.contains(&ticket) {
                    self.refused += 1;
                }
                let limits = self.limits.iter().map(|limit| limit.report(&self.log, now_ns));
                let limits = limits.filter(|limit| !limit.reset.is_zero()).collect();
                let at_ns = now_ns + random.u64(..self.way_ns);
                self.schedule(at_ns, Event::Responds { ticket, started_ns, limits });
            }
            Event::Responds { ticket, started_ns, limits } => {
                let hints = ServerHints { limits, ..ServerHints::default() };
                self.pacing.follow([started_ns, now_ns], ticket, &hints, FOLLOWING, || 0);
                self.pacing.end(ticket);
                self.has_followed = true;
                if let Some(cost) = next(random) {
                    let pause_ns = if random.bool() { 0 } else { random.u64(..50 * MS) };
                    self.schedule(now_ns + pause_ns, Event::Arrives { cost });
                }
            }
        }
        true
    }
}

/// Plays tasks that send one request after another. Returns how many were refused after the first
/// response, how many passed, and the time.
fn play(seed: u64, limits: Vec<Limit>, tasks: usize, requests: u64) -> (u64, u64, u64) {
    let mut random = Rng::with_seed(seed);
    let step_ns = limits.iter().map(|limit| limit.window_ns / limit.quota).max().unwrap();
    let mut world = World {
        pacing: PacingState::default(),
        log: Vec::new(),
        limits,
        events: BTreeMap::new(),
        next_event: 0,
        way_ns: (step_ns / 3).clamp(2, 20 * MS),
        has_followed: false,
        blind: Vec::new(),
        passed: 0,
        refused: 0,
    };
    let cost = |random: &mut Rng| {
        Cost::of_request(Tokens { input: random.u64(1..30), output: random.u64(1..30) })
    };
    for _ in 0..tasks {
        let (at_ns, cost) = (random.u64(..10 * MS), cost(&mut random));
        world.schedule(at_ns, Event::Arrives { cost });
    }
    let (mut left, mut last_ns) = (requests, 0);
    while let Some(((now_ns, _), _)) = world.events.first_key_value() {
        last_ns = *now_ns;
        world.step(&mut random, |random| {
            left = left.saturating_sub(1);
            (left > 0).then(|| cost(random))
        });
    }
    (world.refused, world.passed, last_ns)
}

#[test]
fn nothing_is_refused_once_a_response_was_followed() {
    use QuotaUnit::{InputTokens, OutputTokens, Requests};
    for kind in [Kind::Bucket, Kind::Fixed, Kind::Sliding] {
        for seed in 0..60 {
            let mut random = Rng::with_seed(seed);
            let quota = random.u64(5..40);
            let window_ns = random.u64(500..4000) * MS;
            let tick_ns = random.choice([MS, 1000 * MS]).unwrap();
            let requests = Limit { kind, unit: Requests, quota, window_ns, tick_ns };
            let tasks = random.usize(1..30);
            let (refused, _, _) = play(seed, vec![requests], tasks, 300);
            // A server that counts a sliding window does not say how many come back at a reset.
            let is_exact = kind != Kind::Sliding;
            let max = u64::from(!is_exact);
            assert!(refused <= max, "{kind:?}, seed {seed}, {tasks} tasks: {requests:?}");
            if !is_exact {
                continue;
            }
            let input = Limit { unit: InputTokens, quota: 15 * quota, ..requests };
            let output = Limit { unit: OutputTokens, quota: 20 * quota, ..requests };
            let all = play(seed, vec![requests, input, output], tasks, 300);
            assert_eq!(all.0, 0, "{kind:?}, seed {seed}, {tasks} tasks: {requests:?}, tokens");
        }
    }
}

/// A busy client uses at least a half of what the server would let pass.
#[test]
fn most_of_the_quota_is_used() {
    for kind in [Kind::Bucket, Kind::Fixed, Kind::Sliding] {
        for seed in 0..20 {
            let (quota, window_ns) = (20, 1000 * MS);
            let unit = QuotaUnit::Requests;
            let requests = Limit { kind, unit, quota, window_ns, tick_ns: MS };
            let (_, passed, time_ns) = play(seed, vec![requests], 6, 600);
            let possible = quota * time_ns / window_ns;
            assert!(2 * passed > possible, "{kind:?}, seed {seed}: {passed} of {possible}");
        }
    }
}
