//! Reservations, and requests that count once: a store holds, ends and remembers as the model does.

use std::collections::BTreeMap;

use rategate::charge::{Debt, Settled};
use rategate::store::{
    EndOutcome, ReservationEnd, ReservationId, ReserveReply, ReserveVerdict, Rule, StoreError,
};

use super::Arena;
use super::cases::{Case, NOW_US, SECOND_NS, bucket, flights, limits, log, wide};
use super::client::{StoreClient, id_of, number};
use super::model::{MEMORY_US, Once};
use super::story::{FORGETS_WITHIN_US, Story, Verb};

/// Runs all cases, for each way in which a debt ends, and the laws of what is refused.
///
/// # Panics
///
/// Panics where the store holds, settles or counts otherwise than the core, or a request twice.
pub fn suite(arena: &impl Arena) {
    refused_reservations_leave_no_trace(arena);
    let mut all = BTreeMap::new();
    for (seed, case) in (1..).zip(limits().into_iter().chain(flights())) {
        for debt in case.debts() {
            let story = play(arena, &case, seed, debt);
            story.assert_over(70, &["held", "repeated"]);
            story.assert_over(20, &["denied", "late"]);
            if !case.has(is_in_flight) {
                story.assert_over(30, &["charged once", "credited once", "made again"]);
                story.assert_over(0, &["another request"]);
            }
            story.counts.iter().for_each(|(what, times)| *all.entry(*what).or_default() += times);
        }
    }
    let kinds = [
        "held",
        "denied",
        "ended",
        "other",
        "back",
        "owed",
        "even",
        "cancelled",
        "late",
        "unknown",
        "repeated",
        "met",
        "waited",
        "forgotten",
        "another request",
    ];
    let is_enough = kinds.iter().all(|what| all.get(what).is_some_and(|&times: &u64| times > 100));
    assert!(is_enough, "too little happened in all cases: {all:?}");
}

/// Plays all quotas of a calendar, for each way in which a debt ends. Returns the number of
/// estimates that were held.
///
/// # Panics
///
/// Panics where the store holds or settles otherwise than the core.
pub fn calendars(arena: &impl Arena) -> u64 {
    let played = (1..).zip(super::cases::calendars()).flat_map(|(seed, case)| {
        case.debts().map(move |debt| play(arena, &case, seed, debt).counts["held"])
    });
    played.sum()
}

/// Plays crowds of holds: many estimates of one key are open, many end between two calls, and
/// denials name the first end. Returns the number of estimates that were held.
///
/// # Panics
///
/// Panics where the store holds, settles or denies otherwise than the core.
pub fn crowds(arena: &impl Arena, rounds: u64) -> u64 {
    let played = (1..).zip(limits().into_iter().chain(wide())).flat_map(|(seed, case)| {
        case.debts().map(move |debt| {
            let mut story = Story::new(arena, &case, seed, debt);
            (0..rounds).for_each(|_| story.round());
            story.counts["held"]
        })
    });
    played.sum()
}

fn is_in_flight(rule: &Rule) -> bool {
    matches!(rule, Rule::InFlight(..))
}

