//! Errors of saving and restoring counters.

use std::io;
use std::path::PathBuf;

use rategate::policy::saved::SavedError;
use rategate::snapshot::SnapshotError;

/// An error of saving or restoring counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file or its directory cannot be used: it is missing, read-only, or full.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process keeps its counters there, or another engine of this one.
    #[error("cannot keep counters in `{}`: another process does", path.display())]
    InUse {
        /// The path of the file.
        path: PathBuf,
    },
    /// A table cannot be written.
    #[error("cannot save counters to `{}`: {source}", path.display())]
    Table {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: SnapshotError,
    },
    /// The file is damaged or foreign, or its counters do not fit.
    #[error(
        "cannot restore counters from `{}`: {why}; to start without the file, with each limit \
         unused, move it away",
        path.display()
    )]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        why: Unreadable,
    },
}

/// A defect of a file of counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not begin like a file of counters.
    #[error("it is not a snapshot of counters")]
    NotOurs,
    /// A program that writes another format wrote the file.
    #[error("its format version is {found}; this program reads version {}", super::file::VERSION)]
    OtherVersion {
        /// The version of its format.
        found: u16,
    },
    /// The file ends before its contents begin.
    #[error("it ends early, after {bytes} bytes")]
    Torn {
        /// The length of the file.
        bytes: u64,
    },
    /// The checksum differs from that of its bytes: the file is incomplete or was changed.
    #[error("the checksum of its {bytes} bytes is wrong")]
    Damaged {
        /// The length of the file.
        bytes: u64,
    },
    /// The checksum is right, but the contents are malformed.
    #[error("its list of contents is malformed")]
    Malformed,
    /// The counters of a rule do not fit, such as more keys than its table has place for now, or
    /// cannot be read.
    #[error("the counters of {of}: {source}")]
    Table {
        /// The rule, or limits that come with calls.
        of: String,
        /// The cause.
        source: SnapshotError,
    },
}

/// The reason for which a rule did not continue from saved counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRestored {
    /// No rule has that name any more.
    #[error("there is no such rule any more")]
    NoSuchRule,
    /// The rule's policy is of another kind: its counters start afresh.
    #[error("its policy has another kind: its counters start afresh")]
    OtherPolicy,
    /// The rule's keys have other entries: its counters start afresh.
    #[error("its entries have changed: its counters start afresh")]
    OtherEntries,
    /// Fewer permits fit now than were in flight: those that would last the longest are held.
    #[error("{permits} of its permits in flight do not fit any more, and are not held")]
    InFlight {
        /// The number of permits that are not held.
        permits: u64,
    },
    /// Ids of settled operations find no place, and are unknown.
    #[error("{ids} ids of settled operations are unknown: more were saved than may be known now")]
    Ids {
        /// The number of ids.
        ids: u64,
    },
    /// The rule counts nothing.
    #[error("it counts nothing now")]
    CountsNothing,
    /// Requests arrived before the restore: the counts since then continue.
    #[error("it was in use before it could be restored")]
    InUse,
}

/// The reason for which a table is not restored.
#[derive(Debug)]
pub(in crate::engine) enum TableError {
    /// It is left out.
    Left(NotRestored),
    /// Its counters do not fit, so the file is refused.
    Misfit(SnapshotError),
}

impl From<NotRestored> for TableError {
    fn from(why: NotRestored) -> Self {
        Self::Left(why)
    }
}

impl From<SnapshotError> for TableError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Limit(SavedError::OtherPolicy { .. }) => {
                Self::Left(NotRestored::OtherPolicy)
            }
            error => Self::Misfit(error),
        }
    }
}
