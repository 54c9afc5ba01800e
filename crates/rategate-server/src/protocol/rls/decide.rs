//! The operations of the engine that Envoy's requests need.

use std::time::Duration;

use rategate::Clock;
use smallvec::SmallVec;

use crate::engine::{Cost, Decided, Engine, EngineError, Item, Request, Reserved, UniqueId, Verb};

/// A decider of requests: the engine, or a stand-in for tests.
pub trait Decide {
    /// Decides a request.
    fn decide(&self, request: &Request<'_>) -> Decided;

    /// Decides an operation under an id. By default there are no such operations.
    fn decide_once(
        &self,
        _id: UniqueId,
        _operation: Operation,
        _items: &[Item<'_>],
    ) -> Decided<Reserved> {
        Decided::Now(Err(EngineError::NotFor("nothing is remembered under an id")))
    }

    /// Returns `true` if denied requests count in the limits where they would fit.
    fn counts_denied(&self) -> bool {
        false
    }
}

/// An operation under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request that counts once.
    Once(Verb),
    /// A reservation that ends by itself after this time.
    Reserve(Option<Duration>),
    /// The end of a reservation, with what was used.
    Commit {
        /// The items of which as much was used as is held, whatever they say: bit *n* for item *n*.
        as_held: u64,
    },
    /// The end of a reservation of which nothing was used.
    Cancel,
}

impl Operation {
    /// Returns `true` for an end that states what was used.
    pub(super) const fn is_commit(self) -> bool {
        matches!(self, Self::Commit { .. })
    }
}

impl<C: Clock + Clone + 'static> Decide for Engine<C> {
    fn decide(&self, request: &Request<'_>) -> Decided {
        Self::decide(self, request)
    }

    fn decide_once(
        &self,
        id: UniqueId,
        operation: Operation,
        items: &[Item<'_>],
    ) -> Decided<Reserved> {
        match operation {
            Operation::Once(verb) => {
                let counts_denied = self.counts_denied();
                self.once(id, &Request { verb, items, counts_denied })
            }
            Operation::Reserve(ttl) => self.reserve(id, ttl, items),
            Operation::Commit { as_held } => {
                let costs = items.iter().zip(0..).map(|(item, nth)| {
                    let is_as_held = as_held.checked_shr(nth).is_some_and(|bits| bits & 1 == 1);
                    let permits = (!is_as_held).then_some(item.permits);
                    Cost { target: item.target, permits, usage: None }
                });
                self.commit(id, &costs.collect::<SmallVec<[_; 2]>>())
            }
            Operation::Cancel => {
                let targets = items.iter().map(|item| item.target);
                self.cancel(id, &targets.collect::<SmallVec<[_; 2]>>())
            }
        }
    }

    fn counts_denied(&self) -> bool {
        self.settings().count_denied
    }
}
