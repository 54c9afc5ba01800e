//! A budget of a connection of HTTP/2 for what asks for no decision: frames that are about the connection, streams given up, refused
//! ones. Decisions fill it, and time.

use std::time::Instant;

/// What a connection has at first, and never more.
const MOST: u32 = 1024;
/// What a decision adds to that. So does each second, by one: whoever says that he is there now and then may do so for ever.
const EARNED: u32 = 16;
/// So many bytes of answers add one to it: windows of a few hundred bytes pay for themselves, and what answers pings and settings does not.
const WRITTEN: usize = 256;
/// Giving up a stream costs so much: hardly more of them than of decisions.
pub(crate) const RESET: u32 = 12;

/// More than the budget has was to be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many frames that ask for nothing")]
pub(crate) struct Overspent;

#[derive(Debug)]
pub(crate) struct Budget {
    left: u32,
    /// How many bytes were written that have not added to it yet.
    written: usize,
    /// When time last added to it.
    filled: Instant,
}

impl Budget {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { left: MOST, written: 0, filled: now }
    }

    /// Pays for what asks for no decision. Too much of it ends the connection.
    pub(crate) fn spend(&mut self, cost: u32) -> Result<(), Overspent> {
        self.left = self.left.checked_sub(cost).ok_or(Overspent)?;
        Ok(())
    }

    /// A decision was asked for.
    pub(crate) fn earn(&mut self) {
        self.left = self.left.saturating_add(EARNED).min(MOST);
    }

    /// So many bytes of answers were written, for which the other end has to say that it takes more.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
        let earned = self.written.checked_div(WRITTEN).unwrap_or(0);
        self.written = self.written.checked_rem(WRITTEN).unwrap_or(0);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(earned).min(MOST);
    }

    /// It is `now`.
    pub(crate) fn wait(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            self.filled = now;
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(MOST);
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
        budget.spend(MOST).unwrap();
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
        // Each 10 s for a day, and looked at once a minute.
        for _ in 0..24 * 60 {
            budget.spend(6).unwrap();
            now += Duration::from_mins(1);
            budget.wait(now);
        }
        budget.spend(MOST).unwrap();
    }
}
