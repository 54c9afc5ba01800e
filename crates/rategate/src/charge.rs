//! Usage that is known afterwards: charges, estimates that are held, and debts.
//!
//! The cost of a model's reply, of a page or of a query is known when it is done. A caller then
//! [charges](crate::Limiter::charge) it, or [holds](crate::Limiter::hold) an estimate before and
//! commits the true cost. A charge is booked whether it fits or not; while a limit is exceeded,
//! tries are denied, with the exact time until they pass. A hold has a time: it ends by a commit,
//! by a drop, or by itself, and takes back just what was not used.
//!
//! What is admitted in any window stays within the limit. What is *used* exceeds it by at most
//! what was charged beyond the rest, late commits included: so take an estimate from above, and
//! hold it for long enough, where the bound matters.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate::charge::Charged;
//! use rategate::{Gcra, Limiter, ManualClock};
//!
//! // 1000 tokens a second. A reply is known to have cost 1700 when it has come.
//! let clock = ManualClock::new();
//! let tokens = Limiter::with_clock(Gcra::per_second(1000).burst(1000), clock.clone());
//! let Charged { booked, debt, .. } = tokens.charge(1700)?;
//! assert_eq!((booked, debt), (1700, 700));
//!
//! // No call passes until the debt and the next call's own permit are earned back.
//! let decision = tokens.try_acquire(1)?;
//! assert_eq!(decision.retry_after(), Some(Duration::from_millis(701)));
//! clock.advance(Duration::from_millis(701));
//! assert!(tokens.try_acquire(1)?.is_granted());
//! # Ok::<(), rategate::Error>(())
//! ```

pub use crate::hold::Hold;
pub use rategate_core::debt::{Charged, Debt};
pub use rategate_core::holds::Committed;
pub use rategate_core::verdict::Settled;

use crate::clock::Clock;
use crate::error::{ChargeError, Closed};
use crate::limiter::Limiter;

impl<C: Clock> Limiter<C> {
    /// Charges `permits` that have been used already, whether they fit or not.
    ///
    /// Never waits, and is never refused: what exceeds the limit is a debt, and nothing else passes
    /// until it has ended. Waiters in the queue wait for that too. Of several limits each is
    /// charged, except those that count operations in flight.
    ///
    /// For a token bucket this takes no lock as a rule, like a try.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::charge::Debt;
    /// use rategate::policy::Anchor;
    /// use rategate::{FixedWindow, Limiter, ManualClock};
    ///
    /// let daily = FixedWindow::new(100, Duration::from_secs(86_400), Anchor::Epoch);
    /// let limiter = Limiter::with_clock(daily, ManualClock::new()).with_debt(Debt::CARRIED);
    /// assert_eq!(limiter.charge(250)?.debt, 150);
    /// assert_eq!(limiter.peek(50)?, Some(Duration::from_secs(2 * 86_400)));
    /// # Ok::<(), rategate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ChargeError::CountsInFlight`], for a limit that counts operations in flight and nothing
    /// else; [`ChargeError::Closed`].
    #[inline]
    pub fn charge(&self, permits: u64) -> Result<Charged, ChargeError> {
        self.shared().charge(permits, self.shared().debt_terms())
    }

    /// Returns by how many permits the limit is exceeded; 0 if it is not in debt.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn debt(&self) -> Result<u64, Closed> {
        self.shared().section(|section| section.limit().debt(section.now_ns))
    }

    /// Sets, for all clones and from now on, how debts end and how large they may become.
    ///
    /// The default is [`Debt::FORGOTTEN`]. A token bucket earns its debts back in either case.
    #[must_use]
    pub fn with_debt(self, debt: Debt) -> Self {
        self.shared().set_debt_terms(debt);
        self
    }
}
