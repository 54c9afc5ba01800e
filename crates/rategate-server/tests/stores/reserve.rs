//! Reservations of rules with counters in a store: any server ends them, all of their items are
//! held
//! or none, and what is sent again counts once.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::charge::Settled;
use rategate::{Clock as _, ManualClock};
use rategate_server::engine::{
    Cost, Engine, EngineError, HoldChange, HoldOutcome, Item, ItemResult, MAX_TTL, Observer,
    Reserved, Target, UniqueId, Verdict, Watch,
};
use rategate_server::rule::{
    CounterLocation, Counts, Enforcement, OnUnavailable, Rule, Usage, Weight, Weights,
};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket};
use crate::stores::{MS, World, in_flight, stored};

const TTL: Duration = Duration::from_secs(30);
const UNAVAILABLE: Verdict =
    Verdict::Unavailable { admitted: false, retry_after_ns: NonZeroU64::new(SECOND) };
/// The store decides, and the reply comes too late.
const LOST: Fate = Fate::Slow { there_ns: MS, back_ns: 60 * MS };

type Server = Engine<ManualClock>;

fn id(number: u8) -> UniqueId {
    UniqueId([number; 16])
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"x"] }
}

impl World {
    fn try_reserve(
        &self,
        server: &Server,
        number: u8,
        items: &[(&str, u64)],
    ) -> Result<Reserved, EngineError> {
        let items = items.iter().map(|&(name, permits)| Item::of(of(name), permits));
        self.wait(server.reserve(id(number), TTL, &items.collect::<Vec<_>>())).0
    }

    fn reserve(&self, server: &Server, number: u8, items: &[(&str, u64)]) -> Reserved {
        self.try_reserve(server, number, items).unwrap()
    }

    fn commit(&self, server: &Server, number: u8, costs: &[(&str, u64)]) -> Reserved {
        let cost =
            |&(name, permits)| Cost { target: of(name), permits: Some(permits), usage: None };
        let costs: Vec<Cost<'_>> = costs.iter().map(cost).collect();
        self.wait(server.commit(id(number), &costs)).0.unwrap()
    }

    fn pass(&self, time: Duration) {
        self.clock.set(Duration::from_nanos(self.clock.now_ns()) + time);
    }

    fn all_left(&self, server: &Server, names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| self.left(server, name, "x").unwrap()).collect()
    }
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

const fn back(permits: u64) -> Verdict {
    Verdict::Committed(Settled::Back { permits })
}

/// Rules whose buckets earn nothing in the time of a test, one of them in this process.
fn rules() -> Vec<Rule> {
    vec![stored("s", 1_000), stored("t", 10), bucket("here", &["who"], 2)]
}

const NAMES: [&str; 3] = ["s", "t", "here"];

