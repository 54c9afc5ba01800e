//! Reservations: estimates under an id, until the true cost is known.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::SlidingLog;
use rategate::charge::Settled;
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Item, MAX_TTL, MEMORY, Override, Reserved, Target,
    UniqueId, Verb, Verdict,
};
use rategate_server::rule::{Enforcement, Limit, Over, Rule, RuleSet, Unit};

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
    now(engine.reserve(id(number), ttl, &items))
}

fn commit(engine: &TestEngine, number: u64, costs: &[(&str, Option<u64>)]) -> Reserved {
    let cost = |&(name, permits): &(_, _)| Cost { target: of(name, &[b"1"]), permits, usage: None };
    now(engine.commit(id(number), &costs.iter().map(cost).collect::<Vec<_>>())).unwrap()
}

fn cancel(engine: &TestEngine, number: u64, names: &[&str]) -> Reserved {
    let targets: Vec<Target<'_>> = names.iter().map(|name| of(name, &[b"1"])).collect();
    now(engine.cancel(id(number), &targets)).unwrap()
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
        engine.tick(clock_ns(&clock));
        let counts = engine.reservation_counts();
        assert_eq!((counts.late, counts.expired, counts.open), (1, 1, 0), "noticed: {is_swept}");
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
    let (engine, _) = engine(vec![bucket("t", &["t"], 100), bucket("u", &["u"], 100)]);
    let fails = |items: &[(&str, u64)]| try_reserve(&engine, 1, TTL, items).unwrap_err();
    assert!(matches!(fails(&[("t", 1), ("none", 1)]), EngineError::NoSuchRule { .. }));
    let twice = fails(&[("t", 1), ("u", 1), ("t", 1)]);
    assert_eq!(twice, EngineError::DuplicateItem { first: 0, second: 2 });
    assert!(matches!(fails(&[("t", 1); 65]), EngineError::TooManyItems { .. }));
    for ttl in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1)] {
        let refused = try_reserve(&engine, 1, ttl, &[("t", 1)]);
        assert_eq!(
            refused,
            Err(EngineError::Ttl { rule: Some("t".into()), given: ttl, max: MAX_TTL })
        );
    }
    assert!(try_reserve(&engine, 1, MAX_TTL, &[("t", 1)]).unwrap().answer.allowed);
    for other in [("t", 2), ("u", 1)] {
        assert_eq!(try_reserve(&engine, 1, TTL, &[other]), Err(EngineError::OtherItems));
    }
    for (other, given) in [(&[("t", 1), ("u", 1)][..], 2), (&[], 0)] {
        let number = EngineError::OtherNumber { known: 1, given };
        assert_eq!(try_reserve(&engine, 1, TTL, other), Err(number));
    }
    let cost = Cost { target: of("u", &[b"1"]), permits: None, usage: None };
    assert_eq!(now(engine.commit(id(1), &[cost])), Err(EngineError::OtherItems));
    assert_eq!(left(&engine, "t"), 99);
    let never = reserve(&engine, 2, &[("t", 101)]);
    assert_eq!(verdicts(&never), [Verdict::Denied { retry_after_ns: None, enforced: true }]);
}

/// A window that counts every hit holds an estimate only where it fits, and counts nothing else of
/// a reservation than what was used.
#[test]
fn windows_that_count_every_hit_are_reserved() {
    let (engine, clock) = engine(vec![counting(per_minute("y", &["y"], 10), 10)]);
    assert!(reserve(&engine, 1, &[("y", 8)]).answer.allowed);
    let until = |ns| Verdict::Denied { retry_after_ns: NonZeroU64::new(ns), enforced: true };
    for _ in 0..3 {
        let denied = reserve(&engine, 2, &[("y", 3)]);
        assert_eq!(verdicts(&denied), [until(30 * SECOND)], "the hold ends by itself");
        assert_eq!((left(&engine, "y"), denied.answer.results[0].debt), (2, 0), "nothing counts");
    }
    let peeked = ask(&engine, Verb::Peek, &[("y=1", 3)]);
    assert_eq!(peeked.results[0].verdict, until(30 * SECOND));
    assert_eq!(verdicts(&reserve(&engine, 2, &[("y", 11)])), [until(0)], "it never fits");
    assert_eq!(verdicts(&commit(&engine, 1, &[("y", Some(3))])), [back(5)]);
    // A take that does not fit counts; then nothing fits, and even no permits are denied.
    assert_eq!((left(&engine, "y"), take(&engine, &[("y=1", 8)])), (7, false));
    let denied = reserve(&engine, 2, &[("y", 0)]);
    assert_eq!((verdicts(&denied), denied.answer.results[0].debt), (vec![until(60 * SECOND)], 1));
    clock.advance(Duration::from_secs(60));
    assert!(reserve(&engine, 2, &[("y", 10)]).answer.allowed);
    let owed = Verdict::Committed(Settled::Owed { permits: 15, forgiven: 0 });
    let settled = commit(&engine, 2, &[("y", Some(25))]);
    assert_eq!((verdicts(&settled), settled.answer.results[0].debt), (vec![owed], 15));
}

/// A limit that comes with a descriptor holds by its own number, in the count of the rule.
#[test]
fn a_limit_of_the_call_shares_the_count_of_its_rule() {
    let (engine, _) = engine(vec![counting(per_minute("y", &["y"], 10), 10)]);
    let entries: [(&[u8], &[u8]); 1] = [(b"y", b"1")];
    let own = |permits| {
        let limit = Some(Override { permits, unit: Unit::Minute });
        Target::Descriptor { domain: "d", entries: &entries, limit }
    };
    let held = |number, target, permits| {
        now(engine.reserve(id(number), TTL, &[Item::of(target, permits)])).unwrap().answer.allowed
    };
    assert!(held(1, own(20), 14));
    assert!(!held(2, of("y", &[b"1"]), 1), "the count is over the rule's number");
    assert!(!held(2, own(20), 7) && held(2, own(20), 6) && !held(3, own(20), 1));
    let twice = [Item::of(own(20), 0), Item::of(of("y", &[b"1"]), 0)];
    let twice = now(engine.reserve(id(3), TTL, &twice));
    assert_eq!(twice, Err(EngineError::DuplicateItem { first: 0, second: 1 }));
    for (number, used) in [(1, 4), (2, 3)] {
        let cost = Cost { target: own(20), permits: Some(used), usage: None };
        assert!(now(engine.commit(id(number), &[cost])).unwrap().answer.allowed);
    }
    assert_eq!(left(&engine, "y"), 3);
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
    assert_eq!(full(), Err(EngineError::TooManyReservations { max: 2 }));
    // An id that is settled is still remembered.
    commit(&engine, 1, &[("t", None)]);
    assert_eq!(full(), Err(EngineError::TooManyReservations { max: 2 }));
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
        now(engine.reserve(id(number), TTL, &[Item::of(of("t", &[&key]), 1)]))
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

/// Five, fifty and five hundred calls at once under a limit of 2000 tokens: what is held never
/// exceeds it, and in the end the true costs are used.
#[test]
fn calls_at_once_reserve_no_more_than_the_limit() {
    for (callers, is_counted) in [5_u64, 50, 500].into_iter().flat_map(|n| [(n, false), (n, true)])
    {
        let rule = bucket("t", &["t"], 2_000);
        let (engine, _) = engine(vec![if is_counted { counting(rule, 2_000) } else { rule }]);
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
