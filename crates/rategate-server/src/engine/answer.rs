//! Answers of the engine, and their observers.

use std::fmt::{self, Debug};
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;

use rategate::charge::Settled;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::hold_change::HoldChange;
use crate::net::RefusalReason;
use crate::rule::{DisplayLimit, Enforcement, Rule};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `true` if the caller may proceed.
    pub allowed: bool,
    /// The results of the items, in their order.
    pub results: SmallVec<[ItemResult; 1]>,
}

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemResult {
    /// The rule that decided; `None` for an inline limit, and where no rule matched.
    pub rule: Option<Arc<Rule>>,
    /// The limit as it was written, if it is a rule's or came with a descriptor.
    pub display_limit: Option<DisplayLimit>,
    /// The verdict on the item.
    pub verdict: Verdict,
    /// The maximum number of permits that can be taken at once.
    pub limit: u64,
    /// The number of permits available after this call. `None` if only a store knows.
    pub remaining: Option<u64>,
    /// The number of permits by which the limit is exceeded. More than 0 only after a charge.
    pub debt: u64,
    /// The time until none of the limit is in use if no further request comes, in nanoseconds. 0
    /// if none is in use now, `u64::MAX` if it never recovers.
    pub reset_after_ns: u64,
    /// The instant on the store's clock, in ns since 1970, if a store decided.
    pub store_ns: Option<u64>,
    /// The details that only some items have.
    pub detail: Option<Box<Detail>>,
}

/// The details of a result beyond the numbers of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The cost of the usage of the item, which is what it counts.
    pub cost: Option<u64>,
    /// The permits that the reservation of the request holds; of an item of several rules, the most
    /// in any of them, unless they hold the costs of a usage.
    pub held: Option<u64>,
    /// `true` if fewer permits were charged than were used because the state can count no more.
    pub saturated: bool,
    /// The results of all limits, if several decided the item. The item itself has the numbers of
    /// the strictest one: that with the longest wait, or else the one with the least remaining.
    pub parts: Vec<ItemResult>,
}

/// The decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// No rule matches: the item passes uncounted.
    Unmatched,
    /// The limit is unlimited: the item passes uncounted.
    Unlimited,
    /// Another rule of the request replaces the item's own.
    Replaced,
    /// The item fits. The permits are taken if the whole request is allowed and the verb takes.
    Granted,
    /// The item is over the limit.
    Denied {
        /// The time until the same item fits if no other request comes first. `None` where time
        /// cannot help: the permits exceed the capacity, or the limit is 0.
        retry_after_ns: Option<NonZeroU64>,
        /// `true` if the denial is enforced; a shadow rule only records it.
        enforced: bool,
    },
    /// The number of permits that were charged. The others of the item were forgiven: a debt has a
    /// bound, or nothing is counted.
    Charged(u64),
    /// The number of permits that were refunded: 0 in a request that is denied.
    Refunded(u64),
    /// The counters were reset.
    Reset,
    /// A reservation was committed in time, and the difference was settled.
    Committed(#[serde(with = "SettledForm")] Settled),
    /// A reservation was cancelled in time, and as many permits came back.
    Cancelled(u64),
    /// A reservation had ended before, and as many permits were charged.
    Late(u64),
    /// No reservation has the id.
    Unknown,
    /// The store is unavailable, and the rule's fallback decided.
    Unavailable {
        /// `true` if the item passes.
        admitted: bool,
        /// The time until the store is tried again, if the item does not pass.
        retry_after_ns: Option<NonZeroU64>,
    },
}

/// [`Settled`], as files of counters have it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Settled")]
enum SettledForm {
    Even,
    Back { permits: u64 },
    Owed { permits: u64, forgiven: u64 },
}

/// An answer that is available now, or after a store has replied.
pub enum Decided<A = Answer, E = super::EngineError> {
    /// The answer is available now.
    Now(Result<A, E>),
    /// The answer arrives later, within the store's time budget. Dropping the future abandons the
    /// decision.
    Later(Later<A, E>),
}

/// The future of an answer.
pub type Later<A, E = super::EngineError> = Pin<Box<dyn Future<Output = Result<A, E>> + Send>>;

