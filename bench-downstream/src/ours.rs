//! The library's limiters that no other bench has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rategate::keyed::Capacity;
use rategate::policy::Mode;
use rategate::wait::{CancelToken, Wake};
use rategate::{Clock, Gcra, Keyed, Limiter, Rate, TwoTimeline};

use crate::engines::{Made, PLENTY_PER_S, try_one};
use crate::harness::Contender;
use crate::{Paced, key};

/// The interval at which another thread sets a cached clock.
pub(crate) const KEPT_EVERY: Duration = Duration::from_millis(1);

/// A clock that another thread sets, so that reading it costs a load.
#[derive(Clone, Debug)]
struct KeptClock(Arc<AtomicU64>);

impl KeptClock {
    fn start() -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let (kept, from): (Weak<AtomicU64>, _) = (Arc::downgrade(&now_ns), Instant::now());
        thread::spawn(move || {
            while let Some(now_ns) = kept.upgrade() {
                let since_ns = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
                now_ns.store(since_ns, Ordering::Relaxed);
                thread::sleep(KEPT_EVERY);
            }
        });
        Self(now_ns)
    }
}

impl Clock for KeptClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self, until_ns: u64, _cancel: &CancelToken) -> Wake {
        thread::sleep(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())));
        Wake::Due
    }
}

pub(crate) fn average_on_kept_clock() -> Contender<'static> {
    let policy = TwoTimeline::new(Rate::per_second(PLENTY_PER_S), Mode::Average, None);
    let limiter = Limiter::with_clock(policy, KeptClock::start());
    Contender::new("average, cached clock", move || try_one(&limiter))
}

/// Returns a table in which each key has taken a thousand permits, so that none is evicted.
pub(crate) fn keyed(keys: u64) -> Made<Keyed<u64, Gcra>> {
    let policy = Gcra::new(Rate::per_second(1), 30_000_000)?;
    let table = Keyed::with_capacity(policy, Capacity::for_keys(usize::try_from(keys)?));
    for number in 0..keys {
        if !table.try_acquire(&key(number), 1_000)?.is_granted() {
            return Err("a key was denied while the table was filled".into());
        }
    }
    Ok(table)
}

/// Returns a call that waits for the next permit.
pub(crate) fn paced(per_s: u32) -> Made<Paced> {
    let limiter = Limiter::new(Gcra::new(Rate::per_second(per_s.into()), 1)?);
    let start = move || {
        let _grant = limiter.acquire(1).expect("one permit fits");
    };
    Ok(("gcra, acquire", Box::new(start)))
}