#[test]
fn items_are_held_all_or_none_wherever_they_count() {
    let world = World::new();
    let server = world.server(rules());
    let left = || world.all_left(&server, &NAMES);
    let held = world.reserve(&server, 1, &[("s", 800), ("here", 1), ("t", 4)]);
    assert_eq!((held.answer.allowed, held.is_repeated), (true, false));
    assert_eq!(verdicts(&held), [Verdict::Granted; 3]);
    assert_eq!(held.ends_after_ns, NonZeroU64::new(30 * SECOND));
    assert_eq!(left(), [200, 6, 1]);
    // Denied by one in the store, by one here, and by more than ever fits.
    for (items, by) in [
        ([("t", 1), ("s", 201), ("here", 1)], 1),
        ([("s", 200), ("t", 6), ("here", 2)], 2),
        ([("t", 1), ("s", 1_001), ("here", 1)], 1),
        ([("t", 1), ("s", 1), ("here", 3)], 2),
    ] {
        let denied = world.reserve(&server, 2, &items);
        assert!(!denied.answer.allowed && !denied.is_repeated, "{items:?}");
        assert!(denied.answer.results[by].verdict.is_over(), "{items:?}: {denied:?}");
        assert_eq!(left(), [200, 6, 1], "{items:?}");
        let named = denied.answer.results.iter().zip(&items).map(|(result, (name, _))| {
            result.remaining.is_none_or(|named| Some(named) == world.left(&server, name, "x"))
        });
        assert!(named.into_iter().all(|is_right| is_right), "{denied:?}");
    }
    // A refusal leaves its id unused, also for other items.
    assert!(world.reserve(&server, 2, &[("t", 6), ("here", 1)]).answer.allowed);
    let again = world.reserve(&server, 1, &[("s", 800), ("here", 1), ("t", 4)]);
    assert_eq!((again.answer.allowed, again.is_repeated), (true, true));
    assert_eq!(left(), [200, 0, 0]);
    let settled = world.commit(&server, 1, &[("s", 650), ("here", 0), ("t", 5)]);
    let owed = Verdict::Committed(Settled::Owed { permits: 1, forgiven: 0 });
    assert_eq!(verdicts(&settled), [back(150), back(1), owed]);
    let again = world.commit(&server, 1, &[("s", 1), ("here", 1), ("t", 1)]);
    assert_eq!((verdicts(&again), again.is_repeated), (verdicts(&settled), true));
    assert_eq!(left(), [350, 0, 1]);
    let over = world.reserve(&server, 1, &[("s", 800), ("here", 1), ("t", 4)]);
    assert_eq!((over.answer.allowed, over.is_repeated), (false, true), "{over:?}");
    assert_eq!(left(), [350, 0, 1]);
    let cancelled = world.wait(server.cancel(id(2), &[of("t"), of("here")])).0.unwrap();
    assert_eq!(verdicts(&cancelled), [6, 1].map(Verdict::Cancelled));
    assert_eq!(left(), [350, 5, 2], "one permit of the second is a debt of the commit before");
    let counts = server.reservation_counts();
    assert_eq!((counts.held, counts.denied, counts.repeated), (2, 4, 3));
    assert_eq!((counts.committed, counts.cancelled, counts.open), (1, 1, 0));
}

/// Of items in the store alone a server remembers nothing: another one ends them, once.
#[test]
fn any_server_commits_what_another_has_reserved() {
    let world = World::new();
    let (one, other) = (world.server(rules()), world.server(rules()));
    let items = [("s", 800), ("t", 4)];
    assert!(world.reserve(&one, 1, &items).answer.allowed);
    assert!(world.reserve(&other, 1, &items).is_repeated);
    assert_eq!(one.reservation_counts().known, 0);
    drop(one);
    let settled = world.commit(&other, 1, &[("s", 600), ("t", 1)]);
    assert_eq!(verdicts(&settled), [back(200), back(3)]);
    let third = world.server(rules());
    for server in [&third, &other] {
        let again = world.commit(server, 1, &[("s", 7), ("t", 7)]);
        assert_eq!((verdicts(&again), again.is_repeated), (verdicts(&settled), true));
    }
    assert_eq!(world.all_left(&third, &["s", "t"]), [400, 9]);
    let unknown = world.commit(&third, 2, &[("s", 600), ("t", 1)]);
    assert_eq!((verdicts(&unknown), unknown.answer.allowed), (vec![Verdict::Unknown; 2], false));
    // Of items here only their own server knows.
    assert!(world.reserve(&third, 3, &[("s", 1), ("here", 1)]).answer.allowed);
    let part = world.commit(&other, 3, &[("s", 0), ("here", 0)]);
    assert_eq!((verdicts(&part), part.answer.allowed), (vec![back(1), Verdict::Unknown], false));
}

#[test]
fn a_late_commit_is_charged_whole_and_once() {
    let world = World::new();
    let server = world.server(rules());
    let items = [("s", 800), ("here", 2)];
    assert!(world.reserve(&server, 1, &items).answer.allowed);
    world.pass(TTL);
    assert_eq!(world.all_left(&server, &NAMES), [1_000, 10, 2]);
    let again = world.reserve(&server, 1, &items);
    assert_eq!((again.answer.allowed, again.is_repeated), (false, true));
    for is_repeated in [false, true, true] {
        let late = world.commit(&server, 1, &[("s", 900), ("here", 5)]);
        assert_eq!(verdicts(&late), [Verdict::Late(900), Verdict::Late(5)]);
        assert_eq!((late.is_repeated, late.answer.allowed), (is_repeated, true));
    }
    assert_eq!(world.all_left(&server, &NAMES), [100, 10, 0]);
    assert_eq!(server.reservation_counts().late, 1);
}

