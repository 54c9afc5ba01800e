//! What a limit has done, and for whom: counts for each limit, and the keys that stand out.
//!
//! Nothing is counted unless asked for, and what is counted costs the same however many keys there are
//! and however long it goes on.
//!
//! | I want | take |
//! |---|---|
//! | how often a limiter granted, denied, or came near its limit | [`Limiter::with_stats`](crate::Limiter::with_stats), [`LimitStats::counts`] |
//! | which keys of a table are denied, use the most, come near the limit | [`KeyStats`], [`KeyStats::report`] |
//! | these counts in a metrics system | the feature `metrics`: `LimitStats::publish`, `KeyStats::publish` |
//! | an event for each denial, change and overflow | the feature `tracing` |
//! | the heavy keys of any stream of mine | [`Top`] |
//!
//! ```
//! use rategate::{Limiter, ManualClock, SlidingLog};
//!
//! let log = SlidingLog::new(20, 1_000_000_000)?;
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
//! # What is counted
//!
//! A call is **granted** when the permits are the caller's: a try at once, a wait when it has ended, a
//! reservation when it is made. It is **denied** when the limit sent the caller away without: a try over
//! the limit, a wait too long or past its deadline, no place in line. Of the granted ones those are **near**
//! the limit that left less than a tenth of it. What somebody gave up or a closing ended, and requests
//! that can never pass, are none of these. Counts only grow: what is refunded, settled or cancelled later
//! stays counted. Peeks count as nothing.
//!
//! A [`Local`](crate::Local) handle tells of a batch when that ends, and its calls as far from the limit.
//!
//! # Metrics
//!
//! With the feature `metrics`, `publish` hands the counts to the recorder of the
//! [`metrics`](https://docs.rs/metrics/0.24) facade: call it before a scrape, or from a timer. So the
//! limits' own calls touch no recorder. The values are absolute, so it does no harm to publish twice; two
//! limits with one name would overwrite each other.
//!
//! | metric | labels | what |
//! |---|---|---|
//! | `rategate_calls_total` | `limit`, `outcome`: `granted` or `denied` | calls |
//! | `rategate_permits_total` | the same | what they asked for |
//! | `rategate_near_calls_total` | `limit` | granted calls near the limit |
//! | `rategate_overflows_total` | `limit` | newcomers that a full table had no room for |
//! | `rategate_keys` | `limit` | keys in the table |
//!
//! A key never becomes a label: labels are kept for ever by whoever collects them, and keys come from
//! outside. Which keys stand out is in [`KeyStats::report`].
//!
//! # Events
//!
//! With the feature `tracing`, all with the target `rategate` and the field `limit`:
//!
//! | event | level | fields |
//! |---|---|---|
//! | `denied` | `DEBUG` | `permits`, `retry_after_ns` if time can help |
//! | `reconfigured`, `closed` | `INFO` | |
//! | `the table is full` | `WARN`, once a second at most | `overflows`, all of them so far |
//!
//! Keys are in no event.

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
pub use self::limit::{LimitStats, MOST_NAME_BYTES};
pub use self::outcome::Outcome;
#[cfg(feature = "metrics")]
pub use self::publish::describe;
pub use self::report::{Ranking, Report};
pub use self::top::{MOST_RANKED, Ranked, Top};
