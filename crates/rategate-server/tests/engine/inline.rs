//! Inline limits, which come with a call.

use std::collections::BTreeSet;
use std::time::Duration;

use rategate::ManualClock;
use rategate::charge::Settled;
use rategate_server::engine::{
    Cost, Decided, Engine, EngineError, EngineSettings, Inline, Item, ItemResult, Override,
    Request, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{RuleSet, Unit};

use crate::engine::common::*;
use fastrand::Rng;

const DAY: u64 = 86_400 * SECOND;
const LIMIT: Inline = Inline { capacity: 5, count: 1, period_ns: SECOND };

#[test]
fn each_limit_counts_each_key_apart() {
    let (engine, _) = engine(Vec::new());
    let take = |limit, key: &[u8]| engine.inline(limit, key, Verb::Take, 1).unwrap();
    for left in (0..5).rev() {
        assert_eq!(take(LIMIT, b"a").remaining, Some(left));
    }
    assert!(take(LIMIT, b"a").verdict.is_over());
    assert_eq!(take(LIMIT, b"b").remaining, Some(4));
    let wider = Inline { capacity: 6, ..LIMIT };
    assert_eq!(take(wider, b"a").remaining, Some(5));
}

#[test]
fn an_answer_says_when_the_call_passes_and_when_all_is_free() {
    let (engine, clock) = engine(Vec::new());
    let result = engine.inline(LIMIT, b"a", Verb::Take, 5).unwrap();
    assert_eq!((result.verdict, result.reset_after_ns), (Verdict::Granted, 5 * SECOND));
    clock.advance(Duration::from_millis(300));
    let result = engine.inline(LIMIT, b"a", Verb::Take, 2).unwrap();
    let Verdict::Denied { retry_after_ns, .. } = result.verdict else { panic!("{result:?}") };
    assert_eq!(retry_after_ns.unwrap().get(), 1_700_000_000);
    assert_eq!(result.reset_after_ns, 4_700_000_000);
}

#[test]
fn a_peek_at_an_unknown_limit_or_key_leaves_no_trace() {
    let (engine, _) = engine(Vec::new());
    let result = engine.inline(LIMIT, b"a", Verb::Peek, 3).unwrap();
    assert_eq!(
        (result.verdict, result.remaining, result.reset_after_ns),
        (Verdict::Granted, Some(5), 0)
    );
    engine.inline(LIMIT, b"a", Verb::Take, 0).unwrap();
    assert_eq!(engine.keys(), 0);
    let over = engine.inline(LIMIT, b"a", Verb::Peek, 6).unwrap();
    assert_eq!(over.verdict, Verdict::Denied { retry_after_ns: None, enforced: true });
}

#[test]
fn numbers_that_are_no_limit_are_refused_and_others_of_any_size_decided() {
    let (engine, _) = engine(Vec::new());
    for limit in [
        Inline { capacity: 0, ..LIMIT },
        Inline { count: 0, ..LIMIT },
        Inline { period_ns: 0, ..LIMIT },
    ] {
        for verb in [Verb::Take, Verb::Peek, Verb::Refund, Verb::Reset] {
            assert!(engine.inline(limit, b"a", verb, 1).is_err(), "{limit:?}");
        }
    }
    let huge = [1, u64::MAX / 2, u64::MAX];
    for capacity in huge {
        for count in huge {
            for period_ns in huge {
                let limit = Inline { capacity, count, period_ns };
                for permits in [0, 1, u64::MAX] {
                    let _ = engine.inline(limit, b"a", Verb::Take, permits);
                }
            }
        }
    }
}

#[test]
fn an_idle_limit_is_replaced_and_one_in_use_is_not() {
    let (engine, clock) = engine_with_limits(31);
    let limit = |capacity| Inline { capacity, count: 1, period_ns: SECOND };
    let take = |capacity| engine.inline(limit(capacity), b"a", Verb::Take, 1);
    for capacity in 10..41 {
        // The whole limit, which takes longest to recover.
        engine.inline(limit(capacity), b"a", Verb::Take, capacity).unwrap();
    }
    assert_eq!(take(41), Err(EngineError::TooManyLimits { max: 31 }));
    // The limit of 10 recovers within 10 s.
    clock.advance(Duration::from_nanos(11 * SECOND));
    assert!(take(41).is_err(), "it is kept for up to a second longer");
    clock.advance(Duration::from_millis(500));
    let result = take(41).unwrap();
    assert_eq!((result.limit, result.remaining), (41, Some(40)));
    assert!(take(10).is_err(), "the one of 11 may still be remembered");
    clock.advance(Duration::from_nanos(SECOND));
    assert_eq!(take(10).map(|result| result.remaining), Ok(Some(9)), "anew, as it would be by now");
    assert_eq!(
        take(40).map(|result| result.remaining),
        Ok(Some(11)),
        "12 of 12.5 seconds are back"
    );
}

/// Returns an engine with capacity for that many limits.
fn engine_with_limits(inline_limits: usize) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new();
    let settings = EngineSettings { inline_limits, inline_keys: 1000, ..SMALL };
    (Engine::new(clock.clone(), settings), clock)
}

