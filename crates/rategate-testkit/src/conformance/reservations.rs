//! Reservations: random stories in which a store holds, ends and remembers as the core's ledgers
//! and a list of ids do.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use rategate::charge::{Debt, Settled};
use rategate::store::{
    EndOutcome, ReservationEnd, ReservationId, ReserveReply, ReserveVerdict, Rule, StoreError,
    Verdict,
};
use rategate_core::holds::Holding as _;
use rategate_core::limit::Limit as _;

use super::Arena;
use super::client::{StoreClient, id_of, number, wait_us};
use super::laws::{in_flight, log};
use super::reservation_model::{MEMORY_US, Model};
use super::rules::{Case, NOW_US, bucket, cases, policy, window};
use super::story::{Stage, with_debts};

/// The time after that within which a store forgets it.
const FORGETS_WITHIN_US: u64 = 2_000_000;

/// Runs all cases, for each way in which a debt ends, and the laws of what is refused.
pub fn suite(arena: &impl Arena) {
    refused_reservations_leave_no_trace(arena);
    let mut all = BTreeMap::new();
    let cases = cases().into_iter().chain(in_flight_cases());
    for (seed, name, rules, typical_us, debt) in with_debts(cases) {
        let story = Story::new(arena, &name, &rules, (seed, NOW_US), debt);
        let stage = story.play(typical_us, 700);
        stage.assert_over(70, &["held", "repeated"]);
        stage.assert_over(20, &["denied", "late"]);
        stage.counts.iter().for_each(|(what, times)| *all.entry(*what).or_default() += times);
    }
    let is_enough = all.len() == 14 && all.values().all(|&times: &u64| times > 100);
    assert!(is_enough, "too little happened in all cases: {all:?}");
}

/// Plays crowds of holds: many estimates of one key are open, many end between two calls, and
/// denials foretell all of their ends. Returns the number of estimates that were held.
///
/// # Panics
///
/// Panics where the store holds, settles or foretells otherwise than the core.
pub fn crowds(arena: &impl Arena, rounds: u64) -> u64 {
    let played = with_debts(cases().into_iter().chain(wide_cases()));
    let held = played.map(|(seed, name, rules, typical_us, debt)| {
        let mut story = Story::new(arena, &name, &rules, (seed, NOW_US), debt);
        (0..rounds).for_each(|round| story.round(round, typical_us));
        story.stage.counts["held"]
    });
    held.sum()
}

/// Returns limits under which many estimates are open at once.
fn wide_cases() -> [Case; 2] {
    [
        ("a wide bucket", vec![bucket("1000/s", 200)], 30_000),
        ("a wide window", vec![window(300, 500_000_000)], 90_000),
    ]
}

/// Permits in flight, alone and beside other limits.
fn in_flight_cases() -> Vec<Case> {
    vec![
        ("permits in flight", vec![in_flight(6)], 7_000),
        ("permits in flight and a log", vec![in_flight(4), log(6)], 90_000),
        ("a bucket and permits in flight", vec![bucket("1000/s", 6), in_flight(3)], 900),
    ]
}

/// Plays all quotas of a calendar, for each way in which a debt ends. Returns the number of
/// estimates that were held.
///
/// # Panics
///
/// Panics where the store holds or settles otherwise than the core.
pub fn calendars(arena: &impl Arena) -> u64 {
    let played = super::calendars::cases().flat_map(|(name, quota, typical_us, begin, steps)| {
        [Debt::FORGOTTEN, Debt::CARRIED].map(|debt| {
            let name = format!("{name}, {debt:?}");
            let story = Story::new(arena, &name, &[("a", quota)], begin, debt);
            story.play(typical_us, steps).counts["held"]
        })
    });
    played.sum()
}

