//! Reservations of permits in flight, alone and beside limits over time.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::charge::Settled;
use rategate::{Clock as _, Concurrency, ManualClock};
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Item, Lease, LeaseVerb, MEMORY, Request, Reserved,
    Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{Enforcement, Limit, Rule};

use crate::engine::common::*;

const TTL: Duration = Duration::from_secs(30);
const EVEN: Verdict = Verdict::Committed(Settled::Even);

/// Three slots and a hundred tokens for each user, one back in each second.
struct World {
    engine: TestEngine,
    clock: ManualClock,
}

fn slots(permits: u64) -> Rule {
    Rule { limit: Limit::Policy(Concurrency::new(permits).into()), ..bucket("slots", &["user"], 1) }
}

fn world() -> World {
    let (engine, clock) = engine(vec![slots(3), bucket("tokens", &["user", "of"], 100)]);
    World { engine, clock }
}

fn of(name: &str) -> Target<'_> {
    let values: &[&[u8]] = if name == "slots" { &[b"ann"] } else { &[b"ann", b"model"] };
    Target::Rule { name, values }
}

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

impl World {
    fn try_reserve(
        &self,
        number: u64,
        items: &[(&str, u64)],
        ttl: Duration,
    ) -> Result<Reserved, EngineError> {
        let items: Vec<_> =
            items.iter().map(|&(name, permits)| Item::of(of(name), permits)).collect();
        now(self.engine.reserve(id(number), ttl, &items))
    }

    fn reserve(&self, number: u64, items: &[(&str, u64)]) -> Reserved {
        self.try_reserve(number, items, TTL).unwrap()
    }

    fn commit(&self, number: u64, costs: &[(&str, Option<u64>)]) -> Reserved {
        let cost = |&(name, permits): &(_, _)| Cost { target: of(name), permits, usage: None };
        let costs: Vec<_> = costs.iter().map(cost).collect();
        now(self.engine.commit(id(number), &costs)).unwrap()
    }

    fn cancel(&self, number: u64, names: &[&str]) -> Reserved {
        let targets: Vec<_> = names.iter().map(|name| of(name)).collect();
        now(self.engine.cancel(id(number), &targets)).unwrap()
    }

    fn left(&self) -> [u64; 2] {
        ["slots", "tokens"].map(|name| {
            let items = [Item::of(of(name), 1)];
            decide(&self.engine, Verb::Peek, &items).results[0].remaining.unwrap()
        })
    }

