//! The observer's view of the engine: few methods, so that any engine, or a stand-in of a test,
//! can implement it.

use std::fmt::Debug;
use std::sync::Arc;

use rategate::Clock;

use crate::engine::{Decided, Engine, Request, ReservationCounts};
use crate::rule::{Rule, RuleSet};

/// An engine as its observers see it.
pub trait View: Send + Sync + Debug {
    /// Returns the time by its clock, from the Unix epoch on, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Returns the rules in force.
    fn rules(&self) -> Option<Arc<RuleSet>>;

    /// Returns a rule by its name. Uses an index, so that many rules do not make it slow.
    fn rule(&self, name: &str) -> Option<Arc<Rule>>;

    /// Decides a request.
    fn evaluate(&self, request: &Request<'_>) -> Decided;

    /// Returns the use of a rule's table in this process, or `None` if no rule has this name.
    fn taken(&self, rule: &str) -> Option<Taken>;

    /// Returns the number of permits in flight of a rule with one counter in this process.
    fn in_flight(&self, _rule: &str) -> Option<u64> {
        None
    }

    /// Returns the numbers of reservations.
    fn reservations(&self) -> ReservationCounts {
        ReservationCounts::default()
    }
}

/// The use of a rule's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The number of keys in use.
    pub keys: usize,
    /// The number of unknown keys that found the table full.
    pub overflows: u64,
}

impl<C: Clock + Clone + 'static> View for Engine<C> {
    fn now_ns(&self) -> u64 {
        self.clock().now_ns()
    }

    fn rules(&self) -> Option<Arc<RuleSet>> {
        self.rules()
    }

    fn rule(&self, name: &str) -> Option<Arc<Rule>> {
        self.rule_named(name)
    }

    fn evaluate(&self, request: &Request<'_>) -> Decided {
        self.decide(request)
    }

    fn taken(&self, rule: &str) -> Option<Taken> {
        self.table_usage(rule).map(|(keys, overflows)| Taken { keys, overflows })
    }

    fn in_flight(&self, rule: &str) -> Option<u64> {
        self.in_flight(rule)
    }

    fn reservations(&self) -> ReservationCounts {
        self.reservation_counts()
    }
}
