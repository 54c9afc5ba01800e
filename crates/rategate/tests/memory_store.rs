//! The memory store's own features: its capacity, its clock to the nanosecond, changes of the
//! numbers, and images.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::store::{
    Key, LeaseId, MemoryPlan, MemoryStore, Receipt, Rule, Store, StoreError, StoreExt as _,
    Unavailable, Verdict,
};
use rategate::{Concurrency, Gcra, ManualClock, SlidingLog};

const SECOND_NS: u64 = 1_000_000_000;

type Memory = MemoryStore<ManualClock>;

struct Bench {
    clock: ManualClock,
    store: Arc<Memory>,
    plan: Arc<MemoryPlan>,
}

impl Bench {
    fn new(capacity: usize, rules: &[(&str, Rule)]) -> Self {
        let clock = ManualClock::stepped();
        let store = Arc::new(MemoryStore::with_capacity(clock.clone(), capacity));
        let plan = Arc::new(store.plan(rules).unwrap());
        Self { clock, store, plan }
    }

    fn decide(&self, key: &str, permits: u64) -> Result<Verdict, StoreError> {
        self.store.decide(&self.plan, &key_of(key), permits.try_into().unwrap()).wait()
    }

    fn is_granted(&self, key: &str, permits: u64) -> bool {
        matches!(self.decide(key, permits), Ok(Verdict::Granted(_)))
    }

    fn wait_ns(&self, key: &str, permits: u64) -> u64 {
        match self.decide(key, permits).unwrap() {
            Verdict::Denied(denial) => denial.retry_after_ns.unwrap().get(),
            Verdict::Granted(grant) => panic!("{grant:?}"),
        }
    }

    fn receipt(&self, key: &str, permits: u64) -> Receipt {
        match self.decide(key, permits).unwrap() {
            Verdict::Granted(grant) => grant.receipt,
            Verdict::Denied(denial) => panic!("{denial:?}"),
        }
    }

    fn refund(&self, key: &str, receipt: &Receipt, permits: u64) -> u64 {
        let permits = permits.try_into().unwrap();
        self.store.refund(&self.plan, &key_of(key), receipt.clone(), permits).wait().unwrap()
    }
}

fn key_of(key: &str) -> Key {
    key.as_bytes().into()
}

fn log(permits: u64) -> Rule {
    SlidingLog::new(permits, Duration::from_nanos(SECOND_NS)).into()
}

fn bucket(rate: &str, burst: u64) -> Rule {
    Gcra::new(rate.parse().unwrap(), burst).unwrap().into()
}

#[test]
fn a_wait_is_exact_to_the_nanosecond() {
    let bench = Bench::new(10, &[("a", bucket("3/s", 1)), ("b", log(100))]);
    for _ in 0..100 {
        assert!(bench.is_granted("k", 1));
        let wait_ns = bench.wait_ns("k", 1);
        assert_eq!(wait_ns, 333_333_334);
        bench.clock.advance(Duration::from_nanos(wait_ns - 1));
        assert_eq!(bench.wait_ns("k", 1), 1);
        bench.clock.advance(Duration::from_nanos(1));
    }
}

#[test]
fn a_clock_that_goes_back_earns_nothing() {
    let bench = Bench::new(10, &[("a", bucket("10/s", 2))]);
    bench.clock.set(Duration::from_nanos(SECOND_NS));
    assert!(bench.is_granted("k", 2));
    bench.clock.set(Duration::ZERO);
    assert_eq!(bench.wait_ns("k", 1), SECOND_NS / 10);
    bench.clock.set(Duration::from_nanos(SECOND_NS + SECOND_NS / 10));
    assert!(bench.is_granted("k", 1));
    bench.clock.set(Duration::from_nanos(u64::MAX));
    assert!(bench.is_granted("k", 2));
    assert_eq!(bench.wait_ns("k", 1), SECOND_NS / 10, "waits are exact at the end of the clock");
}

