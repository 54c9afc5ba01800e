//! Buffers that all connections of a thread share, so that idle connections need none.

use std::cell::Cell;
use std::ops::Range;

use rategate_protocol::resp::WordSpans;

#[derive(Default)]
pub(super) struct Shared {
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) spans: WordSpans,
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
    /// Returns the input buffer at the positions `range`, which it grows as needed.
    pub(super) fn buffer(&mut self, range: Range<usize>) -> &mut [u8] {
        if self.input.len() < range.end {
            self.input.resize(range.end, 0);
        }
        self.input.get_mut(range).unwrap_or_default()
    }
}
