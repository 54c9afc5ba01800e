//! Tests of the `concurrency` contract, against a plain count of operations in flight.

use std::ops::RangeInclusive;

use crate::common::{call, end, granted};
use fastrand::Rng;
use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, Bounds, Method, Outcome};
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::saved::{RestoreContext, restore};
use rategate_core::verdict::{Grant, Verdict};

#[test]
fn misuse_is_an_error() {
    assert_eq!(Concurrency::try_new(0), Err(LimitError::ZeroPermits));
    let mut limit = Ledger::new(Concurrency::new(3), 0);
    assert_eq!(limit.try_acquire(0, 4), Err(ExceedsCapacity::new(4, 3)));
    assert_eq!(limit.peek(0, 3), Ok(Some(0)));
    // More ended than had started: no permit is gained.
    assert!(limit.release(0, 10));
    assert_eq!(limit.remaining(0), 3);
    assert!(!limit.refill(0, 1));
}

const METHODS: [Method; 2] = [Method::Knee, Method::Aimd];
const MINUTE_NS: u64 = 60_000_000_000;

fn some_bounds(random: &mut Rng) -> Bounds {
    let floor = random.u32(1..=4);
    let first = floor + random.u32(0..=8);
    Bounds::new(floor, first, first + random.u32(0..=30))
}

fn limit_of(limit: &Ledger, now_ns: u64) -> u64 {
    limit.max_in_flight(now_ns).unwrap()
}

/// Ceiling, retry and change at once: a call passes if and only if it fits under the limit of that
/// instant, whatever it was when the operations in flight started, and a denial names no wait.
///
/// Whatever is measured, a limit that follows it is within its bounds.
#[test]
fn in_flight_never_exceeds_the_limit_of_the_moment() {
    let (mut grown, mut cut) = (0, 0);
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        // A third of them are fixed.
        let method = random.choice([None, Some(Method::Knee), Some(Method::Aimd)]).unwrap();
        let policy = |random: &mut Rng| -> (Bounds, AnyPolicy) {
            let Some(method) = method else {
                let max = random.u32(1..=6);
                return (Bounds::new(max, max, max), Concurrency::new(max.into()).into());
            };
            let bounds = some_bounds(random);
            let adaptation = Adaptation::new(bounds).with_method(method).with_seed(7);
            (bounds, AdaptiveConcurrency::following(adaptation).into())
        };
        let (mut bounds, first) = policy(&mut random);
        let mut limit = Ledger::new(first, 0);
        assert_eq!(limit_of(&limit, 0), u64::from(bounds.first()));
        let (mut open, mut now_ns): (Vec<Grant>, u64) = (Vec::new(), 0);
        for _ in 0..3_000 {
            now_ns += random.u64(0..=20_000_000);
            let before = limit_of(&limit, now_ns);
            match random.u64(0..=99) {
                0 => {
                    let (other, policy) = policy(&mut random);
                    bounds = other;
                    limit.reconfigure(now_ns, policy).unwrap();
                }
                1..=50 if !open.is_empty() => {
                    let grant = open.swap_remove(random.usize(..open.len()));
                    let outcome = match random.u64(..20) {
                        0 => Outcome::Dropped,
                        1 => Outcome::Ignored,
                        _ => Outcome::Served,
                    };
                    end(&mut limit, now_ns, &grant, outcome);
                }
                51..=53 if !open.is_empty() => {
                    let grant = open.pop().unwrap();
                    assert!(limit.abort(now_ns, grant.permits));
                    assert_eq!(limit_of(&limit, now_ns), before, "an abort is no sample");
                }
                _ => {
                    let permits = random.u64(1..=bounds.floor().into());
                    let in_flight: u64 = open.iter().map(|grant| grant.permits).sum();
                    let fits = in_flight + permits <= before;
                    match call(&mut limit, random.bool(), now_ns, permits).unwrap() {
                        Verdict::Granted(grant) => {
                            assert!(fits, "seed {seed}: {in_flight} + {permits} > {before}");
                            assert_eq!(grant.start_ns, now_ns, "seed {seed}");
                            open.push(grant);
                        }
                        Verdict::Denied(denial) => {
                            assert!(!fits, "seed {seed}: {in_flight} + {permits} <= {before}");
                            assert_eq!(denial.retry_after_ns, None, "time alone cannot help");
                        }
                    }
                }
            }
            let (after, in_flight) =
                (limit_of(&limit, now_ns), open.iter().map(|grant| grant.permits).sum());
            let within: RangeInclusive<u64> = bounds.floor().into()..=bounds.ceiling().into();
            assert!(within.contains(&after), "seed {seed}");
            let left = after.saturating_sub(in_flight).min(bounds.floor().into());
            assert_eq!(limit.remaining(now_ns), left, "seed {seed}");
            if method.is_some() {
                grown += u64::from(after > before);
                cut += u64::from(after < before);
            }
        }
    }
    assert!(grown > 1_000 && cut > 1_000, "{grown} {cut}");
}

