//! Reservations that hold what their rules let one hold, or as much as there is.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::charge::Settled;
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Item, ItemResult, Override, Reserved, Target,
    UniqueId, Verdict,
};
use rategate_server::rule::{
    CostError, Counts, Dimension, Enforcement, HoldBounds, Limit, Prices, Rule, Unit, Usage,
    Weight, Weights,
};

use crate::engine::common::*;

const TTL: Duration = Duration::from_secs(30);

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"1"] }
}

/// An item of a rule that holds from `least` to `most` permits.
fn range(name: &str, least: u64, most: u64) -> Item<'_> {
    Item { at_most: Some(most), ..Item::of(of(name), least) }
}

fn try_reserve(
    engine: &TestEngine,
    number: u64,
    items: &[Item<'_>],
) -> Result<Reserved, EngineError> {
    now(engine.reserve(id(number), TTL, items))
}

fn reserve(engine: &TestEngine, number: u64, items: &[Item<'_>]) -> Reserved {
    try_reserve(engine, number, items).unwrap()
}

fn held(reserved: &Reserved) -> Vec<Option<u64>> {
    reserved.answer.results.iter().map(ItemResult::held).collect()
}

fn commit(engine: &TestEngine, number: u64, name: &str, permits: Option<u64>) -> Vec<Verdict> {
    let cost = Cost { target: of(name), permits, usage: None };
    let settled = now(engine.commit(id(number), &[cost])).unwrap();
    settled.answer.results.iter().map(|result| result.verdict).collect()
}

fn left(engine: &TestEngine, name: &str) -> u64 {
    remaining(engine, &format!("{name}=1"))
}

fn bounded(rule: Rule, ttl_s: u64, max_ttl_s: u64, max_held: Option<u16>) -> Rule {
    let [ttl, max_ttl] = [ttl_s, max_ttl_s].map(Duration::from_secs);
    Rule { hold_bounds: HoldBounds { ttl, max_ttl, max_held }, ..rule }
}

#[test]
fn the_time_is_bounded_by_the_strictest_rule() {
    let t = bounded(bucket("t", &["t"], 100), 5, 20, None);
    let u = bounded(bucket("u", &["u"], 100), 7, 10, None);
    let (engine, _) = engine(vec![t, u, bucket("v", &["v"], 100)]);
    let lasts = |number, ttl: Option<u64>, names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| Item::of(of(name), 1)).collect();
        let ttl = ttl.map(Duration::from_secs);
        now(engine.reserve(id(number), ttl, &items)).map(|reserved| reserved.ends_after_ns)
    };
    let seconds = |seconds| Ok(NonZeroU64::new(seconds * SECOND));
    assert_eq!(lasts(1, None, &["v"]), seconds(60));
    assert_eq!(lasts(2, None, &["t", "u"]), seconds(5), "the shortest default");
    assert_eq!(lasts(3, None, &["v", "u"]), seconds(7));
    assert_eq!(lasts(4, Some(20), &["t", "v"]), seconds(20));
    let refused = |rule: &str, given, max| {
        let [given, max] = [given, max].map(Duration::from_secs);
        Err(EngineError::Ttl { rule: Some(rule.into()), given, max })
    };
    assert_eq!(lasts(5, Some(21), &["v", "t"]), refused("t", 21, 20));
    assert_eq!(lasts(5, Some(11), &["t", "u"]), refused("u", 11, 10));
    assert_eq!(lasts(5, Some(0), &["u"]), refused("u", 0, 10));
    assert_eq!(lasts(5, Some(601), &["v"]), refused("v", 601, 600));
    let text = lasts(5, Some(11), &["t", "u"]).unwrap_err().to_string();
    assert_eq!(
        text,
        "the time of a reservation of rule `u` is 11s; it is longer than 0, and 10s at most"
    );
    // A descriptor and a limit of the call come under the bounds of their rule.
    let entries: [(&[u8], &[u8]); 1] = [(b"u", b"1")];
    for limit in [None, Some(Override { permits: 5, unit: Unit::Minute })] {
        let target = Target::Descriptor { domain: "d", entries: &entries, limit };
        let long = now(engine.reserve(id(6), Duration::from_secs(11), &[Item::of(target, 1)]));
        assert_eq!(long.map(|reserved| reserved.ends_after_ns), refused("u", 11, 10));
    }
    assert_eq!(left(&engine, "u"), 98, "nothing is held by what is refused");
}

