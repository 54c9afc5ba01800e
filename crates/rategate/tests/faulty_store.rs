//! Faults of requests: the result of each course, and that a cancelled request loses nothing.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Debt;
use rategate::store::{
    EndOutcome, EndReply, Key, LeaseId, MemoryPlan, MemoryStore, Pending, Reply, ReservationEnd,
    ReservationId, ReserveReply, ReserveVerdict, Rule, Store, StoreError, StoreExt as _,
    StoreReply, StoreRequest, Unavailable, Verdict,
};
use rategate::{Clock, Concurrency, ManualClock, MonotonicClock, SlidingLog};
use rategate_testkit::conformance::{Arena, cases, flight, laws, reservations, traffic};
use rategate_testkit::faulty::{Fate, FaultyStore};

const MS: u64 = 1_000_000;
const BUDGET_NS: u64 = 20 * MS;
const MINUTE_NS: u64 = 60_000 * MS;

type Faulty = FaultyStore<MemoryStore<ManualClock>, ManualClock>;

/// A store, and a plan of ten permits in a minute.
struct Bench {
    clock: ManualClock,
    store: Arc<Faulty>,
    plan: Arc<MemoryPlan>,
    key: Key,
}

impl Bench {
    fn new() -> Self {
        Self::of(SlidingLog::new(10, Duration::from_nanos(MINUTE_NS)).into())
    }

    fn of(rule: Rule) -> Self {
        let clock = ManualClock::stepped();
        let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
        let store = FaultyStore::new(memory, clock.clone(), BUDGET_NS);
        let plan = Arc::new(store.plan(&[("a", rule)]).unwrap());
        Self { clock, store: Arc::new(store), plan, key: b"key"[..].into() }
    }

    fn decide(&self, permits: u64) -> Pending<Verdict> {
        self.store.decide(&self.plan, &self.key, permits.try_into().unwrap())
    }

    /// Draws the fates of many requests. Of a thousand, so many are slow, lost on the way there or
    /// back, doubled, and not sent or not decided.
    fn script_at_random(&self, seed: u64, odds: [u64; 6], max_delay_ns: u64) {
        let mut random = Rng::with_seed(seed);
        let mut delay_ns = move || random.u64(..=max_delay_ns);
        let mut draw = Rng::with_seed(!seed);
        self.store.script((0..20_000).map(|_| {
            let fates = [
                Fate::Slow { there_ns: delay_ns(), back_ns: delay_ns() },
                Fate::RequestLost,
                Fate::ReplyLost,
                Fate::Doubled { again_ns: delay_ns() },
                Fate::Unreachable,
                Fate::Unable,
            ];
            let mut left = draw.u64(..1_000);
            let chosen = fates.into_iter().zip(odds).find(|(_, often)| {
                let is_hit = left < *often;
                left = left.saturating_sub(*often);
                is_hit
            });
            chosen.map_or(Fate::Prompt, |(fate, _)| fate)
        }));
    }

    /// Returns the remaining permits, as the inner store has them.
    fn left(&self) -> u64 {
        match self.store.store().peek(&self.plan, &self.key, NonZeroU64::MIN).wait().unwrap() {
            Verdict::Granted(grant) => grant.remaining,
            Verdict::Denied(denial) => denial.remaining,
        }
    }
}