#[derive(Debug, Default)]
struct Outcomes(Mutex<Vec<HoldOutcome>>);

#[derive(Debug)]
struct Everywhere(Arc<Outcomes>);

impl Watch for Outcomes {
    fn decided(&self, _: u64, _: &[u8], _: u64, _: &ItemResult) {}

    fn reservation(&self, change: &HoldChange) {
        self.0.lock().unwrap().push(change.outcome);
    }
}

impl Observer for Everywhere {
    fn of_rule(&self, _: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        Arc::<Outcomes>::clone(&self.0)
    }
}

/// A late commit notices what the store ended by its time, and is both, once.
#[test]
fn what_is_late_has_expired_before() {
    use HoldOutcome::{Committed, Expired, Held, Late};
    let (world, seen) = (World::new(), Arc::new(Outcomes::default()));
    let observer: Arc<dyn Observer> = Arc::new(Everywhere(Arc::clone(&seen)));
    let server = world.observed(rules(), Some(observer));
    let items = [("s", 8), ("here", 2)];
    for number in [1, 2] {
        assert!(world.reserve(&server, number, &[("s", 8)]).answer.allowed);
    }
    assert!(world.reserve(&server, 3, &items).answer.allowed);
    world.commit(&server, 1, &[("s", 8)]);
    world.pass(TTL);
    for _ in 0..2 {
        world.commit(&server, 2, &[("s", 8)]);
        world.commit(&server, 3, &items);
    }
    server.tick(world.clock.now_ns());
    let seen = seen.0.lock().unwrap();
    let of = |outcome| seen.iter().filter(|seen| **seen == outcome).count();
    assert_eq!([of(Held), of(Committed), of(Expired), of(Late)], [4, 1, 3, 3], "{seen:?}");
}

/// The cost of a commit is what it counts in the store, and none where nothing is known.
#[test]
fn a_commit_in_a_store_says_what_its_usage_costs() {
    let weights = Weights::new([("in".into(), Weight::new(3, 1).unwrap())]).unwrap();
    let counts = Counts::Usage(weights.into());
    let shadow = Rule { enforcement: Enforcement::Shadow, ..stored("w", 100) };
    let world = World::new();
    let server = world.server(vec![Rule { counts, ..stored("s", 100) }, shadow]);
    let usage = |count: &'static [(&str, u64)]| Usage { counts: count, model: None };
    let item = Item::of_usage(of("s"), usage(&[("in", 20)]));
    assert!(world.wait(server.reserve(id(1), TTL, &[item])).0.unwrap().answer.allowed);
    let cost = |count| Cost { target: of("s"), permits: None, usage: Some(usage(count)) };
    for is_repeated in [false, true] {
        let settled = world.wait(server.commit(id(1), &[cost(&[("in", 5)])])).0.unwrap();
        let result = &settled.answer.results[0];
        assert_eq!((settled.is_repeated, result.cost()), (is_repeated, Some(15)));
    }
    let unknown = world.wait(server.commit(id(2), &[cost(&[("in", 5)])])).0.unwrap();
    let result = &unknown.answer.results[0];
    assert_eq!((result.verdict, result.cost()), (Verdict::Unknown, None));
    let wrong = world.wait(server.commit(id(2), &[cost(&[("out", 5)])])).0;
    assert!(matches!(wrong, Err(EngineError::Cost { .. })), "{wrong:?}");
    // A rule that is not enforced bounds nothing.
    let range = Item { at_most: Some(500), ..Item::of(of("w"), 1) };
    let held = world.wait(server.reserve(id(3), TTL, &[range])).0.unwrap();
    assert_eq!((held.answer.allowed, held.answer.results[0].held()), (true, Some(500)));
}