/// Takes all that fits again and again, each for 10 ms, until an instant.
fn busy(limit: &mut Ledger, from_ns: u64, until_ns: u64) -> u64 {
    let mut now_ns = from_ns;
    while now_ns < until_ns {
        let mut open = Vec::new();
        while let Some(grant) = granted(limit.try_acquire(now_ns, 1)) {
            open.push(grant);
        }
        now_ns += 10_000_000;
        for grant in open {
            end(limit, now_ns, &grant, Outcome::Served);
        }
    }
    now_ns
}

#[test]
fn what_was_found_is_forgotten_after_ten_minutes_and_kept_over_a_restart() {
    for method in METHODS {
        let policy = AdaptiveConcurrency::following(
            Adaptation::new(Bounds::new(1, 5, 1_000)).with_method(method),
        );
        let mut limit = Ledger::new(policy, 0);
        assert_eq!(limit.fresh_at_ns(7), Some(7));
        let idle_ns = busy(&mut limit, 0, 3_000_000_000);
        let found = limit_of(&limit, idle_ns);
        assert!(found > 8, "{method:?}: {found}");
        let fresh_ns = idle_ns + 10 * MINUTE_NS;
        assert_eq!(limit.fresh_at_ns(idle_ns), Some(fresh_ns));
        assert_eq!((limit_of(&limit, fresh_ns - 1), limit_of(&limit, fresh_ns)), (found, 5));

        // On another clock, some minutes later, and later than that.
        let saved = limit.save(idle_ns + MINUTE_NS);
        for (minutes, expected) in [(8, found), (9, 5)] {
            let since = RestoreContext { now_ns: 20 * MINUTE_NS, elapsed_ns: minutes * MINUTE_NS };
            let restored = restore(policy, &saved, since).unwrap();
            assert_eq!(limit_of(&restored, 20 * MINUTE_NS), expected, "{method:?}");
        }

        // Forgotten, it is decided by a fresh controller.
        let begun_ns = fresh_ns + 1;
        let mut fresh = Ledger::new(policy, begun_ns);
        let until_ns = busy(&mut limit, begun_ns, begun_ns + 2_000_000_000);
        busy(&mut fresh, begun_ns, begun_ns + 2_000_000_000);
        assert_eq!(limit_of(&limit, until_ns), limit_of(&fresh, until_ns), "{method:?}");
    }
}

#[test]
fn a_limit_beside_others_follows_measurements() {
    let both = AllOf::default()
        .and(Gcra::per_second(10_000).burst(1_000))
        .and(AdaptiveConcurrency::new(1, 100));
    let mut limit = Ledger::new(both, 0);
    let until_ns = busy(&mut limit, 0, 2_000_000_000);
    let mut in_flight = 0;
    while granted(limit.try_acquire(until_ns, 1)).is_some() {
        in_flight += 1;
    }
    assert_eq!(in_flight, 100);
}

#[test]
fn a_request_takes_at_most_the_floor_of_a_limit_that_follows_measurements() {
    let mut limit = Ledger::new(AdaptiveConcurrency::new(3, 200), 0);
    assert_eq!(limit.try_acquire(0, 4), Err(ExceedsCapacity::new(4, 3)));
    for _ in 0..6 {
        assert!(granted(limit.try_acquire(0, 3)).is_some());
    }
    assert_eq!((limit_of(&limit, 0), limit.remaining(0)), (20, 2));
    assert_eq!(limit_of(&Ledger::new(AdaptiveConcurrency::new(30, 200), 0), 0), 30);
    assert_eq!(limit_of(&Ledger::new(AdaptiveConcurrency::new(1, 2), 0), 0), 2);
}

/// Operations end one by one, several at a time, or some of a grant.
#[test]
fn operations_end_in_any_pieces() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let max = random.u64(1..=6);
        let (mut limit, mut in_flight) = (Ledger::new(Concurrency::new(max), 0), 0);
        for now_ns in 0..500 {
            let permits = random.u64(1..=max);
            if random.bool() {
                let fits = in_flight + permits <= max;
                assert_eq!(granted(limit.try_acquire(now_ns, permits)).is_some(), fits, "{seed}");
                in_flight += if fits { permits } else { 0 };
            } else {
                assert!(limit.release(now_ns, permits));
                in_flight = in_flight.saturating_sub(permits);
            }
            assert_eq!(limit.remaining(now_ns), max - in_flight, "seed {seed}");
        }
    }
}