/// Returns an engine with capacity for 31 limits, all in use, with permits taken from each.
fn full(limit: impl Fn(u64) -> Inline, permits: u64) -> (TestEngine, ManualClock) {
    let (engine, clock) = engine_with_limits(31);
    for nth in 0..31 {
        engine.inline(limit(nth), b"a", Verb::Take, permits).unwrap();
    }
    (engine, clock)
}

#[test]
fn a_limit_whose_keys_have_recovered_is_replaced() {
    let limit = |nth| Inline { capacity: 1_000_000 + nth, count: 1, period_ns: SECOND };
    let (engine, clock) = full(limit, 5);
    let late = |nth| engine.inline(limit(nth), b"a", Verb::Take, 1);
    clock.advance(Duration::from_nanos(6 * SECOND));
    assert!(late(31).is_err(), "it is kept for up to a second longer");
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(late(31).map(|result| result.remaining), Ok(Some(1_000_030)));
    // One of the others was evicted, without an observable effect.
    for nth in 0..31 {
        clock.advance(Duration::from_nanos(4 * SECOND));
        assert_eq!(late(nth).map(|result| result.remaining), Ok(Some(999_999 + nth)));
    }
}

#[test]
fn long_periods_do_not_occupy_the_table() {
    let limit = |nth| Inline { capacity: 1, count: 1, period_ns: (1_000_000_000 + nth) * SECOND };
    let (engine, clock) = full(limit, 1);
    let take = |nth| engine.inline(limit(nth), b"a", Verb::Take, 1);
    clock.advance(Duration::from_nanos(DAY - SECOND));
    assert!(matches!(take(31), Err(EngineError::TooManyLimits { max: 31 })));
    assert!(take(7).unwrap().verdict.is_over(), "one in use goes on");
    clock.advance(Duration::from_nanos(5 * SECOND));
    for nth in 31..61 {
        assert_eq!(take(nth).map(|result| result.verdict), Ok(Verdict::Granted), "{nth}");
    }
    assert!(take(61).is_err(), "the last tier belongs to the limit in use");
    assert!(take(7).unwrap().verdict.is_over());
}

#[test]
fn a_limit_in_steady_use_stays_in_the_table() {
    let limit = |nth| Inline { capacity: 1_000 + nth, count: 1_000_000, period_ns: SECOND };
    let (engine, clock) = full(limit, 1);
    for _ in 0..20 {
        clock.advance(Duration::from_nanos(SECOND - 1));
        assert!(engine.inline(limit(31), b"a", Verb::Take, 1).is_err());
        clock.advance(Duration::from_nanos(1));
        for nth in 0..31 {
            engine.inline(limit(nth), b"a", Verb::Take, 1).unwrap();
        }
    }
    clock.advance(Duration::from_nanos(2 * SECOND + 1));
    assert!(engine.inline(limit(31), b"a", Verb::Take, 1).is_ok());
}

#[test]
fn a_day_is_counted_from_the_last_call_whatever_it_was() {
    let limit = |nth| Inline { capacity: 1, count: 1, period_ns: (1_000_000_000 + nth) * SECOND };
    let (engine, clock) = full(limit, 1);
    for verb in [Verb::Peek, Verb::Refund, Verb::Take] {
        clock.advance(Duration::from_nanos(DAY / 2 + 2 * SECOND));
        for nth in 0..31 {
            // The key has no state: a request that names the limit is enough to keep it in use.
            let permits = u64::from(verb != Verb::Take);
            engine.inline(limit(nth), b"other", verb, permits).unwrap();
        }
    }
    clock.advance(Duration::from_nanos(DAY / 2 + 2 * SECOND));
    assert!(engine.inline(limit(31), b"a", Verb::Take, 1).is_err());
    assert!(engine.inline(limit(3), b"a", Verb::Take, 1).unwrap().verdict.is_over());
}

#[test]
fn of_its_keys_the_one_that_remembers_longest_counts() {
    let limit = |nth| Inline { capacity: 1_000 + nth, count: 1, period_ns: SECOND };
    let (engine, clock) = full(limit, 100);
    for nth in 0..31 {
        engine.inline(limit(nth), b"b", Verb::Take, 1).unwrap();
    }
    clock.advance(Duration::from_nanos(60 * SECOND));
    for nth in 0..31 {
        // A reset key has fully recovered; the other still needs 40 s.
        engine.inline(limit(nth), b"b", Verb::Reset, 1).unwrap();
    }
    assert!(engine.inline(limit(31), b"a", Verb::Take, 1).is_err());
    clock.advance(Duration::from_nanos(42 * SECOND));
    assert!(engine.inline(limit(31), b"a", Verb::Take, 1).is_ok());
}

