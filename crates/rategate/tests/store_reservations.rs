//! Reservations of the memory store: what is held under an id, what is remembered, and what is
//! lost.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Charged, Debt, Settled};
use rategate::policy::Anchor;
use rategate::store::{
    EndOutcome, EndReply, Key, MemoryPlan, MemoryStore, ReservationEnd, ReservationId,
    ReserveReply, ReserveVerdict, Rule, Store as _, StoreError, StoreExt as _, Unavailable,
    Verdict,
};
use rategate::{Concurrency, FixedWindow, Gcra, ManualClock, SlidingLog};

const S: u64 = 1_000_000_000;
/// The time for which ids are remembered.
const MEMORY_NS: u64 = 600 * S;

struct Bench {
    clock: ManualClock,
    store: Arc<MemoryStore<ManualClock>>,
    plan: Arc<MemoryPlan>,
}

impl Bench {
    fn new(capacity: usize, rules: &[(&str, Rule)]) -> Self {
        let clock = ManualClock::stepped();
        let store = Arc::new(MemoryStore::with_capacity(clock.clone(), capacity));
        let plan = Arc::new(store.plan(rules).unwrap());
        Self { clock, store, plan }
    }

    fn under(&self, rules: &[(&str, Rule)]) -> Self {
        let plan = Arc::new(self.store.plan(rules).unwrap());
        Self { clock: self.clock.clone(), store: Arc::clone(&self.store), plan }
    }

    fn at(&self, now_ns: u64) {
        self.clock.set(Duration::from_nanos(now_ns));
    }

