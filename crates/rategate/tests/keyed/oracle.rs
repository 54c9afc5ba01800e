//! The table compared with one limiter for each key, which is never evicted: all results are
//! equal.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::{Debt, Hold};
use rategate::error::KeyedError;
use rategate::keyed::Capacity;
use rategate::keyed::Hashing;
use rategate::policy::Anchor;
use rategate::{
    AnyPolicy, Clock, FixedWindow, Keyed, Limiter, ManualClock, Reservation, SlidingLog,
};
use rategate_testkit::ns;

use crate::keyed::{MS, S, bucket, outcome};

/// A limiter for each key, none of which is ever evicted.
struct Ideal {
    policies: Vec<AnyPolicy>,
    keys: HashMap<u64, (usize, Limiter<ManualClock>)>,
    /// The keys that were granted something; `promised` has the keys of open reservations.
    used: HashSet<u64>,
    promised: Vec<u64>,
    /// The promises that were kept, with their starts.
    reserved: Vec<(u64, u64)>,
    /// The keys whose earlier grants are those of another limiter.
    renewed: HashSet<u64>,
    clock: ManualClock,
    debt: Debt,
}

impl Ideal {
    fn of(&mut self, key: u64, tier: usize) -> Limiter<ManualClock> {
        let fresh = || {
            let policy = self.policies[tier];
            (tier, Limiter::with_clock(policy, self.clock.clone()).with_debt(self.debt))
        };
        let was = std::mem::replace(&mut self.keys.entry(key).or_insert_with(fresh).0, tier);
        if was != tier {
            self.change(key);
        }
        self.keys[&key].1.clone()
    }

    /// Changes the numbers of a key. A fully recovered limiter is fresh under the new numbers.
    fn change(&mut self, key: u64) {
        let (tier, limiter) = self.keys.get_mut(&key).unwrap();
        let (new, now_ns) = (self.policies[*tier], self.clock.now_ns());
        let is_fresh = limiter.with_limit(|ledger| ledger.clone().is_as_fresh(now_ns));
        // A key with open reservations has a limiter, which goes on.
        if (is_fresh || !self.used.contains(&key)) && !self.promised.contains(&key) {
            *limiter = Limiter::with_clock(new, self.clock.clone()).with_debt(self.debt);
            self.renewed.insert(key);
            self.used.remove(&key);
        } else {
            limiter.reconfigure(new).unwrap();
        }
    }

    /// Changes the numbers of all keys in a tier, including keys that are not in use.
    fn change_all(&mut self, tier: usize, new: AnyPolicy) {
        self.policies[tier] = new;
        let known: Vec<u64> = self.keys.keys().copied().collect();
        for key in known {
            if self.keys[&key].0 == tier {
                self.change(key);
            }
        }
    }
}

type Promised = Reservation<ManualClock>;

/// A hold of the limiter and of the table.
struct Held {
    key: u64,
    tier: usize,
    ideal: Hold<ManualClock>,
    seen: Hold<ManualClock>,
}

/// A world of random traffic on few keys, with steps of time of all sizes.
struct World {
    random: Rng,
    seed: u64,
    clock: ManualClock,
    /// The upper bound of a step of the clock.
    step: u64,
    keys: u64,
    changed: AnyPolicy,
    ideal: Ideal,
    keyed: Keyed<u64, ManualClock>,
    /// The era, which determines the tiers of some keys.
    era: Arc<AtomicU64>,
    holds: Vec<Held>,
    reserved: Vec<(Promised, Promised)>,
}

fn tier_of(key: u64, era: u64, tiers: usize) -> usize {
    usize::try_from((key + era) % 7).unwrap() % tiers
}

