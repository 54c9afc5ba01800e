//! Requests with an id, of rules with counters in a store: each counts once, whatever is lost and
//! whichever server gets it again.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::{Clock as _, ManualClock};
use rategate_server::engine::{
    Engine, EngineError, Item, Request, Reserved, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{CounterLocation, OnUnavailable, Over, Rule};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket, counting};
use crate::stores::{MS, World, in_flight, stored};

const UNAVAILABLE: Verdict =
    Verdict::Unavailable { admitted: false, retry_after_ns: NonZeroU64::new(SECOND) };
/// The store decides, and the reply comes too late.
const LOST: Fate = Fate::Slow { there_ns: MS, back_ns: 60 * MS };

type Server = Engine<ManualClock>;

fn id(number: u8) -> UniqueId {
    UniqueId([number; 16])
}

impl World {
    fn try_once(
        &self,
        server: &Server,
        verb: Verb,
        number: u8,
        items: &[(&str, u64)],
    ) -> Result<Reserved, EngineError> {
        let of = |name| Target::Rule { name, values: &[b"x"] };
        let items: Vec<Item<'_>> =
            items.iter().map(|&(name, permits)| Item::of(of(name), permits)).collect();
        self.wait(server.once(id(number), &Request { verb, items: &items, counts_denied: false })).0
    }

    fn once(&self, server: &Server, verb: Verb, number: u8, items: &[(&str, u64)]) -> Reserved {
        self.try_once(server, verb, number, items).unwrap()
    }

    fn lefts(&self, server: &Server, names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| self.left(server, name, "x").unwrap()).collect()
    }

    fn settle(&self) {
        self.clock.set(Duration::from_nanos(self.clock.now_ns() + 100 * MS));
    }
}

fn verdicts(made: &Reserved) -> Vec<Verdict> {
    made.answer.results.iter().map(|result| result.verdict).collect()
}

const NAMES: [&str; 3] = ["s", "t", "here"];

fn rules() -> Vec<Rule> {
    vec![stored("s", 1_000), stored("t", 10), bucket("here", &["who"], 5)]
}

/// Takes, charges and refunds of items here and in the store, up to five times, also at another
/// server, which knows the items in the store alone.
#[test]
fn requests_of_rules_in_a_store_count_once() {
    let world = World::new();
    let (one, other) = (world.server(rules()), world.server(rules()));
    let all = [("s", 300), ("here", 1), ("t", 4)];
    let stored = [("s", 300), ("t", 4)];
    for (verb, number, verdicts_of, left) in [
        (Verb::Take, 1, [Verdict::Granted; 3], [700, 6, 4]),
        (Verb::Charge, 2, [300, 1, 4].map(Verdict::Charged), [400, 2, 3]),
        (Verb::Refund, 3, [300, 1, 4].map(Verdict::Refunded), [700, 6, 4]),
        (Verb::Charge, 4, [300, 1, 4].map(Verdict::Charged), [400, 2, 3]),
    ] {
        for again in 0..5 {
            let repeated = one.reservation_counts().repeated;
            let made = world.once(&one, verb, number, &all);
            let more = one.reservation_counts().repeated - repeated;
            assert_eq!(more, u64::from(again > 0), "{verb:?}, sent {again} times before");
            assert_eq!(verdicts(&made), verdicts_of, "{verb:?}, {again}");
            assert_eq!((made.is_repeated, made.answer.allowed), (again > 0, true), "{verb:?}");
            let lefts: Vec<_> = made.answer.results.iter().map(|it| it.remaining).collect();
            assert_eq!(lefts, [left[0], left[2], left[1]].map(Some), "{verb:?}");
        }
        assert_eq!(world.lefts(&one, &NAMES), left, "{verb:?}");
    }
    let mut left = world.lefts(&one, &["s", "t"]);
    for (verb, number) in [(Verb::Refund, 5), (Verb::Take, 6), (Verb::Charge, 7)] {
        assert!(!world.once(&one, verb, number, &stored).is_repeated);
        assert!(world.once(&other, verb, number, &stored).is_repeated, "{verb:?}");
        let factor = if verb == Verb::Refund { 1 } else { -1 };
        left[0] = left[0].checked_add_signed(300 * factor).unwrap();
        left[1] = left[1].saturating_add_signed(4 * factor);
        assert_eq!(world.lefts(&other, &["s", "t"]), left, "{verb:?}");
    }
}

