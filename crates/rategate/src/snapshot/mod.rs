//! Snapshots: limiters that survive a restart, and the file format that stores them.
//!
//! A [`Snapshot`] is a limiter in plain data: its numbers, its state, and the instant of saving
//! by two clocks. The limiter's own clock ends with the process; the wall clock shows how long
//! the process was away.
//!
//! ```text
//!   limiter's clock  0 ....... 830 s |                      | 890 s .......
//!   wall clock            12:00:00   | saved       restored | 12:01:00
//! ```
//!
//! ```
//! use rategate::snapshot::{Downtime, Snapshot};
//! use rategate::{Gcra, Limiter};
//! use std::time::Duration;
//!
//! let hourly = Gcra::per_hour(2).burst(2);
//! let limiter = Limiter::new(hourly);
//! assert!(limiter.try_acquire(2)?.is_granted());
//! let mut file = Vec::new();
//! limiter.snapshot().write_to(&mut file)?;
//!
//! // In another process, at most a minute later.
//! let saved = Snapshot::read_from(file.as_slice())?;
//! let downtime = Downtime::AtMost(Duration::from_secs(60));
//! let limiter = Limiter::restore(hourly, &saved, downtime)?;
//! assert!(!limiter.try_acquire(1)?.is_granted(), "a restart earns nothing");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * **A restart earns nothing** but what the time away has earned, by the rules of each
//!   policy. The caller chooses how that time is measured: [`Downtime`].
//! * **A restart loses nothing either**, where [`Limiter::restore`](crate::Limiter::restore)
//!   creates the clock: it continues where the old one was left. On a clock of the caller's own
//!   that shows less, instants before its zero count as zero, so the limit is closed longer.
//! * **Promises** not yet started count as taken. The wait queue is not saved: its waiters have
//!   no promises.
//! * **Holds** count as taken until that ages: the restored limit does not know them.
//! * **In flight.** Operations have ended with their process: permits of a concurrency limit
//!   are free, slots of a commit log commit at the instant of restoring.
//! * **A changed limit** comes into force when the limiter is restored, as by `reconfigure`.
//!   Another policy is refused.
//! * **A file is whole or refused**: foreign, of another version, ended early, changed in any
//!   bit.
//!
//! A table of many limits is a [stream of records](SnapshotWriter), and is neither written nor
//! read in one piece.

mod error;
mod limiter;
mod plain;
mod reader;
mod record;
mod time;
mod wire;
mod writer;

pub use self::error::SnapshotError;
pub use self::plain::Snapshot;
pub use self::reader::SnapshotReader;
pub use self::record::{Header, Record};
pub use self::time::{Downtime, SavedAt};
pub use self::writer::SnapshotWriter;
pub(crate) use self::writer::encoded;

/// The version of the format. A file of another version is refused.
pub const VERSION: u16 = 1;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 65_536;

/// The longest record, in bytes as written.
pub const MAX_RECORD_BYTES: usize = 268_435_456;
