//! Random stories of reservations between takes, charges and refunds of windows, compared with
//! plain sums.
//!
//! What is held and used counts in the window of its start, a shortfall and a late cost in that of
//! their commit, and nothing twice. A denial names the first instant at which the sums would let
//! the same pass, if every hold ran to its end.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rategate::ManualClock;
use rategate::store::MemoryStore;
use rategate_server::engine::{
    Cost, Engine, Item, MEMORY, Reserved, Shared, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{CounterLocation, Rule};

use crate::engine::common::*;
use crate::rls::traces::configs;

const NAMES: [&str; 2] = ["a", "b"];
const LIMITS: [u64; 2] = [50, 70];
const WINDOW_S: u64 = 60;

/// Items by the index of their rule, with permits.
type Items = Vec<(usize, u64)>;

/// One reservation of the model.
struct Known {
    items: Items,
    window: u64,
    end_s: u64,
    verdicts: Option<Vec<Verdict>>,
    /// The instant at which it was settled, or ended by itself.
    over_s: Option<u64>,
}

/// The sums.
#[derive(Default)]
struct Model {
    now_s: u64,
    used: [u64; 2],
    known: HashMap<u64, Known>,
}

impl Model {
    fn window(&self) -> u64 {
        self.now_s / WINDOW_S
    }

    fn is_open(known: &Known) -> bool {
        known.over_s.is_none()
    }

    /// Holds end in their window before it does, or are gone with it.
    fn advance(&mut self, to_s: u64) {
        let window = self.window();
        for known in self.known.values_mut().filter(|known| Self::is_open(known)) {
            if known.end_s <= to_s {
                if known.window == window {
                    for (at, held) in &known.items {
                        self.used[*at] = self.used[*at].saturating_sub(*held);
                    }
                }
                known.over_s = Some(known.end_s);
            }
        }
        self.now_s = to_s;
        if self.window() != window {
            self.used = [0; 2];
        }
        self.known
            .retain(|_, known| known.over_s.is_none_or(|over_s| over_s + MEMORY.as_secs() > to_s));
    }

    fn fits(used: [u64; 2], items: &Items) -> bool {
        items.iter().all(|&(at, permits)| used[at] + permits <= LIMITS[at])
    }

    /// Returns the seconds until the items fit, or until they may fit as a hold has ended.
    fn fits_in_s(&self, items: &Items) -> Option<u64> {
        if !Self::fits([0; 2], items) {
            return None;
        }
        let window_end_s = (self.window() + 1) * WINDOW_S;
        let opens_in_s = |at: usize| {
            let held = self.known.values().filter(|known| Self::is_open(known));
            let held =
                held.filter(|known| known.items.iter().any(|&(of, some)| of == at && some > 0));
            let ends = held.map(|known| known.end_s).filter(|&end_s| end_s > self.now_s);
            ends.fold(window_end_s, u64::min) - self.now_s
        };
        let denied = items.iter().filter(|&&(at, permits)| self.used[at] + permits > LIMITS[at]);
        Some(denied.map(|&(at, _)| opens_in_s(at)).max().unwrap_or(0))
    }

    fn settle(&mut self, number: u64, costs: &Items, verdicts: Vec<Verdict>) {
        let (window, now_s) = (self.window(), self.now_s);
        let Some(known) = self.known.get_mut(&number) else { return };
        let is_late = known.over_s.is_some();
        for (&(at, actual), &(_, held)) in costs.iter().zip(&known.items) {
            if is_late {
                self.used[at] += actual;
            } else if actual > held {
                self.used[at] += actual - held;
            } else if known.window == window {
                self.used[at] = self.used[at].saturating_sub(held - actual);
            }
        }
        let all_late = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Late(_)));
        assert_eq!(all_late, is_late, "{verdicts:?}");
        (known.verdicts, known.over_s) = (Some(verdicts), Some(now_s));
    }
}

/// Where the two rules count, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Here,
    /// Each take counts, also one that does not fit.
    Counted,
    Stored,
    /// One here, and the other in a store.
    Mixed,
}

struct Story {
    engine: TestEngine,
    model: Model,
    rng: Rng,
    kind: Kind,
}

fn target(at: usize) -> Target<'static> {
    Target::Rule { name: NAMES[at], values: &[b"1"] }
}

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

fn verdicts(reserved: &Reserved) -> Vec<Verdict> {
    reserved.answer.results.iter().map(|result| result.verdict).collect()
}

fn retry_after_ns(verdicts: &[Verdict]) -> Option<u64> {
    let refused = verdicts.iter().filter(|verdict| verdict.is_refusal());
    refused.map(|verdict| verdict.retry_after_ns().map(u64::from)).max_by_key(|wait_ns| {
        // None is never.
        wait_ns.unwrap_or(u64::MAX)
    })?
}