/// The memory of an id is as long as its reservation could last.
#[test]
fn an_id_of_a_long_reservation_is_remembered_as_long() {
    let day = bounded(bucket("t", &["t"], 100), 60, 86_400, None);
    let (engine, clock) = engine(vec![day]);
    let ttl = Duration::from_secs(86_400);
    now(engine.reserve(id(1), ttl, &[Item::of(of("t"), 10)])).unwrap();
    clock.advance(ttl);
    engine.tick(rategate::Clock::now_ns(&clock));
    clock.advance(ttl.saturating_sub(Duration::from_nanos(1)));
    engine.tick(rategate::Clock::now_ns(&clock));
    assert_eq!(commit(&engine, 1, "t", Some(3)), [Verdict::Late(3)]);
}

#[test]
fn one_reservation_holds_a_share_of_the_limit_and_the_rest_is_charged() {
    let rule = bounded(bucket("t", &["t"], 1_000), 60, 600, Some(2_500));
    let (engine, _) = engine(vec![rule]);
    // An estimate beyond the capacity passes too.
    for number in 1..=4 {
        let reserved = reserve(&engine, number, &[Item::of(of("t"), 5_000)]);
        assert_eq!((reserved.answer.allowed, held(&reserved)), (true, vec![Some(250)]));
        let again = reserve(&engine, number, &[Item::of(of("t"), 5_000)]);
        assert_eq!((again.is_repeated, held(&again)), (true, vec![Some(250)]));
    }
    let other = try_reserve(&engine, 1, &[Item::of(of("t"), 4_999)]);
    assert_eq!(
        other,
        Err(EngineError::OtherItems),
        "an estimate is what was sent, not what is cut"
    );
    assert_eq!(left(&engine, "t"), 0);
    let denied = reserve(&engine, 5, &[Item::of(of("t"), 1)]);
    assert_eq!((denied.answer.allowed, held(&denied)), (false, vec![None]));
    let owed = Verdict::Committed(Settled::Owed { permits: 50, forgiven: 0 });
    assert_eq!(commit(&engine, 1, "t", Some(300)), [owed]);
    assert_eq!(commit(&engine, 2, "t", None), [Verdict::Committed(Settled::Even)], "as held");
    assert_eq!(
        commit(&engine, 3, "t", Some(100)),
        [Verdict::Committed(Settled::Back { permits: 150 })]
    );
    assert_eq!(left(&engine, "t"), 100, "50 of 150 pay what was owed");
}

#[test]
fn a_late_commit_without_permits_charges_what_was_held() {
    let rule = bounded(bucket("t", &["t"], 1_000), 60, 600, Some(2_500));
    let (engine, clock) = engine(vec![rule]);
    reserve(&engine, 1, &[Item::of(of("t"), 5_000)]);
    clock.advance(TTL);
    engine.tick(rategate::Clock::now_ns(&clock));
    assert_eq!(commit(&engine, 1, "t", None), [Verdict::Late(250)]);
}

