//! Reservations of limits that come with the call.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::ManualClock;
use rategate::charge::Settled;
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Inline, Item, Override, Request, Reserved, Target,
    UniqueId, Verb, Verdict,
};
use rategate_server::rule::{HoldBounds, Rule, Unit, Usage};

use crate::engine::common::*;

const TTL: Duration = Duration::from_secs(30);
const EVEN: Verdict = Verdict::Committed(Settled::Even);

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

/// A bucket of the call, of one permit a second.
const fn burst(capacity: u64) -> Target<'static> {
    Target::Inline { limit: Inline { capacity, count: 1, period_ns: SECOND }, key: b"k" }
}

/// A window of the call, for entries that no rule has.
const fn window(permits: u64) -> Target<'static> {
    let limit = Some(Override { permits, unit: Unit::Minute });
    Target::Descriptor { domain: "d", entries: &[(b"own", b"x")], limit }
}

const RULE: Target<'static> = Target::Rule { name: "r", values: &[b"1"] };

fn try_reserve(
    engine: &TestEngine,
    number: u64,
    items: &[(Target<'_>, u64)],
    ttl: Duration,
) -> Result<Reserved, EngineError> {
    let items: Vec<_> = items.iter().map(|&(target, permits)| Item::of(target, permits)).collect();
    now(engine.reserve(id(number), ttl, &items))
}

fn reserve(engine: &TestEngine, number: u64, items: &[(Target<'_>, u64)]) -> Reserved {
    try_reserve(engine, number, items, TTL).unwrap()
}

fn commit(engine: &TestEngine, number: u64, costs: &[(Target<'_>, Option<u64>)]) -> Reserved {
    let cost = |&(target, permits): &(_, _)| Cost { target, permits, usage: None };
    now(engine.commit(id(number), &costs.iter().map(cost).collect::<Vec<_>>())).unwrap()
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

const fn back(permits: u64) -> Verdict {
    Verdict::Committed(Settled::Back { permits })
}

const fn until(ns: u64) -> Verdict {
    Verdict::Denied { retry_after_ns: NonZeroU64::new(ns), enforced: true }
}

fn left(engine: &TestEngine, targets: &[Target<'_>]) -> Vec<u64> {
    let left = |&target: &Target<'_>| {
        decide(engine, Verb::Peek, &[Item::of(target, 1)]).results[0].remaining.unwrap()
    };
    targets.iter().map(left).collect()
}

#[test]
fn buckets_and_windows_of_the_call_are_held_with_rules_or_nothing_is() {
    let (engine, clock) = engine(vec![bucket("r", &["r"], 100)]);
    let all = [burst(50), RULE, window(20)];
    let items =
        |permits: [u64; 3]| [(all[0], permits[0]), (all[1], permits[1]), (all[2], permits[2])];
    let held = reserve(&engine, 1, &items([40, 60, 15]));
    assert_eq!(verdicts(&held), [Verdict::Granted; 3]);
    assert_eq!((held.answer.allowed, held.is_repeated), (true, false));
    assert_eq!(held.ends_after_ns, NonZeroU64::new(30 * SECOND));
    assert_eq!(left(&engine, &all), [10, 40, 5]);
    // Each denies for all, with the time until that changes.
    for (permits, by, wait_ns) in [
        ([11, 1, 1], 0, SECOND),
        ([1, 41, 1], 1, SECOND),
        ([1, 1, 6], 2, 30 * SECOND),
        ([51, 1, 1], 0, 0),
        ([1, 1, 21], 2, 0),
    ] {
        let denied = reserve(&engine, 2, &items(permits));
        assert_eq!(verdicts(&denied)[by], until(wait_ns), "{permits:?}");
        assert!(!denied.answer.allowed);
        let reported = denied.answer.results.iter().map(|result| result.remaining.unwrap());
        assert_eq!(reported.collect::<Vec<_>>(), [10, 40, 5], "{permits:?}: nothing is held");
        assert_eq!(left(&engine, &all), [10, 40, 5], "{permits:?}");
    }
    let again = reserve(&engine, 1, &items([40, 60, 15]));
    assert_eq!((again.answer.allowed, again.is_repeated), (true, true));
    for other in [[(burst(51), 40), (RULE, 60), (window(20), 15)], items([40, 60, 14])] {
        assert_eq!(try_reserve(&engine, 1, &other, TTL), Err(EngineError::OtherItems));
    }
    let costs = |used: [u64; 3]| [0, 1, 2].map(|at| (all[at], Some(used[at])));
    let owed = |permits| Verdict::Committed(Settled::Owed { permits, forgiven: 0 });
    for sent in 0..3 {
        let settled = commit(&engine, 1, &costs([10, 70, 18]));
        assert_eq!(verdicts(&settled), [back(30), owed(10), owed(3)]);
        assert_eq!(settled.is_repeated, sent > 0);
        assert_eq!(left(&engine, &all), [40, 30, 2]);
    }
    // The end by itself, and a late commit, which is charged once.
    assert!(reserve(&engine, 3, &items([40, 30, 2])).answer.allowed);
    clock.advance(TTL);
    assert_eq!(left(&engine, &all), [50, 60, 2]);
    for _ in 0..2 {
        let late = commit(&engine, 3, &costs([20, 10, 1]));
        assert_eq!(verdicts(&late), [20, 10, 1].map(Verdict::Late));
        assert_eq!(left(&engine, &all), [30, 50, 1]);
    }
    let cancelled = [burst(50), window(20)];
    assert!(reserve(&engine, 4, &cancelled.map(|target| (target, 1))).answer.allowed);
    let cancelled = now(engine.cancel(id(4), &cancelled)).unwrap();
    assert_eq!(verdicts(&cancelled), [Verdict::Cancelled(1); 2]);
    assert_eq!(left(&engine, &all), [30, 50, 1]);
}

#[test]
fn items_of_one_counter_and_usage_are_refused_and_a_range_holds_what_there_is() {
    for target in [burst(5), window(5)] {
        let (engine, _) = engine(vec![bucket("r", &["r"], 100)]);
        let twice = try_reserve(&engine, 1, &[(target, 1), (RULE, 1), (target, 1)], TTL);
        assert_eq!(twice, Err(EngineError::DuplicateItem { first: 0, second: 2 }));
        // Other numbers are another limit.
        assert!(reserve(&engine, 1, &[(burst(6), 1), (target, 1)]).answer.allowed);
        let usage = Some(Usage { counts: &[("input", 5)], model: None });
        let costs = [burst(6), target].map(|target| Cost { target, permits: None, usage });
        assert!(matches!(now(engine.commit(id(1), &costs)), Err(EngineError::NotFor(_))));
        assert_eq!(verdicts(&commit(&engine, 1, &[(burst(6), None), (target, None)])), [EVEN; 2]);
        let range = Item { at_most: Some(9), ..Item::of(target, 2) };
        let held = now(engine.reserve(id(2), TTL, &[range])).unwrap();
        assert_eq!(held.answer.results[0].held(), Some(4));
        assert!(!now(engine.reserve(id(3), TTL, &[range])).unwrap().answer.allowed);
        assert_eq!(verdicts(&commit(&engine, 2, &[(target, Some(0))])), [back(4)]);
        let known = try_reserve(&engine, 2, &[(RULE, 1)], TTL);
        assert_eq!(known, Err(EngineError::OtherItems));
    }
}

/// A hold keeps the limit's place, though nothing else has used it for long.
#[test]
fn a_limit_is_not_replaced_while_anything_is_held() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let settings = EngineSettings { inline_limits: 31, ..EngineSettings::default() };
    let engine = Engine::new(clock.clone(), settings);
    engine.load(set(vec![bucket("r", &["r"], 1)])).unwrap();
    let places = u64::try_from(engine.settings().inline_limits).unwrap();
    let fast =
        |capacity| Target::Inline { limit: Inline { capacity, count: 1, period_ns: 1 }, key: b"k" };
    let take = |capacity| {
        let items = [Item::of(fast(capacity), 1)];
        now(engine.decide(&Request { verb: Verb::Take, items: &items, counts_denied: false }))
    };
    let minutes = Duration::from_secs(300);
    assert!(try_reserve(&engine, 1, &[(fast(1_000), 7)], minutes).unwrap().answer.allowed);
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
    let settled = commit(&engine, 1, &[(fast(1_000), Some(9))]);
    let owed = Verdict::Committed(Settled::Owed { permits: 2, forgiven: 0 });
    assert_eq!(verdicts(&settled), [owed]);
    clock.advance(Duration::from_secs(5));
    let taken = (from..from + places).map(|capacity| take(capacity).is_ok());
    assert!(taken.into_iter().all(|is_taken| is_taken), "its place is free");
}

/// A limit of the call is held for ten minutes at most, beside whatever rule.
#[test]
fn a_limit_of_the_call_bounds_the_time() {
    let day = Duration::from_secs(86_400);
    let bounds = HoldBounds { max_ttl: day, ..HoldBounds::DEFAULT };
    let (engine, _) = engine(vec![Rule { hold_bounds: bounds, ..bucket("r", &["k"], 9) }]);
    assert!(try_reserve(&engine, 1, &[(RULE, 1)], day).is_ok());
    let beside = try_reserve(&engine, 2, &[(RULE, 1), (burst(9), 1)], day);
    let max = Duration::from_secs(600);
    assert_eq!(beside.unwrap_err(), EngineError::Ttl { rule: None, given: day, max });
}
