//! A limiter as plain data.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use rategate_core::saved::Saved;
use serde::{Deserialize, Serialize};

use super::VERSION;
use super::error::SnapshotError;
use super::reader::SnapshotReader;
use super::record::{Header, Record};
use super::time::SavedAt;
use super::writer::SnapshotWriter;

/// A limiter in plain data: the instant of saving, and its limits.
///
/// [`Limiter::snapshot`](crate::Limiter::snapshot) creates it. [`save`](Self::save) stores it
/// in a file of its own; serde stores it in any other format, which then has to ensure its own
/// integrity. JSON holds the numbers in it.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::snapshot::Snapshot;
/// use rategate::{Limiter, SlidingLog};
///
/// let limiter = Limiter::new(SlidingLog::new(5, Duration::from_secs(1)));
/// limiter.try_acquire(3)?;
/// let text = serde_json::to_string(&limiter.snapshot())?;
/// let saved: Snapshot = serde_json::from_str(&text)?;
/// assert_eq!(saved.limits(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Snapshot {
    saved_at: SavedAt,
    limits: Vec<Saved>,
}

impl Snapshot {
    pub(super) const fn of(saved_at: SavedAt, limits: Vec<Saved>) -> Self {
        Self { saved_at, limits }
    }

    /// Returns the instant of saving.
    #[must_use]
    pub const fn saved_at(&self) -> &SavedAt {
        &self.saved_at
    }

    /// Returns the number of limits of the limiter.
    #[must_use]
    pub const fn limits(&self) -> usize {
        self.limits.len()
    }

    pub(super) fn saved(&self) -> &[Saved] {
        &self.limits
    }

    /// Writes the snapshot, with an end mark and checksums.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`], and [`SnapshotError::TooLong`] for a log of some 40 million
    /// instants.
    pub fn write_to(&self, output: impl Write) -> Result<(), SnapshotError> {
        let policies = self.limits.iter().map(|limit| limit.policy);
        let mut writer = SnapshotWriter::new(output, Header::new(self.saved_at, policies))?;
        for (limit, policy) in self.limits.iter().zip(0..) {
            let state = limit.state.clone();
            writer.write(&Record { key: Vec::new(), policy, state })?;
        }
        writer.finish()?;
        Ok(())
    }

    /// Reads a whole snapshot, up to its end mark.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] for anything but a whole snapshot of one limiter.
    pub fn read_from(input: impl Read) -> Result<Self, SnapshotError> {
        let mut reader = SnapshotReader::new(input)?;
        let saved_at = *reader.header().saved_at();
        let policies = reader.header().policies().to_vec();
        let mut limits = Vec::new();
        for (policy, index) in policies.into_iter().zip(0..) {
            match reader.next().transpose()? {
                Some(record) if record.key.is_empty() && record.policy == index => {
                    limits.push(Saved { policy, state: record.state });
                }
                _ => return Err(SnapshotError::NotOneLimiter),
            }
        }
        match reader.next().transpose()? {
            None => Ok(Self { saved_at, limits }),
            Some(_) => Err(SnapshotError::NotOneLimiter),
        }
    }

    /// Writes the snapshot into a file, which replaces an existing one atomically.
    ///
    /// It first writes a new file in the same directory, with `.part` appended to the name. That
    /// file is renamed once it is whole and on the disk.
    ///
    /// # Errors
    ///
    /// As [`write_to`](Self::write_to). The existing file is unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        let mut partial_path = path.as_os_str().to_owned();
        partial_path.push(".part");
        let file = File::create(&partial_path)?;
        self.write_to(&file)?;
        file.sync_all()?;
        Ok(fs::rename(&partial_path, path)?)
    }

    /// Reads a snapshot from a file.
    ///
    /// # Errors
    ///
    /// As [`read_from`](Self::read_from).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        Self::read_from(File::open(path)?)
    }
}

/// The serde representation of a snapshot.
#[derive(Serialize, Deserialize)]
struct Form {
    version: u16,
    saved_at: SavedAt,
    limits: Vec<Saved>,
}

impl From<Snapshot> for Form {
    fn from(Snapshot { saved_at, limits }: Snapshot) -> Self {
        Self { version: VERSION, saved_at, limits }
    }
}

impl TryFrom<Form> for Snapshot {
    type Error = SnapshotError;

    fn try_from(Form { version, saved_at, limits }: Form) -> Result<Self, SnapshotError> {
        match version {
            VERSION => Ok(Self { saved_at, limits }),
            found => Err(SnapshotError::OtherVersion { found }),
        }
    }
}
