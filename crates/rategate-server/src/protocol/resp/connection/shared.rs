//! Buffers that all connections of a thread share, so that idle connections need none.

use std::cell::Cell;
use std::ops::Range;

use crate::protocol::resp::words::Spans;

#[derive(Default)]
pub(super) struct Shared {
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) spans: Spans,
}

thread_local! {
    static SHARED: Cell<Option<Box<Shared>>> = const { Cell::new(None) };
}

/// Lends the buffers to `to`, which must not wait meanwhile.
pub(super) fn lend<T>(to: impl FnOnce(&mut Shared) -> T) -> T {
    let mut shared = SHARED.take().unwrap_or_default();
    let result = to(&mut shared);
    SHARED.set(Some(shared));
    result
}

impl Shared {
    /// Returns the input buffer at the positions `places`, which it grows as needed.
    pub(super) fn room(&mut self, places: Range<usize>) -> &mut [u8] {
        if self.input.len() < places.end {
            self.input.resize(places.end, 0);
        }
        self.input.get_mut(places).unwrap_or_default()
    }
}