/// Compares an engine with few tiers with one that has a tier for each limit: whatever the first
/// one decides, the other decides too. `ask` receives engine, limit, key, verb and permits.
/// Returns the number of refusals for lack of a tier, and of limits that got another tier.
fn no_answer_differs(
    ask: impl Fn(&TestEngine, u64, u64, Verb, u64) -> Result<ItemResult, EngineError>,
    seed: u64,
) -> (u32, u32) {
    const LIMITS: u64 = 90;
    let ((few, clock), (all, other)) = (engine_with_limits(31), engine_with_limits(124));
    for engine in [&few, &all] {
        engine.load(RuleSet { rules: vec![bucket("any", &["k"], 1)], hash: "".into() }).unwrap();
    }
    let (mut random, mut refused, mut anew) = (Rng::with_seed(seed), 0_u32, 0_u32);
    let mut decided = BTreeSet::new();
    for step in 0..8_000 {
        // Some limits are in constant use, others take turns.
        let around = step / 40 % LIMITS;
        let limit = if random.u64(..3) == 0 {
            random.u64(..12)
        } else {
            (around + random.u64(..30)) % LIMITS
        };
        let verb = match random.u64(..10) {
            0 => Verb::Peek,
            1 => Verb::Refund,
            2 => Verb::Reset,
            _ => Verb::Take,
        };
        let (key, permits) = (random.u64(..3), random.u64(..5));
        match ask(&few, limit, key, verb, permits) {
            Err(EngineError::TooManyLimits { max: 31 }) => {
                refused += 1;
                decided.remove(&limit);
            }
            answer => {
                let expected = ask(&all, limit, key, verb, permits);
                assert_eq!(
                    answer, expected,
                    "step {step} of seed {seed}: {limit} {key} {verb:?} {permits}"
                );
                anew += u32::from(decided.insert(limit));
            }
        }
        let wait_ns = match random.u64(..1_000) {
            0 => 30 * SECOND,
            1..10 => SECOND,
            _ => random.u64(..SECOND / 50),
        };
        clock.advance(Duration::from_nanos(wait_ns));
        other.advance(Duration::from_nanos(wait_ns));
    }
    (refused, anew)
}

#[test]
fn reclaiming_an_idle_bucket_changes_no_answer() {
    for seed in 0..2 {
        let (refused, anew) = no_answer_differs(
            |engine, nth, key, verb, permits| {
                let limit = Inline {
                    capacity: 1 + nth % 7,
                    count: 1 + nth / 30,
                    period_ns: (1 + nth) * SECOND / 9,
                };
                engine.inline(limit, &key.to_le_bytes(), verb, permits)
            },
            seed,
        );
        assert!(refused > 200 && anew > 200, "{refused} refused, {anew} anew: nothing was tried");
    }
}

/// A window has a tier for each unit, whatever the limits in it: there are enough for all.
#[test]
fn windows_of_many_limits_are_never_refused() {
    for seed in 2..4 {
        let (refused, _) = no_answer_differs(
            |engine, nth, key, verb, permits| {
                let unit = if nth % 4 == 0 { Unit::Minute } else { Unit::Second };
                let limit = Some(Override { permits: 1 + nth, unit });
                let key = key.to_le_bytes();
                let target = Target::Descriptor { domain: "d", entries: &[(b"k", &key)], limit };
                let request =
                    Request { verb, items: &[Item::of(target, permits)], counts_denied: false };
                let Decided::Now(answer) = engine.decide(&request) else { panic!("it is here") };
                answer.map(|mut answer| answer.results.remove(0))
            },
            seed,
        );
        assert_eq!(refused, 0);
    }
}

/// A hold keeps the limit's place, though nothing else has used it for long.
#[test]
fn a_limit_is_not_replaced_while_anything_is_held() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let settings = EngineSettings { inline_limits: 31, ..SMALL };
    let engine = Engine::new(clock.clone(), settings);
    engine.load(set(vec![bucket("r", &["r"], 1)])).unwrap();
    let places = u64::try_from(engine.settings().inline_limits).unwrap();
    let fast =
        |capacity| Target::Inline { limit: Inline { capacity, count: 1, period_ns: 1 }, key: b"k" };
    let take = |capacity| {
        let items = [Item::of(fast(capacity), 1)];
        now(engine.decide(&Request { verb: Verb::Take, items: &items, counts_denied: false }))
    };
    let (id, held) = (UniqueId([1; 16]), [Item::of(fast(1_000), 7)]);
    assert!(now(engine.reserve(id, Duration::from_secs(300), &held)).unwrap().answer.allowed);
    // All places but that of the reservation are free again after a few seconds.
    let mut from = 1;
    for _ in 0..3 {
        clock.advance(Duration::from_secs(5));
        let taken = (from..from + places - 1).map(|capacity| take(capacity).is_ok());
        assert!(taken.into_iter().all(|is_taken| is_taken));
        from += places;
        assert!(matches!(take(from), Err(EngineError::TooManyLimits { .. })));
        from += places;
    }
    let cost = Cost { target: fast(1_000), permits: Some(9), usage: None };
    let settled = now(engine.commit(id, &[cost])).unwrap();
    let owed = Verdict::Committed(Settled::Owed { permits: 2, forgiven: 0 });
    assert_eq!(settled.answer.results[0].verdict, owed);
    clock.advance(Duration::from_secs(5));
    let taken = (from..from + places).map(|capacity| take(capacity).is_ok());
    assert!(taken.into_iter().all(|is_taken| is_taken), "its place is free");
}
