//! A deny list in the store: somebody publishes who is not welcome, and everybody else keeps a copy.
//!
//! The list lives in one key. Whoever has a copy asks with the copy's [`Version`], and is answered with a few numbers
//! as long as the list is the same. Lengths of time cross the wire, no instants: an entry ends when it does by the store's
//! clock, and a reader who counts what is left from when the answer came lets nobody in sooner, and later by no more than
//! the answer's way. So no machine's clock matters but for its rate.
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
//! A reader with a copy in a `rategate::deny::DenyList` replaces it by each [`Fetched`]: by the id of each name, and the
//! machine's wall clock plus what is left.

use crate::batch::head;
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::reply::{Numbers, Value};

/// The most callers of one list, which come in one answer.
pub const MAX_LISTED: usize = 65_536;
/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// 35 years; what is longer counts as this.
const MAX_LEFT_US: u64 = 1 << 50;

/// A caller who is denied, and for how long yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Who, in 1 to [`MAX_NAME_BYTES`] bytes.
    pub name: Vec<u8>,
    /// Rounded up to microseconds. Zero is nobody.
    pub left_ns: u64,
}

/// Which list a copy is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// Of no copy, and of an empty list.
    pub const NONE: Self = Self(0);
}

/// What the store says to new entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Which list it is now.
    pub version: Version,
    /// How many callers are on it.
    pub listed: u64,
    /// How many found no place: those who would have been welcome again first.
    pub left_out: u64,
}

/// A list that is not the one that was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Which one it is.
    pub version: Version,
    /// All who are denied, those first who are welcome again first.
    pub entries: Vec<Listed>,
}

/// Puts these entries in the place of the list, of which at most `most` callers are kept.
///
/// # Errors
///
/// [`RequestError::Name`], [`RequestError::Full`] for more entries than [`MAX_LISTED`].
pub fn replace(list: &Key, entries: &[Listed], most: usize) -> Result<Command, RequestError> {
    publish(b"r", list, entries, most)
}

/// Adds these entries to the list; of two ends for a caller the later one counts. Sending it twice does no harm but that
/// everybody fetches the list again.
///
/// # Errors
///
/// As for [`replace`].
pub fn extend(list: &Key, entries: &[Listed], most: usize) -> Result<Command, RequestError> {
    publish(b"e", list, entries, most)
}

/// Asks for the list, unless it is the one that is known. Writes nothing, so a replica can answer too.
#[must_use]
pub fn fetch(list: &Key, known: Version) -> Command {
    let mut args = head(Settings::default(), &[]);
    args.push(number(known.0));
    Command::new(Verb::Denied, vec![name_of(list)], args)
}

/// Reads the answer to [`replace`] and [`extend`].
///
/// # Errors
///
/// [`ReplyError`] if it is none.
pub fn read_published(value: &Value) -> Result<Published, ReplyError> {
    let (mut numbers, version) = begin(value)?;
    let (listed, left_out) = (numbers.count()?, numbers.count()?);
    numbers.end()?;
    Ok(Published { version, listed, left_out })
}

/// Reads the answer to [`fetch`]: `None` if the list is the one that was known.
///
/// # Errors
///
/// [`ReplyError`] if it is none.
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
    most: usize,
) -> Result<Command, RequestError> {
    if entries.len() > MAX_LISTED {
        return Err(RequestError::Full);
    }
    let mut args = head(Settings::default(), &[]);
    args.push(mode.to_vec());
    args.push(number(u64::try_from(most.clamp(1, MAX_LISTED)).unwrap_or(u64::MAX)));
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

/// After the clock and what all answers begin with.
fn begin(value: &Value) -> Result<(Numbers<'_>, Version), ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (_now_us, _corrected) = (numbers.count()?, numbers.count()?);
    let version = Version(numbers.count()?);
    Ok((numbers, version))
}

/// No limit has an empty label, so none has this name.
fn name_of(list: &Key) -> Vec<u8> {
    list.state("", b'd')
}
