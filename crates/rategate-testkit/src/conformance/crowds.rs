//! Crowds of holds: random stories in which many estimates of one key are open, many end between
//! two calls, and denials foretell all of their ends.

use fastrand::Rng;
use rategate::charge::Debt;
use rategate::store::{ReservationEnd, ReservationId, ReserveVerdict, Rule};
use rategate_core::limit::Limit as _;

use super::Arena;
use super::client::{StoreClient, number};
use super::reservation_model::Model;
use super::traffic::{Case, LABELS, NOW_US, bucket, cases, policy, window};

/// Runs all cases, for each way in which a debt ends. Returns the number of estimates that were
/// held.
///
/// A log that carries its debts is left out: a store may refuse that.
///
/// # Panics
///
/// Panics where the store holds, settles or foretells otherwise than the core.
pub fn suite(arena: &impl Arena, rounds: u64) -> u64 {
    let mut held = 0;
    for (seed, (name, rules, typical_us)) in (1..).zip(cases().into_iter().chain(wide_cases())) {
        let has_log = rules.iter().any(|rule| matches!(rule, Rule::Log(_)));
        let rules: Vec<(&str, Rule)> = LABELS.into_iter().zip(rules).collect();
        for debt in [Debt::FORGOTTEN, Debt::CARRIED] {
            if !(has_log && debt.is_carried()) {
                let name = format!("{name}, a crowd, {debt:?}");
                let mut story = Story::new(arena, &name, &rules, seed, debt);
                (0..rounds).for_each(|round| story.round(round, typical_us));
                held += story.held;
            }
        }
    }
    held
}

/// Returns limits under which many estimates are open at once.
fn wide_cases() -> [Case; 2] {
    [
        ("a wide bucket", vec![bucket("1000/s", 200)], 30_000),
        ("a wide window", vec![window(300, 500_000_000)], 90_000),
    ]
}

struct Story<'a, A: Arena> {
    arena: &'a A,
    name: &'a str,
    client: StoreClient<A::Store>,
    model: Model,
    capacity: u64,
    random: Rng,
    now_us: u64,
    next_id: u64,
    held: u64,
}

impl<'a, A: Arena> Story<'a, A> {
    fn new(arena: &'a A, name: &'a str, rules: &[(&str, Rule)], seed: u64, debt: Debt) -> Self {
        arena.set_now_us(NOW_US);
        let client = StoreClient::new(&arena.store(), rules, name);
        let policies = rules.iter().map(|(_, rule)| policy(*rule));
        let model = Model::new(policies, debt, NOW_US);
        let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap();
        let (random, now_us) = (Rng::with_seed(seed), NOW_US);
        Self { arena, name, client, model, capacity, random, now_us, next_id: 0, held: 0 }
    }

    /// Holds many estimates, of which some share an instant, settles a few, and lets many end.
    fn round(&mut self, round: u64, typical_us: u64) {
        let about = format!("{}, round {round}", self.name);
        self.recover(typical_us);
        for _ in 0..self.random.u64(12..40) {
            let permits = 1 + self.random.u64(..self.capacity.div_ceil(12));
            let ttl_us = 1 + self.random.u64(..typical_us * 4);
            self.reserve(&about, permits, ttl_us);
            match self.random.u8(..16) {
                0 | 1 => self.end_one(&about),
                2 => self.charge(&about),
                3..8 => self.pass(typical_us / 40 + 1),
                _ => {}
            }
        }
        // What is denied foretells the ends of all.
        for part in [1, 2, 3] {
            self.reserve(&about, self.capacity.div_ceil(part), 1);
        }
        let pause_us = match self.random.u8(..4) {
            0 => typical_us * 5,
            1 => 1,
            _ => self.random.u64(..typical_us * 3),
        };
        self.pass(pause_us);
        match self.random.u8(..3) {
            0 => self.end_one(&about),
            1 => self.charge(&about),
            _ => self.reserve(&about, self.capacity.div_ceil(2), typical_us),
        }
        self.end_one(&about);
    }

    /// Waits for half of the permits in most rounds, so that debts do not deny all of them.
    fn recover(&mut self, typical_us: u64) {
        let waits = if self.random.u8(..4) == 0 { 0 } else { 400 };
        for _ in 0..waits {
            if self.model.limits.remaining(self.now_us * 1_000) > self.capacity / 2 {
                return;
            }
            self.pass(typical_us);
        }
    }

    fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.arena.set_now_us(self.now_us);
    }

    fn reserve(&mut self, about: &str, permits: u64, ttl_us: u64) {
        self.next_id += 1;
        let id = self.next_id;
        let expected = self.model.reserve(self.now_us, (permits, 0), id, ttl_us);
        let seen = self.client.reserve(permits, named(id), ttl_us).unwrap();
        let in_us = |verdict| match verdict {
            ReserveVerdict::Denied { retry_after_ns } => ReserveVerdict::Denied {
                retry_after_ns: retry_after_ns.map(|ns| number(ns.get().div_ceil(1_000))),
            },
            held => held,
        };
        let about = format!("{about}: {permits} permits as {id} at {} us", self.now_us);
        assert_eq!(in_us(seen.verdict), in_us(expected.verdict), "{about}");
        assert_eq!((seen.remaining, seen.debt), (expected.remaining, expected.debt), "{about}");
        self.held += u64::from(matches!(seen.verdict, ReserveVerdict::Held { .. }));
    }

    /// Commits or cancels one of the newest reservations, open or not.
    fn end_one(&mut self, about: &str) {
        let back = self.random.usize(..self.model.known.len().clamp(1, 50));
        let Some((&id, known)) = self.model.known.iter().rev().nth(back) else { return };
        let held = known.hold.permits;
        let end = match self.random.u8(..4) {
            0 => ReservationEnd::Cancel,
            1 => ReservationEnd::Commit { used: Some(held + self.random.u64(..=held)) },
            _ => ReservationEnd::Commit { used: Some(self.random.u64(..=held)) },
        };
        let expected = self.model.end(self.now_us, id, end);
        let seen = self.client.end(named(id), end, self.model.debt).unwrap();
        assert_eq!(seen, expected, "{about}: {end:?} of {id} at {} us", self.now_us);
    }

    fn charge(&mut self, about: &str) {
        let (permits, debt) = (1 + self.random.u64(..self.capacity.div_ceil(4)), self.model.debt);
        let now_ns = self.now_us * 1_000;
        let expected = self.model.limits.charge(now_ns, permits, debt).unwrap();
        let seen = self.client.charge(permits, debt).unwrap();
        let remaining = self.model.limits.remaining(now_ns);
        let about = format!("{about}: a charge of {permits} at {} us", self.now_us);
        assert_eq!((seen.charged, seen.remaining), (expected, remaining), "{about}");
    }
}

fn named(id: u64) -> ReservationId {
    let mut bytes = [5; 16];
    bytes[8..].copy_from_slice(&id.to_be_bytes());
    ReservationId(bytes)
}
