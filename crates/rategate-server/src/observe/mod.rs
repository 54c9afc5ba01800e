//! Observation: figures of each rule, top keys, metrics, and with the feature `dashboard` a page
//! that shows them.
//!
//! The engine reports each decided item to a [`Watch`], which costs some tens of nanoseconds:
//! counters for each thread, a hash of the key, and for a sample of the items the name of the
//! key. All else happens once a second, in [`Observe::tick`], or on request.
//!
//! Everything has a bound, whatever clients send: the number of rules with their own figures, the
//! number of ranked keys of each, and the memory for recorded arrivals, which all rules share.
//! Keys are in no metric's label. Where they are shown they are percent-encoded and cut.

pub mod admin;
#[cfg(feature = "dashboard")]
mod dashboard;
mod denials;
mod holds;
mod metrics;
mod name;
mod record;
mod refusals;
mod series;
#[cfg(feature = "otlp")]
mod spans;
mod status;
mod summary;
mod tally;
mod top_keys;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of threads with counters of their own; as many again are shared.
const MAX_LANES: usize = 32;

pub use self::refusals::ListenerCalls;
#[cfg(feature = "otlp")]
pub use self::spans::Spans;
pub use self::status::{Protocol, ServerStatus, Store};
pub use self::view::{Taken, View};

use self::denials::Events;
use self::record::Record;
use crate::config::settings::LogKeys;
use crate::engine::{Observer, Watch};
use crate::rule::Rule;

/// The maximum number of rules with their own figures. Further ones are counted together.
pub const MAX_RECORDS: usize = 256;
/// The name of the record of all inline limits.
pub const INLINE: &str = "*inline";
/// The name of the record of all further rules.
pub const OTHER: &str = "*other";

/// The maximum number of recorded arrivals of all rules together, of 24 bytes each.
#[cfg(feature = "dashboard")]
const MAX_ARRIVALS: usize = 1 << 20;
/// The maximum rate of events per second about denials and near limits, and their burst.
const EVENTS: (u64, u64) = (10, 50);

/// An observer of all rules, one for a server.
#[derive(Debug)]
pub struct Observe {
    records: Mutex<Records>,
    status: ServerStatus,
    #[cfg(feature = "dashboard")]
    budget: dashboard::Budget,
    events: Arc<Events>,
}

#[derive(Debug)]
struct Records {
    by_name: HashMap<Arc<str>, Arc<Record>>,
    /// The names in the order in which they were first seen.
    order: Vec<Arc<str>>,
    now_ns: u64,
}

impl Observe {
    /// Creates an observer at `now_ns` by the engine's clock.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self::with_log_keys(now_ns, LogKeys::default())
    }

    /// Creates an observer with a form of keys in events.
    #[must_use]
    pub fn with_log_keys(now_ns: u64, keys: LogKeys) -> Self {
        let (per_second, burst) = EVENTS;
        let records = Records { by_name: HashMap::new(), order: Vec::new(), now_ns };
        Self {
            records: Mutex::new(records),
            status: ServerStatus::default(),
            #[cfg(feature = "dashboard")]
            budget: dashboard::Budget::new(MAX_ARRIVALS),
            events: Arc::new(Events::new(per_second, burst, keys)),
        }
    }

    /// Returns the status of the service.
    #[must_use]
    pub const fn status(&self) -> &ServerStatus {
        &self.status
    }

    /// Ends a second, at `now_ns` by the engine's clock, which counts from the Unix epoch. Late
    /// and repeated calls do no harm.
    pub fn tick(&self, now_ns: u64) {
        let records = {
            let mut records = self.lock();
            records.now_ns = records.now_ns.max(now_ns);
            records.drop_idle();
            records.all()
        };
        for record in records {
            record.tick(now_ns);
        }
        self.status.refusals().tick(now_ns);
    }

    /// Returns the records of the rules, in the order in which they were first seen.
    fn records(&self) -> Vec<Arc<Record>> {
        self.lock().all()
    }

    fn record(&self, name: &str) -> Option<Arc<Record>> {
        self.lock().by_name.get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }
}

impl Observer for Observe {
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        let mut records = self.lock();
        let (name, rule) = match rule {
            None => (Arc::from(INLINE), None),
            Some(rule) if records.has_capacity_for(&rule.name) => {
                (Arc::clone(&rule.name), Some(Arc::clone(rule)))
            }
            Some(_) => (Arc::from(OTHER), None),
        };
        if let Some(record) = records.by_name.get(&name).cloned() {
            record.rule.store(rule);
            return record;
        }
        let record = Arc::new(Record::new(
            Arc::clone(&name),
            rule,
            #[cfg(feature = "dashboard")]
            dashboard::Recorder::new(self.budget.clone(), records.now_ns),
            Arc::clone(&self.events),
            records.now_ns,
        ));
        records.by_name.insert(Arc::clone(&name), Arc::clone(&record));
        records.order.push(name);
        record
    }
}

impl Records {
    fn has_capacity_for(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.by_name.len() < MAX_RECORDS
    }

    /// Returns the records of rules as they were first seen, then those of several rules.
    fn all(&self) -> Vec<Arc<Record>> {
        let is_one = |name: &&Arc<str>| ![INLINE, OTHER].contains(&&***name);
        let several = [INLINE, OTHER].map(Arc::from);
        let order = self.order.iter().filter(is_one).chain(&several);
        order.filter_map(|name| self.by_name.get(name).cloned()).collect()
    }

    /// Drops the records of rules that no engine has any more.
    fn drop_idle(&mut self) {
        let by_name = &mut self.by_name;
        self.order.retain(|name| {
            let is_used = by_name.get(name).is_some_and(|record| Arc::strong_count(record) > 1);
            if !is_used {
                by_name.remove(name);
            }
            is_used
        });
    }
}

/// Locks figures, which are consistent even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the Unix second of an instant.
const fn seconds(now_ns: u64) -> u64 {
    now_ns / 1_000_000_000
}
