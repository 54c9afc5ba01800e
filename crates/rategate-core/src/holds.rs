//! Holds: estimates of work whose cost is known when it is done.
//!
//! A hold takes an estimate as a try does, and ends in one of three ways. A *commit* says what
//! was used: an excess comes back, a shortfall is [charged](crate::debt). A *cancel* is a commit
//! of nothing. At the end of its *time to live* a hold ends as if it were cancelled then, so that
//! a client that dies keeps nothing for long.
//!
//! ```text
//!   held     e |      +-------------------------+
//!              |      |                         |   commit(a): e - a come back, as if a had been
//!   used       | -----+                         +-- taken at the start; or a - e are charged
//!              +------o-------------------------o------------> time
//!                 try_hold(e)              commit, cancel, or the end of its time
//! ```
//!
//! # Contract
//!
//! * **Bound.** What is admitted in any window, holds included, stays within the limit. What is
//!   used exceeds it by at most the sum of `actual - held` where that is positive, and by what was
//!   committed late (docs/theory.md, section 11.2).
//! * **Once.** A hold ends once. A commit after its end is *late*: what was used is charged whole.
//! * **As if.** A token bucket, a window and a log decide after a commit as if the actual cost had
//!   been taken in the first place. A bucket that would have been full without the excess had no
//!   room for it, so that part is lost. Others get back what a
//!   [refund](crate::limit::Limit::refund) can prove.
//! * **End.** A hold ends at its instant by the limit's clock, looked at or not.
//! * **Retry.** What was denied passes exactly when it is told to, if no other caller comes and
//!   every hold runs to its end. A reservation that is made counts holds as used.
//! * **In flight.** A limit on operations in flight has its permits back at any end, whatever was
//!   used. A [commit log](crate::commit_log) counts the used part as effects from the commit on,
//!   and all of a hold that ran to its end.
//! * **Cost.** A hold, and its end, are O(log n) in the number of holds. A denial that a hold's end
//!   may shorten takes as many steps as holds end by then; beside promises, as there are holds.
//!
//! # Example
//!
//! ```
//! use rategate_core::debt::Debt;
//! use rategate_core::gcra::Gcra;
//! use rategate_core::holds::{Committed, HoldVerdict, Holding as _};
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit as _;
//! use rategate_core::verdict::Settled;
//!
//! let mut limit = Ledger::new(Gcra::per_second(10).burst(100), 0);
//! let HoldVerdict::Held(hold) = limit.try_hold(0, 80, 1_000_000_000)? else { unreachable!() };
//! assert_eq!(limit.remaining(0), 20);
//! let committed = limit.commit(500_000_000, hold, 50, Debt::FORGOTTEN);
//! assert_eq!(committed, Committed::InTime(Settled::Back { permits: 30 }));
//! assert_eq!(limit.remaining(500_000_000), 55, "as if 50 had been taken, and 5 earned since");
//! # Ok::<(), rategate_core::error::ExceedsCapacity>(())
//! ```

use core::num::NonZeroU64;

use crate::debt::{Charged, Debt};
use crate::error::ExceedsCapacity;
use crate::limit::Limit;
use crate::verdict::{Denial, Grant, Opening, Refusal, Settled, Verdict};

/// Permits held until their cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    pub(crate) serial: u64,
    /// The number of permits held.
    pub permits: u64,
    /// The instant at which the hold ends by itself.
    pub end_ns: u64,
}

/// The decision on a hold.
#[must_use = "a hold that is not committed keeps its permits until its end"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldVerdict {
    /// The permits are held.
    Held(Hold),
    /// The estimate is over the limit; nothing was taken.
    Denied(Denial),
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The permits were still held, and the difference has been settled.
    InTime(Settled),
    /// The hold had ended before, so everything used was charged.
    Late(Charged),
}

/// A live limit that can hold permits for work whose cost is known later.
pub trait Holding: Limit + Clone {
    /// Holds the permits of a grant that has started, until `end_ns`.
    ///
    /// Of the newest grant everything can come back. If others have been granted since, its excess
    /// comes back as by a [refund](Limit::refund).
    fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold;

    /// Ends a hold of which `actual` permits were used, at most all of them. Returns how many came
    /// back, or `None` if it has ended before.
    fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64>;

    /// Returns the instant at which the next hold ends by itself.
    fn next_end_ns(&self) -> Option<u64>;