/// Checks that what cannot be held is an error with a type, and leaves its id unused.
pub fn refused_reservations_leave_no_trace<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let paced = StoreClient::new(&store, &[("l", log(3))], "k");
    let (id, ttl_us) = (ReservationId([9; 16]), 1_000_000);
    // What is withdrawn leaves none either, also of the only one.
    let only = StoreClient::new(&store, &[("g", bucket("10/s", 5))], "w");
    for _ in 0..2 {
        let held = only.reserve(3, id, ttl_us).unwrap();
        assert!(!held.is_repeated && held.remaining == 2, "{held:?}");
        let ended = only.end(id, ReservationEnd::Withdraw, Debt::FORGOTTEN).unwrap();
        assert_eq!((ended.outcome, ended.remaining), (EndOutcome::Cancelled(3), 5));
    }
    assert!(matches!(paced.reserve(4, id, ttl_us), Err(StoreError::Exceeds(_))));
    paced.granted(1);
    let denied = paced.reserve(3, id, ttl_us).unwrap();
    assert!(matches!(denied.verdict, ReserveVerdict::Denied { .. }), "{denied:?}");
    let ended = paced.end(id, ReservationEnd::Cancel, Debt::FORGOTTEN).unwrap();
    assert_eq!((ended.outcome, ended.remaining), (EndOutcome::Unknown, 2));
    let held = paced.reserve(2, id, ttl_us).unwrap();
    assert!(matches!(held.verdict, ReserveVerdict::Held { .. }) && !held.is_repeated, "{held:?}");
    // Of another key it is the id of another reservation.
    let other = paced.with_key("l").end(id, ReservationEnd::Cancel, Debt::FORGOTTEN).unwrap();
    assert_eq!(other.outcome, EndOutcome::Unknown);
    assert_eq!(paced.remaining(), 0);
}

/// The requests without an id that are compared beside reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    Charges,
    Nothing,
}

struct Story<'a, A: Arena> {
    stage: Stage<'a, A>,
    model: Model,
    /// Of permits in flight no request without an id is compared.
    takes: Takes,
    next_id: u64,
    /// Ids that are forgotten from an instant on.
    gone: Vec<(u64, u64)>,
}

impl<'a, A: Arena> Story<'a, A> {
    fn new(
        arena: &'a A,
        name: &'a str,
        rules: &[(&str, Rule)],
        begin: (u64, u64),
        debt: Debt,
    ) -> Self {
        let stage = Stage::new(arena, name, rules, begin);
        let policies = rules.iter().map(|(_, rule)| policy(*rule));
        let model = Model::new(policies, debt, stage.now_us);
        let is_in_flight = |(_, rule): &(&str, Rule)| matches!(rule, Rule::InFlight(..));
        let takes = match (rules.iter().any(is_in_flight), rules.iter().all(is_in_flight)) {
            (false, _) => Takes::All,
            (true, false) => Takes::Charges,
            (true, true) => Takes::Nothing,
        };
        Self { stage, model, takes, next_id: 0, gone: Vec::new() }
    }

