//! The last denials of each rule, a sample of a few per second, and their log events.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rategate::keyed::{Hashing, Seeds};
use rategate::{Gcra, Limiter, ManualClock};
use serde::Serialize;

use super::lock;
use crate::config::settings::LogKeys;

/// The number of denials that are kept.
const MAX_DENIALS: usize = 32;
/// The minimum time between two recorded denials, in nanoseconds.
const PAUSE_NS: u64 = 100_000_000;
/// The minimum time between two events about a near limit, in nanoseconds.
const NEAR_PAUSE_NS: u64 = 1_000_000_000;

/// A denied item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Denial {
    pub(super) at_ms: u64,
    #[serde(rename = "key")]
    pub(super) name: Box<str>,
    pub(super) permits: u64,
    /// The limit is in use; or it is 0, or the permits exceed it; or the store was unavailable.
    pub(super) why: &'static str,
    /// The time until the item fits, if time can help.
    pub(super) retry_after_ms: Option<u64>,
    pub(super) enforced: bool,
}

/// The last denials of a rule.
#[derive(Debug, Default)]
pub(super) struct Denials {
    last: Mutex<VecDeque<Denial>>,
    next_ns: AtomicU64,
    next_near_ns: AtomicU64,
}

/// The limit on log events of all rules together, and the form of keys in them.
#[derive(Debug)]
pub(super) struct Events {
    keys: LogKeys,
    /// New with each start, so that hashes in a log cannot be compared with those of guessed
    /// keys.
    seeds: Seeds,
    limiter: Option<Limiter<ManualClock>>,
    clock: ManualClock,
}

impl Events {
    /// Allows `burst` events at once, and `per_second` over time.
    pub(super) fn new(per_second: u64, burst: u64, keys: LogKeys) -> Self {
        let clock = ManualClock::new();
        let rate = rategate::Rate::new(per_second, Duration::from_secs(1)).ok();
        let bucket = rate.and_then(|rate| Gcra::new(rate, burst).ok());
        let limiter = bucket.map(|bucket| Limiter::with_clock(bucket, clock.clone()));
        Self { keys, seeds: Seeds::random(Hashing::FloodSafe), limiter, clock }
    }

    /// Returns the hash of a key for the log, if keys are logged as hashes.
    fn hash(&self, key: &[u8]) -> Option<String> {
        let [word, _] = self.seeds.hashed(key).words();
        (self.keys == LogKeys::Hashed).then(|| format!("{word:016x}"))
    }

    /// Returns `true` if one more event may be logged at `now_ns`.
    pub(super) fn may_log(&self, now_ns: u64) -> bool {
        self.clock.set(Duration::from_nanos(now_ns));
        let attempt = self.limiter.as_ref().map(|limiter| limiter.try_acquire(1));
        matches!(attempt, Some(Ok(decision)) if decision.is_granted())
    }
}

impl Denials {
    /// Records and logs a denial, unless one was recorded a moment ago. Only then `denial` is
    /// called.
    #[inline]
    pub(super) fn note(
        &self,
        now_ns: u64,
        rule: &str,
        key: &[u8],
        events: &Events,
        denial: impl FnOnce() -> Denial,
    ) {
        if is_due(&self.next_ns, now_ns, PAUSE_NS) {
            self.record(now_ns, (rule, key), events, denial());
        }
    }

    #[cold]
    fn record(&self, now_ns: u64, (rule, key): (&str, &[u8]), events: &Events, denial: Denial) {
        if tracing::enabled!(target: "rategate", tracing::Level::INFO) && events.may_log(now_ns) {
            let Denial { name, permits, why: reason, retry_after_ms, enforced, .. } = &denial;
            let plain = (events.keys == LogKeys::Plain).then(|| tracing::field::display(name));
            let key_hash = events.hash(key).map(tracing::field::display);
            tracing::info!(
                target: "rategate",
                rule = %rule.escape_debug(),
                key = plain,
                key_hash,
                permits,
                reason,
                retry_after_ms,
                enforced,
                "denied"
            );
        }
        let mut last = lock(&self.last);
        if last.len() >= MAX_DENIALS {
            last.pop_front();
        }
        last.push_back(denial);
    }

    /// Logs that a rule is near its limit, at most once a second.
    #[inline]
    pub(super) fn near(&self, now_ns: u64, rule: &str, events: &Events, left: u64, limit: u64) {
        if is_due(&self.next_near_ns, now_ns, NEAR_PAUSE_NS) {
            log_near(now_ns, rule, events, left, limit);
        }
    }

    /// Returns the denials, the newest last.
    pub(super) fn all(&self) -> Vec<Denial> {
        lock(&self.last).iter().cloned().collect()
    }
}

#[cold]
fn log_near(now_ns: u64, rule: &str, events: &Events, left: u64, limit: u64) {
    if tracing::enabled!(target: "rategate", tracing::Level::INFO) && events.may_log(now_ns) {
        tracing::info!(
            target: "rategate",
            rule = %rule.escape_debug(),
            left,
            limit,
            "near the limit"
        );
    }
}

/// Returns `true` to one caller once `next_ns` has come, and advances it by a pause. If the clock
/// goes back, nothing is due.
#[inline]
fn is_due(next_ns: &AtomicU64, now_ns: u64, pause_ns: u64) -> bool {
    let due_ns = next_ns.load(Ordering::Relaxed);
    now_ns >= due_ns && move_on(next_ns, due_ns, now_ns.saturating_add(pause_ns))
}

#[cold]
fn move_on(next_ns: &AtomicU64, due_ns: u64, then_ns: u64) -> bool {
    next_ns.compare_exchange(due_ns, then_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_denials_are_kept_and_no_more() {
        let (denials, events) = (Denials::default(), Events::new(10, 50, LogKeys::Hashed));
        for nth in 0..100 {
            let at_ns = nth * PAUSE_NS;
            denials.note(at_ns, "rule", b"key", &events, || Denial {
                at_ms: at_ns / 1_000_000,
                name: "key".into(),
                permits: 1,
                why: "never-fits",
                retry_after_ms: None,
                enforced: true,
            });
        }
        let all = denials.all();
        assert_eq!(all.len(), MAX_DENIALS);
        let ends = [all[0].at_ms, all[MAX_DENIALS - 1].at_ms];
        assert_eq!(ends, [68, 99].map(|nth| nth * PAUSE_NS / 1_000_000));
    }
}
