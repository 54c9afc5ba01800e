//! Requests besides limits: heartbeats of a group's members, and what a store has lost.

use crate::command::{Command, number};
use crate::error::ReplyError;
use crate::key::{KeySpace, hex};
use crate::library::Verb;
use crate::limit::MAX_LENGTH_US;
use crate::reply::{Numbers, Value};

/// The maximum total that members share; a larger one counts as this.
pub const MAX_TOTAL: u64 = 1 << 51;
/// The maximum number of members of a group; any further member has no share. A heartbeat costs
/// the store a step for each member.
pub const MAX_MEMBERS: usize = 4_096;

/// A heartbeat of a member that shares a total with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The member's identifier: 128 bits that no other member has.
    pub member: [u8; 16],
    /// The total that all members share.
    pub total: u64,
    /// The permits of the member's share that it cannot return yet.
    pub at_least: u64,
    /// The time the membership lasts from now on, in microseconds; 0 to leave at once.
    pub length_us: u64,
    /// The time a share matters after it was last held, in microseconds.
    pub memory_us: u64,
}

/// The reply to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The member's share of the total.
    pub permits: u64,
    /// The part of the gained permits that no member has held for as long as it matters.
    pub fresh: u64,
    /// The number of members.
    pub members: u64,
    /// The time until the share may grow because permits of another member expire, in
    /// microseconds.
    pub changes_in_us: Option<u64>,
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// The marker was confirmed, as in
    /// [`BatchReply::is_marked`](crate::verdict::BatchReply::is_marked).
    pub is_marked: bool,
}

/// A key that identifies a store's data: written by [`hello`], and lost if the store loses its
/// data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub(crate) name: Vec<u8>,
    pub(crate) known: Vec<u8>,
}

impl Marker {
    /// Creates the marker that [`hello`] leaves when it replies `since_us` to the same `slot` and
    /// `run`.
    #[must_use]
    pub fn new(keys: &KeySpace, slot: Option<u16>, run: &str, since_us: u64) -> Self {
        Self { name: keys.marker(slot), known: format!("{run} {since_us}").into_bytes() }
    }
}

/// Returns the command for a heartbeat in a group.
#[must_use]
pub fn heartbeat(keys: &KeySpace, group: &[u8], heartbeat: Heartbeat) -> Command {
    let Heartbeat { member, total, at_least, length_us, memory_us } = heartbeat;
    let numbers = [total.min(MAX_TOTAL), at_least.min(MAX_TOTAL)].into_iter();
    let numbers = numbers.chain([length_us.min(MAX_LENGTH_US), memory_us.min(MAX_LENGTH_US)]);
    let name = hex(&member).into_bytes();
    let args = [Vec::new(), Vec::new(), name].into_iter().chain(numbers.map(number)).collect();
    Command::new(Verb::Heartbeat, vec![keys.group(group)], args)
}

/// Reads the reply to a heartbeat.
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read(value: &Value) -> Result<Share, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, (_, is_marked)) = (numbers.count()?, numbers.corrected()?);
    let [permits, fresh, members, changes_in_us] =
        [numbers.count()?, numbers.count()?, numbers.count()?, numbers.count()?];
    numbers.end()?;
    let changes_in_us = (changes_in_us > 0).then_some(changes_in_us);
    Ok(Share { permits, fresh, members, changes_in_us, now_us, is_marked })
}

/// Returns the command that queries since when the store has lost nothing.
///
/// `run` names the run of the server. A store without a record of that run counts as intact from
/// now on: it is new, was emptied, or took over. `slot` is one of the server's, in a cluster. The
/// reply has one count, an instant of the store's clock; read it as one of
/// [`returns`](crate::returns).
#[must_use]
pub fn hello(keys: &KeySpace, slot: Option<u16>, run: &str) -> Command {
    Command::new(Verb::Hello, vec![keys.marker(slot)], vec![run.as_bytes().to_vec()])
}