#[test]
fn as_many_are_held_as_there_are() {
    let (engine, _) = engine(vec![bucket("t", &["t"], 100), per_minute("u", &["u"], 1_000)]);
    let first = reserve(&engine, 1, &[range("t", 1, 5_000)]);
    assert_eq!((first.answer.allowed, held(&first)), (true, vec![Some(100)]));
    let denied = reserve(&engine, 2, &[range("t", 1, 5_000)]);
    let in_one = Verdict::Denied { retry_after_ns: NonZeroU64::new(SECOND), enforced: true };
    assert_eq!(denied.answer.results[0].verdict, in_one, "the wait for the minimum");
    assert!(!denied.answer.allowed);
    assert_eq!(commit(&engine, 1, "t", Some(30)).len(), 1);
    // Its own number again, whatever is there by now; another range is another request.
    let second = [range("t", 50, 60), range("u", 10, 10)];
    let reserved = reserve(&engine, 2, &second);
    assert_eq!(held(&reserved), [Some(60), Some(10)]);
    let again = reserve(&engine, 2, &second);
    assert_eq!((again.is_repeated, held(&again)), (true, vec![Some(60), Some(10)]));
    for other in [
        [range("t", 50, 61), range("u", 10, 10)],
        [range("t", 49, 60), range("u", 10, 10)],
        [Item::of(of("t"), 50), range("u", 10, 10)],
    ] {
        assert_eq!(try_reserve(&engine, 2, &other), Err(EngineError::OtherItems));
    }
    // Ten are left: a minimum of eleven is denied, and the other item holds nothing.
    let denied = reserve(&engine, 3, &[range("u", 1, 2_000), range("t", 11, 60)]);
    assert_eq!((denied.answer.allowed, held(&denied)), (false, vec![None; 2]));
    assert_eq!((left(&engine, "t"), left(&engine, "u")), (10, 990));
    let both = reserve(&engine, 3, &[range("u", 1, 2_000), range("t", 10, 60)]);
    assert_eq!(held(&both), [Some(990), Some(10)]);
}

#[test]
fn a_range_that_is_none_is_refused() {
    let (engine, _) = engine(vec![bucket("t", &["t"], 100), bucket("u", &["u"], 100)]);
    for (least, most) in [(0, 5), (6, 5), (1, 0), (u64::MAX, u64::MAX - 1), (0, 0)] {
        let refused = try_reserve(&engine, 1, &[Item::of(of("u"), 1), range("t", least, most)]);
        assert_eq!(refused, Err(EngineError::AtMost { item: 1, least, most }));
    }
    let usage = Usage { counts: &[("output", 1)], model: None };
    let item = Item { at_most: Some(5), ..Item::of_usage(of("t"), usage) };
    assert!(matches!(try_reserve(&engine, 1, &[item]), Err(EngineError::NotFor(_))));
    assert_eq!((left(&engine, "t"), left(&engine, "u")), (100, 100));
    let all = reserve(&engine, 1, &[range("t", 1, u64::MAX)]);
    assert_eq!(held(&all), [Some(100)]);
}

/// The rules `t/rpm` of calls, `t/tpm` of permits, and `org`, that a call of `t` takes from too.
fn several(tpm: u64, org: u64) -> Vec<Rule> {
    let limit = |name: &str, rule: Rule| Rule {
        name: format!("t/{name}").into(),
        dimension: Some(Dimension { of: "t".into(), name: name.into() }),
        also: vec!["org".into()],
        ..rule
    };
    let rpm = Rule { counts: Counts::Requests, ..per_minute("t", &["t"], 10) };
    vec![
        limit("rpm", rpm),
        limit("tpm", per_minute("t", &["t"], tpm)),
        per_minute("org", &["t"], org),
    ]
}

#[test]
fn an_item_holds_one_number_in_all_of_its_rules() {
    let (engine, _) = engine(several(1_000, 300));
    let reserved = reserve(&engine, 1, &[range("t", 1, 800)]);
    let parts: Vec<_> = reserved.answer.results[0].parts().iter().map(ItemResult::held).collect();
    assert_eq!((held(&reserved), parts), (vec![Some(300)], vec![Some(1), Some(300), Some(300)]));
    let again = reserve(&engine, 1, &[range("t", 1, 800)]);
    let parts: Vec<_> = again.answer.results[0].parts().iter().map(ItemResult::held).collect();
    assert_eq!((held(&again), parts), (vec![Some(300)], vec![Some(1), Some(300), Some(300)]));
    assert!(!reserve(&engine, 2, &[range("t", 1, 800)]).answer.allowed);
    assert!(commit(&engine, 1, "t", Some(100)).len() == 1);
    assert_eq!(held(&reserve(&engine, 3, &[range("t", 200, 800)])), [Some(200)]);
}