impl<A, E> Decided<A, E> {
    /// Waits for the answer, if necessary, and returns it.
    ///
    /// # Errors
    ///
    /// Returns those of the decision, such as the engine's.
    pub async fn answer(self) -> Result<A, E> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }

    /// Converts the answer, now or when it arrives.
    pub(crate) fn then<B, F>(
        self,
        convert: impl FnOnce(Result<A, E>) -> Result<B, F> + Send + 'static,
    ) -> Decided<B, F>
    where
        A: 'static,
        E: 'static,
    {
        match self {
            Self::Now(answer) => Decided::Now(convert(answer)),
            Self::Later(answer) => Decided::Later(Box::pin(async { convert(answer.await) })),
        }
    }
}

impl Answer {
    /// Returns a denial for which nothing is counted and which has no items.
    pub(crate) fn uncounted_denial() -> Self {
        Self { allowed: false, results: SmallVec::new() }
    }

    /// Replaces an error about capacity by a denial of that many items (decision 0041). Clients
    /// can invent keys and limits, and callers often admit requests on errors, so such an error
    /// must deny.
    ///
    /// # Errors
    ///
    /// Returns any other fault unchanged.
    pub(crate) fn or_denied(
        answer: Result<Self, super::EngineError>,
        items: usize,
    ) -> Result<Self, super::EngineError> {
        match answer {
            Err(error) if error.is_out_of_capacity() => {
                Ok(Self { allowed: false, results: smallvec![ItemResult::WITHOUT_CAPACITY; items] })
            }
            other => other,
        }
    }

    /// Returns the reason under which the call counts as refused, if nothing was counted for it.
    pub(crate) fn refusal(&self) -> Option<RefusalReason> {
        let is_uncounted =
            self.results.iter().all(|result| *result == ItemResult::WITHOUT_CAPACITY);
        (!self.allowed && is_uncounted).then_some(RefusalReason::NoCapacity)
    }
}

impl ItemResult {
    /// An item that no rule limits.
    pub(super) const UNMATCHED: Self = Self {
        rule: None,
        display_limit: None,
        verdict: Verdict::Unmatched,
        limit: u64::MAX,
        remaining: Some(u64::MAX),
        debt: 0,
        reset_after_ns: 0,
        store_ns: None,
        detail: None,
    };

    /// An item that is denied for lack of capacity. Capacity returns as other keys recover, so a
    /// retry makes sense.
    pub(crate) const WITHOUT_CAPACITY: Self = Self {
        rule: None,
        display_limit: None,
        verdict: Verdict::Denied { retry_after_ns: NonZeroU64::new(1_000_000_000), enforced: true },
        limit: 0,
        remaining: Some(0),
        debt: 0,
        reset_after_ns: 1_000_000_000,
        store_ns: None,
        detail: None,
    };

    /// Returns the time until none of the limit is in use, in nanoseconds; `None` if it never
    /// recovers.
    #[must_use]
    pub const fn reset_after(&self) -> Option<u64> {
        if self.reset_after_ns == u64::MAX { None } else { Some(self.reset_after_ns) }
    }

    /// Returns the results of all limits that decided the item, unless it was one.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        self.detail.as_ref().map_or(&[], |detail| &detail.parts)
    }

    /// Returns the cost of the usage of the item.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        self.detail.as_ref()?.cost
    }

    /// Returns the permits that the reservation of the request holds, if it lasts and the item is
    /// counted; of an item of several rules, the most in any of them. Those of a usage hold a cost
    /// each, and have no such number.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.detail.as_ref()?.held
    }

    pub(super) fn set_held(&mut self, permits: u64) {
        self.detail.get_or_insert_default().held = Some(permits);
    }

    /// Returns `true` if the item is over a soft limit, of which clients are told.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        let rule = self.rule.as_ref();
        matches!(self.verdict, Verdict::Denied { enforced: false, .. })
            && rule.is_some_and(|rule| rule.enforcement == Enforcement::Soft)
    }

    /// Returns the word for the verdict in every protocol whose contract has no other.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.is_soft() { "soft" } else { self.verdict.word() }
    }

    /// Returns `true` if the item's rule is not enforced. Clients then receive nothing about it,
    /// unless it is soft.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        (matches!(self.verdict, Verdict::Denied { enforced: false, .. }) && !self.is_soft())
            || self.rule.as_ref().is_some_and(|rule| rule.enforcement == Enforcement::Shadow)
    }
}