fn poll<A>(pending: &mut Pending<A>) -> Poll<Result<A, StoreError>> {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_granted(results: &Poll<Result<Verdict, StoreError>>) -> bool {
    matches!(results, Poll::Ready(Ok(Verdict::Granted(_))))
}

fn late<A>() -> Result<A, StoreError> {
    Err(StoreError::Unavailable(Unavailable::Late))
}

struct Faultless(ManualClock);

impl Arena for Faultless {
    type Store = Faulty;

    fn store(&self) -> Arc<Faulty> {
        let memory = Arc::new(MemoryStore::with_clock(self.0.clone()));
        Arc::new(FaultyStore::new(memory, self.0.clone(), BUDGET_NS))
    }

    fn set_now_us(&self, now_us: u64) {
        self.0.set(Duration::from_nanos(now_us * 1_000));
    }
}

#[test]
fn without_faults_it_is_the_store_itself() {
    let arena = Faultless(ManualClock::stepped());
    laws::suite(&arena);
    traffic::suite(&arena, cases::limits());
    flight::suite(&arena);
    reservations::suite(&arena);
}

#[test]
fn a_slow_answer_comes_when_it_comes() {
    let bench = Bench::new();
    bench.store.script([Fate::Slow { there_ns: 5 * MS, back_ns: 15 * MS }]);
    let mut pending = bench.decide(3);
    for (now_ns, left) in [(0, 10), (5 * MS - 1, 10), (5 * MS, 7), (20 * MS - 1, 7)] {
        bench.clock.set(Duration::from_nanos(now_ns));
        assert!(poll(&mut pending).is_pending(), "{now_ns}");
        assert_eq!(bench.left(), left, "{now_ns}");
    }
    // At the last instant of the budget the reply is in time.
    bench.clock.set(Duration::from_millis(20));
    assert!(is_granted(&poll(&mut pending)));
    bench.clock.set(Duration::from_millis(100));
    assert_eq!(bench.left(), 7);
}

#[test]
fn what_a_late_answer_grants_goes_back() {
    let bench = Bench::new();
    for (there_ns, back_ns) in [(5 * MS, 15 * MS + 1), (19 * MS, 200 * MS), (50 * MS, 50 * MS)] {
        let start_ns = bench.clock.now_ns();
        bench.store.script([Fate::Slow { there_ns, back_ns }]);
        let mut pending = bench.decide(3);
        bench.clock.set(Duration::from_nanos(start_ns + BUDGET_NS - 1));
        assert!(poll(&mut pending).is_pending());
        bench.clock.set(Duration::from_nanos(start_ns + BUDGET_NS));
        assert_eq!(poll(&mut pending), Poll::Ready(late()));
        bench.clock.set(Duration::from_nanos(start_ns + there_ns.max(BUDGET_NS)));
        assert_eq!(bench.left(), 7, "the inner store has decided");
        while bench.clock.step().is_some() {}
        assert_eq!(bench.left(), 10, "the permits are refunded");
    }
}

#[test]
fn a_late_hold_is_released() {
    let length_ns = NonZeroU64::new(MINUTE_NS).unwrap();
    let bench = Bench::of(Rule::InFlight(Concurrency::new(4), length_ns));
    bench.store.script([Fate::Slow { there_ns: 0, back_ns: 30 * MS }]);
    let (three, name) = (3.try_into().unwrap(), LeaseId([1; 16]));
    let mut pending = bench.store.hold(&bench.plan, &bench.key, three, name);
    bench.clock.set(Duration::from_nanos(BUDGET_NS));
    assert_eq!(poll(&mut pending), Poll::Ready(late()));
    assert_eq!(bench.left(), 1);
    bench.clock.set(Duration::from_millis(30));
    assert_eq!(bench.left(), 4);
}

#[test]
fn what_is_lost_is_lost_on_one_side_or_the_other() {
    for (course, left) in [(Fate::RequestLost, 10), (Fate::ReplyLost, 7)] {
        let bench = Bench::new();
        bench.store.script([course]);
        let mut pending = bench.decide(3);
        assert_eq!(bench.left(), left, "{course:?}");
        bench.clock.set(Duration::from_nanos(BUDGET_NS - 1));
        assert!(poll(&mut pending).is_pending());
        bench.clock.set(Duration::from_nanos(BUDGET_NS));
        assert_eq!(poll(&mut pending), Poll::Ready(late()));
        while bench.clock.step().is_some() {}
        assert_eq!(bench.left(), left, "{course:?}");
    }
}

#[test]
fn what_is_known_to_fail_fails_at_once() {
    let bench = Bench::new();
    bench.store.script([Fate::Unreachable, Fate::Unable]);
    assert!(matches!(
        bench.decide(1).wait(),
        Err(StoreError::Unavailable(Unavailable::Unreachable(_)))
    ));
    assert!(matches!(bench.decide(1).wait(), Err(StoreError::Unavailable(Unavailable::Unable(_)))));
    assert!(matches!(bench.decide(1).wait(), Ok(Verdict::Granted(_))));
    bench.store.set_usual(Fate::Unreachable);
    assert!(bench.decide(1).wait().is_err());
    bench.store.set_usual(Fate::Prompt);
    assert_eq!((bench.decide(1).wait().is_ok(), bench.left()), (true, 8));
}

/// Requests that go straight, or fail at once, leave no timer, so a clock that only waits advance
/// stands still.
#[test]
fn what_is_over_leaves_no_timer() {
    let clock = ManualClock::new();
    let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
    let store = Arc::new(FaultyStore::new(memory, clock.clone(), BUDGET_NS));
    let log = SlidingLog::new(10, Duration::from_nanos(MINUTE_NS));
    let plan = Arc::new(store.plan(&[("a", log.into())]).unwrap());
    let decide = || store.decide(&plan, &b"key"[..].into(), NonZeroU64::MIN).wait();
    assert!(decide().is_ok());
    store.script([Fate::Unreachable]);
    assert!(decide().is_err());
    assert_eq!(clock.now_ns(), 0);
    store.script([Fate::Slow { there_ns: MS, back_ns: 2 * MS }, Fate::ReplyLost]);
    assert!(decide().is_ok());
    assert_eq!(clock.now_ns(), 3 * MS);
    assert_eq!(decide(), late());
    assert_eq!(clock.now_ns(), 3 * MS + BUDGET_NS);
}

#[test]
fn answers_may_come_out_of_order() {
    let bench = Bench::new();
    let slow = |back_ms: u64| Fate::Slow { there_ns: MS, back_ns: back_ms * MS };
    bench.store.script([slow(9), slow(3), slow(6)]);
    let mut pending: Vec<_> = (0..3).map(|_| bench.decide(4)).collect();
    bench.clock.set(Duration::from_nanos(MS));
    // The store has decided in the order of requests: the third had none left.
    for (now_ms, which, granted) in [(4, 1, true), (7, 2, false), (10, 0, true)] {
        bench.clock.set(Duration::from_nanos(now_ms * MS - 1));
        assert!(poll(&mut pending[which]).is_pending(), "{which}");
        bench.clock.set(Duration::from_millis(now_ms));
        assert_eq!(is_granted(&poll(&mut pending[which])), granted, "{which}");
    }
}

#[test]
fn a_replica_that_takes_over_has_not_seen_the_last_writes() {
    let bench = Bench::new();
    let (mut receipts, mut seen) = (Vec::new(), None);
    for at_ms in [0, 50, 99, 100, 150, 199] {
        bench.clock.set(Duration::from_millis(at_ms));
        if at_ms == 100 {
            seen = Some(bench.store.store().image());
        }
        let Ok(Verdict::Granted(grant)) = bench.decide(1).wait() else { panic!("{at_ms}") };
        receipts.push(grant.receipt);
    }
    assert_eq!(bench.left(), 4);
    let intact = |bench: &Bench| {
        let reply = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reply);
        let (plan, key) = (Arc::clone(&bench.plan), Arc::clone(&bench.key));
        bench.store.submit(
            StoreRequest::Reset { plan, key: [&key[..], b"another"].concat().into() },
            Box::new(move |answer| *slot.lock().unwrap() = answer.ok()),
        );
        reply.lock().unwrap().take().and_then(|answer: StoreReply| answer.intact_for_ns)
    };
    assert_eq!(intact(&bench), Some(199 * MS));
    // The write at 99 ms has just been seen, the one at 100 ms has not.
    bench.store.store().rewind(&seen.unwrap());
    assert_eq!(bench.left(), 7);
    assert_eq!(intact(&bench), Some(0));
    bench.clock.advance(Duration::from_millis(5));
    assert_eq!(intact(&bench), Some(5 * MS));
    // The replica does not know of some grants, and refunds none.
    for receipt in receipts {
        let back = bench.store.refund(&bench.plan, &bench.key, receipt, NonZeroU64::MIN);
        assert_eq!(back.wait(), Ok(0));
    }
    assert_eq!(bench.left(), 7);
}