/// Each request is sent until it is answered; each loss comes before or after the store's decision.
#[test]
fn requests_whose_replies_are_lost_count_once() {
    for verb in [Verb::Take, Verb::Charge, Verb::Refund] {
        let world = World::new();
        let server = world.server(rules());
        let before = [("s", 500), ("t", 5), ("here", 2)];
        world.once(&server, Verb::Charge, 1, &before);
        let items = [("s", 300), ("t", 4), ("here", 1)];
        let mut missed = 0;
        for fates in [[LOST, Fate::Prompt], [Fate::Unreachable; 2], [Fate::Prompt, LOST], [LOST; 2]]
        {
            world.store.script(fates);
            let made = world.once(&server, verb, 2, &items);
            assert_eq!(made.answer.allowed, !verdicts(&made).contains(&UNAVAILABLE), "{made:?}");
            missed += u32::from(!made.answer.allowed);
            world.settle();
        }
        assert!(missed >= 2, "{verb:?}: {missed}");
        let made = world.once(&server, verb, 2, &items);
        assert!(made.answer.allowed, "{verb:?}: {made:?}");
        let factor = if verb == Verb::Refund { 1_i64 } else { -1 };
        let left = [(500, 300), (5, 4), (3, 1)].map(|(left, by)| (left + factor * by) as u64);
        assert_eq!(world.lefts(&server, &NAMES), left, "{verb:?}");
        assert_eq!(verdicts(&world.once(&server, verb, 2, &items)), verdicts(&made));
        assert_eq!(world.lefts(&server, &NAMES), left, "{verb:?}");
    }
}

/// A take whose commit is not answered is held meanwhile, and counts even if that ends.
#[test]
fn a_take_whose_commit_is_lost_counts_once() {
    let world = World::new();
    let server = world.server(rules());
    for (wait, number) in [(Duration::from_secs(1), 1), (Duration::from_secs(70), 2)] {
        world.store.script([Fate::Prompt, Fate::Unreachable]);
        let missed = world.once(&server, Verb::Take, number, &[("s", 100)]);
        assert_eq!((verdicts(&missed), missed.answer.allowed), (vec![UNAVAILABLE], false));
        world.clock.set(Duration::from_nanos(world.clock.now_ns()) + wait);
        for _ in 0..3 {
            let left = world.left(&server, "s", "x");
            let made = world.once(&server, Verb::Take, number, &[("s", 100)]);
            assert_eq!((verdicts(&made), made.is_repeated), (vec![Verdict::Granted], true));
            assert!(world.left(&server, "s", "x") <= left);
        }
    }
    // Of two hundred, seventy-one have been earned again, one a second.
    assert_eq!(world.left(&server, "s", "x"), Some(871));
}

/// A part of a take ends before the others are held, as its reply is lost: the same take again
/// takes all of it, or nothing.
#[test]
fn a_take_of_which_a_part_has_ended_is_taken_as_a_whole() {
    for (items, fates, left) in [
        ([("s", 100), ("t", 4)], [Fate::Prompt, LOST], [900, 6, 5]),
        ([("s", 100), ("here", 2)], [LOST, Fate::Prompt], [900, 10, 3]),
    ] {
        for is_denied in [true, false] {
            let world = World::new();
            let server = world.server(rules());
            world.store.script(fates);
            let missed = world.once(&server, Verb::Take, 1, &items);
            assert!(verdicts(&missed).contains(&UNAVAILABLE), "{missed:?}");
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + 200 * SECOND));
            if is_denied {
                let (first, second) = (items[0], items[1]);
                let other = if second.0 == "here" { second } else { first };
                let all = world.left(&server, other.0, "x").unwrap();
                world.once(&server, Verb::Take, 2, &[(other.0, all)]);
                let before = world.lefts(&server, &NAMES);
                let denied = world.once(&server, Verb::Take, 1, &items);
                assert!(!denied.answer.allowed && !denied.is_repeated, "{denied:?}");
                assert_eq!(world.lefts(&server, &NAMES), before, "{denied:?}");
                world.once(&server, Verb::Refund, 3, &[(other.0, all)]);
            }
            for again in 0..3 {
                let made = world.once(&server, Verb::Take, 1, &items);
                assert_eq!(verdicts(&made), [Verdict::Granted; 2], "{again}: {made:?}");
                assert!(made.answer.allowed, "{again}: {made:?}");
                assert_eq!(world.lefts(&server, &NAMES), left, "{again}: {made:?}");
            }
        }
    }
}

