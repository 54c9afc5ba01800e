//! The table of keys against one ledger for each key that never forgets: the same answers to everything.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::collections::{HashMap, HashSet};

use rategate::{
    AnyPolicy, Clock, CompactLog, Decision, FixedWindow, Gcra, Grant, Hashing, Keyed, KeyedError,
    Ledger, Limiter, ManualClock, Overflow, Room, SlidingLog, Twinned,
};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// xorshift64*: small, seeded, good enough for traffic.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len().try_into().unwrap())).unwrap()]
    }
}

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

fn told(decision: Decision) -> (bool, u64) {
    match decision {
        Decision::Granted(grant) => (true, grant.remaining()),
        Decision::Denied(denial) => (false, denial.retry_after_ns().map_or(0, u64::from)),
    }
}

/// One limiter for each key, none ever forgotten.
struct Oracle<P: Twinned> {
    policies: Vec<P>,
    keys: HashMap<u64, (usize, Limiter<Ledger<P>, ManualClock>)>,
    /// Keys that have been granted something, and those that somebody has a promise of.
    used: HashSet<u64>,
    promised: Vec<u64>,
    /// Keys whose grants of before are of another limiter.
    renewed: HashSet<u64>,
    clock: ManualClock,
}

impl<P: Twinned> Oracle<P> {
    fn of(&mut self, key: u64, tier: usize) -> &Limiter<Ledger<P>, ManualClock> {
        let fresh = || {
            let policy = self.policies[tier].clone();
            (tier, Limiter::with_clock(policy, self.clock.clone()))
        };
        let (was, limiter) = self.keys.entry(key).or_insert_with(fresh);
        if *was != tier {
            let old = self.policies[*was].clone();
            *was = tier;
            self.change(key, &old);
        }
        &self.keys[&key].1
    }

    /// Who is as good as fresh stays so, with the new numbers.
    fn change(&mut self, key: u64, old: &P) {
        let (tier, limiter) = self.keys.get_mut(&key).unwrap();
        let (new, now_ns) = (self.policies[*tier].clone(), self.clock.now_ns());
        let most = old.remaining(&old.fresh(now_ns), now_ns);
        let is_full = most > 0 && limiter.remaining() == Ok(most);
        if !self.promised.contains(&key) && (is_full || !self.used.contains(&key)) {
            *limiter = Limiter::with_clock(new, self.clock.clone());
            self.renewed.insert(key);
            self.used.remove(&key);
        } else {
            limiter.reconfigure(new).unwrap();
        }
    }
}

