//! Deny lists in the store, published by one process and copied by many.
//!
//! A list lives in one key. A reader sends the [`Version`] of its copy, and receives only a few
//! numbers while the list is unchanged. The wire carries durations, not instants: an entry ends
//! by the store's clock. A reader that counts the rest from the arrival of the reply admits no
//! client too soon, and late by at most the reply's travel time. So no machine's clock matters
//! but for its rate.
//!
//! ```
//! use rategate_redis::denied::{self, Listed, Version};
//! use rategate_redis::key::KeySpace;
//! use rategate_redis::library::Library;
//!
//! let list = KeySpace::new("shop")?.key(b"noisy");
//! let noisy = Listed { name: b"10.0.0.7".to_vec(), left_ns: 600_000_000_000 };
//! let publish = denied::extend(&list, &[noisy], denied::MAX_LISTED)?;
//! let fetch = denied::fetch(&list, Version::NONE);
//! # let _ = (publish.fcall(Library::LIVE), fetch.fcall(Library::LIVE));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A reader with a copy in a `rategate::deny::DenyList` replaces it by each [`Fetched`]. It
//! passes the id of each name, and the machine's wall clock plus the time left.

use crate::batch::head;
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::reply::{Numbers, Value};

/// The maximum number of clients on one list, which come in one reply.
pub const MAX_LISTED: usize = 65_536;
/// The maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// The maximum time left, 35 years; a longer one counts as this.
const MAX_LEFT_US: u64 = 1 << 50;

/// A denied client, and the time left until it is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of the client, 1 to [`MAX_NAME_BYTES`] bytes.
    pub name: Vec<u8>,
    /// The time left, rounded up to microseconds. An entry of zero is ignored.
    pub left_ns: u64,
}

/// The version of a list, which changes with each publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of an empty list, and of a reader without a copy.
    pub const NONE: Self = Self(0);
}

/// The reply to published entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The version of the list now.
    pub version: Version,
    /// The number of clients on the list.
    pub listed: u64,
    /// The number of clients left out because the list is full: those whose time ends first.
    pub left_out: u64,
}

/// A list whose version differs from the known one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The version of the list.
    pub version: Version,
    /// All denied clients, in the order in which their time ends.
    pub entries: Vec<Listed>,
}

/// Returns the command that replaces the list, of which at most `max_entries` clients are kept.
///
/// # Errors
///
/// [`RequestError::Name`], [`RequestError::Full`] for more entries than [`MAX_LISTED`].
pub fn replace(
    list: &Key,
    entries: &[Listed],
    max_entries: usize,
) -> Result<Command, RequestError> {
    publish(b"r", list, entries, max_entries)
}

/// Returns the command that adds entries to the list; of two ends for a client the later one
/// counts.
///
/// Sending it twice does no harm, except that every reader fetches the list again.
///
/// # Errors
///
/// As for [`replace`].
pub fn extend(list: &Key, entries: &[Listed], max_entries: usize) -> Result<Command, RequestError> {
    publish(b"e", list, entries, max_entries)
}

/// Returns the command that fetches the list, unless its version is `known`. It writes nothing,
/// so a replica can answer too.
#[must_use]
pub fn fetch(list: &Key, known: Version) -> Command {
    let mut args = head(Settings::default(), &[]);
    args.push(number(known.0));
    Command::new(Verb::Denied, vec![name_of(list)], args)
}

/// Reads the reply to [`replace`] and [`extend`].
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read_published(value: &Value) -> Result<Published, ReplyError> {
    let (mut numbers, version) = begin(value)?;
    let (listed, left_out) = (numbers.count()?, numbers.count()?);
    numbers.end()?;
    Ok(Published { version, listed, left_out })
}

/// Reads the reply to [`fetch`]: `None` if the version is unchanged.
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read_fetched(value: &Value, known: Version) -> Result<Option<Fetched>, ReplyError> {
    let (mut left, version) = begin(value)?;
    let mut entries = Vec::new();
    while !left.is_empty() {
        if entries.len() >= MAX_LISTED {
            return Err(ReplyError::Length);
        }
        let name = left.bytes()?.to_vec();
        let left_us = left.count()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(ReplyError::Shape);
        }
        entries.push(Listed { name, left_ns: left_us.saturating_mul(1_000) });
    }
    if version != known {
        return Ok(Some(Fetched { version, entries }));
    }
    if entries.is_empty() { Ok(None) } else { Err(ReplyError::Length) }
}

fn publish(
    mode: &[u8],
    list: &Key,
    entries: &[Listed],
    max_entries: usize,
) -> Result<Command, RequestError> {
    if entries.len() > MAX_LISTED {
        return Err(RequestError::Full);
    }
    let mut args = head(Settings::default(), &[]);
    args.push(mode.to_vec());
    args.push(number(u64::try_from(max_entries.clamp(1, MAX_LISTED)).unwrap_or(u64::MAX)));
    for Listed { name, left_ns } in entries {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(RequestError::Name);
        }
        if *left_ns > 0 {
            args.push(name.clone());
            args.push(number(left_ns.div_ceil(1_000).min(MAX_LEFT_US)));
        }
    }
    Ok(Command::new(Verb::List, vec![name_of(list)], args))
}

/// Reads the clock, the part common to all replies, and the version.
fn begin(value: &Value) -> Result<(Numbers<'_>, Version), ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (_now_us, _corrected) = (numbers.count()?, numbers.count()?);
    let version = Version(numbers.count()?);
    Ok((numbers, version))
}

/// Returns the name of the list's key. No limit has an empty label, so no state has this name.
fn name_of(list: &Key) -> Vec<u8> {
    list.state("", b'd')
}