/// Returns the results of many requests, in the order of their replies.
fn run(seed: u64) -> Vec<(u64, Result<Option<u64>, StoreError>)> {
    let bench = Bench::new();
    bench.script_at_random(seed, [400, 50, 50, 0, 50, 50], 15 * MS);
    let results = Arc::new(Mutex::new(Vec::new()));
    for number in 0..400_u64 {
        let (slot, clock) = (Arc::clone(&results), bench.clock.clone());
        let (plan, key) = (Arc::clone(&bench.plan), Arc::clone(&bench.key));
        let requested_ns = clock.now_ns();
        let request = StoreRequest::Decide { plan, key, permits: NonZeroU64::MIN, lease: None };
        bench.store.submit(
            request,
            Box::new(move |answer| {
                assert!(clock.now_ns() <= requested_ns + BUDGET_NS);
                let granted = answer.map(|answer| match answer.reply {
                    Reply::Verdict(Verdict::Granted(grant)) => Some(grant.remaining),
                    _ => None,
                });
                slot.lock().unwrap().push((number, granted));
            }),
        );
        // The clock stops at each instant at which something happens, and no further.
        let until_ns = bench.clock.now_ns() + (number % 7) * MS;
        while bench.clock.sleeping() > 0 && bench.clock.now_ns() < until_ns {
            bench.clock.step();
        }
        bench.clock.set(Duration::from_nanos(bench.clock.now_ns().max(until_ns)));
    }
    while bench.clock.step().is_some() {}
    let results = results.lock().unwrap();
    results.clone()
}