/// Random traffic on few keys, with time that passes in all sizes.
fn agrees<P: Twinned + Send>(seed: u64, policies: Vec<P>, changed: &P)
where
    P::State: Send,
{
    let mut random = Random::new(seed);
    let clock = ManualClock::new();
    clock.advance(random.pick(&[0, 5 * S, 1 << 60]));
    let step = random.pick(&[3, MS, S / 3, 3 * S, 1 << 50]);
    let keys = random.pick(&[2, 20, 300]);
    let tiers = policies.len();
    let tier_of = move |key: u64, era: u64| usize::try_from((key + era) % 7).unwrap() % tiers;
    let era = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen_era = era.clone();
    let keyed: Keyed<u64, P, ManualClock> = Keyed::with_tiers(
        policies.clone(),
        move |key: &u64| tier_of(*key, seen_era.load(std::sync::atomic::Ordering::Relaxed)),
        Room::for_keys(random.pick(&[1000, 5000])),
        random.pick(&[Hashing::FloodSafe, Hashing::Fast]),
        clock.clone(),
    )
    .unwrap();
    let mut oracle = Oracle {
        policies,
        keys: HashMap::new(),
        used: HashSet::new(),
        promised: Vec::new(),
        renewed: HashSet::new(),
        clock: clock.clone(),
    };
    let mut grants: Vec<(u64, Grant, Grant)> = Vec::new();
    let mut held = Vec::new();
    for call in 0..600 {
        if random.below(3) == 0 {
            clock.advance(random.below(step));
        }
        let key = random.below(keys);
        let tier = tier_of(key, era.load(std::sync::atomic::Ordering::Relaxed));
        let permits = random.below(4);
        grants.retain(|(key, ..)| !oracle.renewed.contains(key));
        oracle.renewed.clear();
        let what = format!("seed {seed}, call {call}, key {key}, {permits} of tier {tier}");
        // Both hear of the key's tier at the same calls.
        let ideal = oracle.of(key, tier);
        let _ = keyed.remaining(&key);
        match random.below(40) {
            0..=19 => {
                let (ideal, seen) = (ideal.try_acquire(permits), keyed.try_acquire(&key, permits));
                match (ideal, seen) {
                    (Ok(ideal), Ok(seen)) => {
                        assert_eq!(told(ideal), told(seen), "{what}");
                        if let (Decision::Granted(a), Decision::Granted(b)) = (ideal, seen) {
                            grants.push((key, a, b));
                            // Nothing leaves no trace.
                            if permits > 0 {
                                oracle.used.insert(key);
                            }
                        }
                    }
                    (ideal, seen) => assert_eq!(ideal.is_err(), seen.is_err(), "{what}"),
                }
            }
            20..=24 => {
                let ideal = ideal.peek(permits).map_err(KeyedError::from);
                assert_eq!(ideal, keyed.peek(&key, permits), "{what}");
            }
            25..=29 => {
                assert_eq!(ideal.remaining().ok(), keyed.remaining(&key).ok(), "{what}");
            }
            30..=32 if !grants.is_empty() => {
                // Who has been forgotten gives nothing back, and nobody can tell.
                let at = usize::try_from(random.below(grants.len().try_into().unwrap())).unwrap();
                let (key, a, b) = grants.swap_remove(at);
                let tier = tier_of(key, era.load(std::sync::atomic::Ordering::Relaxed));
                oracle.of(key, tier);
                let _ = keyed.remaining(&key);
                if oracle.renewed.contains(&key) {
                    continue;
                }
                let ideal = oracle.of(key, tier);
                let was_full = ideal.remaining();
                let (ideal_back, back) =
                    (ideal.refund(&a, permits).unwrap(), keyed.refund(&key, &b, permits).unwrap());
                // What comes back to a full bucket is told in one way or the other, and changes nothing.
                if back != ideal_back {
                    assert_eq!(ideal.remaining(), was_full, "{what}: of key {key}");
                }
                assert_eq!(
                    ideal.remaining().ok(),
                    keyed.remaining(&key).ok(),
                    "{what}: of key {key}"
                );
            }
            33 => {
                let limiter = keyed.limiter(&key).unwrap();
                let ours =
                    limiter.reserve_within(permits.max(1), std::time::Duration::from_secs(1));
                let theirs =
                    ideal.reserve_within(permits.max(1), std::time::Duration::from_secs(1));
                match (ours, theirs) {
                    (Ok(ours), Ok(theirs)) => {
                        assert_eq!(ours.start_ns(), theirs.start_ns(), "{what}");
                        held.push((ours, theirs));
                        oracle.promised.push(key);
                        oracle.used.insert(key);
                    }
                    (ours, theirs) => assert_eq!(ours.is_err(), theirs.is_err(), "{what}"),
                }
            }
            34 if !held.is_empty() => {
                let (ours, theirs) = held.remove(0);
                oracle.promised.remove(0);
                if random.below(2) == 0 {
                    assert_eq!(ours.cancel(), theirs.cancel(), "{what}");
                } else {
                    let _ = (ours.keep(), theirs.keep());
                }
            }
            35 => {
                era.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            36 => {
                // Everybody in the tier, also those who do not ask in a long while.
                let tier = usize::try_from(random.below(tiers.try_into().unwrap())).unwrap();
                let old = std::mem::replace(&mut oracle.policies[tier], changed.clone());
                let known: Vec<u64> = oracle.keys.keys().copied().collect();
                for key in known {
                    if oracle.keys[&key].0 == tier {
                        oracle.change(key, &old);
                    }
                }
                keyed.reconfigure_tier(tier, changed.clone()).unwrap();
            }
            _ => {
                let (a, b) = (ideal.release(1).unwrap(), keyed.release(&key, 1).unwrap());
                assert_eq!(a, b, "{what}");
            }
        }
    }
    assert!(keyed.len() <= 300, "no more keys than there are");
    assert_eq!(keyed.overflows(), 0, "seed {seed}");
}

#[test]
fn buckets_answer_as_if_each_had_a_limiter() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let rates = ["1/s", "3/s", "7/10s", "1000/s", "30000001/s", "1/d"];
        let mut policy = || bucket(random.pick(&rates), 1 + random.below(6));
        let (policies, changed) = (vec![policy(), policy(), policy()], policy());
        agrees(seed, policies, &changed);
    }
}

#[test]
fn other_policies_answer_as_if_each_had_a_limiter() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let period_ns = random.pick(&[7, MS, S]);
        let mut permits = || 1 + random.below(6);
        let log = |n| SlidingLog::new(n, period_ns).unwrap();
        agrees(seed, vec![log(permits()), log(permits())], &log(permits()));
        let log = |n| CompactLog::new(n, period_ns).unwrap();
        agrees(seed, vec![log(permits())], &log(permits()));
        let window = |n| FixedWindow::new(n, period_ns, rategate::Anchor::Epoch).unwrap();
        agrees(seed, vec![window(permits())], &window(permits()));
        let any: [AnyPolicy; 2] =
            [bucket("3/s", permits()).into(), bucket("1/s", permits()).into()];
        agrees(seed, vec![any[0]], &any[1]);
    }
}

/// In a table as full as can be, some keys find no slot near their home. Strangers are turned away without a look
/// at these, but none of them is taken for a stranger.
#[test]
fn a_flood_passes_keys_without_a_slot_by() {
    const KEYS: u64 = 16 * 1638;
    let clock = ManualClock::new();
    let room = Room::for_keys(KEYS.try_into().unwrap()).or_else(Overflow::Refuse);
    let keyed: Keyed<u64, Gcra, _> = Keyed::with_clock(bucket("1/h", 2), room, clock.clone());
    let passes = |key: u64| keyed.try_acquire(&key, 1).map(|decision| decision.is_granted());
    assert!((0..KEYS).all(|key| passes(key) == Ok(true)), "there is room for all");
    let strangers =
        |turned_away| (1 << 40..(1 << 40) + 4 * KEYS).all(|key| passes(key) == turned_away);
    assert!(strangers(Err(KeyedError::TableFull)));
    assert!((0..KEYS).all(|key| passes(key) == Ok(true)), "all are known");
    assert!(strangers(Err(KeyedError::TableFull)));
    assert!((0..KEYS).all(|key| passes(key) == Ok(false)), "and what they have taken");
    assert_eq!(keyed.len(), usize::try_from(KEYS).unwrap());
    // Nobody would miss them three hours later: each of half as many others finds a place.
    clock.advance(3 * 3600 * S);
    assert!((0..KEYS / 2).all(|key| passes((1 << 41) + key) == Ok(true)), "room again");
}
