//! From Envoy's question to the engine's.

use rategate::Clock;
use smallvec::SmallVec;

use super::ask::{Ask, Wrong};
use crate::engine::{Answer, Decided, Engine, Fault, Item, Request, Target, Verb};
use crate::net::RefusalReason;

/// What decides: the engine, or a test's stand-in for it.
pub trait Decide {
    /// Decides a request.
    fn decide(&self, request: &Request<'_>) -> Decided;

    /// Whether requests count where they fit although they are denied.
    fn counts_denied(&self) -> bool {
        false
    }
}

impl<C: Clock + Clone + 'static> Decide for Engine<C> {
    fn decide(&self, request: &Request<'_>) -> Decided {
        Self::decide(self, request)
    }

    fn counts_denied(&self) -> bool {
        self.settings().count_denied
    }
}

/// Why there is no answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Asked {
    /// It was none.
    #[error("{0}")]
    Wrong(#[from] Wrong),
    /// The engine could not answer.
    #[error("{0}")]
    Fault(#[from] Fault),
}

impl Asked {
    /// Returns the reason for which the call counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::Wrong(_) => RefusalReason::Malformed,
            Self::Fault(_) => RefusalReason::Fault,
        }
    }
}

/// Asks the engine. The answer's parts are those of the descriptors, in their order.
///
/// # Errors
///
/// [`Asked::Wrong`] at once; what the engine says is in [`Decided`].
pub fn ask(engine: &impl Decide, ask: &Ask<'_>) -> Result<Decided, Wrong> {
    if ask.domain.is_empty() {
        return Err(Wrong::NoDomain);
    }
    if ask.descriptors.is_empty() {
        return Err(Wrong::NoDescriptors);
    }
    let items: SmallVec<[Item<'_>; 2]> = ask.items().collect();
    Ok(engine.decide(&Request {
        verb: Verb::Take,
        items: &items,
        counts_denied: engine.counts_denied(),
    }))
}

impl Ask<'_> {
    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let hits = u64::from(self.hits.max(1));
        self.descriptors.iter().map(move |descriptor| Item {
            target: Target::Descriptor {
                domain: self.domain,
                entries: &descriptor.entries,
                limit: descriptor.limit,
            },
            permits: descriptor.hits.unwrap_or(hits),
            refund: descriptor.refund,
        })
    }
}

/// Waits for what a store has to say.
///
/// # Errors
///
/// [`Asked`].
pub(crate) async fn answered(decided: Result<Decided, Wrong>) -> Result<Answer, Asked> {
    Ok(or_denied(decided?.answer().await)?)
}

/// Denies where nothing can be counted for lack of room, without a status for each descriptor.
pub(crate) fn or_denied(answer: Result<Answer, Fault>) -> Result<Answer, Fault> {
    Answer::or_denied(answer, 0)
}
