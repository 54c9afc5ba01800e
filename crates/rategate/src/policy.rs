//! Parts of the policies, and a limit without its clock.
//!
//! The policies themselves are at the root of the crate.

pub use rategate_core::any_policy::Member;
pub use rategate_core::fixed_window::{Anchor, Windows};
pub use rategate_core::ledger::Ledger;
pub use rategate_core::members::Members;
pub use rategate_core::node::{Divisible, Part};
pub use rategate_core::policy::Ending;
pub use rategate_core::ratio::Ratio;
#[cfg(feature = "serde")]
pub use rategate_core::saved;
pub use rategate_core::schedule::Schedule;
pub use rategate_core::two_timeline::DampingShift;
pub use rategate_core::two_timeline::Mode;