impl Story {
    fn reserve(&mut self, number: u64) {
        // A store holds at least one permit.
        let least = u64::from(self.kind != Kind::Here && self.kind != Kind::Counted);
        let mut items: Items = (0..2).map(|at| (at, self.rng.u64(least..40))).collect();
        if self.rng.u8(..8) == 0 {
            items[0].1 = self.rng.u64(LIMITS[0]..LIMITS[0] + 3);
        }
        items.truncate(self.rng.usize(1..=2));
        let ttl_s = self.rng.u64(1..90);
        let requested: Vec<_> =
            items.iter().map(|&(at, permits)| Item::of(target(at), permits)).collect();
        let ttl = Duration::from_secs(ttl_s);
        let reserved = now(self.engine.reserve(id(number), ttl, &requested)).unwrap();
        let fits_in_s = self.model.fits_in_s(&items);
        assert_eq!(reserved.answer.allowed, fits_in_s == Some(0));
        if !reserved.answer.allowed {
            let wait_ns = retry_after_ns(&verdicts(&reserved));
            assert_eq!(wait_ns, fits_in_s.map(|wait_s| wait_s * SECOND), "{items:?}");
            return;
        }
        for &(at, permits) in &items {
            self.model.used[at] += permits;
        }
        let (window, end_s) = (self.model.window(), self.model.now_s + ttl_s);
        let known = Known { items, window, end_s, verdicts: None, over_s: None };
        self.model.known.insert(number, known);
    }

    fn commit(&mut self, number: u64) {
        let known = self.model.known.get(&number);
        let items = known.map_or_else(|| vec![(0, 0)], |known| known.items.clone());
        let before = known.and_then(|known| known.verdicts.clone());
        let costs: Items = items.iter().map(|&(at, _)| (at, self.rng.u64(..60))).collect();
        let sent: Vec<_> = costs
            .iter()
            .map(|&(at, permits)| Cost { target: target(at), permits: Some(permits), usage: None })
            .collect();
        let committed = now(self.engine.commit(id(number), &sent)).unwrap();
        assert_eq!(committed.is_repeated, before.is_some());
        if !self.model.known.contains_key(&number) {
            assert_eq!(verdicts(&committed), [Verdict::Unknown]);
        } else if let Some(before) = before {
            assert_eq!(verdicts(&committed), before);
        } else {
            self.model.settle(number, &costs, verdicts(&committed));
        }
    }

    fn decide(&mut self) {
        let (at, permits) = (self.rng.usize(..2), self.rng.u64(1..30));
        let verb = [Verb::Take, Verb::Peek, Verb::Charge, Verb::Refund][self.rng.usize(..4)];
        let permits = if verb == Verb::Charge { permits / 4 } else { permits };
        let fits = Model::fits(self.model.used, &vec![(at, permits)]);
        let answer = decide(&self.engine, verb, &[Item::of(target(at), permits)]);
        let used = &mut self.model.used[at];
        match verb {
            Verb::Take => {
                assert_eq!(answer.allowed, fits);
                *used += if fits || self.kind == Kind::Counted { permits } else { 0 };
            }
            Verb::Charge => *used += permits,
            Verb::Refund => *used = used.saturating_sub(permits),
            _ => assert_eq!(answer.allowed, fits),
        }
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            let passed_s = if self.rng.u8(..4) == 0 { self.rng.u64(1..45) } else { 0 };
            self.engine.clock().advance(Duration::from_secs(passed_s));
            self.model.advance(self.model.now_s + passed_s);
            if self.rng.bool() {
                self.engine.tick(rategate::Clock::now_ns(self.engine.clock()));
            }
            let number = self.rng.u64(..12);
            match self.rng.u8(..5) {
                0 => self.decide(),
                1 | 2 if !self.model.known.contains_key(&number) => self.reserve(number),
                _ => self.commit(number),
            }
            for (at, name) in NAMES.iter().enumerate() {
                let left = LIMITS[at].saturating_sub(self.model.used[at]);
                assert_eq!(remaining(&self.engine, &format!("{name}=1")), left, "step {step}");
            }
        }
    }
}

/// Returns an engine with both rules, and a store that replies at once.
fn engine_of(kind: Kind) -> TestEngine {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let rules = [0, 1].map(|at| {
        let rule = per_minute(NAMES[at], &[NAMES[at]], LIMITS[at]);
        match kind {
            Kind::Counted => counting(rule, u32::try_from(LIMITS[at]).unwrap()),
            Kind::Mixed if at == 1 => rule,
            Kind::Stored | Kind::Mixed => Rule { location: CounterLocation::StoreExact, ..rule },
            Kind::Here => rule,
        }
    });
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let shared = Arc::new(Shared::new(store, NonZeroU32::MIN));
    let engine = Engine::with_store(clock, SMALL, None, Some(shared));
    engine.load(set(rules.into())).unwrap();
    engine
}

#[test]
fn random_stories_are_those_of_plain_sums() {
    let kinds = [Kind::Here, Kind::Counted, Kind::Stored, Kind::Mixed];
    for (seed, kind) in configs(60).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let (engine, rng) = (engine_of(kind), Rng::with_seed(seed));
        let mut story = Story { engine, model: Model::default(), rng, kind };
        let story = std::panic::AssertUnwindSafe(|| story.run(200));
        let named = || panic!("seed {seed}, {kind:?}");
        std::panic::catch_unwind(story).unwrap_or_else(|_| named());
    }
}
