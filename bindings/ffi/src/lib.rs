//! The part of rategate that its packages for Python and Node share.
//!
//! Another language cannot name Rust's types, poll its futures, or be called by its threads. So
//! this crate has:
//!
//! * [`Limiter`]: a limiter of any policy behind one type, whose try is the lock-free one of its
//!   policy where there is one;
//! * [`Hold`]: an estimate that a limiter holds;
//! * [`Receipt`]: the memory of a grant, so that none ends or comes back twice;
//! * [`Keyed`]: a table with a limit for each key, which is a text, bytes or a number;
//! * [`Hub`]: the waits of one event loop, which notifies the loop when some have ended, and
//!   delivers their ends in order;
//! * [`OpenLoop`]: a load whose operations are released at their due instants;
//! * [`Shared`]: one limit that several processes keep, in Redis or Valkey;
//! * [`Replies`]: the calls of one event loop that wait for a store or a load;
//! * [`http`]: names of a server's clients, hints of a server's responses, and the pacing of
//!   requests by them;
//! * [`Signal`]: a file descriptor that a loop can watch;
//! * [`Clock`]: real time, or a clock that tests move;
//! * [`fork`]: what a language that forks calls before and after;
//! * [`Code`]: the number that an error has in every language.
//!
//! It has no `unsafe` and knows no other language: the packages do.

mod clock;
mod code;
#[cfg(any(test, not(unix)))]
#[cfg_attr(
    unix,
    expect(unreachable_pub, clippy::unnecessary_wraps, reason = "it is compiled for its test")
)]
mod flag;
pub mod fork;
pub mod http;
mod hub;
mod keyed;
mod limiter;
mod line;
mod load;
mod policies;
mod receipt;
mod replies;
mod saved;
mod shared;
#[cfg(unix)]
mod signal;

pub use self::clock::Clock;
pub use self::code::Code;
#[cfg(not(unix))]
pub use self::flag::Signal;
pub use self::hub::{Begun, Ended, Hub, WaitId};
pub use self::keyed::{Capacity, KeyRef, Keyed, Overflow};
pub use self::limiter::{Hold, Limiter, Reservation, Taken, cancel};
pub use self::load::{OpenLoop, OpenLoopError};
pub use self::policies::Policies;
pub use self::receipt::{Receipt, ReturnError};
pub use self::replies::{Later, Replies};
pub use self::saved::RestoreError;
pub use self::shared::{
    DEFAULT_SHARED_BUDGET, Denial, Health, Leases, Mode, OnUnavailable, Reply, Shared,
    SharedConfig, SharedCounts, SharedDecision, SharedError, SharedGrant,
};
#[cfg(unix)]
pub use self::signal::Signal;
pub use rategate::snapshot::SnapshotError;
pub use rategate_testkit::scenario::ScenarioError;