/// A rule that counts what it denies has denied nothing if a reply is lost.
#[test]
fn a_take_without_a_reply_is_not_charged_as_denied() {
    let world = World::new();
    let charges = Rule { over: Over::Charge, ..stored("charges", 5) };
    let server = world.server(vec![charges, stored("s", 10)]);
    for (number, items, left) in
        [(1, &[("charges", 3)][..], [2, 10]), (2, &[("charges", 1), ("s", 4)], [1, 6])]
    {
        world.store.script([LOST, Fate::Unreachable].into_iter().take(items.len()));
        let missed = world.once(&server, Verb::Take, number, items);
        assert!(verdicts(&missed).contains(&UNAVAILABLE), "{missed:?}");
        world.settle();
        let made = world.once(&server, Verb::Take, number, items);
        assert!(made.answer.allowed, "{made:?}");
        assert_eq!(world.lefts(&server, &["charges", "s"]), left, "{made:?}");
    }
}

/// A denied take leaves its id unused, and counts where the rule counts what is over.
#[test]
fn a_denied_take_leaves_its_id_unused() {
    let world = World::new();
    let counted = Rule { on_unavailable: OnUnavailable::Deny, ..stored("counted", 5) };
    let charges = Rule { over: Over::Charge, ..stored("charges", 5) };
    let server = world.server(vec![
        stored("s", 10),
        charges,
        counting(counted, 5),
        bucket("here", &["who"], 5),
    ]);
    let denied = world.once(&server, Verb::Take, 1, &[("s", 8), ("here", 6)]);
    assert_eq!((denied.answer.allowed, denied.is_repeated), (false, false));
    assert_eq!(world.lefts(&server, &["s", "here"]), [10, 5]);
    assert!(world.once(&server, Verb::Take, 1, &[("s", 8), ("here", 5)]).answer.allowed);
    assert_eq!(world.lefts(&server, &["s", "here"]), [2, 0]);
    for name in ["charges", "counted"] {
        let granted = world.once(&server, Verb::Take, 2, &[(name, 3)]);
        assert!(granted.answer.allowed && !granted.is_repeated, "{name}: {granted:?}");
        assert!(world.once(&server, Verb::Take, 2, &[(name, 3)]).is_repeated);
        assert_eq!(world.left(&server, name, "x"), Some(2), "{name}");
        let over = world.once(&server, Verb::Take, 3, &[(name, 3)]);
        assert!(!over.answer.allowed && !over.is_repeated, "{name}: {over:?}");
        let status = world.ask(&server, Verb::Peek, &[(name, "x", 0)]).0;
        assert_eq!((status.results[0].remaining, status.results[0].debt), (Some(0), 1), "{name}");
    }
}

#[test]
fn ids_of_other_requests_say_so() {
    let world = World::new();
    let lease_ns = 100 * MS;
    let leased =
        Rule { location: CounterLocation::StoreLeased { lease_ns }, ..stored("leased", 5) };
    let oven = in_flight("oven", 2, CounterLocation::StoreExact);
    let server = world.server(vec![stored("s", 100), leased, oven]);
    world.once(&server, Verb::Charge, 1, &[("s", 10)]);
    for (verb, permits) in [(Verb::Charge, 11), (Verb::Refund, 10), (Verb::Take, 10)] {
        let other = world.try_once(&server, verb, 1, &[("s", permits)]);
        assert_eq!(other, Err(EngineError::OtherItems), "{verb:?}");
    }
    for (verb, name, permits, why) in [
        (Verb::Take, "oven", 1, "in flight"),
        (Verb::Charge, "oven", 1, "in flight"),
        (Verb::Charge, "leased", 1, "leases"),
    ] {
        let refused = world.try_once(&server, verb, 2, &[(name, permits)]);
        let Err(error @ EngineError::NotForItem { item: 0, .. }) = refused else {
            panic!("{name}: {refused:?}")
        };
        let text = error.to_string();
        assert!(text.starts_with(&format!("rule `{name}` ")) && text.contains(why), "{text}");
    }
    let none = EngineError::NoPermits { item: 0, rule: "s".into() };
    assert_eq!(world.try_once(&server, Verb::Take, 2, &[("s", 0)]), Err(none));
    assert_eq!(world.left(&server, "s", "x"), Some(90));
    // Nothing is charged and refunded without an id in the store.
    for verb in [Verb::Charge, Verb::Refund] {
        assert!(world.once(&server, verb, 3, &[("s", 0)]).answer.allowed);
    }
    assert!(world.once(&server, Verb::Take, 4, &[("leased", 5)]).answer.allowed);
    assert!(world.once(&server, Verb::Take, 4, &[("leased", 5)]).is_repeated);
}
