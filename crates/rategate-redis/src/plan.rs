//! Sets of limits that a call has to pass, each with the label of its keys.

use rategate::store::{PlanError, Receipt, Rule};

use crate::error::LimitError;
use crate::key::check_label;
use crate::limit::Limit;

/// The maximum number of limits of one set.
pub const MAX_LIMITS: usize = 16;
/// The words of a receipt for each limit of a set.
pub(crate) const RECEIPT_WORDS: usize = 3;

/// A set of 1 to [`MAX_LIMITS`] limits, checked once: a call passes all of them or takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    limits: Vec<(String, Limit)>,
    maximum: u64,
}

impl Plan {
    /// Creates a set of limits.
    ///
    /// The numbers of a limit may change later; its states stay as long as its label and its kind
    /// do. Used permits stay used. From the first call with the new numbers on, the permits of the
    /// new limit less the used ones remain. A log keeps its grants for the old period until a grant
    /// is made under the new one. Of use beyond the new limit, a log keeps nothing, and a bucket as
    /// much as a horizon earns.
    ///
    /// # Errors
    ///
    /// [`LimitError::Label`], [`LimitError::SameLabel`], [`LimitError::LimitCount`].
    pub fn new<L: Into<String>>(
        limits: impl IntoIterator<Item = (L, Limit)>,
    ) -> Result<Self, LimitError> {
        let limits: Vec<(String, Limit)> =
            limits.into_iter().map(|(label, limit)| (label.into(), limit)).collect();
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(LimitError::LimitCount);
        }
        for (at, (label, _)) in limits.iter().enumerate() {
            check_label(label)?;
            if limits.iter().take(at).any(|(other, _)| other == label) {
                return Err(LimitError::SameLabel);
            }
        }
        let maximum = limits.iter().map(|(_, limit)| limit.maximum()).min().unwrap_or(0);
        Ok(Self { limits, maximum })
    }

    /// Creates a set of limits as `rategate` has them; one accepted here is accepted by any store
    /// on Redis.
    ///
    /// # Errors
    ///
    /// [`PlanError`], which names the limit and what would be accepted.
    pub fn of_rules(rules: &[(&str, Rule)]) -> Result<Self, PlanError> {
        let of = |label: Option<&str>, error: LimitError| PlanError {
            label: label.map(str::to_owned),
            why: error.to_string(),
        };
        let limits = rules.iter().map(|(label, rule)| {
            let limit = Limit::try_from(rule).map_err(|error| of(Some(label), error))?;
            Ok((*label, limit))
        });
        Self::new(limits.collect::<Result<Vec<_>, _>>()?).map_err(|error| of(None, error))
    }

    /// Returns the maximum number of permits of one request.
    #[must_use]
    pub const fn maximum(&self) -> u64 {
        self.maximum
    }

    /// Returns labels and limits, in order.
    pub(crate) fn limits(&self) -> impl ExactSizeIterator<Item = (&str, &Limit)> + Clone {
        self.limits.iter().map(|(label, limit)| (label.as_str(), limit))
    }

    /// Returns `true` if a receipt has the words of these limits.
    pub(crate) fn is_receipt_of(&self, receipt: &Receipt) -> bool {
        receipt.words().len() == self.limits.len().saturating_mul(RECEIPT_WORDS)
    }

    /// Returns `true` if a decision needs the name of a lease.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.limits.iter().any(|(_, limit)| limit.holds())
    }
}

#[cfg(test)]
mod tests {
    use rategate_core::concurrency::Concurrency;

    use super::*;

    #[test]
    fn labels_are_checked() {
        let limit = Limit::concurrency(&Concurrency::new(1), 1).unwrap();
        assert_eq!(Plan::new([("a", limit), ("a", limit)]), Err(LimitError::SameLabel));
        assert_eq!(Plan::new([("a b", limit)]), Err(LimitError::Label));
        assert_eq!(Plan::new([("", limit); 0]), Err(LimitError::LimitCount));
        assert!(Plan::new([("a", limit), ("b", limit)]).is_ok_and(|plan| plan.holds()));
    }
}
