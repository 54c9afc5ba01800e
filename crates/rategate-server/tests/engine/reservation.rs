//! Reservations: estimates under an id, until the true cost is known.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Settled;
use rategate::{Concurrency, SlidingLog};
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Inline, Item, MAX_TTL, MEMORY, Reserved, Target,
    UniqueId, Verdict,
};
use rategate_server::rule::{CountedWindow, Enforcement, Limit, Over, Rule, RuleSet};

use crate::engine::common::*;

const TTL: Duration = Duration::from_secs(30);

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

/// The target of a rule with one value.
fn of<'a>(name: &'a str, values: &'a [&'a [u8]]) -> Target<'a> {
    Target::Rule { name, values }
}

fn reserve(engine: &TestEngine, number: u64, items: &[(&str, u64)]) -> Reserved {
    try_reserve(engine, number, TTL, items).unwrap()
}

fn try_reserve(
    engine: &TestEngine,
    number: u64,
    ttl: Duration,
    items: &[(&str, u64)],
) -> Result<Reserved, EngineError> {
    let items: Vec<Item<'_>> =
        items.iter().map(|&(name, permits)| Item::of(of(name, &[b"1"]), permits)).collect();
    engine.reserve(id(number), ttl, &items)
}

fn commit(engine: &TestEngine, number: u64, costs: &[(&str, Option<u64>)]) -> Reserved {
    let cost = |&(name, permits): &(_, _)| Cost { target: of(name, &[b"1"]), permits, usage: None };
    engine.commit(id(number), &costs.iter().map(cost).collect::<Vec<_>>()).unwrap()
}

