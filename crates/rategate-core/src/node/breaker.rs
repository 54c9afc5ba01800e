//! A circuit breaker for a store: it stops requests after failures and probes from time to time.
//!
//! ```text
//!   req req req req req  |   stay   |probe|      stay       |probe|          stay ...
//!    x   x   x   x   x   |<-100 ms->|  x  |<--- 200 ms ---->|  x  |<-- 400 ms ... at most 5 s
//!                      opens                          a reply closes it
//! ```
//!
//! # Contract
//!
//! * **Opens** after a configured number of failures in a row. A reply in between restarts the
//!   count.
//! * **Open**, it lets one probe pass for each pause, and rejects all other callers for the price
//!   of a comparison.
//! * **Pauses** double from one failed probe to the next, exactly, up to the longest. A probe
//!   whose result is never reported delays the next one by one pause at most.
//! * **Closes** with any reply.
//! * **Probes at once** where the store is known to be available again: the next caller is a
//!   probe, and pauses start anew.
//!
//! ```
//! use rategate_core::node::{Breaker, BreakerConfig, Pass};
//!
//! let mut breaker = Breaker::new(BreakerConfig::default());
//! for _ in 0..5 {
//!     assert_eq!(breaker.pass(0), Pass::Go);
//!     breaker.failed(0);
//! }
//! assert!(matches!(breaker.pass(99_999_999), Pass::Reject { .. }));
//! assert_eq!(breaker.pass(100_000_000), Pass::Probe);
//! breaker.answered();
//! assert_eq!(breaker.pass(100_000_000), Pass::Go);
//! ```

use core::num::{NonZeroU32, NonZeroU64};

/// The configuration of a circuit breaker: when it opens, and how often it probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// The number of failures in a row after which the breaker opens.
    pub failures: NonZeroU32,
    /// The first pause between probes.
    pub pause_ns: NonZeroU64,
    /// The longest pause, however often probes have failed.
    pub max_pause_ns: NonZeroU64,
}

impl Default for BreakerConfig {
    /// Five failures; 100 ms, doubling to 5 s.
    fn default() -> Self {
        let number = |number: u64| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
        Self {
            failures: NonZeroU32::new(5).unwrap_or(NonZeroU32::MIN),
            pause_ns: number(100_000_000),
            max_pause_ns: number(5_000_000_000),
        }
    }
}

/// The permission to send a request, or its refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The request may be sent.
    Go,
    /// The request may be sent, and no other until it has a reply or a pause is over.
    Probe,
    /// The request must not be sent.
    Reject {
        /// The time for which this breaker rejects requests, unless another caller's reply closes
        /// it.
        for_ns: NonZeroU64,
    },
}

/// A circuit breaker before a store.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    /// The number of failures in a row.
    failures: u32,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    pause_ns: u64,
    /// The instant from which the next probe may pass.
    until_ns: u64,
    is_probed: bool,
}

impl Breaker {
    /// Returns a closed breaker.
    #[must_use]
    pub const fn new(config: BreakerConfig) -> Self {
        Self { config, failures: 0, open: None }
    }

    /// Decides if a request may be sent at `now_ns`.
    ///
    /// A caller that receives [`Go`](Pass::Go) or [`Probe`](Pass::Probe) has to report the
    /// result: [`answered`](Self::answered) or [`failed`](Self::failed).
    #[inline]
    pub fn pass(&mut self, now_ns: u64) -> Pass {
        let Some(open) = &mut self.open else { return Pass::Go };
        if let Some(for_ns) = NonZeroU64::new(open.until_ns.saturating_sub(now_ns)) {
            return Pass::Reject { for_ns };
        }
        open.is_probed = true;
        open.until_ns = now_ns.saturating_add(open.pause_ns);
        Pass::Probe
    }

    /// Records a reply of the store, whatever it says.
    pub const fn answered(&mut self) {
        self.failures = 0;
        self.open = None;
    }

    /// Records a request without a reply.
    pub fn failed(&mut self, now_ns: u64) {
        self.failures = self.failures.saturating_add(1);
        let max_ns = self.config.max_pause_ns.get();
        let pause_ns = match self.open {
            None if self.failures < self.config.failures.get() => return,
            None => self.config.pause_ns.get(),
            // A request sent before the breaker opened.
            Some(Open { is_probed: false, .. }) => return,
            Some(open) => open.pause_ns.saturating_mul(2),
        };
        let pause_ns = pause_ns.min(max_ns);
        let until_ns = now_ns.saturating_add(pause_ns);
        self.open = Some(Open { pause_ns, until_ns, is_probed: false });
    }

    /// Lets the next caller probe at once, because the store is known to be available again.
    ///
    /// For signs other than a reply. If the probe fails, the next pause is twice the first one.
    pub const fn probe_now(&mut self) {
        if let Some(open) = &mut self.open {
            let pause_ns = self.config.pause_ns.get();
            *open = Open { pause_ns, until_ns: 0, is_probed: false };
        }
    }

    /// Returns the time for which requests are still rejected, or `None` if they are not.
    #[must_use]
    pub fn closed_for_ns(&self, now_ns: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(self.open?.until_ns.saturating_sub(now_ns))
    }

    /// Returns `true` if the breaker is open and rejects requests other than probes.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}
