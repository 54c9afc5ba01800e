//! A window that counts every hit: the limit of rules in the format of envoyproxy/ratelimit.
//!
//! # Contract
//!
//! * **Count.** Each take adds its permits to the window's count, granted or denied. A take of 0
//!   permits adds nothing.
//! * **Verdict.** A take is denied if the count after it exceeds the limit. So a peek at a window
//!   that is exactly full passes. After a denied take nothing passes until the window ends, peeks
//!   included.
//! * **Hold.** An estimate is held if the count with it is within the limit; otherwise nothing is
//!   counted. What it did not use leaves the count of its own window, and what it used beyond is
//!   added, whether it fits or not.
//! * **Windows** lie on the clock's grid since 1970, and carry nothing over into the next.
//! * **Bound.** The count is exact far beyond the limit, and then saturates: it never wraps.

use std::time::Duration;

use rategate::error::LimitError;
use rategate::policy::Anchor;
use rategate::{AnyPolicy, FixedWindow};

/// The largest count of a window in this process that fits in the short form of a table's slot:
/// 28 bits.
const SHORT: u64 = (1 << 28) - 1;

/// The largest count otherwise: a store keeps no number over 2^53.
const LONG: u64 = 1 << 52;

/// A limit of `permits` in each window of a grid that counts denied permits too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedWindow {
    permits: u32,
    /// The count, kept as the remainder of a window too large to fill before the limit is
    /// exceeded.
    counter: FixedWindow,
}

impl CountedWindow {
    /// Creates a limit of `permits` in each window of `period_ns`. With 0 every take is denied,
    /// and peeks pass until the first take.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPeriod`].
    pub fn new(permits: u32, period_ns: u64) -> Result<Self, LimitError> {
        let is_short = u64::from(permits) < SHORT.div_ceil(2);
        let max = if is_short { SHORT } else { LONG };
        Ok(Self {
            permits,
            counter: FixedWindow::try_new(max, Duration::from_nanos(period_ns), Anchor::Epoch)?,
        })
    }

    /// Returns the maximum number of permits in each window.
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits.into()
    }

    /// Returns the length of a window, in nanoseconds.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        match self.counter.period_ns() {
            Some(period_ns) => period_ns.get(),
            None => 0,
        }
    }

    /// Returns the window that counts in a table.
    #[must_use]
    pub const fn counter(&self) -> FixedWindow {
        self.counter
    }

    /// Returns a window that can count for limits of any size, for stores and for limits that
    /// share a count.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPeriod`].
    pub fn long_counter(period_ns: u64) -> Result<FixedWindow, LimitError> {
        FixedWindow::try_new(LONG, Duration::from_nanos(period_ns), Anchor::Epoch)
    }

    /// Returns the window that grants as much if each take is of one permit, or `None` for a
    /// limit of 0.
    pub(crate) fn granting(&self) -> Option<AnyPolicy> {
        let window = FixedWindow::try_new(
            self.permits(),
            Duration::from_nanos(self.period_ns()),
            Anchor::Epoch,
        );
        window.ok().map(AnyPolicy::from)
    }

    /// Returns `true` if `policy` is the counter of such a window. No enforced limit is that
    /// large.
    pub(crate) fn is_counter(policy: &AnyPolicy) -> bool {
        matches!(
            policy,
            AnyPolicy::FixedWindow(window)
                if window.calendar().is_none() && [SHORT, LONG].contains(&window.permits())
        )
    }

    /// Returns `true` if `counter` counts far enough for this limit.
    #[must_use]
    pub fn fits(&self, counter: &FixedWindow) -> bool {
        self.permits() < counter.permits().div_ceil(2)
            && self.counter.windows() == counter.windows()
    }

    /// Returns how many permits a store's counter grants beyond this limit.
    #[must_use]
    pub fn spared_in_store(&self) -> u64 {
        LONG.saturating_sub(self.permits())
    }

    /// Returns how many permits of a take are added to a counter. A larger number is over the
    /// limit just as well, and so is a counter that has no capacity left for it.
    #[must_use]
    pub const fn counted_of(permits: u64, counter: &FixedWindow) -> u64 {
        let max = counter.permits().div_ceil(2);
        if permits < max { permits } else { max }
    }

    /// Returns how many permits a counter grants beyond this limit. A hold spares them.
    #[must_use]
    pub fn spared(&self, counter: &FixedWindow) -> u64 {
        counter.permits().saturating_sub(self.permits())
    }

    /// Returns how many permits of a take are added to a store's counter.
    #[must_use]
    pub const fn counted_in_store(permits: u64) -> u64 {
        if permits < LONG / 2 { permits } else { LONG / 2 }
    }

    /// Returns the number of permits used in a window of which a store's counter has `left` left.
    #[must_use]
    pub const fn used_in_store(&self, left: u64) -> u64 {
        LONG.saturating_sub(left)
    }

    /// Returns by how many permits a count exceeds the limit, as far as any counter counts.
    #[must_use]
    pub fn debt(&self, used: u64) -> u64 {
        let most = Self::counted_of(u64::MAX, &self.counter);
        used.min(most).saturating_sub(self.permits())
    }

    /// Returns the time until the end of the window around `now_ns`, in nanoseconds.
    #[must_use]
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        self.counter.border_in_ns(now_ns, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A counter without capacity for a capped take already exceeds the limit, whatever the limit
    /// is.
    #[test]
    fn a_counter_without_capacity_is_over() {
        for permits in [0, 1, 1000, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, u32::MAX] {
            let window = CountedWindow::new(permits, SECOND).unwrap();
            for counter in [window.counter(), CountedWindow::long_counter(SECOND).unwrap()] {
                let max = CountedWindow::counted_of(u64::MAX, &counter);
                assert!(max > window.permits(), "{permits}: a capped take is over by itself");
                let last_within_capacity = counter.permits() - max;
                assert!(last_within_capacity + 1 > window.permits(), "{permits}");
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
