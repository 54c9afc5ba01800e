//! What a store has lost: the marker that identifies its data.

use crate::command::Command;
use crate::key::KeySpace;
use crate::library::Verb;

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