#[test]
fn the_same_seed_is_the_same_run() {
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    let mut numbers: Vec<u64> = first.iter().map(|(number, _)| *number).collect();
    assert!(!numbers.is_sorted(), "replies overtake each other");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>(), "each reply comes once");
    let of = |is: fn(&Result<Option<u64>, StoreError>) -> bool| {
        first.iter().filter(|(_, results)| is(results)).count()
    };
    assert!(of(|results| matches!(results, Err(StoreError::Unavailable(Unavailable::Late)))) > 40);
    assert!(
        of(|results| matches!(results, Err(StoreError::Unavailable(Unavailable::Unreachable(_)))))
            > 5
    );
    assert!(
        of(|results| matches!(results, Err(StoreError::Unavailable(Unavailable::Unable(_))))) > 5
    );
    assert!(of(Result::is_ok) > 200);
}

/// A future that is dropped before its reply arrives takes nothing in the end.
#[test]
fn a_cancelled_request_returns_its_permits() {
    let bench = Bench::new();
    let slow = Fate::Slow { there_ns: 5 * MS, back_ns: 5 * MS };
    bench.store.script([slow, slow, slow]);
    let (cancelled, mut retained) = (bench.decide(3), bench.decide(2));
    let debit = bench.store.debit(&bench.plan, &bench.key, 9.try_into().unwrap());
    bench.clock.set(Duration::from_millis(4));
    drop(cancelled);
    bench.clock.set(Duration::from_millis(5));
    assert_eq!(bench.left(), 0, "the store does not know of the drop");
    drop(debit);
    bench.clock.set(Duration::from_millis(10));
    assert!(is_granted(&poll(&mut retained)));
    assert_eq!(bench.left(), 8, "permits of dropped requests are refunded");
    // A reply that has arrived belongs to the client, dropped or not.
    drop(retained);
    while bench.clock.step().is_some() {}
    assert_eq!(bench.left(), 8);
}

#[test]
fn a_cancelled_hold_is_released() {
    let length_ns = NonZeroU64::new(MINUTE_NS).unwrap();
    let bench = Bench::of(Rule::InFlight(Concurrency::new(4), length_ns));
    bench.store.script([Fate::Slow { there_ns: 0, back_ns: MS }]);
    let (three, name) = (3.try_into().unwrap(), LeaseId([1; 16]));
    drop(bench.store.hold(&bench.plan, &bench.key, three, name));
    assert_eq!(bench.left(), 1);
    bench.clock.set(Duration::from_nanos(MS));
    assert_eq!(bench.left(), 4);
}

#[test]
fn dropping_the_store_ends_waits() {
    let Bench { clock, store, plan, key } = Bench::new();
    store.script([Fate::Slow { there_ns: MS, back_ns: MS }, Fate::RequestLost]);
    let reply: [Arc<Mutex<Option<StoreError>>>; 2] = Default::default();
    for reply in &reply {
        let (plan, key, reply) = (Arc::clone(&plan), Arc::clone(&key), Arc::clone(reply));
        let callback = Box::new(move |answer: Result<StoreReply, StoreError>| {
            *reply.lock().unwrap() = answer.err();
        });
        store.submit(StoreRequest::Reset { plan, key }, callback);
    }
    // A reply on its way grants three.
    let memory = Arc::clone(store.store());
    store.script([Fate::Slow { there_ns: 0, back_ns: MS }]);
    let results = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&results);
    let (permits, of) = (3.try_into().unwrap(), (Arc::clone(&plan), Arc::clone(&key)));
    let request = StoreRequest::Decide { plan: of.0, key: of.1, permits, lease: None };
    // A future would keep the store alive until the reply.
    store.submit(request, Box::new(move |answer| *slot.lock().unwrap() = answer.err()));
    let left = || match memory.peek(&plan, &key, NonZeroU64::MIN).wait() {
        Ok(Verdict::Granted(grant)) => grant.remaining,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(), 7);
    drop(store);
    assert_eq!((results.lock().unwrap().take(), left()), (Some(StoreError::Closed), 10));
    for reply in reply {
        assert_eq!(reply.lock().unwrap().take(), Some(StoreError::Closed));
    }
    assert_eq!(clock.step(), None, "no timer is left");
}

