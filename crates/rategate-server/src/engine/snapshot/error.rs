//! Why counters cannot be saved or restored.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rategate::snapshot::SnapshotError;

/// Why counters were not saved, or not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file, or its directory, cannot be used: it is missing, read-only, full.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process keeps its counters there, or another engine of this one.
    #[error("cannot keep counters in `{}`: another process does", path.display())]
    InUse {
        /// In which file.
        path: PathBuf,
    },
    /// A table cannot be written.
    #[error("cannot save counters to `{}`: {source}", path.display())]
    Table {
        /// To which file.
        path: PathBuf,
        /// Why not.
        source: SnapshotError,
    },
    /// The file is not what was written. Nothing of it is used.
    #[error("cannot restore counters from `{}`: {why}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: Unreadable,
    },
}

/// What is wrong with a file of counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not begin like a file of counters.
    #[error("it is no file of counters")]
    NotOurs,
    /// A program that is newer than this one wrote it.
    #[error("it is of version {found}, and this program knows up to {}", super::file::VERSION)]
    OtherVersion {
        /// The version.
        found: u16,
    },
    /// It ends before it has begun.
    #[error("it ends early, after {bytes} bytes")]
    Torn {
        /// How many there are.
        bytes: u64,
    },
    /// Its checksum is not that of its bytes: it ends early, or has been changed.
    #[error("its {bytes} bytes are not those that were written")]
    Damaged {
        /// How many there are.
        bytes: u64,
    },
    /// The checksum is right, and yet it makes no sense.
    #[error("what it says of itself makes no sense")]
    Malformed,
}

/// Why a rule did not go on from what was saved of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRestored {
    /// There is no rule of that name any more.
    #[error("there is no such rule any more")]
    NoSuchRule,
    /// Its policy is of another kind: it begins anew.
    #[error("its policy is of another kind now: it begins anew")]
    OtherPolicy,
    /// Its keys are told apart by other entries: it begins anew.
    #[error("its entries are others now: it begins anew")]
    OtherEntries,
    /// It counts nothing.
    #[error("it counts nothing now")]
    CountsNothing,
    /// Somebody has asked it before it was restored: what was counted since goes on.
    #[error("it was in use before it could be restored")]
    InUse,
    /// What was saved does not fit into it, or cannot be read. Its keys count as spent.
    #[error("{0}: all its keys count as spent")]
    Spent(Arc<SnapshotError>),
}