impl Verdict {
    /// Returns the word for the verdict in every protocol whose contract has no other.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::Unlimited => "unlimited",
            Self::Replaced => "replaced",
            Self::Granted => "granted",
            Self::Denied { .. } => "denied",
            Self::Charged(_) => "charged",
            Self::Refunded(_) => "refunded",
            Self::Reset => "reset",
            Self::Committed(_) => "committed",
            Self::Cancelled(_) => "cancelled",
            Self::Late(_) => "late",
            Self::Unknown => "unknown",
            Self::Unavailable { .. } => "store_unavailable",
        }
    }

    /// Returns the time until the same item may fit; `None` if it does now, or time cannot help.
    #[must_use]
    pub const fn retry_after_ns(self) -> Option<NonZeroU64> {
        match self {
            Self::Denied { retry_after_ns, .. }
            | Self::Unavailable { admitted: false, retry_after_ns } => retry_after_ns,
            _ => None,
        }
    }

    /// Returns `true` if the item was refused, enforced or not.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::Unavailable { admitted: false, .. })
    }

    /// Returns `true` if a store did not reply.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns `true` if it ends what had ended by its time before.
    pub(crate) const fn is_late(&self) -> bool {
        matches!(self, Self::Late(_))
    }

    /// Returns `true` if the item causes its request to be denied.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(
            self,
            Self::Denied { enforced: true, .. } | Self::Unavailable { admitted: false, .. }
        )
    }
}

impl<A: Debug> Debug for Decided<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// An observer of all rules.
pub trait Observer: Send + Sync + Debug {
    /// Returns the watcher of a rule; of inline limits for `None`. Called when rules are loaded,
    /// again for rules that existed before.
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch>;
}

/// A watcher of one rule.
pub trait Watch: Send + Sync + Debug {
    /// Called after an item was taken, denied, refunded or reset, but not after a peek, at
    /// `now_ns` by the engine's clock. No lock is held. It runs on the path of each decision, so
    /// it should take no longer than the decision itself.
    fn decided(&self, now_ns: u64, key: &[u8], permits: u64, result: &ItemResult);

    /// Called after a reservation began, was denied or ended in the rule, each time once. Other
    /// reservations wait meanwhile, so it should take no longer than a few counters do.
    fn reservation(&self, _change: &HoldChange) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineError;

    #[test]
    fn exhausted_capacity_is_denied_and_other_errors_are_returned() {
        for error in [EngineError::NoCapacity, EngineError::TooManyLimits { max: 31 }] {
            for items in [0, 1, 3] {
                let denied = Answer::or_denied(Err(error.clone()), items).unwrap();
                assert_eq!((denied.allowed, denied.results.len()), (false, items));
                assert!(denied.results.iter().all(|result| result.verdict.is_over()));
                assert_eq!(denied.refusal(), Some(RefusalReason::NoCapacity));
            }
        }
        assert_eq!(Answer::or_denied(Err(EngineError::NotLoaded), 1), Err(EngineError::NotLoaded));
        let counted = ItemResult { limit: 5, ..ItemResult::WITHOUT_CAPACITY };
        assert_eq!(Answer { allowed: false, results: smallvec![counted] }.refusal(), None);
        assert_eq!(Answer { allowed: true, results: SmallVec::new() }.refusal(), None);
    }

    /// The words are part of the protocols: changing one changes what clients read.
    #[test]
    fn words_stay_as_they_are() {
        let verdicts = [
            Verdict::Unmatched,
            Verdict::Unlimited,
            Verdict::Replaced,
            Verdict::Granted,
            Verdict::Denied { retry_after_ns: None, enforced: false },
            Verdict::Charged(1),
            Verdict::Refunded(1),
            Verdict::Reset,
            Verdict::Committed(Settled::Even),
            Verdict::Cancelled(1),
            Verdict::Late(1),
            Verdict::Unknown,
            Verdict::Unavailable { admitted: true, retry_after_ns: None },
        ];
        let words = [
            "unmatched",
            "unlimited",
            "replaced",
            "granted",
            "denied",
            "charged",
            "refunded",
            "reset",
            "committed",
            "cancelled",
            "late",
            "unknown",
            "store_unavailable",
        ];
        assert_eq!(verdicts.map(Verdict::word), words);
    }
}