fn cancel(engine: &TestEngine, number: u64, names: &[&str]) -> Reserved {
    let targets: Vec<Target<'_>> = names.iter().map(|name| of(name, &[b"1"])).collect();
    engine.cancel(id(number), &targets).unwrap()
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

const fn back(permits: u64) -> Verdict {
    Verdict::Committed(Settled::Back { permits })
}

fn left(engine: &TestEngine, name: &str) -> u64 {
    remaining(engine, &format!("{name}=1"))
}

#[test]
fn all_items_are_held_or_none_and_settled_once() {
    let (engine, clock) = engine(vec![per_minute("t", &["t"], 1_000), per_minute("r", &["r"], 2)]);
    let both = |engine: &_, number, tokens| reserve(engine, number, &[("t", tokens), ("r", 1)]);
    let held = both(&engine, 1, 800);
    assert_eq!((held.answer.allowed, held.is_repeated), (true, false));
    assert_eq!(verdicts(&held), [Verdict::Granted; 2]);
    assert_eq!(held.ends_after_ns, NonZeroU64::new(30 * SECOND));
    let denied = both(&engine, 2, 300);
    let until_end =
        Verdict::Denied { retry_after_ns: NonZeroU64::new(30 * SECOND), enforced: true };
    assert_eq!(verdicts(&denied), [until_end, Verdict::Granted], "the hold ends by itself");
    assert_eq!((denied.answer.allowed, left(&engine, "t"), left(&engine, "r")), (false, 200, 1));
    // The same again takes nothing, and does not prolong.
    clock.advance(Duration::from_secs(10));
    let again = both(&engine, 1, 800);
    assert_eq!((again.answer.allowed, again.is_repeated), (true, true));
    assert_eq!(again.ends_after_ns, NonZeroU64::new(20 * SECOND));
    assert_eq!(left(&engine, "t"), 200);
    let settled = commit(&engine, 1, &[("t", Some(650)), ("r", None)]);
    assert_eq!(verdicts(&settled), [back(150), Verdict::Committed(Settled::Even)]);
    for repeated in [
        commit(&engine, 1, &[("t", Some(1)), ("r", Some(9))]),
        cancel(&engine, 1, &["t", "r"]),
        both(&engine, 1, 800),
    ] {
        assert_eq!(verdicts(&repeated), verdicts(&settled));
        assert!(repeated.is_repeated);
    }
    assert_eq!((left(&engine, "t"), left(&engine, "r")), (350, 1));
    // A refusal leaves its id unused.
    assert!(both(&engine, 2, 300).answer.allowed);
    assert_eq!(verdicts(&cancel(&engine, 2, &["t", "r"])), [300, 1].map(Verdict::Cancelled));
    assert_eq!((left(&engine, "t"), left(&engine, "r")), (350, 1));
    let counts = engine.reservation_counts();
    assert_eq!((counts.held, counts.denied, counts.open, counts.known), (2, 1, 0, 2));
    assert_eq!((counts.committed, counts.cancelled, counts.repeated), (1, 1, 4));
}

#[test]
fn a_late_commit_is_charged_whole_and_once() {
    for is_swept in [false, true] {
        let (engine, clock) = engine(vec![bucket("t", &["t"], 100)]);
        assert!(try_reserve(&engine, 1, Duration::from_secs(1), &[("t", 80)]).is_ok());
        clock.advance(Duration::from_secs(1));
        assert_eq!(left(&engine, "t"), 100);
        if is_swept {
            engine.tick(clock_ns(&clock));
            assert_eq!(engine.reservation_counts().expired, 1);
        }
        let again = try_reserve(&engine, 1, Duration::from_secs(1), &[("t", 80)]).unwrap();
        assert_eq!((again.answer.allowed, again.ends_after_ns), (false, None));
        let late = commit(&engine, 1, &[("t", Some(130))]);
        assert_eq!((verdicts(&late), late.answer.results[0].debt), (vec![Verdict::Late(130)], 30));
        assert!(commit(&engine, 1, &[("t", Some(130))]).is_repeated);
        assert_eq!(commit(&engine, 1, &[("t", Some(130))]).answer.results[0].debt, 30);
        assert_eq!(engine.reservation_counts().late, 1);
    }
}

fn clock_ns(clock: &rategate::ManualClock) -> u64 {
    rategate::Clock::now_ns(clock)
}

#[test]
fn an_id_is_forgotten_after_its_time() {
    let (engine, clock) = engine(vec![bucket("t", &["t"], 100)]);
    reserve(&engine, 1, &[("t", 80)]);
    commit(&engine, 1, &[("t", Some(10))]);
    reserve(&engine, 2, &[("t", 80)]);
    clock.advance(MEMORY.saturating_sub(Duration::from_nanos(1)));
    engine.tick(clock_ns(&clock));
    assert!(commit(&engine, 1, &[("t", Some(10))]).is_repeated);
    clock.advance(Duration::from_nanos(1));
    for _ in 0..2 {
        let unknown = commit(&engine, 1, &[("t", Some(10))]);
        assert_eq!(verdicts(&unknown), [Verdict::Unknown]);
        assert!(!unknown.answer.allowed && !unknown.is_repeated);
        engine.tick(clock_ns(&clock));
    }
    assert_eq!(engine.reservation_counts().known, 1, "the second ended 30 s later");
    clock.advance(TTL);
    engine.tick(clock_ns(&clock));
    assert_eq!(engine.reservation_counts().known, 0);
    assert_eq!(left(&engine, "t"), 100);
}

#[test]
fn what_cannot_be_reserved_says_so_and_takes_nothing() {
    let counted = Rule {
        limit: Limit::Counted(CountedWindow::new(5, 60 * SECOND).unwrap()),
        ..per_minute("y", &["y"], 5)
    };
    let (engine, _) = engine(vec![bucket("t", &["t"], 100), bucket("u", &["u"], 100), counted]);
    let fails = |items: &[(&str, u64)]| try_reserve(&engine, 1, TTL, items).unwrap_err();
    assert!(matches!(fails(&[("t", 1), ("y", 1)]), EngineError::NotFor(_)));
    assert!(matches!(fails(&[("t", 1), ("none", 1)]), EngineError::NoSuchRule { .. }));
    let twice = fails(&[("t", 1), ("u", 1), ("t", 1)]);
    assert_eq!(twice, EngineError::DuplicateItem { first: 0, second: 2 });
    assert!(matches!(fails(&[("t", 1); 65]), EngineError::TooManyItems { .. }));
    let limit = Inline { capacity: 5, count: 1, period_ns: SECOND };
    let inline = [Item::of(Target::Inline { limit, key: b"k" }, 1)];
    assert!(matches!(engine.reserve(id(1), TTL, &inline), Err(EngineError::NotFor(_))));
    for ttl in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1)] {
        let refused = try_reserve(&engine, 1, ttl, &[("t", 1)]);
        assert_eq!(refused, Err(EngineError::Ttl { max: MAX_TTL }));
    }
    assert!(try_reserve(&engine, 1, MAX_TTL, &[("t", 1)]).unwrap().answer.allowed);
    for other in [vec![("t", 2)], vec![("u", 1)], vec![("t", 1), ("u", 1)], vec![]] {
        assert_eq!(try_reserve(&engine, 1, TTL, &other), Err(EngineError::OtherItems));
    }
    let cost = Cost { target: of("u", &[b"1"]), permits: None, usage: None };
    assert_eq!(engine.commit(id(1), &[cost]), Err(EngineError::OtherItems));
    assert_eq!(left(&engine, "t"), 99);
    let never = reserve(&engine, 2, &[("t", 101)]);
    assert_eq!(verdicts(&never), [Verdict::Denied { retry_after_ns: None, enforced: true }]);
}

