//! Replay of access logs through a rate limit: what the limit would have allowed and denied, to
//! which callers, and which limit would have denied almost none of the well-behaved.
//!
//! Logs are in the common or combined format, or JSON objects, one per line, plain or gzip. An
//! [`Analysis`] reads them as streams, in bounded memory, and returns a [`Report`]: plain data,
//! with forms as text, JSON and SVG. Time is the log's, so a limit decides as it would have live.
//!
//! ```
//! use rategate_analyze::{Analysis, CallerKey, Limit, Settings};
//!
//! let log = r#"10.0.0.7 - ann [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
//! 10.0.0.7 - ann [10/Oct/2000:13:55:37 -0700] "GET / HTTP/1.1" 200 2326
//! {"time": "2000-10-10T20:55:38Z", "user": "bob", "status": 200}
//! "#;
//! let settings = Settings { key: CallerKey::User, ..Settings::new(Limit::any_window("1/min")?) };
//! let mut analysis = Analysis::new(settings);
//! analysis.read("access.log", log.as_bytes())?;
//! analysis.finish()?;
//! let report = analysis.report();
//! assert_eq!((report.counts.allowed, report.counts.denied), (2, 1));
//! assert_eq!(&*report.by_denied[0].caller, b"ann");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | task | item |
//! |---|---|
//! | to choose the limit, the callers and the lines that count | [`Settings`] |
//! | to read logs to their end | [`Analysis::read`] |
//! | to read logs as they grow, over their rotation | [`Follower`] |
//! | to keep a deny list of callers over the limit | [`DenyPublisher`] |
//! | to read only the instants of a log, as a trace | [`TraceReader`] |
//! | to print the result | [`Report::to_text`], [`Report::to_json`], [`Report::to_svg`] |
//!
//! The crate is for Unix.

#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod amount;
mod analysis;
mod callers;
mod follow;
mod fullest;
mod input;
mod key;
mod list_effect;
mod log;
mod publish;
mod report;
mod settings;
mod timeline;
mod trace;

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

pub use self::amount::{Amount, AmountError};
pub use self::analysis::Analysis;
pub use self::callers::Row;
pub use self::follow::Follower;
pub use self::fullest::Suggestion;
pub use self::key::CallerKey;
pub use self::list_effect::{Effects, NeedlessDenials};
pub use self::log::{Dialect, SkipReason};
pub use self::publish::DenyPublisher;
pub use self::report::{
    CallersBeyond, Counts, Followed, ListReport, Published, Report, Skipped, UnixTime,
};
pub use self::settings::{
    Ahead, Limit, ListSettings, POLL, SettingError, Settings, Share, Statuses,
};
pub use self::timeline::Timeline;
pub use self::trace::{TraceError, TraceFault, TraceReader};

const SECOND_NS: u64 = 1_000_000_000;

/// The reason why an analysis cannot go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnalyzeError {
    /// A file cannot be used. The text says which, why, and what is accepted.
    Unusable(String),
    /// An operation of the system failed. The text names the file.
    Io(String, io::Error),
}

impl fmt::Display for AnalyzeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => f.write_str(why),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl Error for AnalyzeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unusable(_) => None,
            Self::Io(_, error) => Some(error),
        }
    }
}

/// Returns Unix time now.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in nanoseconds, at most the end of the clock.
fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