/// A rule with a share bounds no other one.
#[test]
fn a_share_of_one_rule_is_no_bound_of_another() {
    let mut rules = several(1_000, 300);
    rules[2] = bounded(rules[2].clone(), 60, 600, Some(1_000));
    let (engine, _) = engine(rules);
    let reserved = reserve(&engine, 1, &[range("t", 1, 800)]);
    let parts: Vec<_> = reserved.answer.results[0].parts().iter().map(ItemResult::held).collect();
    assert_eq!((held(&reserved), parts), (vec![Some(800)], vec![Some(1), Some(800), Some(30)]));
}

#[test]
fn windows_that_count_every_hit_and_limits_of_the_call_hold_what_there_is() {
    let rule = bounded(counting(per_minute("y", &["y"], 10), 10), 60, 600, Some(5_000));
    let (engine, _) = engine(vec![rule, counting(per_minute("z", &["z"], 10), 10)]);
    assert_eq!(held(&reserve(&engine, 1, &[Item::of(of("y"), 8)])), [Some(5)]);
    assert_eq!(held(&reserve(&engine, 2, &[range("z", 1, 80)])), [Some(10)]);
    let entries: [(&[u8], &[u8]); 1] = [(b"z", b"1")];
    let limit = Some(Override { permits: 20, unit: Unit::Minute });
    let own = Target::Descriptor { domain: "d", entries: &entries, limit };
    let item = Item { at_most: Some(80), ..Item::of(own, 1) };
    assert_eq!(held(&reserve(&engine, 3, &[item])), [Some(10)], "20, of which 10 are held");
}

#[test]
fn what_is_not_enforced_bounds_nothing_and_says_what_it_holds() {
    let shadow = Rule { enforcement: Enforcement::Shadow, ..bucket("s", &["s"], 10) };
    let unlimited = Rule { limit: Limit::Unlimited, ..bucket("n", &["n"], 1) };
    let (engine, _) = engine(vec![shadow, unlimited, bucket("c", &["c"], 100)]);
    let items = [range("s", 1, 50), range("n", 1, 50), range("c", 1, 50)];
    let reserved = reserve(&engine, 1, &items);
    assert_eq!(held(&reserved), [Some(50), None, Some(50)]);
    assert_eq!(held(&reserve(&engine, 1, &items)), held(&reserved));
    // Its counter holds what there is, and then nothing, as if it were enforced.
    let first = &reserved.answer.results[0];
    assert_eq!((first.verdict, first.remaining), (Verdict::Granted, Some(0)));
    for _ in 0..2 {
        let more = reserve(&engine, 2, &[range("s", 1, 9)]);
        assert_eq!(held(&more), [Some(9)]);
        assert!(more.answer.allowed && more.answer.results[0].is_shadow());
    }
    let used = Cost { target: items[0].target, permits: Some(40), usage: None };
    let [none, other] = [items[1].target, items[2].target].map(|target| Cost {
        target,
        permits: None,
        usage: None,
    });
    let settled = now(engine.commit(id(1), &[used, none, other])).unwrap();
    let owed = Verdict::Committed(Settled::Owed { permits: 30, forgiven: 0 });
    assert_eq!(settled.answer.results[0].verdict, owed, "beyond the 10 that were there");
    // Beside an enforced rule its number is that of the item.
    let shadow = Rule { enforcement: Enforcement::Shadow, ..per_minute("s", &["t"], 1_000) };
    let (engine, _) = self::engine(vec![shadow, per_minute("a", &["t"], 20)]);
    let entries: [(&[u8], &[u8]); 1] = [(b"t", b"1")];
    let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
    let item = Item { at_most: Some(50), ..Item::of(target, 1) };
    let both = reserve(&engine, 1, &[item]);
    let parts: Vec<_> = both.answer.results[0].parts().iter().map(ItemResult::held).collect();
    assert_eq!((held(&both), parts), (vec![Some(20)], vec![Some(20); 2]));
}