fn play<'a, A: Arena>(arena: &'a A, case: &Case, seed: u64, debt: Debt) -> Story<'a, A> {
    let mut verbs: Vec<Verb<'a, A>> = vec![
        (16, Story::reserve_new),
        (16, Story::end_one),
        (4, Story::reserve_again),
        (1, Story::look),
    ];
    // Of permits in flight no request without an id is compared, beside them only charges.
    if !case.rules.iter().all(|(_, rule)| is_in_flight(rule)) {
        verbs.push((1, Story::charge_some));
    }
    if !case.has(is_in_flight) {
        verbs.extend([
            (2, Story::decide as fn(&mut Story<'a, A>)),
            (1, Story::credit_some),
            (12, Story::once_new),
            (6, Story::once_again),
        ]);
    }
    let mut story = Story::new(arena, case, seed, debt);
    for _ in 0..6 {
        story = story.play(case.steps / 4, &verbs);
        story.forget();
    }
    story
}

/// Checks that what cannot be held is an error with a type, and leaves its id unused.
pub fn refused_reservations_leave_no_trace<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let paced = StoreClient::new(&store, &[("l", log(3, SECOND_NS, 1))], "k");
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

/// Returns a reply whose wait is in whole microseconds.
fn in_us(reply: ReserveReply) -> ReserveReply {
    let ReserveVerdict::Denied { retry_after_ns } = reply.verdict else { return reply };
    let retry_after_ns = retry_after_ns.map(|ns| number(ns.get().div_ceil(1_000) * 1_000));
    ReserveReply { verdict: ReserveVerdict::Denied { retry_after_ns }, ..reply }
}

impl<A: Arena> Story<'_, A> {
    /// Holds many estimates, of which some share an instant, settles a few, and lets many end.
    fn round(&mut self) {
        let (capacity, typical_us) = (self.capacity, self.typical_us);
        self.recover();
        for _ in 0..12 + self.below(28) {
            let permits = 1 + self.below(capacity.div_ceil(12));
            let ttl_us = 1 + self.below(typical_us * 4);
            self.reserve_one(permits, ttl_us);
            match self.below(16) {
                0 | 1 => self.end_one(),
                2 => {
                    let permits = 1 + self.below(capacity.div_ceil(4));
                    self.charge_at(permits);
                }
                3..8 => self.pass(typical_us / 40 + 1),
                _ => {}
            }
        }
        // What is denied names the first end.
        for part in [1, 2, 3] {
            self.reserve_one(capacity.div_ceil(part), 1);
        }
        let pause_us = match self.below(4) {
            0 => typical_us * 5,
            1 => 1,
            _ => self.below(typical_us * 3),
        };
        self.pass(pause_us);
        self.reserve_one(capacity.div_ceil(2), typical_us);
        self.end_one();
    }

    /// Waits for half of the permits in most rounds, so that debts do not deny all of them.
    fn recover(&mut self) {
        let waits = if self.below(4) == 0 { 0 } else { 400 };
        for _ in 0..waits {
            if self.model.limits.remaining(self.now_ns()) > self.capacity / 2 {
                return;
            }
            self.pass(self.typical_us);
        }
    }

    fn reserve_one(&mut self, permits: u64, ttl_us: u64) {
        let id = self.new_id();
        self.reserve((permits, 0), id, ttl_us);
    }

    /// Lets so much time pass that an id is forgotten. A microsecond sooner it is still known.
    fn forget(&mut self) {
        let due = self.model.known.iter().map(|(id, known)| (known.due_us, *id, known.permits));
        let Some((due_us, id, permits)) = due.min() else { return };
        self.pass(due_us - 1 - self.now_us);
        self.reserve((permits, 0), id, 1);
        self.pass(1 + FORGETS_WITHIN_US);
    }

    /// Returns an id that is unknown: one that a store has forgotten, if there is any.
    fn some_unknown(&mut self) -> u64 {
        let now_us = self.now_us;
        let Some(at) = self.gone.iter().position(|&(gone_us, _)| gone_us <= now_us) else {
            return self.new_id();
        };
        self.count("forgotten", 1);
        self.gone.swap_remove(at).1
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns one of the newest ids that are known, with its permits; else one that is not.
    fn some_known(&mut self) -> (u64, u64) {
        let newest = self.model.known.len().min(9);
        let back = self.below(u64::try_from(newest.max(1)).unwrap());
        let known = self.model.known.iter().rev().nth(usize::try_from(back).unwrap());
        match known.map(|(id, known)| (*id, known.permits)) {
            Some(known) => known,
            None => (self.some_unknown(), 1),
        }
    }

    fn some_permits(&mut self) -> u64 {
        match self.below(4) {
            0 => 1 + self.below(self.capacity),
            1 => 1 + self.below(self.capacity.min(3)),
            _ => 1 + self.below(self.capacity.div_ceil(3)),
        }
    }

    fn some_ttl_us(&mut self) -> u64 {
        match self.below(12) {
            0 => 1,
            1 => MEMORY_US * 2,
            2..6 => 1 + self.below(self.typical_us * 3),
            _ => 1 + self.below(self.typical_us * 30),
        }
    }

    fn charge_some(&mut self) {
        let permits = self.some_permits();
        self.charge_at(permits);
    }

    /// Credits permits, unless a bucket is full: a store that has evicted it knows nothing of the
    /// credit when a hold from before ends.
    fn credit_some(&mut self) {
        if !self.model.limits.has_a_full_bucket(self.now_ns()) {
            self.credit();
        }
    }

    fn reserve_new(&mut self) {
        let (permits, ttl_us) = (self.some_permits(), self.some_ttl_us());
        let spared = if self.below(4) == 0 { self.below(self.capacity - permits + 1) } else { 0 };
        let (permits, id) = ((permits, spared), self.new_id());
        let wait_us = self.reserve_repeatedly(permits, id, ttl_us);
        self.wait_out(wait_us.filter(|&wait_us| wait_us <= MEMORY_US / 2), |story| {
            story.reserve(permits, id, ttl_us)
        });
    }

    /// Sends a reservation again, for as many permits or for others.
    fn reserve_again(&mut self) {
        let (id, permits) = self.some_known();
        let permits = if self.below(3) == 0 { self.some_permits() } else { permits };
        let ttl_us = self.some_ttl_us();
        self.reserve_repeatedly((permits, 0), id, ttl_us);
    }

    fn reserve_repeatedly(&mut self, permits: (u64, u64), id: u64, ttl_us: u64) -> Option<u64> {
        let mut wait_us = None;
        for _ in 0..=self.below(5) {
            wait_us = self.reserve(permits, id, ttl_us);
        }
        wait_us
    }

    /// Compares one reservation. Returns the time until it passes, if it is denied.
    fn reserve(&mut self, permits: (u64, u64), id: u64, ttl_us: u64) -> Option<u64> {
        let expected = self.model.reserve(self.now_us, permits, id, ttl_us);
        let seen = self.client.reserve_sparing(permits, id_of(id), ttl_us).unwrap();
        let about = format!("{}: {permits:?} permits as {id} for {ttl_us} us", self.about());
        assert_eq!(in_us(seen), expected, "{about}");
        self.count("repeated", seen.is_repeated.into());
        let (what, wait_ns) = match seen.verdict {
            ReserveVerdict::Held { .. } => ("held", None),
            ReserveVerdict::Denied { retry_after_ns } => ("denied", retry_after_ns),
            ReserveVerdict::Ended => ("ended", None),
            ReserveVerdict::OtherPermits { .. } => ("other", None),
        };
        self.count(what, 1);
        wait_ns.map(|ns| ns.get().div_ceil(1_000))
    }

    /// Ends a reservation in some way: open ones, those whose time is over, and unknown ones.
    fn end_one(&mut self) {
        let (id, held) =
            if self.below(12) == 0 { (self.some_unknown(), 1) } else { self.some_known() };
        for again in 0..=self.below(5) {
            // What is sent again should be the same, and the store must not rely on that.
            let end = match self.below(9) {
                0 => ReservationEnd::Cancel,
                1 => ReservationEnd::Commit { used: None },
                2 => ReservationEnd::Commit { used: Some(held) },
                3 => ReservationEnd::Commit { used: Some(0) },
                7 => ReservationEnd::Withdraw,
                4..7 => ReservationEnd::Commit { used: Some(held + 1 + self.below(held + 2)) },
                _ => ReservationEnd::Commit { used: Some(self.below(held + 1)) },
            };
            let expected = self.model.end(self.now_us, id, end);
            let seen = self.client.end(id_of(id), end, self.model.debt).unwrap();
            let about = format!("{}: {end:?} of {id}, sent {again} times before", self.about());
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
            self.count(what, 1);
        }
    }

    /// Charges or credits permits once, or nothing, under an id that is unknown, and again.
    fn once_new(&mut self) {
        let (permits, id) = (self.some_permits(), self.some_unknown());
        let is_charge = self.below(3) < 2 || self.model.limits.has_a_full_bucket(self.now_ns());
        if is_charge && self.below(8) == 0 {
            self.once((0, id), true);
        }
        for _ in 0..=self.below(5) {
            self.once((permits, id), is_charge);
        }
    }

    /// Sends a request under an id that may be known, often of another request.
    fn once_again(&mut self) {
        let (id, permits) = self.some_known();
        let permits = if self.below(3) == 0 { self.some_permits() } else { permits };
        let is_charge = self.below(2) == 0 || self.model.limits.has_a_full_bucket(self.now_ns());
        self.once((permits, id), is_charge);
    }

    /// Compares one request that counts once.
    fn once(&mut self, (permits, id): (u64, u64), is_charge: bool) {
        let expected = self.model.once(self.now_us, (permits, id), is_charge);
        let (debt, named) = (self.model.debt, id_of(id));
        let remaining = self.model.limits.remaining(self.now_ns());
        let about = format!("{}: {permits} permits once, as {id}", self.about());
        let seen = if is_charge {
            self.client.charge_once(permits, debt, named).map(|seen| {
                assert_eq!(seen.remaining, remaining, "{about}");
                (Once::Charged(seen.charged), seen.is_repeated)
            })
        } else {
            let seen = self.client.credit_once(permits, named);
            seen.map(|seen| (Once::Credited(seen.permits), seen.is_repeated))
        };
        assert_eq!(seen, expected, "{about}");
        self.look();
        let what = match seen {
            Ok((_, true)) => "made again",
            Ok((Once::Charged(_), _)) => "charged once",
            Ok((Once::Credited(_), _)) => "credited once",
            Err(_) => "another request",
        };
        self.count(what, 1);
    }
}