impl World {
    fn new(seed: u64, policies: Vec<AnyPolicy>, changed: AnyPolicy) -> Self {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        clock.advance(Duration::from_nanos(random.choice([0, 5 * S, 1 << 60]).unwrap()));
        let (era, tiers) = (Arc::new(AtomicU64::new(0)), policies.len());
        let seen_era = Arc::clone(&era);
        let keyed = Keyed::with_tiers(
            policies.clone(),
            move |key: &u64| tier_of(*key, seen_era.load(Ordering::Relaxed), tiers),
            Capacity::for_keys(random.choice([1000, 5000]).unwrap()),
            random.choice([Hashing::FloodSafe, Hashing::Fast]).unwrap(),
            clock.clone(),
        );
        let most = Duration::from_nanos(random.choice([u64::MAX, S, 1 << 40]).unwrap());
        let debt = random.choice([Debt::FORGOTTEN, Debt::CARRIED]).unwrap().at_most(most);
        let ideal = Ideal {
            policies,
            keys: HashMap::new(),
            used: HashSet::new(),
            promised: Vec::new(),
            reserved: Vec::new(),
            renewed: HashSet::new(),
            clock: clock.clone(),
            debt,
        };
        Self {
            step: random.choice([3, MS, S / 3, 3 * S, 1 << 50]).unwrap(),
            keys: random.choice([2, 20, 300]).unwrap(),
            random,
            seed,
            clock,
            changed,
            ideal,
            keyed: keyed.unwrap().with_debt(debt),
            era,
            holds: Vec::new(),
            reserved: Vec::new(),
        }
    }

    /// Returns the limiter of a key. Both sides see the key's tier in the same calls.
    fn ideal_of(&mut self, key: u64) -> Limiter<ManualClock> {
        let tiers = self.ideal.policies.len();
        let limiter = self.ideal.of(key, tier_of(key, self.era.load(Ordering::Relaxed), tiers));
        let _ = self.keyed.remaining(&key);
        limiter
    }

    fn call(&mut self, call: u32) {
        if self.random.u64(..3) == 0 {
            self.clock.advance(Duration::from_nanos(self.random.u64(..self.step)));
        }
        let (key, permits) = (self.random.u64(..self.keys), self.random.u64(..4));
        let renewed = std::mem::take(&mut self.ideal.renewed);
        self.holds.retain(|held| !renewed.contains(&held.key));
        let what = format!("seed {}, call {call}, key {key}, {permits}", self.seed);
        let ideal = self.ideal_of(key);
        match self.random.u64(..52) {
            40..=43 => self.try_with_status(key, permits, &what),
            44 => {
                assert_eq!(ideal.status().ok(), self.keyed.status(&key).ok(), "{what}");
            }
            45..=46 => {
                let ideal_back = ideal.credit(permits).unwrap();
                assert_eq!(self.keyed.credit(&key, permits), Ok(ideal_back), "{what}");
                self.same_remaining(key, &what);
            }
            // The bookkeeping here does not follow a promise whose key is reset.
            47 if !self.ideal.promised.contains(&key) => {
                let was_used = ideal.reset().unwrap();
                assert_eq!(self.keyed.reset(&key), Ok(was_used), "{what}");
                self.ideal.reserved.retain(|&(of, _)| of != key);
                self.same_remaining(key, &what);
            }
            48..=51 => self.charge(key, permits, &what),
            0..=19 => self.try_acquire(key, permits, &what),
            20..=24 => {
                let ideal = ideal.peek(permits).map_err(KeyedError::from);
                assert_eq!(ideal, self.keyed.peek(&key, permits), "{what}");
            }
            25..=29 => self.same_remaining(key, &what),
            // A hold of a key that has a limiter is of that limiter, which goes on with it.
            30 if !self.ideal.promised.contains(&key) => self.hold(key, permits, &what),
            31..=32 if !self.holds.is_empty() => self.commit(permits, &what),
            33 => self.reserve(key, permits.max(1), &what),
            34 if !self.reserved.is_empty() => self.end_reservation(&what),
            35 => {
                self.era.fetch_add(1, Ordering::Relaxed);
            }
            36 => {
                let tier = self.random.usize(..self.ideal.policies.len());
                self.ideal.change_all(tier, self.changed);
                self.keyed.reconfigure_tier(tier, self.changed).unwrap();
            }
            _ => {
                let seen = self.keyed.release(&key, 1);
                assert_eq!(ideal.release(1).unwrap(), seen.unwrap(), "{what}");
            }
        }
    }