/// A commit is judged by all rules of the item, also by those that hold nothing.
#[test]
fn a_commit_is_judged_by_the_rules_of_the_reservation() {
    let third = Weight::new(3, 1).unwrap();
    let prices = Weights::new([("output".into(), third)]).unwrap();
    let prices = Prices::new([(Arc::from("m"), prices)].into()).unwrap();
    let money = Rule { counts: Counts::Money(prices.into()), ..per_minute("m", &["t"], 1_000) };
    let free =
        Rule { limit: Limit::Unlimited, counts: Counts::Requests, ..per_minute("free", &["t"], 1) };
    let (engine, _) = engine(vec![money, free]);
    let entries: [(&[u8], &[u8]); 1] = [(b"t", b"1")];
    let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
    let usage = |count: &'static [(&str, u64)]| Usage { counts: count, model: Some("m") };
    let item = Item::of_usage(target, usage(&[("output", 100)]));
    let reserved = reserve(&engine, 1, &[item]);
    assert_eq!(
        (held(&reserved), reserved.answer.results[0].parts()[0].cost()),
        (vec![Some(300)], Some(300))
    );
    let permits = Cost { target, permits: Some(5), usage: None };
    let refused = now(engine.commit(id(1), &[permits]));
    assert_eq!(
        refused,
        Err(EngineError::Cost { item: 0, rule: "m".into(), why: CostError::NoUsage })
    );
    let used = Cost { target, permits: None, usage: Some(usage(&[("output", 90)])) };
    let settled = now(engine.commit(id(1), &[used])).unwrap();
    let back = Verdict::Committed(Settled::Back { permits: 30 });
    assert_eq!(settled.answer.results[0].parts()[0].verdict, back);
}

/// A late commit charges the limits in which something had been held, and no others.
#[test]
fn a_late_commit_charges_what_had_been_held() {
    let shadow = Rule { enforcement: Enforcement::Shadow, ..per_minute("s", &["t"], 10) };
    let hour = |rule: Rule| {
        let hour = Duration::from_nanos(3_600 * SECOND);
        let window = rategate::FixedWindow::new(100, hour, rategate::policy::Anchor::Epoch);
        Rule { limit: Limit::Policy(window.into()), ..rule }
    };
    let calls = Rule { counts: Counts::Requests, ..hour(per_minute("r", &["t"], 100)) };
    let rules = vec![hour(per_minute("a", &["t"], 100)), shadow, calls];
    for is_swept in [false, true] {
        let (engine, clock) = engine(rules.clone());
        let entries: [(&[u8], &[u8]); 1] = [(b"t", b"1")];
        let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
        let reserved = reserve(&engine, 1, &[Item::of(target, 50)]);
        let parts: Vec<_> =
            reserved.answer.results[0].parts().iter().map(ItemResult::held).collect();
        assert_eq!(parts, [Some(50), Some(0), Some(1)], "50 do not fit in the shadow of 10");
        clock.advance(TTL);
        if is_swept {
            engine.tick(rategate::Clock::now_ns(&clock));
        }
        let cost = Cost { target, permits: Some(7), usage: None };
        let late = now(engine.commit(id(1), &[cost])).unwrap();
        let parts = late.answer.results[0].parts();
        let left: Vec<_> = parts.iter().map(|part| part.remaining).collect();
        assert_eq!(left, [Some(93), Some(10), Some(99)], "swept: {is_swept}");
        let verdicts: Vec<_> = parts.iter().map(|part| part.verdict).collect();
        assert_eq!(verdicts, [7, 0, 1].map(Verdict::Late), "swept: {is_swept}");
        let again = now(engine.commit(id(1), &[cost])).unwrap();
        assert_eq!(again.answer.results[0].parts()[0].remaining, Some(93));
    }
}

