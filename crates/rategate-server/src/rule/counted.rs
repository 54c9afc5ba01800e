//! A window that counts every hit: the limit of rules in the format of envoyproxy/ratelimit.
//!
//! # Contract
//!
//! * **Count.** Each take adds its permits to the window's count, be it granted or denied. A take of 0 permits adds nothing.
//! * **Verdict.** A take is denied where the count after it is more than the limit. So a look at a window that is exactly full passes, and
//!   after a denied take nothing passes any more, a look included, until the window ends.
//! * **Windows** lie on the clock's grid from 1970 on, and nothing of one is left in the next.
//! * **Bound.** The count is exact far beyond the limit, and then stays where it is: it never wraps.

use rategate::{Anchor, AnyPolicy, FixedWindow, LimitError};

/// The largest count of a window in this process that still fits in the short form of a table's slot: 28 bits.
const SHORT: u64 = (1 << 28) - 1;

/// The largest count otherwise: a store keeps no number over 2^53.
const LONG: u64 = 1 << 52;

/// At most `permits` in each window of a grid, counting what is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedWindow {
    permits: u32,
    /// The count, as what is left of a window that is never full before the limit is passed.
    counter: FixedWindow,
}

impl CountedWindow {
    /// At most `permits` in each window of `period_ns`; 0 denies every take, and lets looks pass until the first.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPeriod`].
    pub fn new(permits: u32, period_ns: u64) -> Result<Self, LimitError> {
        let is_short = u64::from(permits) < SHORT.div_ceil(2);
        let most = if is_short { SHORT } else { LONG };
        Ok(Self { permits, counter: FixedWindow::new(most, period_ns, Anchor::Epoch)? })
    }

    /// The most permits in each window.
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits.into()
    }

    /// The length of a window.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.counter.period_ns()
    }

    /// The window that counts in a table.
    #[must_use]
    pub const fn counter(&self) -> FixedWindow {
        self.counter
    }

    /// The window that counts for limits of any number: in a store, and where several share a count.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPeriod`].
    pub fn long_counter(period_ns: u64) -> Result<FixedWindow, LimitError> {
        FixedWindow::new(LONG, period_ns, Anchor::Epoch)
    }

    /// The window that grants as much where each take is of one permit, unless it grants nothing.
    pub(crate) fn granting(&self) -> Option<AnyPolicy> {
        let window = FixedWindow::new(self.permits(), self.period_ns(), Anchor::Epoch);
        window.ok().map(AnyPolicy::from)
    }

    /// Whether a policy is the counter of such a window: no limit that is enforced as it stands is that large.
    pub(crate) fn is_counter(policy: &AnyPolicy) -> bool {
        matches!(policy, AnyPolicy::FixedWindow(window) if [SHORT, LONG].contains(&window.permits()))
    }

    /// Whether a counter counts far enough for the limit.
    #[must_use]
    pub fn fits(&self, counter: &FixedWindow) -> bool {
        self.permits() < counter.permits().div_ceil(2) && self.period_ns() == counter.period_ns()
    }

    /// How much of a take a counter is told: more is as far over the limit, and so is a counter that has no place for it.
    #[must_use]
    pub const fn counted_of(permits: u64, counter: &FixedWindow) -> u64 {
        let most = counter.permits().div_ceil(2);
        if permits < most { permits } else { most }
    }

    /// How much of a take a store is told.
    #[must_use]
    pub const fn counted_in_store(permits: u64) -> u64 {
        if permits < LONG / 2 { permits } else { LONG / 2 }
    }

    /// How much is used of the window where a store's counter has so much left.
    #[must_use]
    pub const fn used_in_store(&self, left: u64) -> u64 {
        LONG.saturating_sub(left)
    }

    /// How long the window around an instant lasts.
    #[must_use]
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        let into_ns = now_ns.checked_rem(self.period_ns()).unwrap_or(0);
        self.period_ns().saturating_sub(into_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A counter that cannot take what it is told counts more than the limit already, whatever the limit.
    #[test]
    fn a_counter_without_a_place_is_over() {
        for permits in [0, 1, 1000, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, u32::MAX] {
            let window = CountedWindow::new(permits, SECOND).unwrap();
            for counter in [window.counter(), CountedWindow::long_counter(SECOND).unwrap()] {
                let most = CountedWindow::counted_of(u64::MAX, &counter);
                assert!(most > window.permits(), "{permits}: what is told is over by itself");
                let last_with_room = counter.permits() - most;
                assert!(last_with_room + 1 > window.permits(), "{permits}");
            }
        }
    }

    #[test]
    fn a_window_ends_with_its_grid() {
        let window = CountedWindow::new(1, 60 * SECOND).unwrap();
        assert_eq!(window.left_ns(0), 60 * SECOND);
        assert_eq!(window.left_ns(59 * SECOND + 1), SECOND - 1);
        assert_eq!(window.left_ns(60 * SECOND), 60 * SECOND);
    }
}