/// A lease that was over for one request is over for all later ones, even if the clock goes back.
#[test]
fn a_lease_that_was_over_does_not_begin_again() {
    let length_ns = NonZeroU64::new(SECOND_NS).unwrap();
    let rule = Rule::InFlight(Concurrency::new(1), length_ns);
    let bench = Bench::new(10, &[("f", rule)]);
    let one = NonZeroU64::MIN;
    let held = bench.store.hold(&bench.plan, &key_of("k"), one, LeaseId([1; 16]));
    assert!(matches!(held.wait(), Ok(Verdict::Granted(_))));
    let is_free = || {
        let seen = bench.store.peek(&bench.plan, &key_of("k"), one).wait();
        matches!(seen, Ok(Verdict::Granted(_)))
    };
    bench.clock.set(Duration::from_nanos(SECOND_NS - 1));
    assert!(!is_free());
    bench.clock.set(Duration::from_nanos(SECOND_NS));
    assert!(is_free());
    bench.clock.set(Duration::from_nanos(SECOND_NS / 2));
    assert!(is_free());
}

#[test]
fn only_live_keys_take_capacity() {
    let bench = Bench::new(100, &[("a", log(1))]);
    for name in 0..100 {
        assert!(bench.is_granted(&format!("k{name}"), 1));
    }
    // One key too many is refused and has taken nothing; the others go on.
    assert!(matches!(bench.decide("late", 1), Err(StoreError::Unavailable(Unavailable::Full(_)))));
    assert_eq!((bench.wait_ns("k7", 1), bench.store.keys()), (SECOND_NS, 100));
    bench.clock.set(Duration::from_nanos(SECOND_NS - 1));
    assert!(bench.decide("late", 1).is_err());
    bench.clock.set(Duration::from_nanos(SECOND_NS));
    assert!(bench.is_granted("late", 1));
    assert!(bench.store.keys() < 60, "{}", bench.store.keys());
    assert!(bench.is_granted("k7", 1));
}

#[test]
fn what_is_over_goes_as_others_come() {
    let bench = Bench::new(1_000_000, &[("a", log(1))]);
    let mut max_keys = 0;
    for name in 0..20_000_u64 {
        bench.clock.advance(Duration::from_nanos(SECOND_NS / 1_000));
        assert!(bench.is_granted(&name.to_string(), 1));
        max_keys = max_keys.max(bench.store.keys());
    }
    assert!((1_000..5_000).contains(&max_keys), "a thousand are live at a time: {max_keys}");
}

#[test]
fn no_key_is_remembered_for_nothing() {
    let bench = Bench::new(100, &[("a", bucket("never", 1)), ("b", log(1))]);
    for name in 0..200 {
        let name = name.to_string();
        assert!(matches!(bench.decide(&name, 1), Ok(Verdict::Denied(_))));
        let one = NonZeroU64::MIN;
        assert!(bench.store.peek(&bench.plan, &key_of(&name), one).wait().is_ok());
        assert_eq!(bench.store.reset(&bench.plan, &key_of(&name)).wait(), Ok(0));
        assert_eq!(bench.refund(&name, &Receipt::new([1, 0, 0, 1, 0, 0, 1, 0]), 1), 0);
    }
    assert_eq!(bench.store.keys(), 0);
}

#[test]
fn a_reset_ends_what_receipts_say() {
    let bench = Bench::new(10, &[("a", bucket("1/s", 5)), ("b", log(5))]);
    let before = bench.receipt("k", 3);
    assert_eq!(bench.store.reset(&bench.plan, &key_of("k")).wait(), Ok(2));
    let after = bench.receipt("k", 5);
    assert_eq!(bench.refund("k", &before, 3), 0, "the state is a new one by now");
    assert_eq!(bench.refund("k", &after, 2), 2);
    assert!(bench.is_granted("k", 2) && !bench.is_granted("k", 1));
}

#[test]
fn nothing_is_credited_to_an_unused_limit() {
    let bench = Bench::new(10, &[("a", bucket("1/s", 5))]);
    let receipt = bench.receipt("k", 3);
    let other = Arc::new(bench.store.plan(&[("b", log(5))]).unwrap());
    let decided = bench.store.decide(&other, &key_of("l"), NonZeroU64::MIN).wait();
    assert!(matches!(decided, Ok(Verdict::Granted(_))));
    assert_eq!(bench.refund("l", &receipt, 3), 0);
    assert_eq!(bench.refund("k", &receipt, 3), 3);
}

