//! The assignments of one stream: its buckets, their demands, and what is due.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rategate::Clock;
use rategate_protocol::rlqs::{Action, Bucket, Strategy};

use super::numbers::Numbers;
use super::pool::Pool;
use super::{DELIVERY_NS, MAX_BUCKETS, PoolKey, QuotaTerms, Quotas};
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::key;
use crate::engine::live::Live;
use crate::engine::{Decided, Engine, Item, Request, Target, Verb};
use crate::rule::{CounterLocation, Limit};

/// The shortest time between two reports from which a demand is read, in nanoseconds.
const MIN_MEASURED_NS: u64 = 100_000_000;

/// The assignments of one stream.
pub(super) struct Stream<C: Clock + Clone + 'static> {
    engine: Engine<C>,
    domain: Box<str>,
    ttl_ns: u64,
    silence_ns: u64,
    buckets: BTreeMap<BucketName, Subscribed>,
    /// The buckets that are to be abandoned at once.
    refused: Vec<BucketName>,
}

/// The keys and values of a bucket.
type BucketName = Box<[(Box<[u8]>, Box<[u8]>)]>;

/// A bucket that a stream has reported.
struct Subscribed {
    /// Its number in a pool: several buckets of a stream may come under one counter.
    member: u64,
    /// The pool that it is in, if its rule is limited.
    pool: Option<PoolKey>,
    /// The requests since `since_ns`.
    requests: u64,
    since_ns: u64,
    /// The recent demand in requests per 1000 s.
    demand: Option<u64>,
    last_request_ns: u64,
    /// The latest assignment with its instant.
    sent: Option<(Strategy, u64)>,
    due_ns: u64,
}

impl<C: Clock + Clone + 'static> Quotas for Stream<C> {
    fn report(
        &mut self,
        bucket: &Bucket<'_>,
        allowed: u64,
        denied: u64,
    ) -> Result<bool, EngineError> {
        let name = name_of(bucket);
        let now_ns = self.engine.inner.clock.now_ns();
        if !self.buckets.contains_key(&name) {
            let is_full = self.buckets.len() >= MAX_BUCKETS;
            if is_full || !self.engine.inner.pools.subscribe() {
                self.refused.push(name);
                return Ok(false);
            }
            let member = self.engine.inner.pools.next_member.fetch_add(1, Ordering::Relaxed);
            self.buckets.insert(name.clone(), Subscribed::new(member, now_ns));
        }
        self.charge(bucket, allowed)?;
        if let Some(subscribed) = self.buckets.get_mut(&name) {
            subscribed.count(now_ns, allowed.saturating_add(denied));
        }
        Ok(true)
    }

    fn actions(&mut self, send: &mut dyn FnMut(&Bucket<'_>, Action)) -> Result<(), EngineError> {
        let now_ns = self.engine.inner.clock.now_ns();
        for name in std::mem::take(&mut self.refused) {
            send(&entries_of(&name), Action::Abandon);
        }
        let due = self.buckets.iter().filter(|(_, bucket)| bucket.due_ns <= now_ns);
        let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            let bucket = entries_of(&name);
            let Some(subscribed) = self.buckets.get(&name) else { continue };
            if now_ns.saturating_sub(subscribed.last_request_ns) >= self.silence_ns {
                self.forget(&name);
                send(&bucket, Action::Abandon);
            } else if let Some(strategy) = self.assign(&name, &bucket, now_ns)? {
                let ttl_ms = self.ttl_ns.div_euclid(1_000_000);
                send(&bucket, Action::Assign { strategy, ttl_ms });
            }
        }
        Ok(())
    }

    fn wait(&self) -> Duration {
        let now_ns = self.engine.inner.clock.now_ns();
        let due_ns = self.buckets.values().map(|bucket| bucket.due_ns).min();
        let due_ns = due_ns.unwrap_or_else(|| now_ns.saturating_add(self.ttl_ns));
        Duration::from_nanos(due_ns.saturating_sub(now_ns))
    }
}

