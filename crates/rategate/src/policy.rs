//! Parts of the policies, and the traits that a limiter asks of one.
//!
//! The policies themselves are at the root of the crate. A policy of your own implements
//! [`Policy`]; [`Locked`] then makes a limiter's state of it.

pub use rategate_core::all_of::AllOfLedger;
pub use rategate_core::concurrent::{Concurrent, HasLockFree, LimiterPolicy, Locked};
pub use rategate_core::fixed_window::Anchor;
pub use rategate_core::ledger::Ledger;
pub use rategate_core::limit::Limit;
pub use rategate_core::node::{Divisible, Part};
pub use rategate_core::policy::Policy;
pub use rategate_core::portable;
pub use rategate_core::ratio::Ratio;
pub use rategate_core::saved;
pub use rategate_core::schedule::Schedule;
pub use rategate_core::slow_start::Timed;
pub use rategate_core::two_timeline::DampingShift;
pub use rategate_core::two_timeline::Mode;