/// Without a reply nothing is held for long, and the same again finishes what was begun.
#[test]
fn what_is_sent_again_after_a_lost_reply_counts_once() {
    let world = World::new();
    let server = world.server(rules());
    let items = [("s", 800), ("t", 4), ("here", 1)];
    for (fates, left) in [
        // The first was held and not heard of; the second was withdrawn.
        ([LOST, Fate::Prompt], [200, 10, 2]),
        ([Fate::Unreachable, Fate::Prompt], [200, 10, 2]),
        ([Fate::Unreachable, Fate::Unreachable], [200, 10, 2]),
    ] {
        world.store.script(fates);
        let missed = world.reserve(&server, 1, &items);
        assert_eq!((missed.answer.allowed, missed.ends_after_ns), (false, None));
        assert_eq!(missed.answer.results[0].verdict, UNAVAILABLE);
        assert_eq!(missed.answer.results[0].remaining, None);
        world.pass(Duration::from_millis(100));
        assert_eq!(world.all_left(&server, &NAMES), left, "{fates:?}");
    }
    let held = world.reserve(&server, 1, &items);
    assert!(held.answer.allowed, "{held:?}");
    assert_eq!(world.all_left(&server, &NAMES), [200, 6, 1]);
    for fates in [[LOST, Fate::Prompt], [Fate::Unreachable, LOST]] {
        world.store.script(fates);
        let missed = world.commit(&server, 1, &[("s", 100), ("t", 1), ("here", 0)]);
        assert_eq!((missed.answer.results[0].verdict, missed.answer.allowed), (UNAVAILABLE, false));
        assert!(!missed.is_repeated);
        world.pass(Duration::from_millis(100));
    }
    let settled = world.commit(&server, 1, &[("s", 100), ("t", 1), ("here", 0)]);
    assert_eq!(verdicts(&settled), [back(700), back(3), back(1)]);
    assert_eq!((settled.answer.allowed, settled.is_repeated), (true, true));
    assert_eq!(world.all_left(&server, &NAMES), [900, 9, 2]);
    assert_eq!(server.reservation_counts().unavailable, 5);
}

/// A rule that admits without its store, and one that is not enforced, deny no reservation.
#[test]
fn a_rule_may_admit_what_its_store_cannot_hold() {
    let world = World::new();
    let admits = Rule { on_unavailable: OnUnavailable::Admit, ..stored("admits", 10) };
    let shadow = Rule { enforcement: Enforcement::Shadow, ..stored("shadow", 10) };
    let server = world.server(vec![admits, shadow, stored("s", 10)]);
    world.store.script([Fate::Unreachable; 2]);
    let admitted = world.reserve(&server, 1, &[("admits", 5), ("shadow", 5)]);
    let verdict = Verdict::Unavailable { admitted: true, retry_after_ns: None };
    assert_eq!((verdicts(&admitted), admitted.answer.allowed), (vec![verdict; 2], true));
    let unknown = world.commit(&server, 1, &[("admits", 5), ("shadow", 5)]);
    assert_eq!(verdicts(&unknown), [Verdict::Unknown; 2]);
    // What does not fit into a shadow is not held, and its commit is one all the same.
    let items = [("shadow", 8), ("s", 2)];
    assert!(world.reserve(&server, 2, &items).answer.allowed);
    let over = world.reserve(&server, 3, &items);
    assert!(matches!(verdicts(&over)[0], Verdict::Denied { enforced: false, .. }));
    assert!(over.answer.allowed);
    let settled = world.commit(&server, 3, &[("shadow", 8), ("s", 1)]);
    assert_eq!(verdicts(&settled), [Verdict::Committed(Settled::Even), back(1)]);
    assert!(settled.answer.allowed);
    assert_eq!(world.all_left(&server, &["shadow", "s"]), [2, 7]);
}

