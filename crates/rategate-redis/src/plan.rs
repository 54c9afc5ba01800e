//! The limits that a call has to pass, each with the label that its keys have.

use crate::error::LimitError;
use crate::key::check_label;
use crate::limit::Limit;

/// The most limits of one plan.
pub const MAX_LIMITS: usize = 16;

/// From one to [`MAX_LIMITS`] limits, checked once: a call passes all of them or takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    limits: Vec<(String, Limit)>,
}

impl Plan {
    /// These limits. The numbers of one may change later and its states stay, as long as its label and
    /// its kind do. What is used stays used, and what is left is the new allowance less that, from the first call
    /// with the new numbers on. A log keeps its grants as long as the old period says until something is granted
    /// under the new one. Use beyond the new limit is not remembered by a log, and by a bucket up to what a horizon
    /// earns.
    ///
    /// # Errors
    ///
    /// [`LimitError::Label`], [`LimitError::SameLabel`], [`LimitError::HowMany`].
    pub fn new<L: Into<String>>(
        limits: impl IntoIterator<Item = (L, Limit)>,
    ) -> Result<Self, LimitError> {
        let limits: Vec<(String, Limit)> =
            limits.into_iter().map(|(label, limit)| (label.into(), limit)).collect();
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(LimitError::HowMany);
        }
        for (at, (label, _)) in limits.iter().enumerate() {
            check_label(label)?;
            if limits.iter().take(at).any(|(other, _)| other == label) {
                return Err(LimitError::SameLabel);
            }
        }
        Ok(Self { limits })
    }

    /// Label and limit, in order.
    pub(crate) fn limits(&self) -> impl ExactSizeIterator<Item = (&str, &Limit)> + Clone {
        self.limits.iter().map(|(label, limit)| (label.as_str(), limit))
    }

    /// When the first window ends that a grant was made in.
    #[cfg(feature = "client")]
    pub(crate) fn window_ends_us(&self, receipt: &crate::verdict::Receipt) -> Option<u64> {
        let ends = self.limits.iter().zip(&receipt.told);
        ends.filter_map(|((_, limit), told)| limit.window_ends_us(*told)).min()
    }

    /// Whether a decision needs the name of a lease.
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
        let limit = Limit::concurrency(&Concurrency::new(1).unwrap(), 1).unwrap();
        assert_eq!(Plan::new([("a", limit), ("a", limit)]), Err(LimitError::SameLabel));
        assert_eq!(Plan::new([("a b", limit)]), Err(LimitError::Label));
        assert_eq!(Plan::new([("", limit); 0]), Err(LimitError::HowMany));
        assert!(Plan::new([("a", limit), ("b", limit)]).is_ok_and(|plan| plan.holds()));
    }
}
