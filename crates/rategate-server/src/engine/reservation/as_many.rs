//! Holds as many permits as there are, between the minimum and the maximum of each item.
//!
//! # Contract
//!
//! * An item has one number of permits in all rules that are enforced for it: the largest that each
//!   of them has, and its maximum at most. A rule that counts something else, or of which a
//!   reservation holds a share at most, holds that.
//! * It is denied only where the minimum does not fit, and the denial is that of the minimum.
//! * What other callers take meanwhile leads to another try. The number of tries is bounded: the
//!   last is of the minimum.

use std::time::Duration;

use rategate::Clock;

use super::part::{Blocker, Part, TaskHolds, hold_all};
use crate::engine::error::EngineError;

/// The maximum number of tries before that of the minimum.
pub(super) const MAX_TRIES: usize = 4;

/// Holds all parts, or returns the one that denies.
pub(super) fn hold<C: Clock + Clone + 'static>(
    parts: &mut [Part<'_, C>],
    ttl: Duration,
    holds: &mut TaskHolds<C>,
) -> Result<Option<Blocker>, EngineError> {
    for _ in 0..MAX_TRIES {
        if !choose(parts) {
            break;
        }
        if hold_all(parts, ttl, holds)?.is_none() {
            return Ok(None);
        }
    }
    for part in parts.iter_mut() {
        part.permits = part.least;
    }
    hold_all(parts, ttl, holds)
}

/// Chooses the number of permits of each item by what is there. Returns `true` if any is more than
/// the minimum, and none is known to have less.
fn choose<C: Clock + Clone + 'static>(parts: &mut [Part<'_, C>]) -> bool {
    let (mut is_more, mut is_less) = (false, false);
    for at in 0..parts.len() {
        let Some(origin) = parts.get(at).map(|part| part.origin) else { break };
        let mut number = u64::MAX;
        for part in parts.iter().filter(|part| part.origin == origin && part.has_choice()) {
            // Where a full table has no number the minimum is tried, and the reason is told.
            let room = part.counts.remaining().unwrap_or(0);
            is_less |= room < part.least;
            if room < part.most {
                number = number.min(room);
            }
        }
        if let Some(part) = parts.get_mut(at) {
            part.permits = part.of(number);
            is_more |= part.permits > part.least;
        }
    }
    is_more && !is_less
}

/// Chooses the numbers of parts that are not enforced: those of their items.
pub(super) fn choose_as<C: Clock>(enforced: &[Part<'_, C>], others: &mut [Part<'_, C>]) {
    for part in others.iter_mut() {
        let of_item = enforced.iter().filter(|other| other.origin == part.origin);
        let number = of_item.filter(|other| other.has_choice()).map(|other| other.permits).max();
        part.permits = part.of(number.unwrap_or(u64::MAX));
    }
}

impl<C: Clock> Part<'_, C> {
    const fn has_choice(&self) -> bool {
        self.least < self.most
    }

    /// Returns what it holds of an item of which so many permits are held.
    fn of(&self, number: u64) -> u64 {
        number.clamp(self.least, self.most)
    }
}
