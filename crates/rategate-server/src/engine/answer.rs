//! What the engine answers.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::net::RefusalReason;
use crate::rule::{Enforcement, Rule, Shown};

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the caller may go on.
    pub allowed: bool,
    /// What became of each item, in their order.
    pub parts: SmallVec<[Part; 1]>,
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The rule that it came under; none for an inline limit, and where no rule matched.
    pub rule: Option<Arc<Rule>>,
    /// How the limit was written, where it is a rule's or the caller's own of a descriptor.
    pub shown: Option<Shown>,
    /// What was decided.
    pub verdict: Verdict,
    /// The most permits that can be taken at once.
    pub limit: u64,
    /// How many could be taken now, after this call. `None` where only a store knows.
    pub remaining: Option<u64>,
    /// How long until nothing of the limit is in use any more, if nobody else comes, in ns; 0 if nothing is, `u64::MAX`
    /// where that never comes.
    pub reset_after_ns: u64,
}

/// What was decided about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No rule is about it: it passes uncounted.
    Unmatched,
    /// Everything passes, uncounted.
    Unlimited,
    /// Another rule of the request stands in for its own.
    Replaced,
    /// It fits. The permits are taken if the whole request is allowed, and the verb takes.
    Granted,
    /// It is over the limit.
    Denied {
        /// How long until the same item fits, if nobody else comes first. `None` where time cannot help: there are more permits than can
        /// ever be taken at once, or nothing is allowed.
        retry_after_ns: Option<NonZeroU64>,
        /// Whether it counts: a shadow rule only takes note.
        enforced: bool,
    },
    /// So many permits went back: none in a request that is denied.
    Refunded(u64),
    /// What was counted is forgotten.
    Reset,
    /// The place of the counters could not be asked, and the rule says what to do then.
    Gone {
        /// Whether it passes.
        admitted: bool,
        /// How long until the store is asked again, if it does not pass.
        retry_after_ns: Option<NonZeroU64>,
    },
}

/// An answer now, or when a store has been asked.
pub enum Decided {
    /// Now.
    Now(Result<Answer, super::Fault>),
    /// Later, within the store's time budget. Whoever drops it gives up the decision.
    Later(Pin<Box<dyn Future<Output = Result<Answer, super::Fault>> + Send>>),
}

impl Decided {
    /// The answer, when it is there.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub async fn answer(self) -> Result<Answer, super::Fault> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}

impl Answer {
    /// A denial that nothing is counted for, and that says nothing of the items.
    pub(crate) fn uncounted_denial() -> Self {
        Self { allowed: false, parts: SmallVec::new() }
    }

    /// Denies where there is no room to count (decision 0041): clients can make up keys and limits, and callers let pass what they get an
    /// error for. The answer tells of so many items.
    ///
    /// # Errors
    ///
    /// Any other fault.
    pub(crate) fn or_denied(
        answer: Result<Self, super::Fault>,
        items: usize,
    ) -> Result<Self, super::Fault> {
        match answer {
            Err(fault) if fault.is_of_room() => {
                Ok(Self { allowed: false, parts: smallvec![Part::WITHOUT_ROOM; items] })
            }
            other => other,
        }
    }

    /// Returns the reason for which the call counts as refused, if nothing was counted for it.
    pub(crate) fn refusal(&self) -> Option<RefusalReason> {
        let is_uncounted = self.parts.iter().all(|part| *part == Part::WITHOUT_ROOM);
        (!self.allowed && is_uncounted).then_some(RefusalReason::NoRoom)
    }
}

impl Part {
    /// An item that is denied because there is no room to count it. Room comes as other keys recover, so asking again makes sense.
    pub(crate) const WITHOUT_ROOM: Self = Self {
        rule: None,
        shown: None,
        verdict: Verdict::Denied { retry_after_ns: NonZeroU64::new(1_000_000_000), enforced: true },
        limit: 0,
        remaining: Some(0),
        reset_after_ns: 1_000_000_000,
    };

    /// How long until nothing of the limit is in use any more, in ns; none if that never comes by itself.
    #[must_use]
    pub const fn reset_after(&self) -> Option<u64> {
        if self.reset_after_ns == u64::MAX { None } else { Some(self.reset_after_ns) }
    }

    /// Whether its rule denies nobody: then clients are not told of it.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        matches!(self.verdict, Verdict::Denied { enforced: false, .. })
            || self.rule.as_ref().is_some_and(|rule| rule.enforcement == Enforcement::Shadow)
    }
}

impl Verdict {
    /// The word for it, in every protocol that has one and says nothing else in its contract.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::Unlimited => "unlimited",
            Self::Replaced => "replaced",
            Self::Granted => "granted",
            Self::Denied { .. } => "denied",
            Self::Refunded(_) => "refunded",
            Self::Reset => "reset",
            Self::Gone { .. } => "store_gone",
        }
    }

    /// Returns how long until the same item may fit; `None` if it does now, or time cannot help.
    #[must_use]
    pub const fn retry_after_ns(self) -> Option<NonZeroU64> {
        match self {
            Self::Denied { retry_after_ns, .. }
            | Self::Gone { admitted: false, retry_after_ns } => retry_after_ns,
            _ => None,
        }
    }

    /// Whether it was refused, be that enforced or not.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::Gone { admitted: false, .. })
    }

    /// Whether the item stands in the way of its request.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Denied { enforced: true, .. } | Self::Gone { admitted: false, .. })
    }
}

impl std::fmt::Debug for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Fault;

    #[test]
    fn what_there_is_no_room_for_is_denied_and_other_faults_are_told() {
        for fault in [Fault::NoRoom, Fault::TooManyLimits { most: 31 }] {
            for items in [0, 1, 3] {
                let denied = Answer::or_denied(Err(fault.clone()), items).unwrap();
                assert_eq!((denied.allowed, denied.parts.len()), (false, items));
                assert!(denied.parts.iter().all(|part| part.verdict.is_over()));
                assert_eq!(denied.refusal(), Some(RefusalReason::NoRoom));
            }
        }
        assert_eq!(Answer::or_denied(Err(Fault::NotLoaded), 1), Err(Fault::NotLoaded));
        let counted = Part { limit: 5, ..Part::WITHOUT_ROOM };
        assert_eq!(Answer { allowed: false, parts: smallvec![counted] }.refusal(), None);
        assert_eq!(Answer { allowed: true, parts: SmallVec::new() }.refusal(), None);
    }

    /// They go over the wire: whoever changes one changes what clients read.
    #[test]
    fn words_stay_as_they_are() {
        let verdicts = [
            Verdict::Unmatched,
            Verdict::Unlimited,
            Verdict::Replaced,
            Verdict::Granted,
            Verdict::Denied { retry_after_ns: None, enforced: false },
            Verdict::Refunded(1),
            Verdict::Reset,
            Verdict::Gone { admitted: true, retry_after_ns: None },
        ];
        let words = [
            "unmatched",
            "unlimited",
            "replaced",
            "granted",
            "denied",
            "refunded",
            "reset",
            "store_gone",
        ];
        assert_eq!(verdicts.map(Verdict::word), words);
    }
}