    /// Holds `permits` for `ttl_ns`, or denies them.
    ///
    /// No permits are always held, and leave no trace.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    fn try_hold(
        &mut self,
        now_ns: u64,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HoldVerdict, ExceedsCapacity> {
        Ok(match self.try_acquire(now_ns, permits)? {
            Verdict::Granted(grant) => {
                let end_ns = grant.start_ns.saturating_add(ttl_ns);
                HoldVerdict::Held(self.hold_grant(now_ns, &grant, end_ns))
            }
            Verdict::Denied(denial) => HoldVerdict::Denied(denial),
        })
    }

    /// Ends a hold that turned out to cost `actual` permits.
    ///
    /// Less comes back as far as the limit allows, more is [charged](Limit::charge). A limit that
    /// counts operations in flight, and nothing else, charges nothing.
    fn commit(&mut self, now_ns: u64, hold: Hold, actual: u64, debt: Debt) -> Committed {
        let back = if hold.permits == 0 {
            (self.clamp(now_ns) < hold.end_ns).then_some(0)
        } else {
            self.end_hold(now_ns, hold, actual.min(hold.permits))
        };
        let Some(permits) = back else {
            return Committed::Late(self.charge(now_ns, actual, debt).unwrap_or_default());
        };
        Committed::InTime(match actual.checked_sub(hold.permits).and_then(NonZeroU64::new) {
            None if actual == hold.permits => Settled::Even,
            None => Settled::Back { permits },
            Some(short) => match self.charge(now_ns, short.get(), debt) {
                Ok(Charged { booked: permits, forgiven, .. }) => {
                    Settled::Owed { permits, forgiven }
                }
                Err(_) => Settled::Even,
            },
        })
    }

    /// Ends a hold of which nothing was used. Returns how many permits came back, or `None` if it
    /// has ended before.
    fn cancel_hold(&mut self, now_ns: u64, hold: Hold) -> Option<u64> {
        self.end_hold(now_ns, hold, 0)
    }
}

/// Returns how long until a reservation is accepted, where each hold runs to its end, at most
/// `at_latest_ns`.
pub(crate) fn soonest_after_ends<L: Holding>(
    limit: &L,
    now_ns: u64,
    at_latest_ns: u64,
    permits: NonZeroU64,
    max_wait_ns: u64,
) -> u64 {
    let mut best_ns = at_latest_ns;
    let is_sooner = |end_ns: u64, best_ns| end_ns.saturating_sub(now_ns) < best_ns;
    if !limit.next_end_ns().is_some_and(|end_ns| is_sooner(end_ns, best_ns)) {
        return best_ns;
    }
    let mut after = limit.clone();
    while let Some(end_ns) = after.next_end_ns().filter(|&end_ns| is_sooner(end_ns, best_ns)) {
        after.pass_to(end_ns);
        let Ok(opening) = after.opening(end_ns, permits) else { continue };
        let too_long_ns = opening.start_ns.saturating_sub(end_ns).saturating_sub(max_wait_ns);
        let more_ns = too_long_ns.min(opening.opens_ns.saturating_sub(end_ns));
        best_ns = best_ns.min(end_ns.saturating_sub(now_ns).saturating_add(more_ns));
    }
    best_ns
}

/// Returns the first opening for a try, where each hold runs to its end and `first` is the opening
/// if none did.
pub(crate) fn opening_after_ends<L: Holding>(
    limit: &L,
    now_ns: u64,
    permits: NonZeroU64,
    first: Result<Opening, Refusal>,
) -> Result<Opening, Refusal> {
    // Nothing that comes back makes a limit larger.
    let is_hopeless = matches!(first, Err(Refusal::Exceeds(_)));
    let opens_by =
        |best: &Result<Opening, Refusal>, end_ns| best.is_ok_and(|best| best.opens_ns <= end_ns);
    let mut best = first;
    let Some(end_ns) = limit.next_end_ns() else { return best };
    if is_hopeless || opens_by(&best, end_ns) {
        return best;
    }
    let mut after = limit.clone();
    while let Some(end_ns) = after.next_end_ns().filter(|&end_ns| !opens_by(&best, end_ns)) {
        after.pass_to(end_ns);
        let opening = after.opening(end_ns, permits);
        best = opening.map_err(|refusal| refusal.seen_from(end_ns.saturating_sub(now_ns)));
    }
    best
}