impl<C: Clock + Clone + 'static> Stream<C> {
    /// Begins a stream without buckets.
    pub(super) fn new(engine: Engine<C>, domain: &str, terms: QuotaTerms) -> Self {
        let whole_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            engine,
            domain: domain.into(),
            ttl_ns: whole_ns(terms.ttl).max(1_000_000),
            silence_ns: whole_ns(terms.silence),
            buckets: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Charges what the client allowed to all rules of the bucket.
    fn charge(&self, bucket: &Bucket<'_>, allowed: u64) -> Result<(), EngineError> {
        let live = self.engine.inner.live.load_full().ok_or(EngineError::NotLoaded)?;
        let Some((entries, rules)) = live.matcher.find_unordered(&self.domain, bucket) else {
            return Ok(());
        };
        for ruled in rules.iter().filter_map(|rule| live.ruled.get(*rule)) {
            check_assignable(ruled)?;
        }
        if allowed > 0 {
            let target =
                Target::Descriptor { domain: &self.domain, entries: &entries, limit: None };
            let items = [Item::of(target, allowed)];
            let request = Request { verb: Verb::Charge, items: &items, counts_denied: false };
            // Without capacity for its key nothing is counted, and the assignment stands.
            if let Decided::Now(Err(error)) = self.engine.decide(&request)
                && !error.is_out_of_capacity()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the assignment of a bucket, if it is to be sent.
    fn assign(
        &mut self,
        name: &BucketName,
        bucket: &Bucket<'_>,
        now_ns: u64,
    ) -> Result<Option<Strategy>, EngineError> {
        let live = self.engine.inner.live.load_full().ok_or(EngineError::NotLoaded)?;
        let (numbers, pool_key) = match self.divided(&live, bucket, now_ns)? {
            Ok((numbers, pool_key)) => (numbers, pool_key),
            Err(strategy) => {
                self.move_to(name, None, now_ns);
                return Ok(self.send(name, strategy, now_ns, false));
            }
        };
        self.move_to(name, Some(&pool_key), now_ns);
        let Some((member, demand)) =
            self.buckets.get(name).map(|bucket| (bucket.member, bucket.demand))
        else {
            return Ok(None);
        };
        let inner = Arc::clone(&self.engine.inner);
        let mut pools = inner.pools.lock();
        let Some(pool) = pools.get_mut(&pool_key) else { return Ok(None) };
        if let Some(demand) = demand {
            pool.set_demand(member, demand);
        }
        let share = pool.share(now_ns, member, numbers.total);
        let sent = self.send(name, numbers.strategy(share.permits), now_ns, share.is_short);
        if sent.is_some() {
            let length_ns = self.ttl_ns.saturating_add(DELIVERY_NS);
            pool.hold(now_ns, member, share.permits, length_ns);
        }
        Ok(sent)
    }

    /// Returns the strategy if it is to be sent: it is another one, or half of the time of the
    /// latest is over. Sets when the bucket is due next.
    fn send(
        &mut self,
        name: &BucketName,
        strategy: Strategy,
        now_ns: u64,
        is_short: bool,
    ) -> Option<Strategy> {
        let half_ns = self.ttl_ns.div_euclid(2);
        let bucket = self.buckets.get_mut(name)?;
        let is_fresh = |sent: u64| now_ns < sent.saturating_add(half_ns);
        let is_known = bucket.sent.is_some_and(|(known, sent)| known == strategy && is_fresh(sent));
        if !is_known {
            bucket.sent = Some((strategy, now_ns));
        }
        let next_ns = bucket.sent.map_or(now_ns, |(_, sent)| sent).saturating_add(half_ns);
        // What others have ends at an instant that only the pool knows: it is asked again soon.
        let soon_ns = now_ns.saturating_add(self.ttl_ns.div_euclid(8).max(1));
        let next_ns = if is_short { next_ns.min(soon_ns) } else { next_ns };
        let silent_ns = bucket.last_request_ns.saturating_add(self.silence_ns);
        bucket.due_ns = next_ns.min(silent_ns);
        (!is_known).then_some(strategy)
    }

    /// Returns what is divided of the bucket's rule, or the strategy of a bucket of which nothing
    /// is.
    fn divided(
        &self,
        live: &Live<C>,
        bucket: &Bucket<'_>,
        now_ns: u64,
    ) -> Result<Result<(Numbers, PoolKey), Strategy>, EngineError> {
        let mut lowest: Option<(Numbers, PoolKey)> = None;
        let Some((entries, rules)) = live.matcher.find_unordered(&self.domain, bucket) else {
            return Ok(Err(Strategy::AllowAll));
        };
        for ruled in rules.iter().filter_map(|rule| live.ruled.get(*rule)) {
            check_assignable(ruled)?;
            let rule = &ruled.rule;
            let key = key::of_values(rule.varying(&entries), rule.values_counted());
            let in_force = ruled.counters.in_force();
            match in_force.limit {
                _ if !ruled.is_enforced() => {}
                Limit::Unlimited | Limit::Exempt => {}
                Limit::Nothing => return Ok(Err(Strategy::DenyAll)),
                Limit::Policy(_) | Limit::Counted(_) => {
                    let numbers = Numbers::of(&in_force, now_ns);
                    if lowest.as_ref().is_none_or(|(known, _)| numbers.is_lower(known)) {
                        lowest = Some((numbers, (Arc::clone(&rule.name), key)));
                    }
                }
            }
        }
        Ok(lowest.ok_or(Strategy::AllowAll))
    }

    /// Puts a bucket in a pool, or in none, unless it is there.
    fn move_to(&mut self, name: &BucketName, pool: Option<&PoolKey>, now_ns: u64) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if bucket.pool.as_ref() == pool {
            return;
        }
        let mut pools = self.engine.inner.pools.lock();
        if let Some(old) = std::mem::replace(&mut bucket.pool, pool.cloned()) {
            leave(&mut pools, &old, bucket.member, now_ns);
        }
        if let Some(pool) = pool {
            pools.entry(pool.clone()).or_default().join(now_ns, bucket.member);
        }
    }

    /// Ends the subscription of a bucket.
    fn forget(&mut self, name: &BucketName) {
        let now_ns = self.engine.inner.clock.now_ns();
        self.move_to(name, None, now_ns);
        if self.buckets.remove(name).is_some() {
            self.engine.inner.pools.unsubscribe(1);
        }
    }
}

/// Takes a bucket out of a pool, and drops the pool once it is empty.
fn leave(pools: &mut HashMap<PoolKey, Pool>, key: &PoolKey, member: u64, now_ns: u64) {
    if let Some(pool) = pools.get_mut(key) {
        pool.leave(member);
        if pool.is_empty(now_ns) {
            pools.remove(key);
        }
    }
}

impl<C: Clock + Clone + 'static> Drop for Stream<C> {
    fn drop(&mut self) {
        let now_ns = self.engine.inner.clock.now_ns();
        let mut pools = self.engine.inner.pools.lock();
        for bucket in self.buckets.values() {
            if let Some(pool) = &bucket.pool {
                leave(&mut pools, pool, bucket.member, now_ns);
            }
        }
        drop(pools);
        self.engine.inner.pools.unsubscribe(self.buckets.len());
    }
}

