//! Shares of limits on permits in flight, against a plain list of the holders.

use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate::adaptive::Outcome;
use rategate::{Clock as _, ManualClock};
use rategate_server::config::load_text;
use rategate_server::engine::{
    Answer, EngineError, Item, Lease, LeaseVerb, Loaded, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::RuleSet;

use crate::engine::common::*;

/// The time of a lease, and of a reservation.
const HELD: u64 = 30 * SECOND;
const TTL: Duration = Duration::from_secs(20);

const SHARES: [(&str, u64); 3] = [("crawler", 60), ("batch", 30), ("*", 90)];

fn rules(limit: u64, more: &str, shares: &[(&str, u64)]) -> RuleSet {
    let shares: Vec<_> =
        shares.iter().map(|(value, of)| format!("{value:?} = \"{of}%\"")).collect();
    let shares = format!(", {{ key = \"priority\", shares = {{ {} }} }}", shares.join(", "));
    let shares = if shares.contains('%') { shares } else { String::new() };
    let text = format!(
        "[[rule]]\nname = \"calls\"\ndomain = \"d\"\nalgorithm = \"concurrency\"\nlimit = {limit}\n\
         lease = \"30s\"\nmatch = [\"backend\"{shares}]\n{more}\n"
    );
    load_text("a.toml", &text)
        .unwrap_or_else(|error| panic!("{}", error.report()))
        .rules
        .set()
        .as_ref()
        .clone()
}

/// Permits that are held until an instant.
#[derive(Clone, Debug)]
struct Holder {
    backend: String,
    priority: String,
    permits: u64,
    until_ns: u64,
    held_by: Option<By>,
}

/// The name of a holder that can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Lease(u64),
    Reservation(u64),
}