/// The oracle of random stories: a number for each rule, and what is held of it by id.
#[test]
fn random_ranges_hold_what_a_number_says() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let names = ["t", "u", "v"];
    let shares = [None, Some(5_000_u16), Some(1_000)];
    let rules = names
        .iter()
        .zip(shares)
        .map(|(name, share)| bounded(per_minute(name, &[name], 1_000), 50, 600, share));
    let (engine, _) = engine(rules.collect());
    let mut used = [0_u64; 3];
    let mut open: Vec<(u64, Vec<(usize, u64)>)> = Vec::new();
    let (mut granted, mut denied) = (0, 0);
    for number in 0..3_000 {
        if random(2) == 0 && !open.is_empty() {
            let at = usize::try_from(random(open.len() as u64)).unwrap();
            let (number, parts) = open.swap_remove(at);
            let actual: Vec<u64> = parts.iter().map(|(_, held)| random(held + 1)).collect();
            let costs: Vec<Cost<'_>> = parts
                .iter()
                .zip(&actual)
                .map(|(&(at, _), &permits)| Cost {
                    target: of(names[at]),
                    permits: Some(permits),
                    usage: None,
                })
                .collect();
            now(engine.commit(id(number), &costs)).unwrap();
            for (&(at, held), actual) in parts.iter().zip(actual) {
                used[at] -= held - actual;
            }
            if used.iter().all(|used| *used > 900) {
                used = [0; 3];
                open.clear();
                for name in names {
                    ask(
                        &engine,
                        rategate_server::engine::Verb::Reset,
                        &[(&format!("{name}=1"), 0)],
                    );
                }
            }
            continue;
        }
        let cut = |at: usize, permits: u64| match shares[at] {
            Some(share) => permits.min(1_000 * u64::from(share) / 10_000),
            None => permits,
        };
        let mut items = Vec::new();
        for at in 0..3 {
            if random(2) == 0 {
                let least = 1 + random(200);
                items.push((at, least, least + random(900)));
            }
        }
        let ranges: Vec<Item<'_>> =
            items.iter().map(|&(at, least, most)| range(names[at], least, most)).collect();
        let reserved = reserve(&engine, number, &ranges);
        let fits = items.iter().all(|&(at, least, _)| cut(at, least) <= 1_000 - used[at]);
        assert_eq!(reserved.answer.allowed, fits, "{number}: {items:?} {used:?}");
        if !fits {
            denied += 1;
            continue;
        }
        granted += usize::from(!items.is_empty());
        let parts: Vec<(usize, u64)> = items
            .iter()
            .map(|&(at, least, most)| (at, cut(at, most).min(1_000 - used[at]).max(cut(at, least))))
            .collect();
        let expected: Vec<_> = parts.iter().map(|(_, held)| Some(*held)).collect();
        assert_eq!(held(&reserved), expected, "{number}: {items:?} {used:?}");
        assert_eq!(held(&reserve(&engine, number, &ranges)), expected, "{number}: again");
        for &(at, held) in &parts {
            used[at] += held;
        }
        for (at, name) in names.iter().enumerate() {
            assert_eq!(left(&engine, name), 1_000 - used[at], "{number}");
        }
        if !parts.is_empty() {
            open.push((number, parts));
        }
    }
    assert!(granted > 100 && denied > 100, "{granted} {denied}");
}

/// Threads that take what there is at the same time hold no more than the limit together.
#[test]
fn threads_share_what_there_is() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let engine = Engine::new(clock, EngineSettings::default());
    engine.load(set(vec![per_minute("t", &["t"], 1_000), per_minute("u", &["u"], 1_000)])).unwrap();
    let taken = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, total) = (&engine, &taken);
            scope.spawn(move || {
                for number in 0..100 {
                    let items = [range("t", 1, 3), range("u", 1, 7)];
                    let reserved = reserve(engine, thread * 1_000 + number, &items);
                    let own = held(&reserved);
                    if reserved.answer.allowed {
                        let [Some(t @ 1..=3), Some(1..=7)] = own[..] else { panic!("{own:?}") };
                        total.fetch_add(t, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let total = taken.into_inner();
    assert_eq!(left(&engine, "t"), 1_000 - total);
}