/// Operations in flight are counted elsewhere: they have leases.
#[test]
fn permits_in_flight_are_not_reserved() {
    let rule = Rule { limit: Limit::Policy(Concurrency::new(3).into()), ..bucket("c", &["c"], 3) };
    let (engine, _) = engine(vec![rule]);
    let refused = try_reserve(&engine, 1, TTL, &[("c", 1)]);
    assert!(matches!(refused, Err(EngineError::NotFor(_))), "{refused:?}");
}

#[test]
fn rules_in_shadow_deny_nothing_and_rules_that_charge_are_held_too() {
    let shadow = Rule { enforcement: Enforcement::Shadow, ..bucket("s", &["s"], 10) };
    let charging = Rule { over: Over::Charge, ..bucket("c", &["c"], 100) };
    let (engine, _) = engine(vec![shadow, charging]);
    let held = reserve(&engine, 1, &[("s", 8), ("c", 80)]);
    assert_eq!(verdicts(&held), [Verdict::Granted; 2]);
    let over = reserve(&engine, 2, &[("s", 8), ("c", 20)]);
    assert!(over.answer.allowed);
    for over in [over, reserve(&engine, 2, &[("s", 8), ("c", 20)])] {
        assert!(matches!(verdicts(&over)[0], Verdict::Denied { enforced: false, .. }));
        assert_eq!(verdicts(&over)[1], Verdict::Granted);
    }
    let settled = commit(&engine, 2, &[("s", Some(1)), ("c", Some(5))]);
    assert_eq!(verdicts(&settled), [Verdict::Committed(Settled::Even), back(15)]);
    assert_eq!((left(&engine, "s"), left(&engine, "c")), (2, 15));
    assert!(!reserve(&engine, 3, &[("c", 16)]).answer.allowed, "an estimate is not charged");
}

#[test]
fn reservations_are_as_many_as_configured() {
    let (_, clock) = engine(Vec::new());
    let settings = EngineSettings { max_reservations: 2, ..EngineSettings::default() };
    let engine = Engine::new(clock.clone(), settings);
    engine.load(RuleSet { rules: vec![bucket("t", &["t"], 9)], hash: "".into() }).unwrap();
    for number in 1..=2 {
        assert!(reserve(&engine, number, &[("t", 1)]).answer.allowed);
    }
    let full = || try_reserve(&engine, 3, TTL, &[("t", 1)]);
    assert_eq!(full(), Err(EngineError::NoCapacity));
    // An id that is settled is still remembered.
    commit(&engine, 1, &[("t", None)]);
    assert_eq!(full(), Err(EngineError::NoCapacity));
    clock.advance(MEMORY);
    engine.tick(clock_ns(&clock));
    assert!(full().unwrap().answer.allowed);
}

