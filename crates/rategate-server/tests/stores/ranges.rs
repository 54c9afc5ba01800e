//! Reservations of what there is, and of a share of the limit, with counters in a store: as in this
//! process.

use std::time::Duration;

use rategate::charge::Settled;
use rategate::{Clock as _, ManualClock};
use rategate_server::engine::{
    Cost, Engine, EngineError, Item, ItemResult, Reserved, Target, UniqueId, Verdict,
};
use rategate_server::rule::{
    CounterLocation, Counts, Enforcement, HoldBounds, OnUnavailable, Rule, Usage, Weight, Weights,
};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket, per_minute};
use crate::stores::{MS, World, stored};

const TTL: Duration = Duration::from_secs(30);

type Server = Engine<ManualClock>;

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"x"] }
}

fn range(name: &str, least: u64, most: u64) -> Item<'_> {
    Item { at_most: Some(most), ..Item::of(of(name), least) }
}

fn held(reserved: &Reserved) -> Vec<Option<u64>> {
    reserved.answer.results.iter().map(ItemResult::held).collect()
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

impl World {
    fn hold(&self, server: &Server, number: u64, items: &[Item<'_>]) -> Reserved {
        self.wait(server.reserve(id(number), TTL, items)).0.unwrap()
    }

    fn used(&self, server: &Server, number: u64, costs: &[(&str, u64)]) -> Reserved {
        let cost =
            |&(name, permits)| Cost { target: of(name), permits: Some(permits), usage: None };
        let costs: Vec<Cost<'_>> = costs.iter().map(cost).collect();
        self.wait(server.commit(id(number), &costs)).0.unwrap()
    }
}

fn shared(rule: Rule, share: u16) -> Rule {
    Rule { hold_bounds: HoldBounds { max_held: Some(share), ..HoldBounds::DEFAULT }, ..rule }
}

#[test]
fn a_store_holds_as_many_as_it_has() {
    let world = World::new();
    let server =
        world.server(vec![stored("s", 1_000), stored("t", 50), bucket("here", &["who"], 20)]);
    let all = [range("s", 1, 5_000), range("t", 10, 80), range("here", 1, 90)];
    let reserved = world.hold(&server, 1, &all);
    assert_eq!(held(&reserved), [Some(1_000), Some(50), Some(20)]);
    let again = world.hold(&server, 1, &all);
    assert_eq!((again.is_repeated, held(&again)), (true, held(&reserved)));
    let denied = world.hold(&server, 2, &[range("s", 1, 5_000)]);
    let in_one =
        Verdict::Denied { retry_after_ns: std::num::NonZeroU64::new(SECOND), enforced: true };
    assert_eq!((verdicts(&denied), held(&denied)), (vec![in_one], vec![None]));
    world.used(&server, 1, &[("s", 400), ("t", 50), ("here", 0)]);
    let rest = world.hold(&server, 2, &[range("s", 1, 5_000)]);
    assert_eq!(held(&rest), [Some(600)]);
    // Any server finds it again, and another range is another request.
    let other = world.server(vec![stored("s", 1_000), stored("t", 50)]);
    let again = world.hold(&other, 2, &[range("s", 1, 5_000)]);
    assert_eq!((again.is_repeated, held(&again)), (true, vec![Some(600)]));
    for range in [range("s", 601, 5_000), range("s", 1, 599), Item::of(of("s"), 5_000)] {
        let refused = world.wait(other.reserve(id(2), TTL, &[range])).0;
        let is_other = refused == Err(EngineError::OtherItems)
            || refused.is_ok_and(|reserved| !reserved.answer.allowed);
        assert!(is_other, "{range:?}");
    }
    assert_eq!(world.left(&server, "s", "x"), Some(0), "what is refused changes nothing");
    assert_eq!(
        verdicts(&world.used(&other, 2, &[("s", 600)])),
        [Verdict::Committed(Settled::Even)]
    );
}

/// An item of a denied reservation holds nothing, whatever number it was tried with.
#[test]
fn a_denial_withdraws_what_was_held_of_the_others() {
    let world = World::new();
    let server =
        world.server(vec![stored("s", 1_000), stored("t", 50), bucket("here", &["who"], 20)]);
    for items in [
        [range("s", 1, 5_000), range("t", 51, 80), range("here", 1, 90)],
        [range("s", 1, 5_000), range("t", 1, 80), range("here", 21, 90)],
    ] {
        let denied = world.hold(&server, 1, &items);
        assert_eq!((denied.answer.allowed, held(&denied)), (false, vec![None; 3]));
        let left = ["s", "t", "here"].map(|name| world.left(&server, name, "x").unwrap());
        assert_eq!(left, [1_000, 50, 20]);
    }
    // The id is unused: it may be of anything.
    assert!(world.hold(&server, 1, &[Item::of(of("t"), 3)]).answer.allowed);
}

#[test]
fn a_lost_reply_is_found_again_with_its_number() {
    let world = World::new();
    let server = world.server(vec![stored("s", 1_000)]);
    assert_eq!(held(&world.hold(&server, 1, &[Item::of(of("s"), 700)])), [Some(700)]);
    // The denial of the maximum comes in time, and the reply to what remains does not.
    world.store.script([
        Fate::Slow { there_ns: MS, back_ns: MS },
        Fate::Slow { there_ns: MS, back_ns: 60 * MS },
    ]);
    let lost = world.hold(&server, 2, &[range("s", 1, 900)]);
    assert!(lost.answer.results[0].verdict.is_unavailable(), "{lost:?}");
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + 100 * MS));
    let found = world.hold(&server, 2, &[range("s", 1, 900)]);
    assert_eq!((found.is_repeated, held(&found)), (true, vec![Some(300)]));
    assert_eq!(world.left(&server, "s", "x"), Some(0));
}

