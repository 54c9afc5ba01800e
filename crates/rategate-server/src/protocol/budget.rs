//! A budget of each HTTP/2 connection for frames that request no decision.
//!
//! Such frames are those about the connection itself, reset streams and refused streams. Decisions
//! and time refill the budget.

use std::time::Instant;

use rategate_protocol::http2::Reason;

/// The initial and maximum budget.
const MAX_BUDGET: u32 = 1024;
/// The amount that a decision adds. Each second adds one, so a client may send occasional
/// keep-alives for ever.
const EARNED: u32 = 16;
/// The number of written reply bytes that add one. Window updates of a few hundred bytes then pay
/// for themselves, and acknowledgements of pings and settings do not.
const WRITTEN: usize = 256;
/// The cost of a reset stream. There can be hardly more resets than decisions.
pub(crate) const RESET: u32 = 12;

/// The error for a cost that exceeds the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many frames that request nothing")]
pub(crate) struct Overspent;

impl From<Overspent> for Reason {
    fn from(_: Overspent) -> Self {
        Self::EnhanceYourCalm
    }
}

#[derive(Debug)]
pub(crate) struct Budget {
    left: u32,
    /// The number of written bytes that have not yet added to the budget.
    written: usize,
    /// The instant at which time last added to the budget.
    filled: Instant,
}

impl Budget {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { left: MAX_BUDGET, written: 0, filled: now }
    }

    /// Charges a frame that requests no decision. Running out of budget ends the connection.
    pub(crate) fn spend(&mut self, cost: u32) -> Result<(), Overspent> {
        self.left = self.left.checked_sub(cost).ok_or(Overspent)?;
        Ok(())
    }

    /// Adds the amount for one decision.
    pub(crate) fn earn(&mut self) {
        self.left = self.left.saturating_add(EARNED).min(MAX_BUDGET);
    }

    /// Adds the amount for `bytes` of replies written, which the peer has to acknowledge by window
    /// updates.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
        let earned = self.written.checked_div(WRITTEN).unwrap_or(0);
        self.written = self.written.checked_rem(WRITTEN).unwrap_or(0);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(earned).min(MAX_BUDGET);
    }

    /// Adds the amount for the time until `now`.
    pub(crate) fn wait(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            self.filled = now;
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(MAX_BUDGET);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_adds_more_than_there_was_at_first() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        budget.wait(now + Duration::from_hours(1));
        budget.earn();
        budget.spend(MAX_BUDGET).unwrap();
        assert_eq!(budget.spend(1), Err(Overspent));
    }

    #[test]
    fn resets_cost_less_than_decisions_bring_and_time_brings_a_little() {
        let mut now = Instant::now();
        let mut budget = Budget::new(now);
        for _ in 0..10_000 {
            budget.earn();
            budget.spend(RESET).unwrap();
        }
        // A ping every 10 s for a day, with the budget refilled once a minute.
        for _ in 0..24 * 60 {
            budget.spend(6).unwrap();
            now += Duration::from_mins(1);
            budget.wait(now);
        }
        budget.spend(MAX_BUDGET).unwrap();
    }
}
