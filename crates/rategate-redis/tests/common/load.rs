//! Threads that send requests continuously, and the replies they received.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rategate::store::{Store, StoreError, StoreExt, Verdict};
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::client::{self, Config, RedisStore};
use rategate_redis::plan::Plan;

use rategate_testkit::redis::Server;

pub(crate) fn key(name: &str) -> Arc<[u8]> {
    Arc::from(name.as_bytes())
}

pub(crate) fn permits(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

pub(crate) fn config(server: &Server) -> Config {
    Config::server(at(server.port())).prefix("t")
}

pub(crate) fn at(port: u16) -> client::Server {
    client::Server::tcp("127.0.0.1", port)
}

pub(crate) fn open(config: Config) -> Arc<RedisStore> {
    Arc::new(RedisStore::open(config).unwrap())
}

/// Creates a limit of `max_permits` permits in ten minutes, longer than any test: `max_permits`
/// bounds all grants.
pub(crate) fn plan(store: &Arc<RedisStore>, max_permits: u64) -> Arc<Plan> {
    let log = SlidingLog::new(max_permits, Duration::from_secs(600));
    Arc::new(store.plan(&[("log", log.into())]).unwrap())
}

pub(crate) fn decide(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    name: &str,
) -> Result<bool, StoreError> {
    let verdict = store.decide(plan, &key(name), NonZeroU64::MIN).wait()?;
    Ok(matches!(verdict, Verdict::Granted(_)))
}

/// Sends requests until the store answers again.
pub(crate) fn recovers(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    name: &str,
    within: Duration,
) -> bool {
    let start = Instant::now();
    loop {
        match decide(store, plan, name) {
            Ok(is_granted) => return is_granted,
            Err(fault) => {
                assert!(start.elapsed() < within, "not back within {within:?}: {fault:?}");
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a condition holds.
pub(crate) fn eventually(within: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < within, "{what}: not within {within:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The replies that callers received.
#[derive(Debug, Default)]
pub(crate) struct LoadOutcome {
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    pub(crate) faults: Vec<StoreError>,
    pub(crate) took: Vec<Duration>,
}

impl LoadOutcome {
    /// Returns the 99.9th percentile of the latencies, and the maximum.
    pub(crate) fn slowest(&mut self) -> (Duration, Duration) {
        self.took.sort_unstable();
        let at = self.took.len() * 999 / 1_000;
        let last = self.took.last().copied().unwrap_or_default();
        (self.took.get(at).copied().unwrap_or_default(), last)
    }

    fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.denied += other.denied;
        self.faults.extend(other.faults);
        self.took.extend(other.took);
    }
}

/// Runs callers in threads over `keys` keys while `happens` runs.
pub(crate) fn under_load(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    keys: u64,
    happens: impl FnOnce(),
) -> LoadOutcome {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..6_u64)
            .map(|caller| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut outcome, mut call_number) = (LoadOutcome::default(), caller);
                    while !is_over.load(Ordering::Relaxed) {
                        call_number += 1;
                        let start = Instant::now();
                        match decide(store, plan, &format!("k{}", call_number % keys)) {
                            Ok(true) => outcome.granted += 1,
                            Ok(false) => outcome.denied += 1,
                            Err(fault) => outcome.faults.push(fault),
                        }
                        outcome.took.push(start.elapsed());
                        // An unavailable store answers at once.
                        thread::sleep(Duration::from_micros(300));
                    }
                    outcome
                })
            })
            .collect();
        happens();
        is_over.store(true, Ordering::Relaxed);
        let mut all = LoadOutcome::default();
        for caller in callers {
            all.add(caller.join().unwrap());
        }
        all
    })
}