/// Keys with open reservations are never evicted, and a table has a maximum size.
#[test]
fn keys_with_open_reservations_are_bounded() {
    let (_, clock) = engine(Vec::new());
    let engine =
        Engine::new(clock.clone(), EngineSettings { max_keys: 1_000, ..EngineSettings::default() });
    engine.load(RuleSet { rules: vec![bucket("t", &["t"], 9)], hash: "".into() }).unwrap();
    let one = |number: u64| {
        let key = number.to_be_bytes();
        engine.reserve(id(number), TTL, &[Item::of(of("t", &[&key]), 1)])
    };
    let passes = |number| one(number).is_ok_and(|reserved| reserved.answer.allowed);
    let held = (1..2_000).find(|&number| !passes(number)).unwrap() - 1;
    // Those that find no room share the limit of new keys.
    assert_eq!(held, 1_000 + 9);
    // What ends makes room again.
    clock.advance(TTL + Duration::from_secs(1));
    engine.tick(clock_ns(&clock));
    assert!((3_000..3_900).all(passes));
}

/// A commit outlives a change of the rules, and their end.
#[test]
fn a_commit_follows_a_reload() {
    let (engine, _) = engine(vec![bucket("t", &["t"], 100)]);
    reserve(&engine, 1, &[("t", 80)]);
    reserve(&engine, 2, &[("t", 10)]);
    engine.load(RuleSet { rules: vec![bucket("t", &["t"], 90)], hash: "b".into() }).unwrap();
    assert_eq!(verdicts(&commit(&engine, 1, &[("t", Some(30))])), [back(50)]);
    assert_eq!(left(&engine, "t"), 50, "of 90, 30 and 10 are used");
    engine.load(RuleSet { rules: vec![bucket("u", &["u"], 90)], hash: "c".into() }).unwrap();
    let gone = commit(&engine, 2, &[("t", Some(4))]);
    assert_eq!(verdicts(&gone), [back(6)]);
    assert_eq!(
        (gone.answer.results[0].rule.is_none(), gone.answer.results[0].remaining),
        (true, None)
    );
}

/// One reservation of the model.
struct Known {
    items: Vec<(usize, u64)>,
    window: u64,
    end_s: u64,
    verdict_of: Option<Vec<Verdict>>,
    settled_s: u64,
}