struct World {
    engine: TestEngine,
    clock: ManualClock,
    holders: Vec<Holder>,
    limit: u64,
    shares: Vec<(&'static str, u64)>,
}

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

fn lease(
    engine: &TestEngine,
    verb: LeaseVerb,
    number: u64,
    values: &[&str],
    permits: u64,
) -> Result<Answer, EngineError> {
    let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    let lease = Lease { name: id(number), rule: "calls", values: &values, permits };
    now(engine.lease(verb, &lease))
}

impl World {
    fn new(limit: u64, more: &str, shares: &[(&'static str, u64)]) -> Self {
        let (engine, clock) = engine(Vec::new());
        engine.load(rules(limit, more, shares)).unwrap();
        let (holders, shares) = (Vec::new(), shares.to_vec());
        Self { engine, clock, holders, limit, shares }
    }

    fn reload(&mut self, limit: u64, more: &str, shares: &[(&'static str, u64)]) -> Loaded {
        (self.limit, self.shares) = (limit, shares.to_vec());
        self.engine.load(rules(limit, more, shares)).unwrap()
    }

    fn lasting(&mut self, backend: &str) -> Vec<Holder> {
        let now_ns = self.clock.now_ns();
        self.holders.retain(|holder| holder.until_ns > now_ns);
        self.holders.iter().filter(|holder| holder.backend == backend).cloned().collect()
    }

    fn in_flight(&mut self, backend: &str) -> u64 {
        self.lasting(backend).iter().map(|holder| holder.permits).sum()
    }

    /// Returns the share of a priority of the limit now.
    fn room_of(&self, backend: &str, priority: &str) -> u64 {
        let percent = |of: &str| self.shares.iter().find(|(value, _)| *value == of);
        let percent = percent(priority).or_else(|| percent("*")).map_or(100, |(_, of)| *of);
        let limit = match self.engine.adaptive("calls", &[backend.as_bytes(), b"x"]) {
            Some(status) => status.limit,
            None => self.limit,
        };
        (limit * percent).div_ceil(100)
    }

    /// Checks an answer to a start of so many permits, and adds the holder that is `new`.
    fn started(
        &mut self,
        answer: &Answer,
        (backend, priority, permits): (&str, &str, u64),
        (new, lasts_ns): (Option<By>, u64),
    ) -> bool {
        let (used, part) = (self.in_flight(backend), self.room_of(backend, priority));
        let fits = used + permits <= part;
        let result = &answer.results[0];
        let what = format!("{priority}: {used} and {permits} of {part}: {result:?}");
        assert_eq!(answer.allowed, fits, "{what}");
        assert_eq!(result.limit, part, "{what}");
        let left = if fits { part - used - permits } else { part.saturating_sub(used) };
        assert_eq!(result.remaining, Some(left), "{what}");
        let now_ns = self.clock.now_ns();
        if fits {
            let until_ns = now_ns + lasts_ns;
            let (backend, priority) = (backend.to_owned(), priority.to_owned());
            self.holders.push(Holder { backend, priority, permits, until_ns, held_by: new });
            return true;
        }
        // It fits when enough of them have ended by their time.
        let mut ends = self.lasting(backend);
        ends.sort_by_key(|holder| holder.until_ns);
        let mut left = used;
        let wait = ends.iter().find_map(|holder| {
            left -= holder.permits;
            (left + permits <= part).then_some(holder.until_ns - now_ns)
        });
        let wait = wait.and_then(NonZeroU64::new);
        assert_eq!(
            result.verdict,
            Verdict::Denied { retry_after_ns: wait, enforced: true },
            "{what}"
        );
        false
    }
}

/// Plays starts of several priorities by each way in, and ends, against a list of what is held.
fn play(seed: u64, world: &mut World, max_permits: u64, change: impl Fn(&mut World, &mut Rng)) {
    let mut rng = Rng::with_seed(seed);
    let mut counts = [0; 2];
    for step in 0..600 {
        world.clock.advance(Duration::from_millis(rng.u64(..1_500)));
        let backend = ["a", "bb"][usize::from(rng.u32(..4) == 0)];
        let priority = ["crawler", "batch", "high", ""][rng.usize(..4)];
        let permits = rng.u64(1..=max_permits);
        let call = (backend, priority, permits);
        match rng.u32(..10) {
            0..=2 => {
                let (taken, call) = if rng.bool() {
                    (
                        lease(&world.engine, LeaseVerb::Take, step, &[backend, priority], permits),
                        call,
                    )
                } else {
                    // A call that leaves out the priority is one of the others.
                    let taken = lease(&world.engine, LeaseVerb::Take, step, &[backend], permits);
                    (taken, (backend, "*", permits))
                };
                let by = (Some(By::Lease(step)), HELD);
                counts[usize::from(world.started(&taken.unwrap(), call, by))] += 1;
            }
            3..=4 => {
                let values: &[&[u8]] = &[backend.as_bytes(), priority.as_bytes()];
                let items = [Item::of(Target::Rule { name: "calls", values }, permits)];
                let reserved = now(world.engine.reserve(id(step), TTL, &items)).unwrap();
                let by = (Some(By::Reservation(step)), TTL.as_nanos().try_into().unwrap());
                counts[usize::from(world.started(&reserved.answer, call, by))] += 1;
            }
            5 => {
                let item = format!("backend={backend},priority={priority}");
                let peeked = ask(&world.engine, Verb::Peek, &[(&item, permits)]);
                let fits = world.in_flight(backend) + permits <= world.room_of(backend, priority);
                assert_eq!(peeked.allowed, fits, "{peeked:?}");
                let taken = ask(&world.engine, Verb::Take, &[(&item, permits)]);
                counts[usize::from(world.started(&taken, call, (None, HELD)))] += 1;
            }
            6..=8 => {
                let named = world.lasting(backend).into_iter().filter(|it| it.held_by.is_some());
                let Some(held) = rng.choice(named.collect::<Vec<_>>()) else { continue };
                let renews = rng.bool();
                match held.held_by {
                    Some(By::Lease(number)) => {
                        // What is held is renewed whatever its share is by now.
                        let verb = if renews {
                            LeaseVerb::Renew
                        } else {
                            LeaseVerb::Release(Outcome::Served)
                        };
                        let values = [backend, priority];
                        let values = if rng.bool() { &values[..] } else { &values[..1] };
                        let ended =
                            lease(&world.engine, verb, number, values, held.permits).unwrap();
                        assert!(ended.allowed, "{ended:?}");
                    }
                    Some(By::Reservation(number)) if !renews => {
                        let values: &[&[u8]] = &[backend.as_bytes(), held.priority.as_bytes()];
                        let target = Target::Rule { name: "calls", values };
                        let ended = now(world.engine.cancel(id(number), &[target])).unwrap();
                        assert!(ended.answer.allowed, "{ended:?}");
                    }
                    _ => continue,
                }
                let now_ns = world.clock.now_ns();
                world.holders.retain_mut(|it| {
                    let is_it = it.held_by == held.held_by;
                    if is_it {
                        it.until_ns = now_ns + HELD;
                    }
                    !is_it || renews
                });
            }
            _ => change(world, &mut rng),
        }
    }
    assert!(counts.iter().all(|count| *count > 40), "seed {seed}: {counts:?}");
}

#[test]
fn a_start_fits_into_its_share_of_what_all_priorities_hold() {
    for seed in 0..10 {
        let mut world = World::new(seed % 9 + 3, "", &SHARES);
        play(seed, &mut world, 3, |world, rng| {
            let (limit, shares) = (rng.u64(3..=12), SHARES.map(|(of, _)| (of, rng.u64(1..=100))));
            let loaded = world.reload(limit, "", &shares[..rng.usize(1..=3)]);
            assert!(loaded.restarted.is_empty(), "{loaded:?}");
        });
    }
}

/// Its limit is what the engine says of it, which the tests of the core check.
#[test]
fn a_share_of_an_adaptive_limit_is_of_the_present_one() {
    for seed in 0..10 {
        let adaptive = "adaptive = { floor = 2, first = 7, method = \"aimd\" }";
        play(seed, &mut World::new(30, adaptive, &SHARES), 2, |_, _| ());
    }
}

fn takes(engine: &TestEngine, number: u64, values: &[&str]) -> bool {
    lease(engine, LeaseVerb::Take, number, values, 1).unwrap().allowed
}

#[test]
fn threads_of_one_share_do_not_exceed_it() {
    for more in ["", "adaptive = { floor = 1, first = 20, method = \"aimd\" }"] {
        let world = World::new(20, more, &SHARES);
        let granted = std::thread::scope(|scope| {
            let engine = &world.engine;
            let thread = |nth: u64| {
                let tries =
                    (0..100).filter(|step| takes(engine, nth * 100 + step, &["a", "crawler"]));
                tries.count()
            };
            let threads: Vec<_> = (1..=8).map(|nth| scope.spawn(move || thread(nth))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(granted, 12, "60% of 20: {more}");
    }
}

#[test]
fn the_same_lease_again_is_renewed_where_its_share_is_full() {
    for more in ["", "adaptive = { floor = 1, first = 10, method = \"aimd\" }"] {
        let world = World::new(10, more, &SHARES);
        let batch = |number| takes(&world.engine, number, &["a", "batch"]);
        assert_eq!([batch(1), batch(2), batch(3), batch(4)], [true, true, true, false]);
        assert!(batch(2), "again");
        assert!((5..8).all(|number| takes(&world.engine, number, &["a", "crawler"])));
        assert!(
            !takes(&world.engine, 8, &["a", "crawler"]) && takes(&world.engine, 9, &["a", "high"])
        );
        assert!(takes(&world.engine, 1, &["b", "batch"]), "another backend");
    }
}

/// The permits in flight of a rule that gets shares, or loses them, stay held.
#[test]
fn a_reload_adds_shares_and_takes_them_away() {
    for more in ["", "adaptive = { floor = 1, first = 10, method = \"aimd\" }"] {
        let mut world = World::new(10, more, &[]);
        assert!((1..=4).all(|number| takes(&world.engine, number, &["a"])));
        let loaded = world.reload(10, more, &SHARES);
        assert!(loaded.restarted.is_empty() && loaded.changed.len() == 1, "{loaded:?}");
        assert!(!takes(&world.engine, 5, &["a", "batch"]), "three of ten");
        assert!(takes(&world.engine, 5, &["a", "crawler"]), "six of ten");
        // Clients of before renew and release without a priority.
        for verb in [LeaseVerb::Renew, LeaseVerb::Release(Outcome::Ignored)] {
            assert!(lease(&world.engine, verb, 1, &["a"], 1).unwrap().allowed);
        }
        assert_eq!(world.reload(10, more, &SHARES).kept.len(), 1);
        let others = [("crawler", 40), ("batch", 30)];
        assert_eq!(world.reload(10, more, &others).changed.len(), 1, "in other shares");
        assert!(
            !takes(&world.engine, 6, &["a", "crawler"]) && takes(&world.engine, 6, &["a", "x"])
        );
        assert_eq!(world.reload(10, more, &[]).changed.len(), 1);
        assert!((7..=11).all(|number| takes(&world.engine, number, &["a"])), "ten in all");
        assert!(!takes(&world.engine, 12, &["a"]));
    }
}

#[test]
fn a_call_that_names_the_rule_states_its_counter_and_may_state_its_share() {
    let world = World::new(10, "", &SHARES);
    for values in [&[][..], &["a", "batch", "more"]] {
        let error = lease(&world.engine, LeaseVerb::Take, 1, values, 1).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EngineError::Values { needed: 2, .. }), "{text}");
    }
    // A reservation is named as it was held.
    let target = |values| Target::Rule { name: "calls", values };
    let (held, other): (&[&[u8]], &[&[u8]]) = (&[b"a", b"batch"], &[b"a", b"crawler"]);
    assert!(
        now(world.engine.reserve(id(1), TTL, &[Item::of(target(held), 3)])).unwrap().answer.allowed
    );
    let ended = now(world.engine.cancel(id(1), &[target(other)]));
    assert!(matches!(ended, Err(EngineError::OtherItems)), "{ended:?}");
    assert!(now(world.engine.cancel(id(1), &[target(held)])).unwrap().answer.allowed);
    // Two shares of one limit are one counter.
    let items = [Item::of(target(held), 1), Item::of(target(other), 1)];
    let twice = now(world.engine.reserve(id(2), TTL, &items));
    assert!(matches!(twice, Err(EngineError::DuplicateItem { first: 0, second: 1 })), "{twice:?}");
}

/// An item of a rule that takes from one with shares, too, is in the share of its own entry.
#[test]
fn a_rule_that_takes_from_it_too_keeps_its_share() {
    let mut set = rules(10, "", &SHARES);
    let user = "[[rule]]\nname = \"user\"\ndomain = \"d\"\nlimit = \"100/s\"\nalso = [\"calls\"]\n\
                match = [\"backend\", \"priority\", \"user\"]\n[[rule]]\nname = \"calls\"\n\
                algorithm = \"concurrency\"\nlimit = 10\nmatch = [\"backend\", \"priority\"]";
    let user = load_text("b.toml", user).unwrap().rules.rules[0].clone();
    set.rules.push(user);
    let (engine, _clock) = engine(Vec::new());
    engine.load(set).unwrap();
    let item = |priority: &str| format!("backend=a,priority={priority},user=u");
    let batch = |permits| take(&engine, &[(&item("batch"), permits)]);
    assert_eq!([batch(2), batch(1), batch(1)], [true, true, false]);
    assert!(take(&engine, &[(&item("crawler"), 3)]) && !take(&engine, &[(&item("crawler"), 1)]));
    let denied = ask(&engine, Verb::Take, &[(&item("batch"), 1)]);
    assert_eq!(rule_name(&denied, 0), Some("calls"));
}

#[test]
fn a_rule_that_is_not_enforced_counts_and_lets_pass() {
    for (enforce, is_soft) in [("shadow", false), ("soft", true), ("0%", false)] {
        let world = World::new(10, &format!("enforce = {enforce:?}"), &SHARES);
        assert!((1..=3).all(|number| takes(&world.engine, number, &["a", "batch"])));
        let over = lease(&world.engine, LeaseVerb::Take, 4, &["a", "batch"], 1).unwrap();
        assert!(over.allowed && over.held_ns().is_none(), "{over:?}");
        assert!(matches!(over.results[0].verdict, Verdict::Denied { enforced: false, .. }));
        assert_eq!(over.results[0].is_soft(), is_soft);
    }
}

/// A share bounds what one reservation holds, too, and an estimate in a range is cut to what fits.
#[test]
fn a_reservation_holds_as_much_as_fits_into_its_share() {
    let world = World::new(20, "max_held = \"50%\"", &SHARES);
    let values: &[&[u8]] = &[b"a", b"batch"];
    let target = Target::Rule { name: "calls", values };
    let reserve = |number, least, most| {
        let item = Item { at_most: most, ..Item::of(target, least) };
        let reserved = now(world.engine.reserve(id(number), TTL, &[item])).unwrap();
        reserved.answer.results[0].held().filter(|_| reserved.answer.allowed)
    };
    assert_eq!(reserve(1, 100, None), Some(3), "half of six");
    assert_eq!(reserve(2, 1, Some(2)), Some(2));
    assert_eq!(reserve(3, 1, Some(100)), Some(1), "what is left of six");
    assert_eq!(reserve(4, 1, None), None);
    let world = World::new(20, "", &SHARES);
    let item = Item { at_most: Some(100), ..Item::of(target, 1) };
    let reserved = now(world.engine.reserve(id(5), TTL, &[item])).unwrap();
    assert_eq!(reserved.answer.results[0].held(), Some(6), "all of the share");
}

#[test]
fn permits_in_flight_of_all_priorities_are_known() {
    for more in ["", "adaptive = { floor = 1, first = 10, method = \"aimd\" }"] {
        let text = format!(
            "[[rule]]\nname = \"calls\"\nalgorithm = \"concurrency\"\nlimit = 10\n{more}\n\
             match = [{{ key = \"priority\", shares = {{ \"*\" = \"20%\", high = \"100%\" }} }}]"
        );
        let (engine, _clock) = engine(Vec::new());
        engine.load(load_text("a.toml", &text).unwrap().rules.set().as_ref().clone()).unwrap();
        assert!((1..=7).all(|number| takes(&engine, number, &["high"])));
        assert_eq!(engine.in_flight("calls"), Some(7));
        assert!(!takes(&engine, 8, &[]) && engine.in_flight("nothing").is_none());
        let status = engine.adaptive("calls", &[]).map(|now| (now.limit, now.in_flight));
        assert_eq!(status, (!more.is_empty()).then_some((10, 7)));
    }
}

/// Where a low priority alone keeps the server busy, its full share says so.
#[test]
fn a_limit_moves_where_only_a_share_of_it_is_reached() {
    for (priority, grows) in [("crawler", true), ("batch", true), ("mirror", false)] {
        let shares = [("crawler", 60), ("batch", 30), ("mirror", 20), ("*", 100)];
        let world = World::new(200, "adaptive = { first = 20 }", &shares);
        for round in 0..100 {
            let numbers = (1..=200).map(|nth| round * 1_000 + nth);
            let held = numbers.take_while(|&number| takes(&world.engine, number, &["a", priority]));
            let held = held.collect::<Vec<_>>();
            world.clock.advance(Duration::from_millis(10));
            for number in held {
                let served = LeaseVerb::Release(Outcome::Served);
                lease(&world.engine, served, number, &["a"], 1).unwrap();
            }
        }
        let limit = world.engine.adaptive("calls", &[b"a"]).unwrap().limit;
        // A share below a quarter lets no limit grow.
        assert!(if grows { limit > 60 } else { limit <= 20 }, "{priority}: {limit}");
    }
}