#[test]
fn a_store_holds_a_share_of_the_limit() {
    let world = World::new();
    let server = world.server(vec![shared(stored("s", 1_000), 2_500)]);
    for number in 1..=4 {
        let reserved = world.hold(&server, number, &[Item::of(of("s"), 5_000)]);
        assert_eq!(held(&reserved), [Some(250)]);
    }
    let again = world.hold(&server, 1, &[Item::of(of("s"), 5_000)]);
    assert_eq!((again.is_repeated, held(&again)), (true, vec![Some(250)]));
    // The share may change while the reservation lasts.
    let other = world.server(vec![shared(stored("s", 1_000), 5_000)]);
    let again = world.hold(&other, 1, &[Item::of(of("s"), 5_000)]);
    assert_eq!((again.is_repeated, held(&again)), (true, vec![Some(250)]));
    let owed = Verdict::Committed(Settled::Owed { permits: 50, forgiven: 0 });
    assert_eq!(verdicts(&world.used(&server, 1, &[("s", 300)])), [owed]);
}

/// A number for all rules of an item: what holds more is withdrawn.
#[test]
fn an_item_holds_one_number_in_all_of_its_rules() {
    let world = World::new();
    let also = |rule: Rule| Rule { also: vec!["org".into()], ..rule };
    let mut org = stored("org", 300);
    org.entries.clear();
    let server = {
        let mut user = also(stored("user", 1_000));
        user.entries[0].key = "who".into();
        org.entries = user.entries.clone();
        let rules = rategate_server::rule::RuleSet { rules: vec![user, org], hash: "".into() };
        let server = world.server(vec![stored("unused", 1)]);
        server.load(rules).unwrap();
        server
    };
    let reserved = world.hold(&server, 1, &[range("user", 1, 800)]);
    let parts = |reserved: &Reserved| -> Vec<_> {
        reserved.answer.results[0].parts().iter().map(ItemResult::held).collect()
    };
    assert_eq!((held(&reserved), parts(&reserved)), (vec![Some(300)], vec![Some(300); 2]));
    let left = ["user", "org"].map(|name| world.left(&server, name, "x"));
    assert_eq!(left[1], Some(0));
    let again = world.hold(&server, 1, &[range("user", 1, 800)]);
    assert_eq!((again.is_repeated, parts(&again)), (true, vec![Some(300); 2]));
    let denied = world.hold(&server, 2, &[range("user", 1, 800)]);
    assert!(!denied.answer.allowed);
    let settled = world.used(&server, 1, &[("user", 100)]);
    assert!(settled.answer.allowed);
    let rest = world.hold(&server, 3, &[range("user", 1, 5_000)]);
    assert_eq!(held(&rest), [Some(200)]);
    world.used(&server, 3, &[("user", 200)]);
    world.clock.set(Duration::from_nanos(world.clock.now_ns()));
}

/// Random stories in a store and in this process give the same numbers.
#[test]
fn a_store_and_this_process_hold_the_same() {
    let world = World::new();
    let rules = |location| -> Vec<Rule> {
        let of = |name: &str, share| {
            let rule = Rule { location, ..per_minute(name, &["who"], 1_000) };
            let hold_bounds = HoldBounds { max_held: share, ..HoldBounds::DEFAULT };
            Rule { hold_bounds, ..rule }
        };
        vec![of("a", None), of("b", Some(3_000))]
    };
    let store = world.server(rules(CounterLocation::StoreExact));
    let here = world.server(rules(CounterLocation::Here));
    let mut seed = 11_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut open, mut compared) = (Vec::new(), 0);
    for number in 0..400 {
        let at_ns = (world.clock.now_ns() / SECOND + 1 + random(3)) * SECOND;
        world.clock.set(Duration::from_nanos(at_ns));
        if random(2) == 0 && !open.is_empty() {
            let at = usize::try_from(random(open.len() as u64)).unwrap();
            let number = open.swap_remove(at);
            let costs = [("a", random(60)), ("b", random(60))];
            let both = [&here, &store].map(|server| {
                world.clock.set(Duration::from_nanos(at_ns));
                verdicts(&world.used(server, number, &costs))
            });
            assert_eq!(both[0], both[1], "{number}");
            continue;
        }
        let [one, other] = [1 + random(100), 1 + random(100)];
        let items = [range("a", one, one + random(900)), range("b", other, other + random(900))];
        let both = [&here, &store].map(|server| {
            world.clock.set(Duration::from_nanos(at_ns));
            // Between two calls, so that a try more of the store makes no difference to its end.
            let ttl = Duration::from_millis(29_500);
            let reserved = world.wait(server.reserve(id(number), ttl, &items)).0.unwrap();
            (reserved.answer.allowed, held(&reserved))
        });
        assert_eq!(both[0], both[1], "{number}: {items:?}");
        compared += usize::from(both[0].0);
        if both[0].0 {
            open.push(number);
        }
    }
    assert!(compared > 50, "{compared}");
}

