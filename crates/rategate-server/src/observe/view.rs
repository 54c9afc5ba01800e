//! What is seen of the engine from here: few questions, so that any engine, and a test's stand-in, can answer them.

use std::fmt::Debug;
use std::sync::Arc;

use rategate::Clock;

use crate::engine::{Decided, Engine, Request};
use crate::rule::{Rule, RuleSet};

/// An engine as whoever looks on sees it.
pub trait View: Send + Sync + Debug {
    /// The time by its clock, from the Unix epoch on.
    fn now_ns(&self) -> u64;

    /// The rules in force.
    fn rules(&self) -> Option<Arc<RuleSet>>;

    /// The one of a name, by an index: whoever names it waits no longer where there are many.
    fn rule(&self, name: &str) -> Option<Arc<Rule>>;

    /// Asks it.
    fn ask(&self, request: &Request<'_>) -> Decided;

    /// How much of its memory a rule takes; none where its counters are not here.
    fn taken(&self, rule: &str) -> Option<Taken>;

    /// Hands figures of its own to the recorder of the `metrics` facade. Called before each scrape.
    fn publish(&self) {}
}

/// How much of its memory a rule takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Keys that are in use.
    pub keys: usize,
    /// Newcomers that found no room.
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

    fn ask(&self, request: &Request<'_>) -> Decided {
        self.decide(request)
    }

    fn taken(&self, rule: &str) -> Option<Taken> {
        self.room_of(rule).map(|(keys, overflows)| Taken { keys, overflows })
    }
}