/// A caller that stops waiting leaves nothing that its time does not end, nor a lock on its id.
#[test]
fn an_abandoned_reservation_ends_by_its_time() {
    let world = World::new();
    let server = world.server(rules());
    world.store.script([Fate::Slow { there_ns: MS, back_ns: 5 * MS }, Fate::Prompt]);
    let items = [Item::of(of("s"), 800), Item::of(of("here"), 1)];
    drop(server.reserve(id(1), TTL, &items));
    world.pass(Duration::from_millis(1));
    world.pass(Duration::from_millis(9));
    assert_eq!(world.all_left(&server, &NAMES), [200, 10, 2]);
    let held = world.reserve(&server, 1, &[("s", 800), ("here", 1)]);
    assert!(held.answer.allowed, "the same goes on with it");
    assert_eq!(world.all_left(&server, &NAMES), [200, 10, 1]);
    world.pass(TTL.saturating_sub(Duration::from_millis(10)));
    assert!(world.left(&server, "s", "x") < Some(1_000));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.left(&server, "s", "x"), Some(1_000), "from when the store held it");
    world.pass(Duration::from_millis(9));
    assert_eq!(world.all_left(&server, &NAMES), [1_000, 10, 2]);
}

/// Slots in the store and in this process are held beside other limits of both, and any server
/// ends what the store holds.
#[test]
fn permits_in_flight_are_held_with_other_items() {
    let world = World::new();
    let rules = || {
        let oven = in_flight("oven", 2, CounterLocation::StoreExact);
        let pan = in_flight("pan", 2, CounterLocation::Here);
        vec![stored("s", 100), oven, pan, bucket("here", &["who"], 9)]
    };
    let (server, other) = (world.server(rules()), world.server(rules()));
    let names = ["s", "oven", "pan", "here"];
    let items = [("here", 4), ("oven", 1), ("s", 80), ("pan", 1)];
    let held = world.reserve(&server, 1, &items);
    assert_eq!(verdicts(&held), [Verdict::Granted; 4]);
    assert_eq!(world.all_left(&server, &names), [20, 1, 1, 5]);
    assert_eq!(world.all_left(&other, &names), [20, 1, 2, 9]);
    // Each of them denies for all.
    for (denying, by) in [
        ([("here", 6), ("oven", 1), ("s", 1), ("pan", 1)], 0),
        ([("here", 1), ("oven", 2), ("s", 1), ("pan", 1)], 1),
        ([("here", 1), ("oven", 1), ("s", 21), ("pan", 1)], 2),
        ([("here", 1), ("oven", 1), ("s", 1), ("pan", 2)], 3),
    ] {
        let denied = world.reserve(&server, 2, &denying);
        assert!(!denied.answer.allowed && denied.answer.results[by].verdict.is_over(), "{by}");
        assert_eq!(world.all_left(&server, &names), [20, 1, 1, 5], "{by}");
    }
    // A reply is lost: the same again goes on from there.
    world.store.script([LOST]);
    let lost = world.reserve(&server, 2, &[("oven", 1), ("here", 1)]);
    assert_eq!(verdicts(&lost)[0], UNAVAILABLE);
    world.pass(Duration::from_secs(1));
    assert!(world.reserve(&server, 2, &[("oven", 1), ("here", 1)]).answer.allowed);
    assert_eq!(world.all_left(&server, &["oven"]), [0]);
    let ended = world.commit(&other, 2, &[("oven", 7)]);
    assert_eq!(verdicts(&ended), [Verdict::Committed(Settled::Even)]);
    assert_eq!(world.all_left(&server, &["oven"]), [1]);
    let costs = [("here", 4), ("oven", 1), ("s", 30), ("pan", 1)];
    let ended = world.commit(&server, 1, &costs);
    let even = Verdict::Committed(Settled::Even);
    assert_eq!(verdicts(&ended), [even, even, back(50), even]);
    let again = world.commit(&server, 1, &costs);
    assert_eq!((verdicts(&again), again.is_repeated), (verdicts(&ended), true));
    assert_eq!(world.all_left(&server, &["oven", "pan"]), [2, 2]);
}

