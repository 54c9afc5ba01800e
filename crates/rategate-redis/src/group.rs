//! Requests besides limits: heartbeats of a group's members, and what a store has lost.

use std::num::NonZeroU64;

use rategate_core::node::{Heartbeat, HeartbeatReply};

use crate::command::{Command, number};
use crate::error::ReplyError;
use crate::key::{KeySpace, hex};
use crate::library::Verb;
use crate::limit::MAX_LENGTH_US;
use crate::reply::{Decoded, Numbers, Value};

/// The maximum total that members share; a larger one counts as this.
pub const MAX_TOTAL: u64 = 1 << 51;
/// The maximum number of members of a group; any further member has no share. A heartbeat costs
/// the store a step for each member.
pub const MAX_MEMBERS: usize = 4_096;

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

/// Returns the command for a heartbeat in a group, with its times in whole microseconds.
#[must_use]
pub fn heartbeat(keys: &KeySpace, group: &[u8], heartbeat: &Heartbeat) -> Command {
    let Heartbeat { member, total, at_least, length_ns, memory_ns } = heartbeat;
    // Rounded up: for the store a longer membership is safe, a shorter one is not.
    let times = [length_ns, memory_ns].map(|ns| ns.div_ceil(1_000).min(MAX_LENGTH_US));
    let numbers = [total, at_least].map(|&permits| permits.min(MAX_TOTAL)).into_iter().chain(times);
    let name = hex(member).into_bytes();
    let args = [Vec::new(), Vec::new(), name].into_iter().chain(numbers.map(number)).collect();
    Command::new(Verb::Heartbeat, vec![keys.group(group)], args)
}

/// Reads the reply to a heartbeat.
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read(value: &Value) -> Result<Decoded<HeartbeatReply>, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, (corrected, is_marked)) = (numbers.count()?, numbers.corrected()?);
    let [permits, fresh, members, wait_us] =
        [numbers.count()?, numbers.count()?, numbers.count()?, numbers.count()?];
    numbers.end()?;
    let changes_in_ns = NonZeroU64::new(wait_us.saturating_mul(1_000));
    let content = HeartbeatReply { permits, fresh, members, changes_in_ns };
    Ok(Decoded { now_us, corrected, is_marked, content })
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