    fn lease(&self, verb: LeaseVerb, number: u64) -> Verdict {
        let (rule, values) = ("slots", &[&b"ann"[..]][..]);
        let lease = Lease { name: id(number), rule, values, permits: 1 };
        now(self.engine.lease(verb, &lease)).unwrap().results[0].verdict
    }
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

const fn back(permits: u64) -> Verdict {
    Verdict::Committed(Settled::Back { permits })
}

fn denied(after: Duration) -> Verdict {
    let retry_after_ns = NonZeroU64::new(after.as_nanos().try_into().unwrap());
    Verdict::Denied { retry_after_ns, enforced: true }
}

/// A commit ends what was held before a reload that put slots beside the tokens.
#[test]
fn a_commit_follows_a_reload_that_adds_slots() {
    let world = world();
    world.reserve(1, &[("tokens", 80)]);
    let tokens = Rule { also: vec!["slots".into()], ..bucket("tokens", &["user", "of"], 100) };
    world.engine.load(set(vec![slots(3), tokens])).unwrap();
    let costs = [("tokens", Some(50))];
    assert_eq!(verdicts(&world.commit(1, &costs)), [back(30)]);
    assert!(world.commit(1, &costs).is_repeated);
    let cost = Cost { target: of("tokens"), permits: Some(50), usage: None };
    let unknown = now(world.engine.commit(id(2), &[cost]));
    assert!(matches!(unknown, Err(EngineError::NotFor(_))), "{unknown:?}");
}

/// A reload puts a limit of less beside them: the item shows the rule that held.
#[test]
fn a_commit_shows_the_rule_that_held_and_not_a_stricter_one_that_came_later() {
    let world = world();
    world.reserve(1, &[("tokens", 80)]);
    let also = vec!["few".into()];
    let tokens = Rule { also, ..bucket("tokens", &["user", "of"], 100) };
    world.engine.load(set(vec![bucket("few", &["user", "of"], 1), tokens])).unwrap();
    let committed = world.commit(1, &[("tokens", Some(50))]);
    assert_eq!(verdicts(&committed), [back(30)]);
    let shown = &committed.answer.results[0];
    assert_eq!((&*shown.rule.as_ref().unwrap().name, shown.remaining), ("tokens", Some(50)));
    assert_eq!(shown.parts().len(), 2);
}

#[test]
fn all_items_are_held_or_none() {
    let world = world();
    let held = world.reserve(1, &[("tokens", 80), ("slots", 2)]);
    assert_eq!((held.answer.allowed, held.is_repeated), (true, false));
    assert_eq!(verdicts(&held), [Verdict::Granted; 2]);
    assert_eq!(held.ends_after_ns, NonZeroU64::new(30 * SECOND));
    assert_eq!(world.left(), [1, 20]);
    // Denied by the tokens: the slot is free again.
    let denied_tokens = world.reserve(2, &[("slots", 1), ("tokens", 21)]);
    assert_eq!(verdicts(&denied_tokens)[1], denied(Duration::from_secs(1)));
    // Denied by the slots, until the hold ends by itself: no token is taken.
    let denied_slots = world.reserve(2, &[("tokens", 20), ("slots", 2)]);
    assert_eq!(verdicts(&denied_slots)[1], denied(TTL));
    assert!(!denied_tokens.answer.allowed && !denied_slots.answer.allowed);
    assert_eq!(world.left(), [1, 20]);
    // More than ever fits, and none.
    let never = world.reserve(2, &[("tokens", 1), ("slots", 4)]);
    let for_ever = Verdict::Denied { retry_after_ns: None, enforced: true };
    assert_eq!(verdicts(&never)[1], for_ever);
    for (item, items) in [&[("slots", 0)][..], &[("tokens", 1), ("slots", 0)]].iter().enumerate() {
        let none = EngineError::NoPermits { item, rule: "slots".into() };
        assert_eq!(world.try_reserve(2, items, TTL), Err(none));
    }
    let twice = world.try_reserve(2, &[("slots", 1), ("tokens", 1), ("slots", 1)], TTL);
    assert_eq!(twice, Err(EngineError::DuplicateItem { first: 0, second: 2 }));
    // A refusal leaves the id unused.
    assert!(world.reserve(2, &[("tokens", 20), ("slots", 1)]).answer.allowed);
    assert_eq!(world.left(), [0, 0]);
}

#[test]
fn a_slot_is_back_after_a_commit_a_cancellation_and_the_end() {
    let world = world();
    for number in 1..=3 {
        assert!(world.reserve(number, &[("slots", 1), ("tokens", 10)]).answer.allowed);
    }
    assert_eq!(world.left(), [0, 70]);
    // What was used of a slot is no more than the slot.
    let committed = world.commit(1, &[("slots", Some(900)), ("tokens", Some(15))]);
    let owed = Verdict::Committed(Settled::Owed { permits: 5, forgiven: 0 });
    assert_eq!(verdicts(&committed), [EVEN, owed]);
    assert_eq!(world.left(), [1, 65]);
    let cancelled = world.cancel(2, &["slots", "tokens"]);
    assert_eq!(verdicts(&cancelled), [1, 10].map(Verdict::Cancelled));
    assert_eq!(world.left(), [2, 75]);
    world.clock.advance(TTL.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(world.left()[0], 2);
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(world.left(), [3, 100]);
    // The same operations again change nothing, whatever they say.
    for number in [1, 1] {
        let again = world.commit(number, &[("slots", None), ("tokens", Some(99))]);
        assert_eq!((verdicts(&again), again.is_repeated), (vec![EVEN, owed], true));
    }
    let again = world.cancel(2, &["slots", "tokens"]);
    assert_eq!((verdicts(&again), again.is_repeated), (verdicts(&cancelled), true));
    assert_eq!(world.left(), [3, 100]);
}

#[test]
fn a_late_commit_charges_the_other_rules_alone_and_once() {
    let world = world();
    let items = [("slots", 2), ("tokens", 40)];
    assert!(world.try_reserve(1, &items, Duration::from_secs(1)).unwrap().answer.allowed);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.left(), [3, 100]);
    let again = world.reserve(1, &items);
    assert!(!again.answer.allowed && again.is_repeated, "it has ended: {again:?}");
    for sent in 0..3 {
        let late = world.commit(1, &[("slots", None), ("tokens", Some(30))]);
        assert_eq!(verdicts(&late), [Verdict::Late(0), Verdict::Late(30)]);
        assert_eq!(late.is_repeated, sent > 0);
    }
    assert_eq!(world.left(), [3, 70]);
    // Long after that the id is unknown.
    world.clock.advance(MEMORY + Duration::from_secs(1));
    world.engine.tick(world.clock.now_ns());
    let unknown = world.commit(1, &[("slots", None), ("tokens", None)]);
    assert_eq!(verdicts(&unknown), [Verdict::Unknown; 2]);
    assert!(!unknown.answer.allowed);
}

#[test]
fn an_id_is_of_its_number_of_slots() {
    let world = world();
    assert!(world.reserve(1, &[("slots", 1)]).answer.allowed);
    world.clock.advance(Duration::from_secs(10));
    let again = world.reserve(1, &[("slots", 1)]);
    assert_eq!((again.answer.allowed, again.is_repeated), (true, true));
    assert_eq!(again.ends_after_ns, NonZeroU64::new(20 * SECOND), "it is not prolonged");
    assert_eq!(world.try_reserve(1, &[("slots", 2)], TTL), Err(EngineError::OtherItems));
    assert_eq!(world.left()[0], 2);
    let ended = world.commit(1, &[("slots", Some(0))]);
    assert_eq!(verdicts(&ended), [back(1)]);
    assert_eq!(ended.answer.results[0].remaining, Some(3));
}

/// A lease and a reservation of one name are two, and what a take holds is a third.
#[test]
fn leases_and_reservations_share_the_slots_and_not_the_name() {
    let world = world();
    assert_eq!(world.lease(LeaseVerb::Take, 1), Verdict::Granted);
    assert!(world.reserve(1, &[("slots", 1)]).answer.allowed);
    assert!(decide(&world.engine, Verb::Take, &[Item::of(of("slots"), 1)]).allowed);
    assert_eq!(world.left()[0], 0);
    assert!(!world.reserve(2, &[("slots", 1)]).answer.allowed);
    assert_eq!(world.lease(LeaseVerb::Release, 1), Verdict::Refunded(1));
    assert_eq!(world.left()[0], 1);
    assert_eq!(verdicts(&world.commit(1, &[("slots", None)])), [EVEN]);
    assert_eq!(world.left()[0], 2);
    assert_eq!(world.lease(LeaseVerb::Release, 1), Verdict::Refunded(0));
}

#[test]
fn a_shadow_rule_holds_what_fits_and_a_request_that_is_made_at_once_holds_none() {
    let shadow = Rule { enforcement: Enforcement::Shadow, ..slots(1) };
    let (engine, clock) = engine(vec![shadow, bucket("tokens", &["user", "of"], 100)]);
    let world = World { engine, clock };
    for number in [1, 2] {
        assert!(world.reserve(number, &[("slots", 1), ("tokens", 10)]).answer.allowed);
        let ended = world.commit(number, &[("slots", None), ("tokens", Some(5))]);
        assert_eq!(verdicts(&ended), [EVEN, back(5)]);
    }
    assert!(world.reserve(3, &[("slots", 1), ("tokens", 10)]).answer.allowed);
    let over = world.reserve(4, &[("slots", 1), ("tokens", 10)]);
    assert!(over.answer.allowed);
    assert!(matches!(verdicts(&over)[0], Verdict::Denied { enforced: false, .. }));
    assert_eq!(verdicts(&world.commit(4, &[("slots", None), ("tokens", None)])), [EVEN; 2]);
    assert_eq!(world.left()[0], 0, "the slot of another");
    for verb in [Verb::Take, Verb::Charge, Verb::Refund] {
        let items = [Item::of(of("slots"), 1), Item::of(of("tokens"), 1)];
        let request = Request { verb, items: &items, counts_denied: false };
        let refused = now(world.engine.once(id(9), &request));
        let is_refused = matches!(refused, Err(EngineError::NotForItem { item: 0, .. }));
        assert!(is_refused, "{verb:?}: {refused:?}");
    }
}

/// Whatever happens, no more is in flight than the limit, and in the end all is free.
#[test]
fn random_reservations_never_exceed_the_slots() {
    let mut random = fastrand::Rng::with_seed(7);
    let world = world();
    // The id, the slots and the end of each that lasts.
    let mut open: Vec<(u64, u64, u64)> = Vec::new();
    let (mut passed_ns, mut number, mut outcomes) = (0, 0, [0; 4]);
    for _ in 0..1_500 {
        let ns = random.u64(..2 * SECOND);
        passed_ns += ns;
        world.clock.advance(Duration::from_nanos(ns));
        open.retain(|(_, _, end_ns)| *end_ns > passed_ns);
        let in_flight: u64 = open.iter().map(|(_, slots, _)| slots).sum();
        assert_eq!(world.left()[0], 3 - in_flight);
        if random.bool() || open.is_empty() {
            number += 1;
            let (slots, tokens) = (random.u64(1..=3), random.u64(1..=3));
            let ttl_ns = random.u64(1..8 * SECOND);
            let items = [("slots", slots), ("tokens", tokens)];
            let has_tokens = world.left()[1] >= tokens;
            let ttl = Duration::from_nanos(ttl_ns);
            let is_held = world.try_reserve(number, &items, ttl).unwrap().answer.allowed;
            assert_eq!(is_held, in_flight + slots <= 3 && has_tokens);
            if is_held {
                open.push((number, slots, passed_ns + ttl_ns));
            }
            outcomes[usize::from(is_held)] += 1;
            continue;
        }
        let (number, slots, _) = open.swap_remove(random.usize(..open.len()));
        let is_commit = random.bool();
        let ended = if is_commit {
            world.commit(number, &[("slots", None), ("tokens", Some(random.u64(..5)))])
        } else {
            world.cancel(number, &["slots", "tokens"])
        };
        let in_time = if is_commit { EVEN } else { Verdict::Cancelled(slots) };
        assert_eq!(verdicts(&ended)[0], in_time);
        outcomes[2 + usize::from(is_commit)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 100), "too little happened: {outcomes:?}");
    world.clock.advance(Duration::from_secs(8));
    assert_eq!(world.left()[0], 3);
}

/// The ids of permits in flight are among those of all reservations.
#[test]
fn ids_have_the_bound_of_reservations() {
    let clock = ManualClock::new();
    let settings = EngineSettings { max_keys: 1, max_reservations: 3, ..SMALL };
    let engine = Engine::new(clock.clone(), settings);
    engine.load(set(vec![slots(9), bucket("tokens", &["user", "of"], 100)])).unwrap();
    let world = World { engine, clock };
    for number in 1..=3 {
        assert!(world.reserve(number, &[("slots", 1)]).answer.allowed);
    }
    let full = Err(EngineError::TooManyReservations { max: 3 });
    assert_eq!(world.try_reserve(4, &[("tokens", 10), ("slots", 1)], TTL), full);
    assert_eq!(world.left(), [6, 100]);
    // Those that are known go on, and their ids are remembered.
    assert_eq!(verdicts(&world.commit(1, &[("slots", None)])), [EVEN]);
    assert_eq!(world.try_reserve(4, &[("slots", 1)], TTL), full);
    world.clock.advance(MEMORY + Duration::from_secs(60));
    world.engine.tick(world.clock.now_ns());
    assert!(world.reserve(4, &[("slots", 1)]).answer.allowed);
}

/// A descriptor names one item, which this process would have to hold in two ways.
#[test]
fn a_descriptor_under_both_kinds_is_two_items() {
    let calls = Rule { also: vec!["slots".into()], ..bucket("calls", &["user", "path"], 9) };
    let (engine, clock) = engine(vec![slots(3), calls]);
    let world = World { engine, clock };
    let both: [(&[u8], &[u8]); 2] = [(b"user", b"ann"), (b"path", b"/")];
    let of = |entries| Target::Descriptor { domain: "d", entries, limit: None };
    let refused = now(world.engine.reserve(id(1), TTL, &[Item::of(of(&both), 1)]));
    assert!(matches!(refused, Err(EngineError::NotFor(_))), "{refused:?}");
    let user = &both[..1];
    assert!(now(world.engine.reserve(id(1), TTL, &[Item::of(of(user), 1)])).is_ok());
    assert_eq!(remaining(&world.engine, "user=ann"), 2);
}
