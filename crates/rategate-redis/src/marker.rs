//! What a store has lost: the marker that identifies its data.

use crate::key::KeySpace;

/// A key that identifies a store's data: written by [`hello`](crate::command::Command::hello), and lost if the store loses its
/// data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub(crate) name: Vec<u8>,
    pub(crate) known: Vec<u8>,
}

impl Marker {
    /// Creates the marker that [`hello`](crate::command::Command::hello) leaves when it replies `since_us` to the same `slot` and
    /// `run`.
    #[must_use]
    pub fn new(keys: &KeySpace, slot: Option<u16>, run: &str, since_us: u64) -> Self {
        Self { name: keys.marker(slot), known: format!("{run} {since_us}").into_bytes() }
    }
}