    fn same_remaining(&mut self, key: u64, what: &str) {
        let ideal = self.ideal_of(key).remaining();
        assert_eq!(ideal.ok(), self.keyed.remaining(&key).ok(), "{what}: of key {key}");
    }

    fn try_acquire(&mut self, key: u64, permits: u64, what: &str) {
        let ideal = self.ideal_of(key).try_acquire(permits);
        let seen = self.keyed.try_acquire(&key, permits);
        let (Ok(ideal), Ok(seen)) = (ideal, seen) else {
            return assert_eq!(ideal.is_err(), seen.is_err(), "{what}");
        };
        assert_eq!(outcome(ideal), outcome(seen), "{what}");
        self.same_remaining(key, what);
        // A grant of zero permits leaves no trace.
        if permits > 0 && ideal.is_granted() {
            self.ideal.used.insert(key);
        }
    }

    /// Checks that the status returned with a decision equals a status read right after it.
    fn try_with_status(&mut self, key: u64, permits: u64, what: &str) {
        let limiter = self.ideal_of(key);
        let (ideal, seen) =
            (limiter.try_acquire(permits), self.keyed.try_acquire_with_status(&key, permits));
        let (Ok(ideal), Ok((seen, status))) = (ideal, seen) else {
            return assert_eq!(ideal.is_err(), seen.is_err(), "{what}");
        };
        assert_eq!(outcome(ideal), outcome(seen), "{what}");
        assert_eq!(limiter.status().ok(), Some(status), "{what}");
        if permits > 0 && ideal.is_granted() {
            self.ideal.used.insert(key);
        }
    }

    /// Charges, now and then far more than a limit allows.
    fn charge(&mut self, key: u64, permits: u64, what: &str) {
        let permits = permits * self.random.choice([1, 1, 5, 1 << 30]).unwrap();
        let limiter = self.ideal_of(key);
        let ideal = limiter.charge(permits).unwrap();
        if self.random.bool() {
            assert_eq!(self.keyed.charge(&key, permits), Ok(ideal), "{what}");
        } else {
            let (charged, status) = self.keyed.charge_with_status(&key, permits).unwrap();
            assert_eq!(charged, ideal, "{what}");
            assert_eq!(limiter.status().ok(), Some(status), "{what}");
        }
        assert_eq!(limiter.debt().ok(), self.keyed.status(&key).ok().map(|status| status.debt));
        if permits > 0 {
            self.ideal.used.insert(key);
        }
        // A log keeps a debt that is carried as promises.
        if let Ok(Some(wait)) = limiter.peek(1) {
            let at_ns = self.clock.now_ns().saturating_add(ns(wait));
            self.ideal.reserved.push((key, at_ns));
        }
    }

    fn hold(&mut self, key: u64, permits: u64, what: &str) {
        let ttl = Duration::from_nanos(self.random.choice([S, 5 * S, u64::MAX]).unwrap());
        let ideal = self.ideal_of(key).try_hold(permits, ttl);
        let seen = self.keyed.try_hold(&key, permits, ttl);
        match (ideal, seen) {
            (Ok(Ok(ideal)), Ok(Ok(seen))) => {
                assert_eq!(ideal.ends_at(), seen.ends_at(), "{what}");
                if permits > 0 {
                    self.ideal.used.insert(key);
                }
                let tier =
                    tier_of(key, self.era.load(Ordering::Relaxed), self.ideal.policies.len());
                self.holds.push(Held { key, tier, ideal, seen });
            }
            (Ok(Err(ideal)), Ok(Err(seen))) => {
                assert_eq!(ideal.retry_after(), seen.retry_after(), "{what}");
            }
            (ideal, seen) => assert!(ideal.is_err() && seen.is_err(), "{what}"),
        }
    }

