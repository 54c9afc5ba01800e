//! What a store is asked besides limits: signs of life of a group's members, and what it has lost.

use crate::command::{Command, number};
use crate::error::ReplyError;
use crate::key::{KeySpace, hex};
use crate::library::Verb;
use crate::limit::MAX_LENGTH_US;
use crate::reply::{Numbers, Value};

/// The most that members share: what is more counts as this.
pub const MAX_TOTAL: u64 = 1 << 51;
/// The most members of a group: who comes then has nothing. A sign of life costs the store a step for each.
pub const MAX_MEMBERS: usize = 4_096;

/// A sign of life of a member that shares a total with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Who: 128 bits that no other member has.
    pub member: [u8; 16],
    /// What all members have together.
    pub total: u64,
    /// What the member cannot give up yet of the share it has.
    pub at_least: u64,
    /// For how long it is a member from now on, in microseconds; 0 to leave at once.
    pub length_us: u64,
    /// How long a share matters after somebody had it for the last time, in microseconds.
    pub memory_us: u64,
}

/// What a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its share of the total.
    pub permits: u64,
    /// How much of it nobody has had for as long as it matters.
    pub fresh: u64,
    /// How many members there are.
    pub members: u64,
    /// When another member's time is over, in microseconds.
    pub changes_in_us: Option<u64>,
    /// The store's clock.
    pub now_us: u64,
    /// As [`Answer::is_marked`](crate::verdict::Answer::is_marked).
    pub is_marked: bool,
}

/// A key by which a store is known: written by [`hello`], and lost with whatever else the store loses at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub(crate) name: Vec<u8>,
    pub(crate) known: Vec<u8>,
}

impl Marker {
    /// The marker as [`hello`] leaves it, that answered with `since_us` to the same `slot` and `run`.
    #[must_use]
    pub fn new(keys: &KeySpace, slot: Option<u16>, run: &str, since_us: u64) -> Self {
        Self { name: keys.marker(slot), known: format!("{run} {since_us}").into_bytes() }
    }
}

/// A sign of life in a group.
#[must_use]
pub fn beat(keys: &KeySpace, group: &[u8], beat: Beat) -> Command {
    let Beat { member, total, at_least, length_us, memory_us } = beat;
    let numbers = [total.min(MAX_TOTAL), at_least.min(MAX_TOTAL)].into_iter();
    let numbers = numbers.chain([length_us.min(MAX_LENGTH_US), memory_us.min(MAX_LENGTH_US)]);
    let name = hex(&member).into_bytes();
    let args = [Vec::new(), Vec::new(), name].into_iter().chain(numbers.map(number)).collect();
    Command::new(Verb::Beat, vec![keys.group(group)], args)
}

/// Reads the answer to a sign of life.
///
/// # Errors
///
/// [`ReplyError`] if it is none.
pub fn read(value: &Value) -> Result<Share, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, (_, is_marked)) = (numbers.count()?, numbers.corrected()?);
    let [permits, fresh, members, changes_in_us] =
        [numbers.count()?, numbers.count()?, numbers.count()?, numbers.count()?];
    numbers.end()?;
    let changes_in_us = (changes_in_us > 0).then_some(changes_in_us);
    Ok(Share { permits, fresh, members, changes_in_us, now_us, is_marked })
}

/// Asks since when the store has lost nothing. `run` names the run of the server; a store that does not have it
/// written down, because it is new, was emptied, or took over, begins now. `slot` is one of the server's, in a
/// cluster. The answer has one count, an instant of the store's clock: read it as one of [`returns`](crate::returns).
#[must_use]
pub fn hello(keys: &KeySpace, slot: Option<u16>, run: &str) -> Command {
    Command::new(Verb::Hello, vec![keys.marker(slot)], vec![run.as_bytes().to_vec()])
}