    fn try_reserve(
        &self,
        key: &str,
        id: u8,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<ReserveReply, StoreError> {
        let (permits, ttl_ns) = (permits.try_into().unwrap(), ttl_ns.try_into().unwrap());
        self.store.reserve(&self.plan, &key_of(key), permits, (named(id), ttl_ns)).wait()
    }

    fn reserve(&self, id: u8, permits: u64, ttl_ns: u64) -> ReserveVerdict {
        self.try_reserve("k", id, permits, ttl_ns).unwrap().verdict
    }

    fn end(&self, key: &str, id: u8, end: ReservationEnd) -> EndReply {
        let forgotten = Debt::FORGOTTEN;
        self.store.end(&self.plan, &key_of(key), named(id), end, forgotten).wait().unwrap()
    }

    fn commit(&self, id: u8, used: u64) -> EndReply {
        self.end("k", id, ReservationEnd::Commit { used: Some(used) })
    }

    fn left(&self) -> u64 {
        match self.store.peek(&self.plan, &key_of("k"), NonZeroU64::MIN).wait().unwrap() {
            Verdict::Granted(grant) => grant.remaining,
            Verdict::Denied(denial) => denial.remaining,
        }
    }

    fn takes(&self, permits: u64) -> bool {
        let permits = permits.try_into().unwrap();
        let verdict = self.store.decide(&self.plan, &key_of("k"), permits).wait().unwrap();
        matches!(verdict, Verdict::Granted(_))
    }
}

fn key_of(key: &str) -> Key {
    key.as_bytes().into()
}

fn named(id: u8) -> ReservationId {
    ReservationId([id; 16])
}

fn bucket(permits: u64) -> Rule {
    Gcra::per_second(1).burst(permits).into()
}

fn log(permits: u64) -> Rule {
    SlidingLog::new(permits, Duration::from_secs(60)).into()
}

fn held(ns: u64) -> ReserveVerdict {
    ReserveVerdict::Held { ends_in_ns: ns.try_into().unwrap() }
}

fn denied(ns: u64) -> ReserveVerdict {
    ReserveVerdict::Denied { retry_after_ns: NonZeroU64::new(ns) }
}

const fn back(permits: u64) -> EndOutcome {
    EndOutcome::Committed(Settled::Back { permits })
}

/// An estimate that one limit denies is not held under the other, and what ends comes back to both.
#[test]
fn all_limits_hold_or_none() {
    let bench = Bench::new(100, &[("tokens", bucket(100)), ("calls", log(9))]);
    let (one, other) = (bench.under(&[("tokens", bucket(100))]), bench.under(&[("calls", log(9))]));
    assert_eq!(bench.reserve(1, 6, 30 * S), held(30 * S));
    let reply = bench.try_reserve("k", 2, 4, 30 * S).unwrap();
    assert_eq!((reply.verdict, reply.remaining, reply.is_repeated), (denied(30 * S), 3, false));
    assert!(one.takes(94) && !one.takes(1));
    assert_eq!(
        bench.commit(1, 5),
        EndReply { outcome: back(1), is_repeated: false, remaining: 1, debt: 0 }
    );
    assert!(other.takes(4) && !other.takes(1));
}

/// An operation that is sent again changes nothing, and each reply says what has happened.
#[test]
fn an_id_counts_once() {
    let bench = Bench::new(100, &[("b", bucket(10))]);
    assert_eq!(bench.reserve(1, 6, 10 * S), held(10 * S));
    bench.at(4 * S);
    // It is not prolonged, and nothing more is held.
    let again = bench.try_reserve("k", 1, 6, 99 * S).unwrap();
    assert_eq!((again.verdict, again.is_repeated, again.remaining), (held(6 * S), true, 8));
    assert_eq!(bench.reserve(1, 7, 10 * S), ReserveVerdict::OtherPermits { permits: 6 });
    // Of another key it is another id.
    assert_eq!(bench.end("l", 1, ReservationEnd::Cancel).outcome, EndOutcome::Unknown);
    assert_eq!(bench.try_reserve("l", 1, 7, S).unwrap().verdict, held(S));

    let first = bench.commit(1, 8);
    let owed = EndOutcome::Committed(Settled::Owed { permits: 2, forgiven: 0 });
    assert_eq!((first.outcome, first.is_repeated, first.remaining), (owed, false, 6));
    for _ in 0..3 {
        let again = bench.commit(1, 8);
        assert_eq!((again.outcome, again.is_repeated, again.remaining), (owed, true, 6));
    }
    // Another end comes too late, and learns of the first.
    assert_eq!(bench.end("k", 1, ReservationEnd::Cancel).outcome, owed);
    assert_eq!(bench.reserve(1, 6, 10 * S), ReserveVerdict::Ended);
    assert_eq!(bench.commit(2, 3).outcome, EndOutcome::Unknown);
    assert!(bench.takes(6) && !bench.takes(1));
}

/// A reservation ends at its instant, looked at or not, and a denial says when.
#[test]
fn ends_are_named_to_the_nanosecond() {
    let bench = Bench::new(100, &[("w", log(10))]);
    assert_eq!(bench.reserve(1, 10, 5 * S), held(5 * S));
    bench.at(S);
    assert_eq!(bench.reserve(2, 1, S), denied(4 * S));
    bench.at(5 * S - 1);
    assert!(!bench.takes(1));
    bench.at(5 * S);
    assert_eq!(bench.reserve(2, 10, S), held(S));
    // What is used after the end is charged whole, once, whether the permits are there or not.
    let late = EndOutcome::Late(Charged { booked: 7, forgiven: 0, debt: 7 });
    assert_eq!((bench.commit(1, 7).outcome, bench.commit(1, 7).outcome), (late, late));
    assert_eq!(bench.reserve(1, 10, S), ReserveVerdict::Ended);
    bench.at(6 * S);
    let reply = bench.end("k", 2, ReservationEnd::Cancel);
    let nothing = EndOutcome::Late(Charged { booked: 0, forgiven: 0, debt: 0 });
    assert_eq!((reply.outcome, reply.remaining, reply.debt), (nothing, 3, 0));
    // The whole estimate, where the caller knows no better.
    assert_eq!(bench.reserve(3, 3, S), held(S));
    let all = ReservationEnd::Commit { used: None };
    assert_eq!(bench.end("k", 3, all).outcome, EndOutcome::Committed(Settled::Even));
    assert_eq!(bench.end("k", 3, all).remaining, 0);
}

/// An id is remembered for ten minutes after the end, or for the time of its reservation.
#[test]
fn ids_are_remembered_after_their_end() {
    for (ttl_ns, memory_ns) in [(S, MEMORY_NS), (2 * MEMORY_NS, 2 * MEMORY_NS)] {
        let bench = Bench::new(100, &[("b", bucket(10))]);
        assert_eq!(bench.reserve(1, 1, ttl_ns), held(ttl_ns));
        bench.at(S / 2);
        bench.commit(1, 1);
        bench.at(S / 2 + memory_ns - 1);
        assert!(bench.commit(1, 1).is_repeated);
        assert_eq!(bench.reserve(1, 1, ttl_ns), ReserveVerdict::Ended);
        bench.at(S / 2 + memory_ns);
        assert_eq!(bench.commit(1, 1).outcome, EndOutcome::Unknown);
        // From then on it is another reservation.
        assert_eq!(bench.reserve(1, 3, ttl_ns), held(ttl_ns));
        bench.at(S / 2 + 2 * memory_ns + ttl_ns - 1);
        assert!(matches!(bench.commit(1, 3).outcome, EndOutcome::Late(_)));
    }
}

/// Ids are bounded in number. One too many is refused, nothing is taken, and what is known goes on.
#[test]
fn ids_have_a_bound() {
    let bench = Bench::new(3, &[("b", bucket(100))]);
    for id in 1..=3 {
        assert_eq!(bench.reserve(id, 1, u64::from(id) * S), held(u64::from(id) * S));
    }
    let full = |reply| matches!(reply, Err(StoreError::Unavailable(Unavailable::Full(_))));
    assert!(full(bench.try_reserve("k", 4, 1, S)));
    assert!(full(bench.try_reserve("another", 4, 1, S)));
    assert!(bench.try_reserve("k", 2, 1, 2 * S).unwrap().is_repeated);
    assert_eq!(bench.commit(3, 0).outcome, back(1));
    assert!(bench.takes(98) && !bench.takes(1));
    // A denial needs no id.
    assert_eq!(bench.reserve(4, 1, S), denied(S));
    bench.at(MEMORY_NS);
    assert_eq!(bench.reserve(4, 1, S), held(S), "the third was forgotten first");
    assert!(full(bench.try_reserve("k", 5, 1, S)));
    bench.at(MEMORY_NS + S);
    assert_eq!(bench.try_reserve("another", 5, 1, S).unwrap().verdict, held(S));
    assert!(full(bench.try_reserve("another", 6, 1, S)));
    // In a rewound store the ids of then are known, and take capacity.
    let image = bench.store.image();
    bench.at(3 * MEMORY_NS);
    for id in 10..13 {
        assert_eq!(bench.reserve(id, 1, S), held(S));
    }
    assert!(full(bench.try_reserve("k", 13, 1, S)));
    bench.store.rewind(&image);
    for id in 20..23 {
        assert_eq!(bench.reserve(id, 1, S), held(S), "those of the image are forgotten by now");
    }
    assert!(full(bench.try_reserve("k", 23, 1, S)));
}

/// A reservation that is not remembered takes no id of those that may be.
#[test]
fn only_known_ids_count() {
    let full = |reply| matches!(reply, Err(StoreError::Unavailable(Unavailable::Full(_))));
    let bench = Bench::new(2, &[("b", bucket(100))]);
    let take = |key: &str| bench.store.decide(&bench.plan, &key_of(key), NonZeroU64::MIN).wait();
    assert!(take("k").is_ok() && take("l").is_ok());
    for _ in 0..3 {
        assert!(full(bench.try_reserve("too many", 1, 1, S)), "no capacity for the key");
    }
    assert_eq!(bench.reserve(1, 1, S), held(S));
    let image = bench.store.image();
    assert_eq!(bench.reserve(2, 1, S), held(S));
    assert!(full(bench.try_reserve("k", 3, 1, S)));
    bench.store.rewind(&image);
    assert_eq!(bench.reserve(3, 1, S), held(S), "the second is lost");
    assert!(full(bench.try_reserve("k", 4, 1, S)));
}

/// An id is forgotten in time also where so many are that one call does not drop them all.
#[test]
fn an_id_among_many_is_forgotten_in_time() {
    let bench = Bench::new(1_000, &[("b", bucket(1_000))]);
    for id in 1..=200 {
        assert_eq!(bench.reserve(id, 1, S), held(S));
    }
    bench.at(S + MEMORY_NS);
    assert_eq!(bench.commit(200, 1).outcome, EndOutcome::Unknown);
    assert_eq!(bench.reserve(199, 2, S), held(S));
    bench.at(S + MEMORY_NS + 1);
    assert!(!bench.commit(199, 2).is_repeated);
    assert!(bench.commit(199, 2).is_repeated, "it is another one, and is not dropped with the old");
}

/// A key with an id to remember keeps its place, and no other does.
#[test]
fn keys_with_ids_are_not_evicted() {
    let bench = Bench::new(2, &[("b", bucket(1))]);
    let decide =
        |key: &str| bench.store.decide(&bench.plan, &key_of(key), NonZeroU64::MIN).wait().is_ok();
    assert_eq!(bench.reserve(1, 1, S), held(S));
    bench.commit(1, 1);
    // Long after the limit has recovered.
    for second in 2..600 {
        bench.at(second * S);
        assert!(decide(&second.to_string()), "{second}");
        assert!(bench.commit(1, 1).is_repeated);
    }
    bench.at(601 * S);
    assert!(decide("a") && decide("b"), "the key is evicted for them");
    assert_eq!(bench.store.keys(), 2);
    assert_eq!(bench.commit(1, 1).outcome, EndOutcome::Unknown);
}

/// A replica that lacks the last operations replies as if they had not been.
#[test]
fn a_failover_loses_the_last_operations() {
    let bench = Bench::new(100, &[("b", bucket(10))]);
    assert_eq!(bench.reserve(1, 4, 100 * S), held(100 * S));
    let image = bench.store.image();
    assert_eq!(bench.commit(1, 3).outcome, back(1));
    assert_eq!(bench.reserve(2, 7, 100 * S), held(100 * S));
    assert!(!bench.takes(1));
    bench.store.rewind(&image);
    // The first is held again, so its end counts; the second never was.
    assert_eq!(bench.commit(1, 3).outcome, back(1));
    assert!(bench.commit(1, 3).is_repeated);
    assert_eq!(bench.commit(2, 7).outcome, EndOutcome::Unknown);
    assert!(bench.takes(7) && !bench.takes(1));
    bench.store.rewind(&bench.store.image());
    assert!(bench.commit(1, 3).is_repeated);
}

/// A reset drops what is held: an end finds it with others, so all that was used is charged.
#[test]
fn an_end_after_a_reset_is_late() {
    let bench = Bench::new(100, &[("b", bucket(10))]);
    assert_eq!(bench.reserve(1, 8, 10 * S), held(10 * S));
    assert_eq!(bench.store.reset(&bench.plan, &key_of("k")).wait(), Ok(1));
    assert_eq!(bench.reserve(2, 8, 10 * S), held(10 * S));
    let late = EndOutcome::Late(Charged { booked: 6, forgiven: 0, debt: 4 });
    assert_eq!(bench.commit(1, 6).outcome, late);
    assert_eq!(bench.commit(2, 0).outcome, back(8));
    assert!(bench.commit(1, 6).is_repeated);
    assert!(bench.takes(4) && !bench.takes(1));
}

/// A caller that did not get all that it needs withdraws what it holds: the id is unused again.
#[test]
fn what_is_withdrawn_was_never_held() {
    let bench = Bench::new(2, &[("b", bucket(10))]);
    for round in 1..=3_u8 {
        assert_eq!(bench.reserve(1, u64::from(round), 30 * S), held(30 * S), "other permits");
        let withdrawn = bench.end("k", 1, ReservationEnd::Withdraw);
        assert_eq!(withdrawn.outcome, EndOutcome::Cancelled(round.into()));
        assert_eq!((withdrawn.remaining, withdrawn.is_repeated), (10, false));
        assert_eq!(bench.end("k", 1, ReservationEnd::Withdraw).outcome, EndOutcome::Unknown);
        assert_eq!(bench.commit(1, 5).outcome, EndOutcome::Unknown);
    }
    // An id that is forgotten makes room, also one whose time is over.
    for id in 2..=5 {
        assert_eq!(bench.reserve(id, 1, S), held(S));
        bench.at(u64::from(id) * 2 * S);
        assert!(matches!(
            bench.end("k", id, ReservationEnd::Withdraw).outcome,
            EndOutcome::Late(_)
        ));
    }
    // What was committed stays so.
    assert_eq!(bench.reserve(6, 4, 30 * S), held(30 * S));
    assert_eq!(bench.commit(6, 3).outcome, back(1));
    let repeated = bench.end("k", 6, ReservationEnd::Withdraw);
    assert_eq!((repeated.outcome, repeated.is_repeated), (back(1), true));
    assert!(bench.commit(6, 3).is_repeated);
}

/// Under other numbers, and beside other limits, a reservation ends where it is held.
#[test]
fn an_end_under_other_limits_finds_what_is_held() {
    let bench = Bench::new(100, &[("b", bucket(10))]);
    assert_eq!(bench.reserve(1, 8, 100 * S), held(100 * S));
    let larger = bench.under(&[("new", log(8)), ("b", bucket(20))]);
    assert_eq!(larger.reserve(1, 8, 100 * S), held(100 * S));
    assert_eq!(larger.commit(1, 2).outcome, back(6));
    let reply = larger.try_reserve("k", 2, 8, S).unwrap();
    assert_eq!((reply.verdict, reply.remaining), (held(S), 0), "nothing is used of the new limit");
    assert_eq!(larger.end("k", 2, ReservationEnd::Cancel).outcome, EndOutcome::Cancelled(8));
    assert!(larger.under(&[("b", bucket(20))]).takes(8));
    // A kind of limit that takes the label has a state of its own.
    let window = FixedWindow::new(9, Duration::from_secs(60), Anchor::Epoch);
    let other = larger.under(&[("b", window.into())]);
    assert!(other.takes(9));
}

/// Other numbers are in force from the first call under them, also if that is an end.
#[test]
fn an_end_puts_other_numbers_into_force() {
    let window = |permits| FixedWindow::new(permits, Duration::from_secs(60), Anchor::Epoch).into();
    let ends = |is_called_before: bool| {
        let bench = Bench::new(100, &[("w", window(10))]);
        assert_eq!(bench.reserve(1, 8, 50 * S), held(50 * S));
        let larger = bench.under(&[("w", window(20))]);
        assert!(!is_called_before || larger.takes(1));
        larger.commit(1, 2).outcome
    };
    assert_eq!(ends(false), ends(true));
}

#[test]
fn permits_in_flight_come_back_whole_and_only_other_limits_are_charged() {
    let in_flight = Rule::InFlight(Concurrency::new(3), NonZeroU64::MIN);
    let bench = Bench::new(100, &[("b", bucket(10)), ("f", in_flight)]);
    assert!(matches!(bench.try_reserve("k", 1, 4, S), Err(StoreError::Exceeds(_))));
    assert_eq!(bench.store.keys(), 0, "nothing is remembered of what was refused");
    let (bucket, flight) = (bench.under(&[("b", bucket(10))]), bench.under(&[("f", in_flight)]));
    let left = || (bucket.left(), flight.left());
    assert_eq!(bench.reserve(1, 2, 50 * S), held(50 * S));
    assert_eq!(bench.reserve(2, 2, 50 * S), denied(50 * S));
    assert_eq!(left(), (8, 1));
    let owed = Settled::Owed { permits: 5, forgiven: 0 };
    assert_eq!(bench.commit(1, 7).outcome, EndOutcome::Committed(owed));
    assert_eq!(left(), (3, 3));
    // Alone they charge nothing, in time and late.
    let alone = &flight;
    assert_eq!(alone.reserve(3, 2, S), held(S));
    assert_eq!(alone.commit(3, 7).outcome, EndOutcome::Committed(Settled::Even));
    assert_eq!(alone.reserve(4, 2, S), held(S));
    bench.at(S);
    assert_eq!(left(), (4, 3), "it has ended by itself");
    assert_eq!(alone.commit(4, 7).outcome, EndOutcome::Late(Charged::default()));
    assert!(alone.commit(4, 7).is_repeated);
    // What a reset drops belongs to others.
    assert_eq!(alone.reserve(5, 3, S), held(S));
    assert_eq!(alone.store.reset(&alone.plan, &key_of("k")).wait(), Ok(1));
    assert_eq!(alone.reserve(6, 3, S), held(S));
    assert_eq!(alone.commit(5, 3).outcome, EndOutcome::Late(Charged::default()));
    assert_eq!(left().1, 0);
}