/// A rule in this process that one in the store replaces is not held beside its fellows.
#[test]
fn a_rule_here_that_is_replaced_holds_nothing() {
    let world = World::new();
    let server = world.server(vec![stored("unused", 1)]);
    let rule = |name: &str, key: &str, rule: Rule| {
        let mut rule = Rule { name: name.into(), domain: "d".into(), ..rule };
        rule.entries[0].key = key.into();
        rule
    };
    let strict = Rule { replaces: vec!["wide".into()], ..stored("strict", 100) };
    let rules = vec![
        rule("strict", "a", strict),
        rule("wide", "b", bucket("wide", &["who"], 10)),
        rule("other", "b", bucket("other", &["who"], 1_000)),
    ];
    let rules = rategate_server::rule::RuleSet { rules, hash: "".into() };
    server.load(rules).unwrap();
    let [a, b]: [[(&[u8], &[u8]); 1]; 2] = [[(b"a", b"x")], [(b"b", b"x")]];
    let target = |entries| Target::Descriptor { domain: "d", entries, limit: None };
    let items = [Item::of(target(&a), 50), Item::of(target(&b), 50)];
    let reserved = world.hold(&server, 1, &items);
    assert!(reserved.answer.allowed, "50 do not fit in `wide`, which is replaced: {reserved:?}");
    let left = ["strict", "wide", "other"].map(|name| world.left(&server, name, "x"));
    assert_eq!(left, [Some(50), Some(10), Some(950)]);
    let costs = items.map(|item| Cost { target: item.target, permits: Some(20), usage: None });
    assert!(world.wait(server.commit(id(1), &costs)).0.unwrap().answer.allowed);
    let left = ["strict", "wide", "other"].map(|name| world.left(&server, name, "x"));
    assert_eq!(left, [Some(80), Some(10), Some(980)]);
}

/// The cost of a usage is that of a rule in this process.
#[test]
fn a_store_says_what_a_usage_costs() {
    let world = World::new();
    let weights = Weights::new([("output".into(), Weight::new(6, 1).unwrap())]).unwrap();
    let counts = Counts::Usage(weights.into());
    let rule = |name: &str, rule: Rule| Rule { name: name.into(), counts: counts.clone(), ..rule };
    let server = world
        .server(vec![rule("s", stored("s", 1_000)), rule("here", bucket("h", &["who"], 1_000))]);
    let usage = |count: &'static [(&str, u64)]| Usage { counts: count, model: None };
    for name in ["s", "here"] {
        let number = if name == "s" { 1 } else { 2 };
        let item = Item::of_usage(of(name), usage(&[("output", 100)]));
        let reserved = world.hold(&server, number, &[item]);
        let [result] = &reserved.answer.results[..] else { panic!("one item") };
        assert_eq!((result.cost(), result.held()), (Some(600), Some(600)), "{name}");
        let used = Cost { target: of(name), permits: None, usage: Some(usage(&[("output", 160)])) };
        let settled = world.wait(server.commit(id(number), &[used])).0.unwrap();
        let again = world.wait(server.commit(id(number), &[used])).0.unwrap();
        assert_eq!((settled.is_repeated, again.is_repeated), (false, true), "{name}");
    }
}

/// An item that was admitted without the store's reply is not held, and its end says so.
#[test]
fn what_was_admitted_without_the_store_stays_unknown_to_it() {
    let world = World::new();
    let admits = |name| Rule { on_unavailable: OnUnavailable::Admit, ..stored(name, 100) };
    let shadow = |name| Rule { enforcement: Enforcement::Shadow, ..stored(name, 100) };
    let server = world.server(vec![stored("s", 100), admits("a"), shadow("w")]);
    world.store.script([Fate::Prompt, Fate::Unreachable, Fate::Unreachable]);
    let items = ["s", "a", "w"].map(|name| Item::of(of(name), 10));
    let reserved = world.hold(&server, 1, &items);
    assert!(reserved.answer.allowed, "{reserved:?}");
    assert_eq!(held(&reserved), [Some(10), Some(0), Some(0)]);
    let settled = world.used(&server, 1, &[("s", 4), ("a", 4), ("w", 4)]);
    let even = Verdict::Committed(Settled::Even);
    let back = Verdict::Committed(Settled::Back { permits: 6 });
    assert_eq!(verdicts(&settled), [back, Verdict::Unknown, even]);
    assert!(!settled.answer.allowed, "what was used of the second is to be charged");
}
