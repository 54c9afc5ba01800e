//! Errors of saving and restoring limits.

use std::error::Error;
use std::{fmt, io};

use rategate_core::saved::SavedError;

use super::{MAX_KEY_BYTES, MAX_RECORD_BYTES, VERSION};

/// An error of saving or restoring a limit. Bytes count from zero, from where the reader began.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file does not begin like a snapshot.
    NotASnapshot,
    /// The file has another version of the format than this crate writes.
    OtherVersion {
        /// The version of the format.
        found: u16,
    },
    /// The file ends before its end mark.
    Torn {
        /// The length of the file, in bytes.
        at_byte: u64,
    },
    /// A block differs from what was written, by its checksum or its head.
    Damaged {
        /// The offset of the block.
        at_byte: u64,
    },
    /// The checksum is right, but the block is no valid header, record or end.
    Malformed {
        /// The offset of the block's body, or of the record in it.
        at_byte: u64,
    },
    /// The snapshot is not of one limiter: it holds the limits of a table, for example.
    NotOneLimiter,
    /// The number of limits in the snapshot differs from the number of policies given.
    OtherCount {
        /// The number of limits saved.
        found: usize,
        /// The number of policies given.
        policies: usize,
    },
    /// The snapshot is not of a table, or its keys are of another kind.
    ///
    /// Numbers are kept as they are, all other keys as hashes.
    OtherKeys,
    /// The snapshot has more keys than the table's capacity.
    TableFull {
        /// The capacity of the table.
        keys: usize,
    },
    /// A record names a policy that the header does not have. Nothing of it was written.
    NoSuchPolicy {
        /// The index of the policy.
        policy: u32,
    },
    /// A key or a record is longer than allowed. Nothing of it was written.
    TooLong {
        /// The length in bytes.
        bytes: usize,
    },
    /// The data is no limit, or one of another policy.
    Limit(SavedError),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SavedError> for SnapshotError {
    fn from(error: SavedError) -> Self {
        Self::Limit(error)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the snapshot cannot be read or written: {error}"),
            Self::NotASnapshot => f.write_str("the input is not a rategate snapshot"),
            Self::OtherVersion { found } => {
                write!(f, "snapshot version {found} is not supported: only {VERSION} is")
            }
            Self::OtherKeys => f.write_str("the snapshot is not of a table with keys of this kind"),
            Self::TableFull { keys } => {
                write!(
                    f,
                    "the snapshot has more keys than the capacity of {keys}: use a larger capacity"
                )
            }
            Self::Torn { at_byte } => {
                write!(f, "the snapshot ends early, after {at_byte} bytes: use an older one")
            }
            Self::Damaged { at_byte } => write!(
                f,
                "the snapshot is damaged in the block at byte {at_byte}: use an older one"
            ),
            Self::Malformed { at_byte } => {
                write!(
                    f,
                    "the snapshot is malformed at byte {at_byte}: no valid record begins there"
                )
            }
            Self::NotOneLimiter => {
                f.write_str("the snapshot is not of one limiter: read a table's record by record")
            }
            Self::OtherCount { found, policies } => {
                write!(f, "the snapshot has {found} limits, but {policies} policies were given")
            }
            Self::NoSuchPolicy { policy } => {
                write!(f, "the record names policy {policy}, which the header does not have")
            }
            Self::TooLong { bytes } => write!(
                f,
                "{bytes} bytes are too many: a key has at most {MAX_KEY_BYTES}, \
                 a record {MAX_RECORD_BYTES}"
            ),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl Error for SnapshotError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Limit(error) => Some(error),
            _ => None,
        }
    }
}