    fn commit(&mut self, actual: u64, what: &str) {
        let at = self.random.usize(..self.holds.len());
        let Held { key, tier, ideal, seen } = self.holds.swap_remove(at);
        let _ = self.ideal_of(key);
        let tiers = self.ideal.policies.len();
        // A key that is no longer known is charged in the tier of its hold.
        let is_same = tier == tier_of(key, self.era.load(Ordering::Relaxed), tiers);
        if self.ideal.renewed.contains(&key) || !is_same {
            return;
        }
        assert_eq!(ideal.commit(actual), seen.commit(actual), "{what}: of key {key}");
        if actual > 0 {
            self.ideal.used.insert(key);
        }
        self.same_remaining(key, what);
    }

    fn reserve(&mut self, key: u64, permits: u64, what: &str) {
        let ideal = self.ideal_of(key);
        let limiter = self.keyed.limiter(&key).unwrap();
        let max_wait = Duration::from_secs(1);
        let ours = limiter.reserve_within(permits, max_wait);
        let theirs = ideal.reserve_within(permits, max_wait);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(ns(ours.promised_at()), ns(theirs.promised_at()), "{what}");
                self.ideal.promised.push(key);
                self.ideal.used.insert(key);
                self.reserved.push((ours, theirs));
            }
            (Err(_), Err(_)) => {}
            (_, theirs) => panic!("{what}: {}", theirs.is_ok()),
        }
    }

    fn end_reservation(&mut self, what: &str) {
        let (ours, theirs) = self.reserved.remove(0);
        let key = self.ideal.promised.remove(0);
        if self.random.u64(..2) == 0 {
            assert_eq!(ours.cancel(), theirs.cancel(), "{what}");
        } else {
            self.ideal.reserved.push((key, ns(ours.promised_at())));
            let _ = (ours.keep(), theirs.keep());
        }
    }
}

fn agrees(seed: u64, policies: Vec<impl Into<AnyPolicy>>, changed: impl Into<AnyPolicy>) {
    let (policies, changed) = (policies.into_iter().map(Into::into).collect(), changed.into());
    let mut world = World::new(seed, policies, changed);
    for call in 0..600 {
        world.call(call);
    }
    assert!(world.keyed.len() <= 300, "there are at most 300 keys");
    assert_eq!(world.keyed.overflows(), 0, "seed {seed}");
}

#[test]
fn buckets_answer_as_if_each_had_a_limiter() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let rates = ["1/s", "3/s", "7/10s", "1000/s", "30000001/s", "1/d"];
        let mut policy = || bucket(random.choice(&rates).copied().unwrap(), 1 + random.u64(..6));
        let (policies, changed) = (vec![policy(), policy(), policy()], policy());
        agrees(seed, policies, changed);
    }
}

#[test]
fn other_policies_answer_as_if_each_had_a_limiter() {
    for seed in 0..25 {
        let mut random = Rng::with_seed(seed);
        let period_ns = random.choice([7, MS, S]).unwrap();
        let mut permits = || 1 + random.u64(..6);
        let log = |n| SlidingLog::new(n, Duration::from_nanos(period_ns));
        agrees(seed, vec![log(permits()), log(permits())], log(permits()));
        let log = |n| SlidingLog::new(n, Duration::from_nanos(period_ns)).compact();
        agrees(seed, vec![log(permits())], log(permits()));
        let window = |n| FixedWindow::new(n, Duration::from_nanos(period_ns), Anchor::Epoch);
        agrees(seed, vec![window(permits())], window(permits()));
        let any: [AnyPolicy; 2] =
            [bucket("3/s", permits()).into(), bucket("1/s", permits()).into()];
        agrees(seed, vec![any[0]], any[1]);
    }
}