impl Subscribed {
    const fn new(member: u64, now_ns: u64) -> Self {
        Self {
            member,
            pool: None,
            requests: 0,
            since_ns: now_ns,
            demand: None,
            last_request_ns: now_ns,
            sent: None,
            due_ns: now_ns,
        }
    }

    /// Counts requests, and reads the demand from them: it rises at once, and falls by half with
    /// each report.
    fn count(&mut self, now_ns: u64, requests: u64) {
        self.due_ns = now_ns;
        if requests > 0 {
            self.last_request_ns = now_ns;
        }
        self.requests = self.requests.saturating_add(requests);
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns < MIN_MEASURED_NS {
            return;
        }
        let per_1000_s = u128::from(self.requests).saturating_mul(1_000_000_000_000);
        let demand = per_1000_s.checked_div(elapsed_ns.into()).unwrap_or(0);
        let demand = u64::try_from(demand).unwrap_or(u64::MAX);
        self.demand =
            Some(self.demand.map_or(demand, |before| demand.max(before.midpoint(demand))));
        (self.requests, self.since_ns) = (0, now_ns);
    }
}

fn check_assignable<C: Clock + Clone>(ruled: &ActiveRule<C>) -> Result<(), EngineError> {
    let why = if ruled.rule.location != CounterLocation::Here {
        "its counters are in a store, and each node would assign all of it"
    } else if ruled.is_in_flight() {
        "it limits requests in flight, which no bucket of tokens does"
    } else {
        return Ok(());
    };
    Err(EngineError::NotAssigned { rule: Arc::clone(&ruled.rule.name), why })
}

fn name_of(bucket: &Bucket<'_>) -> BucketName {
    bucket.iter().map(|(key, value)| (Box::from(*key), Box::from(*value))).collect()
}

fn entries_of(name: &BucketName) -> Bucket<'_> {
    name.iter().map(|(key, value)| (&**key, &**value)).collect()
}