#[test]
fn an_image_restores_the_past_and_refunds_no_unknown_grant() {
    let bench = Bench::new(100_000, &[("a", bucket("1/s", 5)), ("b", log(50))]);
    assert!(bench.is_granted("old", 2));
    let image = bench.store.image();
    let (lost, lost_too) = (bench.receipt("old", 3), bench.receipt("new", 3));
    bench.store.rewind(&image);
    assert_eq!((bench.refund("old", &lost, 3), bench.refund("new", &lost_too, 3)), (0, 0));
    assert!(bench.is_granted("old", 3) && !bench.is_granted("old", 1));
    assert!(bench.is_granted("new", 5), "the image does not have it");
    assert_eq!(bench.refund("new", &lost_too, 3), 0);
}

#[test]
fn other_numbers_go_on_from_what_was() {
    let bench = Bench::new(10, &[("a", log(5)), ("b", bucket("1/s", 5))]);
    assert!(bench.is_granted("k", 5));
    let is_granted_by = |rules: &[(&str, Rule)], permits: u64| {
        let plan = Arc::new(bench.store.plan(rules).unwrap());
        let permits = NonZeroU64::new(permits).unwrap();
        matches!(bench.store.decide(&plan, &key_of("k"), permits).wait(), Ok(Verdict::Granted(_)))
    };
    assert!(is_granted_by(&[("a", log(7))], 2), "two more");
    assert!(!is_granted_by(&[("a", log(7))], 1));
    assert!(!is_granted_by(&[("b", bucket("1/s", 9))], 1), "nothing is left");
    // The new numbers apply from the first grant under them.
    let faster = [("b", bucket("10/s", 5))];
    assert!(!is_granted_by(&faster, 1));
    bench.clock.set(Duration::from_nanos(10 * SECOND_NS));
    assert!(is_granted_by(&faster, 5) && !is_granted_by(&faster, 1));
    bench.clock.advance(Duration::from_nanos(SECOND_NS / 10));
    assert!(is_granted_by(&faster, 1) && !is_granted_by(&faster, 1));
    // New requests have to fit under the smaller number in flight.
    let length_ns = NonZeroU64::new(SECOND_NS).unwrap();
    let in_flight = |permits| Rule::InFlight(Concurrency::new(permits), length_ns);
    let hold = |rule: Rule, permits: u64, name: u8| {
        let plan = Arc::new(bench.store.plan(&[("f", rule)]).unwrap());
        let permits = NonZeroU64::new(permits).unwrap();
        let held = bench.store.hold(&plan, &key_of("k"), permits, LeaseId([name; 16]));
        matches!(held.wait(), Ok(Verdict::Granted(_)))
    };
    assert!(hold(in_flight(5), 4, 1));
    assert!(!hold(in_flight(3), 1, 2) && hold(in_flight(6), 2, 3));
}

#[test]
fn threads_never_take_more_than_there_is() {
    let store = Arc::new(MemoryStore::new());
    let rules = [("a", SlidingLog::new(100, Duration::from_nanos(3_600 * SECOND_NS)).into())];
    let plan = Arc::new(store.plan(&rules).unwrap());
    let threads = (0..4).map(|seed| {
        let (store, plan) = (Arc::clone(&store), Arc::clone(&plan));
        thread::spawn(move || {
            let (mut random, mut taken) = (Rng::with_seed(seed), vec![0_u64; 20]);
            for _ in 0..4_000 {
                let (index, permits) = (random.u64(..20), 1 + random.u64(..3));
                let key = key_of(&index.to_string());
                let permits = NonZeroU64::new(permits).unwrap();
                let Ok(Verdict::Granted(grant)) = store.debit(&plan, &key, permits).wait() else {
                    continue;
                };
                let back = match random.u64(..4) {
                    0 => store.refund(&plan, &key, grant.receipt, NonZeroU64::MIN).wait().unwrap(),
                    _ => 0,
                };
                taken[usize::try_from(index).unwrap()] += grant.permits - back;
            }
            taken
        })
    });
    let threads: Vec<_> = threads.collect();
    let taken: Vec<Vec<u64>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for index in 0..20 {
        let taken: u64 = taken.iter().map(|taken| taken[index]).sum();
        assert_eq!(taken, 100, "{index}");
    }
}