/// Items that were held one after the other end at one instant, wherever they count here.
#[test]
fn all_items_here_end_with_the_first() {
    for order in [["pan", "here", "s"], ["s", "here", "pan"]] {
        let world = World::new();
        let pan = in_flight("pan", 2, CounterLocation::Here);
        let server = world.server(vec![stored("s", 100), pan, bucket("here", &["who"], 9)]);
        // The bucket is held 6 ms after the slot.
        world.store.script([Fate::Slow { there_ns: MS, back_ns: 5 * MS }]);
        let items = order.map(|name| (name, 1));
        assert_eq!(verdicts(&world.reserve(&server, 1, &items)), [Verdict::Granted; 3]);
        world.pass(TTL.checked_sub(Duration::from_millis(3)).unwrap());
        assert_eq!(world.all_left(&server, &["pan"]), [2]);
        let ended = world.commit(&server, 1, &items);
        let verdict =
            |name| ended.answer.results[order.iter().position(|it| *it == name).unwrap()].verdict;
        assert_eq!([verdict("pan"), verdict("here")], [Verdict::Late(0), Verdict::Late(1)]);
        let again = world.commit(&server, 1, &items);
        assert_eq!((verdicts(&again), again.is_repeated), (verdicts(&ended), true));
    }
}

/// Two operations on one id that arrive together come one after the other.
#[test]
fn operations_on_an_id_that_arrive_together_are_in_turn() {
    let world = World::new();
    let server = world.server(rules());
    let slow = Fate::Slow { there_ns: MS, back_ns: 5 * MS };
    world.store.script([slow; 4]);
    let items = [Item::of(of("s"), 800), Item::of(of("here"), 1)];
    let both = [(); 2].map(|()| server.reserve(id(1), TTL, &items));
    let both = both.map(|decided| world.wait(decided).0.unwrap());
    assert_eq!([both[0].is_repeated, both[1].is_repeated], [false, true]);
    assert!(both.iter().all(|reserved| reserved.answer.allowed));
    assert_eq!(world.all_left(&server, &NAMES), [200, 10, 1]);
}

#[test]
fn what_a_store_does_not_hold_says_so() {
    let world = World::new();
    let leased = CounterLocation::StoreLeased { lease_ns: 100 * MS };
    let server = world.server(vec![
        stored("s", 5),
        in_flight("oven", 2, CounterLocation::StoreExact),
        Rule { location: leased, ..stored("leased", 5) },
        bucket("here", &["who"], 5),
    ]);
    for (items, item, rule) in
        [([("s", 1), ("oven", 0)], 1, "oven"), ([("s", 0), ("here", 1)], 0, "s")]
    {
        let none = EngineError::NoPermits { item, rule: rule.into() };
        assert_eq!(world.try_reserve(&server, 1, &items), Err(none));
        assert_eq!(world.left(&server, "s", "x"), Some(5), "{items:?}");
    }
    let twice = world.try_reserve(&server, 1, &[("here", 1), ("s", 1), ("s", 1)]);
    assert_eq!(twice, Err(EngineError::DuplicateItem { first: 1, second: 2 }));
    let none = world.try_reserve(&server, 1, &[("s", 1), ("none", 1)]);
    assert!(matches!(none, Err(EngineError::NoSuchRule { .. })), "{none:?}");
    assert_eq!(world.left(&server, "s", "x"), Some(5), "what the store held is withdrawn");
    let ttl = MAX_TTL + Duration::from_nanos(1);
    let long = world.wait(server.reserve(id(1), ttl, &[Item::of(of("s"), 1)])).0;
    assert_eq!(long, Err(EngineError::Ttl { rule: Some("s".into()), given: ttl, max: MAX_TTL }));
    // Other permits under an id in use are refused, here and in the store.
    assert!(world.reserve(&server, 1, &[("s", 2), ("leased", 1)]).answer.allowed);
    for items in [[("s", 3), ("leased", 1)], [("leased", 1), ("s", 3)]] {
        assert_eq!(world.try_reserve(&server, 1, &items), Err(EngineError::OtherItems));
    }
    assert!(world.reserve(&server, 2, &[("s", 1), ("here", 1)]).answer.allowed);
    let other = world.try_reserve(&server, 2, &[("s", 1), ("here", 2)]);
    assert_eq!(other, Err(EngineError::OtherItems));
    assert_eq!(world.all_left(&server, &["s", "here"]), [2, 4]);
    let settled = world.commit(&server, 1, &[("s", 0), ("leased", 0)]);
    assert_eq!(verdicts(&settled), [back(2), back(1)]);
}
