//! Random stories on a store, in which each reply is compared with that of the model.

use std::collections::BTreeMap;

use fastrand::Rng;
use rategate::charge::{Charged, Debt};
use rategate::store::{Receipt, Rule, StoreError, Verdict};

use super::Arena;
use super::cases::Case;
use super::client::{self, StoreClient};
use super::model::Model;
use crate::oracle::Granted;

/// The time after that within which a store forgets an id.
pub(super) const FORGETS_WITHIN_US: u64 = 2_000_000;

/// Something that a story does next, and how often it does so.
pub(super) type Verb<'a, A> = (u64, fn(&mut Story<'a, A>));

/// An empty store, the key of a story, the model of it, and the number of times that things
/// happened.
pub(super) struct Story<'a, A: Arena> {
    arena: &'a A,
    name: String,
    pub(super) client: StoreClient<A::Store>,
    pub(super) model: Model,
    pub(super) capacity: u64,
    pub(super) typical_us: u64,
    /// `true` if a charge need not tell what is free.
    has_flights: bool,
    random: Rng,
    pub(super) now_us: u64,
    step: u64,
    /// The newest grants, of which something may still come back.
    grants: Vec<(Granted, Receipt)>,
    pub(super) next_id: u64,
    /// Ids that are forgotten from an instant on.
    pub(super) gone: Vec<(u64, u64)>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl<'a, A: Arena> Story<'a, A> {
    pub(super) fn new(arena: &'a A, case: &Case, seed: u64, debt: Debt) -> Self {
        arena.set_now_us(case.begin_us);
        let name = format!("{}, seed {seed}, {debt:?}", case.name);
        Self {
            arena,
            client: StoreClient::new(&arena.store(), &case.rules, &name),
            name,
            model: Model::new(case, debt),
            capacity: case.rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap(),
            typical_us: case.typical_us,
            has_flights: case.has(|rule| matches!(rule, Rule::InFlight(..))),
            random: Rng::with_seed(seed),
            now_us: case.begin_us,
            step: 0,
            grants: Vec::new(),
            next_id: 0,
            gone: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Plays some steps, each of them one of the verbs.
    pub(super) fn play(mut self, steps: u64, verbs: &[Verb<'a, A>]) -> Self {
        let all = verbs.iter().map(|(times, _)| times).sum();
        for step in 0..steps {
            self.step = step;
            self.pause();
            let mut at = self.below(all);
            let chosen = verbs.iter().find(|(times, _)| {
                let is_chosen = at < *times;
                at = at.saturating_sub(*times);
                is_chosen
            });
            chosen.unwrap().1(&mut self);
        }
        self
    }

    /// Lets some time pass, often none, and now and then to the end of a hold or just before it.
    fn pause(&mut self) {
        let some_us = self.typical_us * 2 + 1;
        let us = match self.below(9) {
            0..3 => 0,
            3 => 1,
            4 => self.until_next_end().unwrap_or(0),
            5 => self.until_next_end().map_or(0, |us| us.saturating_sub(1)),
            6 => self.below(some_us * 3),
            _ => self.below(some_us),
        };
        self.pass(us);
    }

    /// Returns the time until the next reservation ends by itself.
    fn until_next_end(&mut self) -> Option<u64> {
        let end_ns = self.model.limits.next_end_ns()?;
        self.count("met", 1);
        Some((end_ns / 1_000).saturating_sub(self.now_us))
    }

    pub(super) fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.arena.set_now_us(self.now_us);
        // A store may be a little late to forget an id, so for a while nothing is asked about it.
        let (now_us, gone) = (self.now_us, &mut self.gone);
        self.model.known.retain(|id, known| {
            let is_kept = known.due_us > now_us;
            if !is_kept {
                gone.push((known.due_us + FORGETS_WITHIN_US, *id));
            }
            is_kept
        });
    }

    /// Checks that a wait is exact: a microsecond sooner it is one microsecond, and then it is over,
    /// or a hold has ended.
    /// `ask` makes the call again, and returns its wait.
    pub(super) fn wait_out(
        &mut self,
        wait_us: Option<u64>,
        ask: impl Fn(&mut Self) -> Option<u64>,
    ) {
        let Some(wait_us) = wait_us.filter(|&wait_us| wait_us > 0) else { return };
        if self.below(3) > 0 {
            return;
        }
        self.pass(wait_us - 1);
        if wait_us > 1 {
            assert_eq!(ask(self), Some(1), "{}: a microsecond before", self.about());
        }
        self.pass(1);
        let has_ended = self.model.known.values().any(|known| known.ends_us() == Some(self.now_us));
        let again = ask(self);
        let about = format!("{}: denied at the instant that it named", self.about());
        assert!(again.is_none() || has_ended, "{about}, for {again:?}");
        self.count("waited", 1);
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.u64(..bound)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_us * 1_000
    }

    pub(super) fn about(&self) -> String {
        format!("{}, step {}, at {} us", self.name, self.step, self.now_us)
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

    fn wanted(&mut self) -> u64 {
        match self.below(5) {
            0 => 1 + self.below(self.capacity),
            1 => 1 + self.below(self.capacity.min(3)),
            _ => 1,
        }
    }

    pub(super) fn decide(&mut self) {
        let permits = self.wanted();
        let decide = |story: &mut Self| {
            let seen = story.client.decide(permits);
            story.compare(permits, seen)
        };
        let wait_us = decide(self);
        self.wait_out(wait_us, decide);
    }

    /// Takes as many of the permits as pass.
    pub(super) fn debit(&mut self) {
        let permits = self.wanted();
        let passing = self.model.limits.remaining(self.now_ns()).clamp(1, permits);
        let seen = self.client.debit(permits);
        if self.compare(passing, seen).is_none() {
            self.count("partly", u64::from(passing < permits));
        }
    }

    /// Compares a decision for so many permits. Returns the wait of a denial.
    fn compare(&mut self, permits: u64, seen: Result<Verdict, StoreError>) -> Option<u64> {
        let (now_ns, about) = (self.now_ns(), self.about());
        let expected = self.model.limits.decide(now_ns, permits);
        self.count("compared", 1);
        match (seen.unwrap(), expected) {
            (Verdict::Granted(ours), Ok(theirs)) => {
                let seen = (ours.permits, ours.remaining);
                assert_eq!(seen, (permits, theirs.remaining), "{about}: {permits} permits");
                self.count("granted", 1);
                self.grants.push((theirs, ours.receipt));
                None
            }
            (Verdict::Denied(ours), Err(theirs)) => {
                let wait_us = Some(theirs.wait_ns.div_ceil(1_000));
                let seen = (client::wait_us(ours), ours.remaining, ours.debt);
                let expected = (wait_us, theirs.remaining, theirs.debt);
                assert_eq!(seen, expected, "{about}: {permits} permits");
                self.count("denied", 1);
                self.count("denied in debt", u64::from(ours.debt > 0));
                wait_us
            }
            (seen, expected) => panic!("{about}: {permits}: {seen:?}, the core {expected:?}"),
        }
    }

    /// Compares a peek with a decision. It takes nothing, so that all later steps agree as well.
    pub(super) fn peek(&mut self) {
        let permits = self.wanted();
        self.peek_at(permits);
    }

    /// Peeks. Returns the wait of a denial.
    fn peek_at(&mut self, permits: u64) -> Option<u64> {
        let (now_ns, about) = (self.now_ns(), self.about());
        let remaining = self.model.limits.remaining(now_ns);
        let expected = self.model.limits.check(now_ns, permits).err();
        let expected = expected.map(|refused| refused.wait_ns.div_ceil(1_000));
        self.count("compared", 1);
        let seen = match self.client.peek(permits).unwrap() {
            Verdict::Granted(grant) => {
                assert_eq!(grant.permits, permits, "{about}: a peek");
                (None, grant.remaining)
            }
            Verdict::Denied(denial) => (client::wait_us(denial), denial.remaining),
        };
        assert_eq!(seen, (expected, remaining), "{about}: a peek at {permits}");
        expected
    }

    pub(super) fn refund(&mut self) {
        // A credit to a bucket that is full changes nothing, and a store that has evicted it may
        // count the credit or not.
        if self.model.limits.has_a_full_bucket(self.now_ns()) || self.grants.is_empty() {
            return;
        }
        let at = self.random.usize(self.grants.len().saturating_sub(6)..self.grants.len());
        let (theirs, receipt) = self.grants.remove(at);
        let permits = 1 + self.below(theirs.permits);
        let expected = self.model.limits.refund(self.now_ns(), &theirs, permits);
        let seen = self.client.refund(&receipt, permits).unwrap();
        assert_eq!(seen, expected, "{}: {permits} refunded of {theirs:?}", self.about());
        self.count("back", seen);
    }

    /// Credits permits without a grant. A credit beyond what is missing fills the limits, and
    /// later refunds of earlier grants return as much as still holds for them.
    pub(super) fn credit(&mut self) {
        let permits = 1 + self.below(self.capacity + 2);
        let expected = self.model.limits.credit(self.now_ns(), permits.min(self.capacity));
        let seen = self.client.credit(permits).unwrap();
        assert_eq!(seen, expected, "{}: {permits} credited", self.about());
        self.look();
        self.count("credited", seen);
    }

    /// Compares the number of permits that are free.
    pub(super) fn look(&mut self) {
        let remaining = self.model.limits.remaining(self.now_ns());
        assert_eq!(self.client.remaining(), remaining, "{}", self.about());
    }

    /// Charges permits, often very many. At the reported instant a call for as many passes, and not
    /// before.
    pub(super) fn charge(&mut self) {
        let permits = match self.below(8) {
            0 => 0,
            1 => self.below(self.capacity * 4 + 8),
            2 => self.below(self.capacity + 1),
            _ => 1 + self.below(2),
        };
        let charged = self.charge_at(permits);
        self.count("charged", charged.0.booked);
        self.count("in debt", u64::from(charged.0.debt > 0));
        self.count("forgiven", charged.0.forgiven);
        self.wait_out(charged.1, |story| match permits {
            0 => story.charge_at(0).1.filter(|&wait_us| wait_us > 0),
            _ => story.peek_at(permits),
        });
    }

    /// Compares a charge. Returns its outcome, and the wait for as many permits.
    pub(super) fn charge_at(&mut self, permits: u64) -> (Charged, Option<u64>) {
        let (now_ns, about, limits) = (self.now_ns(), self.about(), &mut self.model.limits);
        let (expected, wait_ns) = limits.charge(now_ns, permits, self.model.debt);
        let wait_us = wait_ns.map(|ns| ns.div_ceil(1_000));
        let remaining = limits.remaining(now_ns);
        let seen = self.client.charge(permits, self.model.debt).unwrap();
        let left = if self.has_flights { self.client.remaining() } else { seen.remaining };
        assert_eq!((seen.charged, left), (expected, remaining), "{about}: {permits} charged");
        if !self.has_flights {
            let seen_us = seen.retry_after_ns.map(|ns| ns.div_ceil(1_000));
            assert_eq!(seen_us, wait_us, "{about}: the wait after {permits} charged");
        }
        self.count("compared", 1);
        (expected, wait_us)
    }
}
