//! Loads of tasks in one thread, each of which calls again when it has its decision.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rategate::distributed::DecidedBy;
use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::{Count, Limiter, Node};
use crate::job::{Grants, NodeReport, histogram, pairs};

/// The results that the tasks write. One thread runs them all, so no task ever waits for the lock.
struct Found {
    count: Count,
    took_ns: Histogram<u64>,
    paused_longer_ns: u64,
    grants: Grants,
}

/// The state of each task.
#[derive(Clone)]
struct Caller {
    limiter: Limiter,
    keys: Arc<[Vec<u8>]>,
    until_ns: u64,
    pause: Duration,
    found: Arc<Mutex<Found>>,
}

pub(super) fn run(node: Node, tasks: u64, pause: Duration) -> Made<NodeReport> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let from_ns = now_ns();
    let Node { limiter, keys, until_ns, grants } = node;
    let (count, took_ns) = (Count::default(), histogram()?);
    let found = Found { count, took_ns, paused_longer_ns: 0, grants };
    let found = Arc::new(Mutex::new(found));
    let caller = Caller { limiter, keys: keys.into(), until_ns, pause, found: Arc::clone(&found) };
    let tasks: Vec<_> = (0..tasks).map(|task| runtime.spawn(caller.clone().call(task))).collect();
    for task in tasks {
        runtime.block_on(task)?.map_err(|()| "grants cannot be written")?;
    }
    let lasted_ns = now_ns().saturating_sub(from_ns);
    let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
    all.grants.keep()?;
    let (took_ns, paused_longer_ns) = (pairs(&all.took_ns), all.paused_longer_ns);
    let count = mem::take(&mut all.count);
    Ok(NodeReport { took_ns, paused_longer_ns, ..count.report(lasted_ns) })
}

impl Caller {
    /// Calls for one key after another, beginning at a different key in each task.
    async fn call(self, task: u64) -> Result<(), ()> {
        let first = usize::try_from(task).unwrap_or(0) % self.keys.len().max(1);
        let mut keys = self.keys.iter().cycle().skip(first);
        let mut before_ns = now_ns();
        while let (true, Some(key)) = (before_ns < self.until_ns, keys.next()) {
            let decision = self.limiter.try_acquire(key, 1).await;
            let after_ns = now_ns();
            let is_of_store =
                decision.as_ref().is_ok_and(|decision| decision.by() == DecidedBy::Store);
            let is_granted = decision.map(|decision| decision.is_granted()).ok();
            self.found().add(before_ns, after_ns, is_granted)?;
            if self.pause > Duration::ZERO {
                tokio::time::sleep(self.pause).await;
            } else if !is_of_store {
                // A decision without a wait would keep all other tasks from running.
                yield_now().await;
            }
            before_ns = now_ns();
            self.paused(before_ns.saturating_sub(after_ns));
        }
        Ok(())
    }

    fn paused(&self, for_ns: u64) {
        let longer_ns = for_ns.saturating_sub(self.pause.as_nanos() as u64);
        let mut found = self.found();
        found.paused_longer_ns = found.paused_longer_ns.max(longer_ns);
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn add(&mut self, before_ns: u64, after_ns: u64, is_granted: Option<bool>) -> Result<(), ()> {
        self.took_ns.saturating_record(after_ns.saturating_sub(before_ns));
        self.count.decisions += 1;
        match is_granted {
            Some(true) => {
                self.count.granted += 1;
                self.grants.write(before_ns, after_ns).map_err(|_| ())?;
            }
            Some(false) => {}
            None => self.count.faults += 1,
        }
        Ok(())
    }
}