    fn play(mut self, typical_us: u64, steps: u64) -> Stage<'a, A> {
        for step in 0..steps {
            let us = match self.below(9) {
                0..4 => 0,
                4 => 1,
                5 => self.until_next_end().unwrap_or(0),
                6 => self.until_next_end().map_or(0, |us| us.saturating_sub(1)),
                7 => self.below(typical_us * 6 + 1),
                _ => self.below(typical_us * 2 + 1),
            };
            self.pass(us);
            if self.below(150) == 0 {
                self.forget();
            }
            let about = format!("{}, step {step}, at {} us", self.stage.name, self.stage.now_us);
            match self.below(10) {
                0..4 => self.reserve_new(&about, typical_us),
                4..8 => self.end_one(&about),
                8 => self.reserve_again(&about, typical_us),
                _ => self.decide(&about),
            }
        }
        self.stage
    }

    /// Holds many estimates, of which some share an instant, settles a few, and lets many end.
    fn round(&mut self, round: u64, typical_us: u64) {
        let about = format!("{}, round {round}", self.stage.name);
        let capacity = self.stage.capacity;
        self.recover(typical_us);
        for _ in 0..12 + self.below(28) {
            let permits = 1 + self.below(capacity.div_ceil(12));
            let ttl_us = 1 + self.below(typical_us * 4);
            self.reserve_one(&about, permits, ttl_us);
            match self.below(16) {
                0 | 1 => self.end_one(&about),
                2 => {
                    let permits = 1 + self.below(capacity.div_ceil(4));
                    self.charge(&about, permits);
                }
                3..8 => self.pass(typical_us / 40 + 1),
                _ => {}
            }
        }
        // What is denied foretells the ends of all.
        for part in [1, 2, 3] {
            self.reserve_one(&about, capacity.div_ceil(part), 1);
        }
        let pause_us = match self.below(4) {
            0 => typical_us * 5,
            1 => 1,
            _ => self.below(typical_us * 3),
        };
        self.pass(pause_us);
        self.reserve_one(&about, capacity.div_ceil(2), typical_us);
        self.end_one(&about);
    }

    /// Waits for half of the permits in most rounds, so that debts do not deny all of them.
    fn recover(&mut self, typical_us: u64) {
        let waits = if self.below(4) == 0 { 0 } else { 400 };
        for _ in 0..waits {
            if self.model.limits.remaining(self.stage.now_ns()) > self.stage.capacity / 2 {
                return;
            }
            self.pass(typical_us);
        }
    }

    fn reserve_one(&mut self, about: &str, permits: u64, ttl_us: u64) {
        self.next_id += 1;
        self.reserve(about, (permits, 0), self.next_id, ttl_us);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.stage.below(bound)
    }

    fn pass(&mut self, us: u64) {
        self.stage.pass(us);
        // A store may be a little late to forget one, so for a while nothing is asked about it.
        let now_us = self.stage.now_us;
        let gone = &mut self.gone;
        self.model.known.retain(|id, known| {
            let is_kept = known.due_us() > now_us;
            if !is_kept {
                gone.push((known.due_us() + FORGETS_WITHIN_US, *id));
            }
            is_kept
        });
    }

    /// Returns the time until the next reservation ends by itself.
    fn until_next_end(&mut self) -> Option<u64> {
        let end_ns = self.model.limits.next_end_ns()?;
        self.stage.count("met", 1);
        Some((end_ns / 1_000).saturating_sub(self.stage.now_us))
    }

    /// Lets so much time pass that an id is forgotten. A microsecond sooner it is still known.
    fn forget(&mut self) {
        let due = self.model.known.iter().map(|(id, known)| (known.due_us(), *id));
        let Some((due_us, id)) = due.min() else { return };
        let permits = self.model.known.get(&id).map_or(1, |known| known.hold.permits);
        self.pass(due_us - 1 - self.stage.now_us);
        let about = format!("{}: remembered until {due_us} us", self.stage.name);
        self.reserve(&about, (permits, 0), id, 1);
        self.pass(1 + FORGETS_WITHIN_US);
    }

    /// Returns an id that is unknown: one that a store has forgotten, if there is any.
    fn some_unknown(&mut self) -> u64 {
        let now_us = self.stage.now_us;
        let Some(at) = self.gone.iter().position(|&(gone_us, _)| gone_us <= now_us) else {
            self.next_id += 1;
            return self.next_id;
        };
        self.stage.count("forgotten", 1);
        self.gone.swap_remove(at).1
    }

    fn some_permits(&mut self) -> u64 {
        match self.below(4) {
            0 => 1 + self.below(self.stage.capacity),
            1 => 1 + self.below(self.stage.capacity.min(3)),
            _ => 1 + self.below(self.stage.capacity.div_ceil(3)),
        }
    }

    fn some_ttl_us(&mut self, typical_us: u64) -> u64 {
        match self.below(12) {
            0 => 1,
            1 => MEMORY_US * 2,
            2..6 => 1 + self.below(typical_us * 3),
            _ => 1 + self.below(typical_us * 30),
        }
    }

    fn reserve_new(&mut self, about: &str, typical_us: u64) {
        let (permits, ttl_us) = (self.some_permits(), self.some_ttl_us(typical_us));
        let spared =
            if self.below(4) == 0 { self.below(self.stage.capacity - permits + 1) } else { 0 };
        let permits = (permits, spared);
        self.next_id += 1;
        let id = self.next_id;
        let wait_ns = self.reserve_repeatedly(about, permits, id, ttl_us);
        let Some(wait_us) = wait_ns.map(|ns| ns.get().div_ceil(1_000)) else { return };
        if self.below(2) == 0 || wait_us > MEMORY_US / 2 {
            return;
        }
        // The wait is exact: a microsecond sooner it is one microsecond, and then it is over.
        self.pass(wait_us - 1);
        if wait_us > 1 {
            let left_ns = self.reserve(&format!("{about}: too soon"), permits, id, ttl_us);
            assert!(left_ns.is_some_and(|ns| ns.get() <= 1_000), "{about}: {left_ns:?}");
        }
        self.pass(1);
        let left_ns = self.reserve(&format!("{about}: as told"), permits, id, ttl_us);
        assert_eq!(left_ns, None, "{about}: denied at the instant that the core named");
        self.stage.count("waited", 1);
    }

    /// Sends a reservation again, for as many permits or for others.
    fn reserve_again(&mut self, about: &str, typical_us: u64) {
        let Some(id) = self.some_known() else { return };
        let permits = self.model.known.get(&id).map_or(1, |known| known.hold.permits);
        let permits = if self.below(3) == 0 { self.some_permits() } else { permits };
        let ttl_us = self.some_ttl_us(typical_us);
        self.reserve_repeatedly(about, (permits, 0), id, ttl_us);
    }

    /// Ends a reservation in some way: open ones, those whose time is over, and unknown ones.
    fn end_one(&mut self, about: &str) {
        let id = match self.below(12) {
            0 => self.some_unknown(),
            _ => match self.some_known() {
                Some(id) => id,
                None => self.some_unknown(),
            },
        };
        let held = self.model.known.get(&id).map_or(1, |known| known.hold.permits);
        for again in 0..=self.below(5) {
            // What is sent again should be the same, and the store must not rely on that.
            let end = match self.below(9) {
                0 => ReservationEnd::Cancel,
                1 => ReservationEnd::Commit { used: None },
                2 => ReservationEnd::Commit { used: Some(held) },
                3 => ReservationEnd::Commit { used: Some(0) },
                8 => ReservationEnd::Withdraw,
                4..6 => ReservationEnd::Commit { used: Some(held + 1 + self.below(held + 2)) },
                _ => ReservationEnd::Commit { used: Some(self.below(held + 1)) },
            };
            let about = format!("{about}: {end:?} of {id}, sent {again} times before");
            let expected = self.model.end(self.stage.now_us, id, end);
            let debt = self.model.debt;
            let seen = self.stage.client.end(id_of(id), end, debt).unwrap();
            assert_eq!(seen, expected, "{about}");
            let what = match seen.outcome {
                _ if seen.is_repeated => "repeated",
                EndOutcome::Committed(Settled::Back { .. }) => "back",
                EndOutcome::Committed(Settled::Owed { .. }) => "owed",
                EndOutcome::Committed(Settled::Even) => "even",
                EndOutcome::Cancelled(_) => "cancelled",
                EndOutcome::Late(_) => "late",
                EndOutcome::Unknown => "unknown",
            };
            self.stage.count(what, 1);
        }
    }

    /// Takes permits, or charges or credits them, beside what is held.
    fn decide(&mut self, about: &str) {
        let (permits, now_ns) = (self.some_permits(), self.stage.now_ns());
        let is_charge = self.below(4) == 0;
        if self.takes == Takes::Nothing || self.takes == Takes::Charges && !is_charge {
            assert_eq!(
                self.stage.client.remaining(),
                self.model.limits.remaining(now_ns),
                "{about}"
            );
            return;
        }
        if is_charge {
            return self.charge(about, permits);
        }
        if self.below(3) == 0 {
            let expected = self.model.limits.credit(now_ns, permits);
            assert_eq!(self.stage.client.credit(permits).unwrap(), expected, "{about}: a credit");
            let remaining = self.model.limits.remaining(now_ns);
            assert_eq!(self.stage.client.remaining(), remaining, "{about}: after a credit");
            return;
        }
        let expected = self.model.limits.try_acquire(now_ns, permits).unwrap();
        let remaining = self.model.limits.remaining(now_ns);
        match (self.stage.client.decide(permits).unwrap(), expected) {
            (Verdict::Granted(grant), rategate_core::verdict::Verdict::Granted(_)) => {
                assert_eq!(grant.remaining, remaining, "{about}: {permits} permits");
            }
            (Verdict::Denied(denial), rategate_core::verdict::Verdict::Denied(theirs)) => {
                let expected_us = theirs.retry_after_ns.map(|ns| ns.get().div_ceil(1_000));
                let seen = (wait_us(denial), denial.remaining);
                assert_eq!(seen, (expected_us, remaining), "{about}: {permits} permits");
            }
            (seen, expected) => panic!("{about}: {permits} permits: {seen:?}, not {expected:?}"),
        }
    }

    fn charge(&mut self, about: &str, permits: u64) {
        let (now_ns, debt) = (self.stage.now_ns(), self.model.debt);
        let expected = self.model.limits.charge(now_ns, permits, debt).unwrap();
        let seen = self.stage.client.charge(permits, debt).unwrap();
        let remaining = self.model.limits.remaining(now_ns);
        // A charge need not tell what is in flight.
        let left = match self.takes {
            Takes::All => seen.remaining,
            _ => self.stage.client.remaining(),
        };
        assert_eq!((seen.charged, left), (expected, remaining), "{about}: a charge of {permits}");
    }

    fn some_known(&mut self) -> Option<u64> {
        let newest = self.model.known.len().min(9);
        let back = usize::try_from(self.below(u64::try_from(newest.max(1)).unwrap())).unwrap();
        self.model.known.keys().rev().nth(back).copied()
    }

    fn reserve_repeatedly(
        &mut self,
        about: &str,
        permits: (u64, u64),
        id: u64,
        ttl_us: u64,
    ) -> Option<NonZeroU64> {
        let mut wait_ns = None;
        for again in 0..=self.below(5) {
            let about = format!("{about}, sent {again} times before");
            wait_ns = self.reserve(&about, permits, id, ttl_us);
        }
        wait_ns
    }

    /// Compares one reservation. Returns the time until it passes, if it is denied.
    fn reserve(
        &mut self,
        about: &str,
        (permits, spared): (u64, u64),
        id: u64,
        ttl_us: u64,
    ) -> Option<NonZeroU64> {
        let expected = self.model.reserve(self.stage.now_us, (permits, spared), id, ttl_us);
        let seen = self.stage.client.reserve_sparing((permits, spared), id_of(id), ttl_us).unwrap();
        let about = format!("{about}: {permits} permits, {spared} spared, as {id} for {ttl_us} us");
        let in_us = |verdict| match verdict {
            ReserveVerdict::Denied { retry_after_ns } => ReserveVerdict::Denied {
                retry_after_ns: retry_after_ns.map(|ns| number(ns.get().div_ceil(1_000))),
            },
            held_or_known => held_or_known,
        };
        let numbers = |reply: ReserveReply| (reply.is_repeated, reply.remaining, reply.debt);
        assert_eq!(in_us(seen.verdict), in_us(expected.verdict), "{about}");
        assert_eq!(numbers(seen), numbers(expected), "{about}");
        self.stage.count("repeated", seen.is_repeated.into());
        let what = match seen.verdict {
            ReserveVerdict::Held { .. } => "held",
            ReserveVerdict::Denied { .. } => "denied",
            ReserveVerdict::Ended => "ended",
            ReserveVerdict::OtherPermits { .. } => "other",
        };
        self.stage.count(what, 1);
        match expected.verdict {
            ReserveVerdict::Denied { retry_after_ns } => retry_after_ns,
            _ => None,
        }
    }
}
