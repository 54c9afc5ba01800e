//! Why a limit cannot be saved or restored.

use std::error::Error;
use std::{fmt, io};

use rategate_core::portable::WordsError;

use super::wire::{MAX_KEY_BYTES, MAX_RECORD_BYTES, VERSION};

/// Why a limit could not be saved, or restored. Bytes count from zero, from where the reader began.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file does not begin like a snapshot.
    NotASnapshot,
    /// A later version of this crate wrote it.
    NewerVersion {
        /// The version of the format.
        found: u16,
    },
    /// It ends before its end mark.
    Torn {
        /// How many bytes there are.
        at_byte: u64,
    },
    /// What it holds is not what was written, by its checksum, or begins like nothing that was.
    Damaged {
        /// Where the block begins that is wrong.
        at_byte: u64,
    },
    /// The checksum is right, but it is no record, or no header.
    Malformed {
        /// Where it begins.
        at_byte: u64,
    },
    /// It holds other limits than one limiter has: a table's, say.
    NotOneLimiter,
    /// There are other limits in it than the policies that are to go on with them.
    OtherCount {
        /// How many limits were saved.
        found: usize,
        /// How many policies there are.
        policies: usize,
    },
    /// It is no table, or one of other keys: numbers are kept as they are, all else as hashes.
    OtherKeys,
    /// There are more keys in it than the table has room for.
    NoRoom {
        /// How many there is room for.
        keys: usize,
    },
    /// A record is of a policy that the header does not have. Nothing of it was written.
    NoSuchPolicy {
        /// The number of the policy.
        policy: u32,
    },
    /// A key, or a record, is longer than may be. Nothing of it was written.
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The words are no limit, or one of another policy.
    Limit(WordsError),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<WordsError> for SnapshotError {
    fn from(error: WordsError) -> Self {
        Self::Limit(error)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the snapshot cannot be read or written: {error}"),
            Self::NotASnapshot => f.write_str("this is no snapshot of rategate"),
            Self::NewerVersion { found } => {
                write!(f, "a snapshot of version {found}; this program knows up to {VERSION}")
            }
            Self::OtherKeys => f.write_str("the snapshot is of no table, or of other keys"),
            Self::NoRoom { keys } => {
                write!(
                    f,
                    "the snapshot has more keys than there is room for, {keys}: take more room"
                )
            }
            Self::Torn { at_byte } => {
                write!(f, "the snapshot ends early, after {at_byte} bytes; take an older one")
            }
            Self::Damaged { at_byte } => write!(
                f,
                "the snapshot is damaged: the block at byte {at_byte} is not what was written; take an older one"
            ),
            Self::Malformed { at_byte } => {
                write!(f, "the snapshot holds something at byte {at_byte} that is no record")
            }
            Self::NotOneLimiter => f.write_str(
                "the snapshot is not of one limiter; a table's is read record by record",
            ),
            Self::OtherCount { found, policies } => {
                write!(f, "the snapshot is of {found} limits, not of {policies}")
            }
            Self::NoSuchPolicy { policy } => {
                write!(f, "a record of policy {policy}, which the header does not have")
            }
            Self::TooLong { bytes } => write!(
                f,
                "a record of {bytes} bytes; at most {MAX_KEY_BYTES} of a key and {MAX_RECORD_BYTES} in all"
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
