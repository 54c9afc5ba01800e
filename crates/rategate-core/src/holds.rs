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
//!   [refund](crate::ledger::Ledger::refund) can prove.
//! * **End.** A hold ends at its instant by the limit's clock, looked at or not.
//! * **Retry.** What was denied passes exactly when it is told to, if no other caller comes and no
//!   hold ends sooner. Where one does, the denial says when: the call may pass then.
//! * **In flight.** A limit on operations in flight has its permits back at any end, whatever was
//!   used. A [commit log](crate::commit_log) counts the used part as effects from the commit on,
//!   and all of a hold that ran to its end.
//! * **Cost.** A hold, and its end, are O(log n) in the number of holds.
//!
//! # Example
//!
//! ```
//! use rategate_core::debt::Debt;
//! use rategate_core::gcra::Gcra;
//! use rategate_core::holds::{Committed, HoldVerdict};
//! use rategate_core::ledger::Ledger;
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

use crate::debt::Charged;
use crate::verdict::{Denial, Settled};

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