#[test]
fn real_time_does_as_well() {
    let memory = Arc::new(MemoryStore::new());
    let store = Arc::new(FaultyStore::new(memory, MonotonicClock::new(), 500 * MS));
    let log = SlidingLog::new(10, Duration::from_nanos(MINUTE_NS));
    let plan = Arc::new(store.plan(&[("a", log.into())]).unwrap());
    store.script([Fate::Slow { there_ns: 2 * MS, back_ns: 2 * MS }]);
    let results = store.decide(&plan, &b"key"[..].into(), NonZeroU64::MIN).wait();
    assert!(matches!(results, Ok(Verdict::Granted(_))), "{results:?}");
    store.script([Fate::RequestLost]);
    assert_eq!(store.decide(&plan, &b"key"[..].into(), NonZeroU64::MIN).wait(), late());
}

impl Bench {
    fn reserve(&self, id: u8, permits: u64, ttl_ns: u64) -> Pending<ReserveReply> {
        let (permits, ttl_ns) = (permits.try_into().unwrap(), ttl_ns.try_into().unwrap());
        self.store.reserve(&self.plan, &self.key, permits, (ReservationId([id; 16]), ttl_ns))
    }

    fn commit(&self, id: u8, used: u64) -> Pending<EndReply> {
        let end = ReservationEnd::Commit { used: Some(used) };
        self.store.end(&self.plan, &self.key, ReservationId([id; 16]), end, Debt::FORGOTTEN)
    }

    /// Sends what `submit` submits until it is delivered, and waits for a reply as long as callers
    /// do.
    fn deliver<A>(&self, submit: impl Fn() -> Pending<A>) -> A {
        loop {
            let mut pending = submit();
            let mut replied = poll(&mut pending);
            if replied.is_pending() {
                self.clock.advance(Duration::from_nanos(BUDGET_NS));
                replied = poll(&mut pending);
            }
            if let Poll::Ready(Ok(reply)) = replied {
                return reply;
            }
        }
    }
}

/// A second delivery is of what counts once, and of nothing else.
#[test]
fn what_is_delivered_twice_counts_once() {
    let bench = Bench::new();
    bench.store.set_usual(Fate::Doubled { again_ns: 5 * MS });
    assert!(matches!(bench.decide(1).wait().unwrap(), Verdict::Granted(_)));
    let held = bench.reserve(1, 6, MINUTE_NS).wait().unwrap();
    assert!(matches!(held.verdict, ReserveVerdict::Held { .. }) && !held.is_repeated);
    bench.clock.advance(Duration::from_millis(5));
    assert_eq!(bench.left(), 3);
    // The second delivery of the reservation comes after its end.
    let held = bench.reserve(2, 3, MINUTE_NS).wait().unwrap();
    assert!(matches!(held.verdict, ReserveVerdict::Held { .. }));
    assert!(!bench.commit(2, 1).wait().unwrap().is_repeated);
    bench.clock.advance(Duration::from_millis(5));
    assert_eq!(bench.left(), 2);
}

/// Estimates and costs that arrive lost, late, twice and out of order are counted once each.
#[test]
fn reservations_are_counted_once_over_any_network() {
    let (capacity, hour) = (1_000_000, Duration::from_secs(3_600));
    let mut outcomes = [0_u64; 3];
    for seed in 0..12 {
        let bench = Bench::of(SlidingLog::new(capacity, hour).into());
        bench.script_at_random(seed, [250, 100, 100, 150, 50, 50], 40 * MS);
        let mut random = Rng::with_seed(seed);
        let (mut open, mut used): (Vec<(u8, u64)>, u64) = (Vec::new(), 0);
        for id in 1..=100 {
            let permits = random.u64(1..2_000);
            let ttl_ns = random.u64(1..2_000) * MS;
            let reply = bench.deliver(|| bench.reserve(id, permits, ttl_ns));
            assert!(!matches!(reply.verdict, ReserveVerdict::Denied { .. }), "{reply:?}");
            open.push((id, permits));
            while open.len() > usize::from(random.u8(..6)) {
                let (id, permits) = open.swap_remove(random.usize(..open.len()));
                let actual = random.u64(..permits * 2);
                let reply = bench.deliver(|| bench.commit(id, actual));
                outcomes[match reply.outcome {
                    EndOutcome::Committed(_) => 0,
                    EndOutcome::Late(_) => 1,
                    unknown => panic!("{unknown:?} of what was held"),
                }] += 1;
                outcomes[2] += u64::from(reply.is_repeated);
                used += actual;
            }
        }
        // Whatever is still under way arrives, and what is still held ends.
        bench.clock.advance(Duration::from_secs(3));
        assert_eq!(bench.left(), capacity - used, "seed {seed}");
    }
    assert!(outcomes.iter().all(|&times| times > 50), "too little happened: {outcomes:?}");
}
