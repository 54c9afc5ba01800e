//! Statistics: counts for each limit, and the keys of a table that stand out.
//!
//! Nothing is counted unless requested. The cost of counting does not depend on the number of
//! keys or on the running time.
//!
//! | task | item |
//! |---|---|
//! | to count a limiter's grants and denials | [`Limiter::with_stats`], [`LimitStats::counts`] |
//! | to rank a table's keys by denials, use and near calls | [`KeyStats`], [`KeyStats::report`] |
//! | to export the counts | feature `metrics`: `LimitStats::publish`, `KeyStats::publish` |
//! | to get an event per denial, change and overflow | feature `tracing` |
//! | to find the heavy keys of any stream | [`Top`] |
//!
//! [`Limiter::with_stats`]: crate::Limiter::with_stats
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate::{Limiter, ManualClock, SlidingLog};
//!
//! let log = SlidingLog::new(20, Duration::from_secs(1));
//! let limiter = Limiter::with_clock(log, ManualClock::new()).with_stats("mail");
//! for _ in 0..21 {
//!     let _ = limiter.try_acquire(1)?;
//! }
//! let counts = limiter.stats().map(|stats| stats.counts()).unwrap_or_default();
//! assert_eq!((counts.granted_calls, counts.denied_calls), (20, 1));
//! assert_eq!(counts.near_calls, 2, "the calls that left 1 and 0 of 20");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Counted calls
//!
//! A call is **granted** when the permits are the caller's: a try at once, a wait when it has
//! ended, a reservation when it is made. It is **denied** when the limit sent the caller away
//! without permits: a try over the limit, a wait too long or past its deadline, a full wait
//! queue. Granted calls that left less than a tenth of the limit are **near** it. Calls that
//! the caller cancelled, calls that a close ended, and requests that can never pass are none of
//! these. Counts only grow: later commits and cancellations change nothing. Peeks
//! are not counted.
//!
//! A [`Local`](crate::Local) handle reports a batch when that ends, and its calls as far from
//! the limit.
//!
//! # Metrics
//!
//! With the feature `metrics`, `publish` sends the counts to the recorder of the
//! [`metrics`](https://docs.rs/metrics/0.24) facade: call it before a scrape, or from a timer.
//! Calls on the limits themselves never touch a recorder. The values are absolute, so
//! publishing twice is harmless; two limits with one name would overwrite each other.
//!
//! | metric | labels | value |
//! |---|---|---|
//! | `rategate_calls_total` | `limit`, `outcome`: `granted` or `denied` | calls |
//! | `rategate_permits_total` | `limit`, `outcome` | permits requested by those calls |
//! | `rategate_near_calls_total` | `limit` | granted calls near the limit |
//! | `rategate_overflows_total` | `limit` | new keys that a full table had no capacity for |
//! | `rategate_keys` | `limit` | keys in the table |
//! | `rategate_distributed_calls_total` | `limit`, `by`, `outcome` | calls, by decider |
//! | `rategate_store_changes_total` | `limit` | changes of the store's status |
//! | `rategate_dropped_charges_total` | `limit` | permits used beyond a reservation, not charged |
//! | `rategate_waiting_charges` | `limit` | permits used beyond a reservation, to be charged |
//! | `rategate_store_state` | `limit` | 0 available, 1 quarantined, 2 unavailable |
//!
//! A key never becomes a label: collectors keep labels for ever, and keys come from outside.
//! The keys that stand out are in [`KeyStats::report`].
//!
//! # Events
//!
//! With the feature `tracing`, all with the target `rategate` and the field `limit`:
//!
//! | event | level | fields |
//! |---|---|---|
//! | `denied` | `DEBUG` | `permits`, `retry_after_ns` if time can help |
//! | `reconfigured`, `closed` | `INFO` | |
//! | `the table is full` | `WARN`, at most once a second | `overflows`, all of them so far |
//! | `the store is unavailable`, `the store may have lost grants` | `WARN` | `why` if known |
//! | `the store is available again` | `INFO` | `was`: the last failure |
//!
//! No event contains a key.

mod counts;
pub(crate) mod events;
mod keys;
mod lanes;
mod limit;
mod outcome;
#[cfg(feature = "metrics")]
pub(crate) mod publish;
mod report;
mod sample;
mod top;

pub use self::counts::Counts;
pub use self::keys::{Detail, KeyStats};
// For counters of the service.
#[doc(hidden)]
pub use self::lanes::{Counters, Lanes, OwnLane};
pub use self::limit::{LimitStats, MAX_NAME_BYTES};
pub use self::outcome::Outcome;
#[cfg(feature = "metrics")]
pub use self::publish::describe;
pub use self::report::{Ranking, Report};
pub use self::top::{MAX_RANKED, Ranked, Top};
