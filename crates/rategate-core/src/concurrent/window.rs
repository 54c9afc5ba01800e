//! The count of one window in one atomic word: the lock-free form of
//! [`fixed_window`](crate::fixed_window).
//!
//! # Layout
//!
//! ```text
//!   value = base + permits used            numbers: begin, end, N, base
//! ```
//!
//! The numbers hold for one window. The first try behind its end finds none in force, so the
//! ledger decides it and opens the form again in its own window. That is one decision under the
//! lock in each window, and no try divides to find its window.
//!
//! # Who writes what, and why it suffices
//!
//! * Threads swap the word from the count that they have judged to the count with their permits.
//!   That swap linearises the grant; a denial is linearised by its last load of the word.
//! * The ceiling needs no order of the clocks: at most N permits are counted while one window is
//!   open, and each counts as made in it. A reading from before its begin counts as its begin.
//!
//! # Contract
//!
//! That of the policy, to the nanosecond. The ledger decides in a debt that later windows pay,
//! for a grid that begins with the first grant until that has come, and in a window that lasts to
//! the end of the clock.

use core::num::NonZeroU64;

use super::LockFreeVerdict;
use super::sync::back_off;
use super::word::{SPAN, Word, free_base};
use crate::window_debt::Count;

/// The lock-free count of a window.
#[derive(Debug)]
pub struct Window {
    word: Word<4>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    start_ns: u64,
    end_ns: u64,
    permits: u64,
    base: u64,
}

impl Numbers {
    #[inline]
    const fn from_fields([start_ns, end_ns, permits, base]: [u64; 4]) -> Self {
        Self { start_ns, end_ns, permits, base }
    }

    /// Returns the value behind a grant, or the time to the next window. Returns `None` if the
    /// ledger has to decide.
    #[inline]
    fn decide(self, value: u64, now_ns: u64, permits: u64) -> Option<Result<u64, NonZeroU64>> {
        let left_ns = NonZeroU64::new(self.end_ns.saturating_sub(now_ns))?;
        let available = self.permits.checked_sub(permits).filter(|_| permits > 0)?;
        Some(match available.checked_sub(value.wrapping_sub(self.base)) {
            Some(_) => Ok(value.wrapping_add(permits)),
            None => Err(left_ns),
        })
    }
}

impl Window {
    pub(super) fn sealed() -> Self {
        Self { word: Word::sealed() }
    }

    /// Decides a try, or returns `None` if another thread interferes.
    #[inline]
    fn try_once(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> Option<LockFreeVerdict> {
        let seen = self.word.load();
        let now_ns = read_ns();
        let numbers = Numbers::from_fields(self.word.numbers(seen));
        if seen.is_sealed() {
            return Some(LockFreeVerdict::Sealed);
        }
        match numbers.decide(seen.value(), now_ns, permits) {
            None => Some(LockFreeVerdict::Sealed),
            Some(Ok(value)) => self.word.swap(seen, value).then(|| {
                let start_ns = now_ns.max(numbers.start_ns);
                LockFreeVerdict::Granted { start_ns, scheduled_ns: start_ns }
            }),
            Some(Err(left_ns)) => {
                let denied = LockFreeVerdict::Denied { retry_after_ns: Some(left_ns) };
                self.word.is_still(seen).then_some(denied)
            }
        }
    }

    /// Returns what `of` makes of the count, or `None` if sealed or outside of the window.
    fn read<T>(&self, of: impl Fn(Numbers, u64) -> Option<T>) -> Option<T> {
        loop {
            let seen = self.word.load();
            let read = of(Numbers::from_fields(self.word.numbers(seen)), seen.value());
            if seen.is_sealed() {
                return None;
            }
            if self.word.is_still(seen) {
                return read;
            }
        }
    }

    /// Takes the count out.
    pub(super) fn seal(&self) -> Option<Count> {
        let last = self.word.seal()?;
        let Numbers { start_ns, end_ns, base, .. } = Numbers::from_fields(self.word.numbers(last));
        Some(Count { start_ns, end_ns, used: last.value().wrapping_sub(base) })
    }

    /// Puts a count in, where a window has one. Returns `true` if the form is open now.
    pub(super) fn open(&self, permits: u64, count: Option<Count>) -> bool {
        let Some(Count { start_ns, end_ns, used }) = count else { return false };
        let most = permits.max(used);
        if end_ns == u64::MAX || most > SPAN >> 1 {
            return false;
        }
        let base = free_base(self.word.load().value(), most, SPAN);
        self.word.open([start_ns, end_ns, permits, base], base.wrapping_add(used));
        true
    }
}

/// What any thread may do: see [`Fast`](super::Fast).
impl Window {
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        loop {
            if let Some(verdict) = self.try_once(read_ns, permits) {
                return verdict;
            }
            back_off();
        }
    }

    #[inline]
    pub(super) fn try_briefly(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        self.try_once(read_ns, permits).unwrap_or(LockFreeVerdict::Sealed)
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        self.read(|numbers, value| {
            let decision = numbers.decide(value, now_ns, permits)?;
            Some(decision.map_or_else(NonZeroU64::get, |_| 0))
        })
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        self.read(|numbers, value| {
            let used = value.wrapping_sub(numbers.base);
            (now_ns < numbers.end_ns).then(|| numbers.permits.saturating_sub(used))
        })
    }
}
