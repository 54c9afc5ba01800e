//! When a store does not answer: stop asking, and look in now and then.
//!
//! ```text
//!   ask ask ask ask ask  |   stay   |probe|      stay       |probe|          stay ...
//!    x   x   x   x   x   |<-100 ms->|  x  |<--- 200 ms ---->|  x  |<-- 400 ms ... at most 5 s
//!                      opens                          an answer closes it
//! ```
//!
//! # Contract
//!
//! * **Opens** after so many failures in a row. An answer in between starts the count anew.
//! * **Open**, it lets one probe pass for each pause, and turns everybody else away for the price of a comparison.
//! * **Pauses** double from one failed probe to the next, exactly, up to the longest. A probe nobody hears of any
//!   more holds up the next one for a pause, no longer.
//! * **Closes** with any answer.
//! * **Looks again** at once where the store is known to have come back: the next caller is a probe, and pauses begin anew.
//!
//! ```
//! use rategate_core::node::{Breaker, BreakerTerms, Pass};
//!
//! let mut breaker = Breaker::new(BreakerTerms::default());
//! for _ in 0..5 {
//!     assert_eq!(breaker.pass(0), Pass::Go);
//!     breaker.failed(0);
//! }
//! assert!(matches!(breaker.pass(99_999_999), Pass::Stay { .. }));
//! assert_eq!(breaker.pass(100_000_000), Pass::Probe);
//! breaker.answered();
//! assert_eq!(breaker.pass(100_000_000), Pass::Go);
//! ```

use core::num::{NonZeroU32, NonZeroU64};

/// When to stop asking, and when to look in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTerms {
    /// After how many failures in a row.
    pub failures: NonZeroU32,
    /// How long to stay away first.
    pub pause_ns: NonZeroU64,
    /// How long to stay away at most, however often looking in has failed.
    pub longest_pause_ns: NonZeroU64,
}

impl Default for BreakerTerms {
    /// Five failures; 100 ms, doubling to 5 s.
    fn default() -> Self {
        let number = |number: u64| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
        Self {
            failures: NonZeroU32::new(5).unwrap_or(NonZeroU32::MIN),
            pause_ns: number(100_000_000),
            longest_pause_ns: number(5_000_000_000),
        }
    }
}

/// Whether a question may be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It may.
    Go,
    /// It may, and no other until it has an answer, or a pause is over.
    Probe,
    /// It may not.
    Stay {
        /// Until when there is no use in asking this breaker again, unless another's answer closes it.
        for_ns: NonZeroU64,
    },
}

/// Whether a store is worth asking.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    terms: BreakerTerms,
    /// Failures in a row.
    failures: u32,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    pause_ns: u64,
    /// When the next probe may pass.
    until_ns: u64,
    is_probed: bool,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub const fn new(terms: BreakerTerms) -> Self {
        Self { terms, failures: 0, open: None }
    }

    /// Whether a question may be put at `now_ns`. To whomever it says [`Go`](Pass::Go) or
    /// [`Probe`](Pass::Probe), it wants to hear from: [`answered`](Self::answered) or [`failed`](Self::failed).
    #[inline]
    pub fn pass(&mut self, now_ns: u64) -> Pass {
        let Some(open) = &mut self.open else { return Pass::Go };
        if let Some(for_ns) = NonZeroU64::new(open.until_ns.saturating_sub(now_ns)) {
            return Pass::Stay { for_ns };
        }
        open.is_probed = true;
        open.until_ns = now_ns.saturating_add(open.pause_ns);
        Pass::Probe
    }

    /// The store has answered, whatever.
    pub const fn answered(&mut self) {
        self.failures = 0;
        self.open = None;
    }

    /// It has not.
    pub fn failed(&mut self, now_ns: u64) {
        self.failures = self.failures.saturating_add(1);
        let longest_ns = self.terms.longest_pause_ns.get();
        let pause_ns = match self.open {
            None if self.failures < self.terms.failures.get() => return,
            None => self.terms.pause_ns.get(),
            // One of those who asked before it opened.
            Some(Open { is_probed: false, .. }) => return,
            Some(open) => open.pause_ns.saturating_mul(2),
        };
        let pause_ns = pause_ns.min(longest_ns);
        let until_ns = now_ns.saturating_add(pause_ns);
        self.open = Some(Open { pause_ns, until_ns, is_probed: false });
    }

    /// The store is known to have come back, by other signs than an answer: the next caller is a probe, and if that
    /// fails, the next pause is twice the first one.
    pub const fn look_again(&mut self) {
        if let Some(open) = &mut self.open {
            let pause_ns = self.terms.pause_ns.get();
            *open = Open { pause_ns, until_ns: 0, is_probed: false };
        }
    }

    /// For how long it still turns callers away; `None` if it does not.
    #[must_use]
    pub fn closed_for_ns(&self, now_ns: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(self.open?.until_ns.saturating_sub(now_ns))
    }

    /// Whether it turns callers away.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}
