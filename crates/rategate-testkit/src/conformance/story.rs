//! What random stories on a store have in common.

use std::collections::BTreeMap;

use fastrand::Rng;
use rategate::charge::Debt;
use rategate::store::Rule;

use super::Arena;
use super::client::StoreClient;
use super::rules::{Case, LABELS};

/// The rules of a case, each with its label.
pub(super) type Rules = Vec<(&'static str, Rule)>;

/// An empty store, the key of a story, and the number of times that things happened.
pub(super) struct Stage<'a, A: Arena> {
    arena: &'a A,
    pub(super) name: &'a str,
    pub(super) client: StoreClient<A::Store>,
    pub(super) capacity: u64,
    pub(super) random: Rng,
    pub(super) now_us: u64,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl<'a, A: Arena> Stage<'a, A> {
    pub(super) fn new(
        arena: &'a A,
        name: &'a str,
        rules: &[(&str, Rule)],
        (seed, now_us): (u64, u64),
    ) -> Self {
        arena.set_now_us(now_us);
        let client = StoreClient::new(&arena.store(), rules, name);
        let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap();
        let (random, counts) = (Rng::with_seed(seed), BTreeMap::new());
        Self { arena, name, client, capacity, random, now_us, counts }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.u64(..bound)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_us * 1_000
    }

    pub(super) fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.arena.set_now_us(self.now_us);
    }

    pub(super) fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Fails unless each of these has happened more often than that.
    pub(super) fn assert_over(&self, times: u64, whats: &[&str]) {
        let is_rare = |what: &&&str| self.counts.get(**what).is_none_or(|&count| count <= times);
        let rare: Vec<_> = whats.iter().filter(is_rare).collect();
        assert!(rare.is_empty(), "{}: too few of {rare:?}: {:?}", self.name, self.counts);
    }
}

/// Returns each case, with its seed, for each way in which a debt ends.
///
/// A log that carries its debts is left out: a store may refuse that.
pub(super) fn with_debts(
    cases: impl IntoIterator<Item = Case>,
) -> impl Iterator<Item = (u64, String, Rules, u64, Debt)> {
    (1..).zip(cases).flat_map(|(seed, (name, rules, typical_us))| {
        let has_log = rules.iter().any(|rule| matches!(rule, Rule::Log(_)));
        let rules: Rules = LABELS.into_iter().zip(rules).collect();
        let debts = [Debt::FORGOTTEN, Debt::CARRIED].into_iter();
        debts
            .filter(move |debt| !(has_log && debt.is_carried()))
            .map(move |debt| (seed, format!("{name}, {debt:?}"), rules.clone(), typical_us, debt))
    })
}
