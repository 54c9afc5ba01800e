//! What is going on: figures of each rule, the keys that stand out, metrics, and a page that shows them.
//!
//! The engine tells a [`Watch`] of each decided item, which costs some tens of nanoseconds:
//! counters in lanes of each thread, a hash of the key, and for few of the items a look at who it was. All else
//! happens once a second, in [`Observe::tick`], or when somebody asks.
//!
//! Everything has a bound, whatever comes from outside: so many rules have figures of their own, so many keys of each
//! are ranked, arrivals are recorded in a room that all rules share. Keys are in no metric's label; where they are
//! shown they are percent-encoded and cut.

pub mod admin;
mod board;
mod denials;
mod lanes;
mod metrics;
mod name;
mod record;
mod refusals;
mod series;
#[cfg(feature = "otlp")]
mod spans;
mod status;
mod tally;
mod tape;
mod view;
mod waits;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use self::refusals::ListenerCalls;
#[cfg(feature = "otlp")]
pub use self::spans::Spans;
pub use self::status::{Protocol, Status, Store};
pub use self::view::{Taken, View};

use self::denials::Events;
use self::record::Record;
use self::tape::Budget;
use crate::config::settings::LogKeys;
use crate::engine::{Observer, Watch};
use crate::rule::Rule;

/// The most rules that have figures of their own; further ones are counted together.
pub const MOST_RULES: usize = 256;
/// What the limits that come with calls are called together. No rule is, as no name may begin so.
pub const INLINE: &str = "*inline";
/// What further rules are called together.
pub const OTHER: &str = "*other";

/// The most recorded arrivals of all rules together, of 24 bytes each.
const MOST_ARRIVALS: usize = 1 << 20;
/// The most events a second about denials and near limits, and at once.
const EVENTS: (u64, u64) = (10, 50);

/// Looks on at all rules. One for a server.
#[derive(Debug)]
pub struct Observe {
    records: Mutex<Records>,
    status: Status,
    budget: Budget,
    events: Arc<Events>,
}

#[derive(Debug)]
struct Records {
    by_name: HashMap<Arc<str>, Arc<Record>>,
    /// Names in the order in which they were first seen.
    order: Vec<Arc<str>>,
    now_ns: u64,
}

impl Observe {
    /// Nothing has been seen, at `now_ns` by the engine's clock.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self::with_log_keys(now_ns, LogKeys::default())
    }

    /// Nothing has been seen, and events name keys as `keys` says.
    #[must_use]
    pub fn with_log_keys(now_ns: u64, keys: LogKeys) -> Self {
        let (per_second, burst) = EVENTS;
        let records = Records { by_name: HashMap::new(), order: Vec::new(), now_ns };
        Self {
            records: Mutex::new(records),
            status: Status::default(),
            budget: Budget::new(MOST_ARRIVALS),
            events: Arc::new(Events::new(per_second, burst, keys)),
        }
    }

    /// How the service does.
    #[must_use]
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// A second is over, at `now_ns` by the engine's clock, which counts from the Unix epoch. Who comes late or twice
    /// does no harm.
    pub fn tick(&self, now_ns: u64) {
        let records = {
            let mut records = self.lock();
            records.now_ns = records.now_ns.max(now_ns);
            records.forget_idle();
            records.all()
        };
        for record in records {
            record.tick(now_ns);
        }
        self.status.refusals().tick(now_ns);
    }

    /// What is known of each rule, in the order in which they were first seen.
    fn records(&self) -> Vec<Arc<Record>> {
        self.lock().all()
    }

    fn record(&self, name: &str) -> Option<Arc<Record>> {
        self.lock().by_name.get(name).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Observe {
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        let mut records = self.lock();
        let (name, rule) = match rule {
            None => (Arc::from(INLINE), None),
            Some(rule) if records.has_room_for(&rule.name) => {
                (Arc::clone(&rule.name), Some(Arc::clone(rule)))
            }
            Some(_) => (Arc::from(OTHER), None),
        };
        if let Some(record) = records.by_name.get(&name).cloned() {
            record.rule.store(rule);
            return record;
        }
        let (budget, events) = (self.budget.clone(), Arc::clone(&self.events));
        let record = Record::new(Arc::clone(&name), rule, budget, events, records.now_ns);
        let record = Arc::new(record);
        records.by_name.insert(Arc::clone(&name), Arc::clone(&record));
        records.order.push(name);
        record
    }
}

impl Records {
    fn has_room_for(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.by_name.len() < MOST_RULES
    }

    /// Rules as they were first seen, and after them what stands for several.
    fn all(&self) -> Vec<Arc<Record>> {
        let is_one = |name: &&Arc<str>| ![INLINE, OTHER].contains(&&***name);
        let several = [INLINE, OTHER].map(Arc::from);
        let order = self.order.iter().filter(is_one).chain(&several);
        order.filter_map(|name| self.by_name.get(name).cloned()).collect()
    }

    /// Forgets rules that no engine has any more.
    fn forget_idle(&mut self) {
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

/// The Unix second of an instant.
const fn seconds(now_ns: u64) -> u64 {
    now_ns / 1_000_000_000
}