/// Random stories of windows, compared with plain sums: what is held and used counts in the window
/// of its start, shortfalls in that of their commit, and nothing twice.
#[test]
fn random_stories_are_those_of_plain_sums() {
    const LIMITS: [(&str, u64); 2] = [("a", 50), ("b", 70)];
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let rules = LIMITS.map(|(name, permits)| per_minute(name, &[name], permits));
        let (engine, clock) = engine(rules.into());
        let (mut used, mut known) = ([0_u64; 2], HashMap::<u64, Known>::new());
        let mut now_s = 0_u64;
        for step in 0..200 {
            let passed_s = if rng.u8(..4) == 0 { rng.u64(1..45) } else { 0 };
            clock.advance(Duration::from_secs(passed_s));
            // Holds end in their window before it does, or are gone with it.
            let window = (now_s + passed_s) / 60;
            for known in known.values_mut() {
                let ends = known.verdict_of.is_none() && known.settled_s == u64::MAX;
                if ends && known.end_s <= now_s + passed_s {
                    if known.window == now_s / 60 {
                        known.items.iter().for_each(|(at, held)| used[*at] -= held);
                    }
                    known.settled_s = known.end_s;
                }
            }
            if window != now_s / 60 {
                used = [0; 2];
            }
            now_s += passed_s;
            if rng.bool() {
                engine.tick(clock_ns(&clock));
            }
            let number = rng.u64(..12);
            let forgotten = known.get(&number).is_some_and(|known| {
                known.settled_s != u64::MAX && known.settled_s + MEMORY.as_secs() <= now_s
            });
            if forgotten {
                known.remove(&number);
            }
            if rng.bool() && !known.contains_key(&number) {
                let mut items: Vec<(usize, u64)> = (0..2).map(|at| (at, rng.u64(..40))).collect();
                items.truncate(rng.usize(1..=2));
                let ttl_s = rng.u64(1..90);
                let fits = items.iter().all(|(at, permits)| {
                    used[*at] <= LIMITS[*at].1 && used[*at] + permits <= LIMITS[*at].1
                });
                let named: Vec<_> = items.iter().map(|(at, n)| (LIMITS[*at].0, *n)).collect();
                let reserved =
                    try_reserve(&engine, number, Duration::from_secs(ttl_s), &named).unwrap();
                assert_eq!(reserved.answer.allowed, fits, "seed {seed}, step {step}");
                if fits {
                    for (at, permits) in &items {
                        used[*at] += permits;
                    }
                    let (end_s, settled_s) = (now_s + ttl_s, u64::MAX);
                    let known_as = Known { items, window, end_s, verdict_of: None, settled_s };
                    known.insert(number, known_as);
                }
            } else {
                let actual: Vec<u64> = (0..2).map(|_| rng.u64(..60)).collect();
                let costs: Vec<_> = match known.get(&number) {
                    Some(known) => known.items.iter().map(|(at, _)| (*at, actual[*at])).collect(),
                    None => vec![(0, 5)],
                };
                let named: Vec<_> =
                    costs.iter().map(|(at, used)| (LIMITS[*at].0, Some(*used))).collect();
                let committed = commit(&engine, number, &named);
                let Some(known) = known.get_mut(&number) else {
                    assert_eq!(verdicts(&committed), [Verdict::Unknown]);
                    continue;
                };
                assert_eq!(committed.is_repeated, known.verdict_of.is_some(), "seed {seed}");
                if let Some(before) = &known.verdict_of {
                    assert_eq!(&verdicts(&committed), before);
                    continue;
                }
                let is_late = known.settled_s != u64::MAX;
                for ((at, actual), (_, held)) in costs.iter().zip(&known.items) {
                    if is_late {
                        used[*at] += actual;
                    } else if actual > held {
                        used[*at] += actual - held;
                    } else if known.window == window {
                        used[*at] -= held - actual;
                    }
                }
                let all_late = verdicts(&committed).iter().all(|it| matches!(it, Verdict::Late(_)));
                assert_eq!(all_late, is_late, "seed {seed}, step {step}");
                known.verdict_of = Some(verdicts(&committed));
                known.settled_s = now_s;
            }
            for (at, (name, limit)) in LIMITS.iter().enumerate() {
                let expected = limit.saturating_sub(used[at]);
                assert_eq!(left(&engine, name), expected, "seed {seed}, step {step}, {name}");
            }
        }
    }
}

/// Five, fifty and five hundred calls at once under a limit of 2000 tokens: what is held never
/// exceeds it, and in the end the true costs are used.
#[test]
fn calls_at_once_reserve_no_more_than_the_limit() {
    for callers in [5_u64, 50, 500] {
        let (engine, _) = engine(vec![bucket("t", &["t"], 2_000)]);
        let held = std::thread::scope(|scope| {
            let call = |caller: u64| {
                let engine = engine.clone();
                move || {
                    let reserved = reserve(&engine, caller, &[("t", 80)]);
                    u64::from(reserved.answer.allowed)
                }
            };
            let threads: Vec<_> = (0..callers).map(|caller| scope.spawn(call(caller))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        assert_eq!(held, callers.min(25), "{callers} callers");
        let mut used = 0;
        for caller in 0..callers {
            let actual = caller % 81;
            let committed = commit(&engine, caller, &[("t", Some(actual))]);
            used += if committed.answer.allowed { actual } else { 0 };
        }
        assert_eq!(left(&engine, "t"), 2_000 - used);
    }
}

#[test]
fn a_log_gives_back_what_a_reservation_did_not_use() {
    let log = SlidingLog::new(100, Duration::from_secs(60));
    let rule = Rule { limit: Limit::Policy(log.into()), ..bucket("l", &["l"], 100) };
    let (engine, clock) = engine(vec![rule]);
    reserve(&engine, 1, &[("l", 90)]);
    clock.advance(Duration::from_secs(20));
    assert_eq!(verdicts(&commit(&engine, 1, &[("l", Some(40))])), [back(50)]);
    assert_eq!(left(&engine, "l"), 60);
    clock.advance(Duration::from_secs(40));
    assert_eq!(left(&engine, "l"), 100, "40 were taken at the start");
}
