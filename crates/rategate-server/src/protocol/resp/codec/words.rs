//! The words of a command, as positions in the bytes read, or in a copy without quotes.

/// The positions of a command's words. Reused, so that a command allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct WordSpans {
    ranges: Vec<(usize, usize)>,
    /// The words without their quotes, if there were any. All positions then refer to this copy.
    copy: Vec<u8>,
    copied: bool,
    begun: usize,
}

/// The words of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct CommandWords<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl WordSpans {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        if self.copied {
            self.copy.clear();
            self.copied = false;
        }
    }

    pub(super) fn push(&mut self, start: usize, end: usize) {
        self.ranges.push((start, end));
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Begins a word that is copied byte by byte.
    pub(super) fn begin(&mut self) {
        self.copied = true;
        self.begun = self.copy.len();
    }

    pub(super) fn add(&mut self, byte: u8) {
        self.copy.push(byte);
    }

    pub(super) fn end(&mut self) {
        self.ranges.push((self.begun, self.copy.len()));
    }

    pub(super) fn over<'a>(&'a self, bytes: &'a [u8]) -> CommandWords<'a> {
        CommandWords { bytes: if self.copied { &self.copy } else { bytes }, ranges: &self.ranges }
    }
}

impl<'a> CommandWords<'a> {
    /// Returns the number of words, including the name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns `true` if there are no words. A command has at least a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns a word; the name is at 0.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (start, end) = *self.ranges.get(index)?;
        self.bytes.get(start..end)
    }

    /// Returns a word, or an empty one if the command has none at `index`.
    #[inline]
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Returns the words from `index` on.
    #[must_use]
    pub fn skip(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let ranges = self.ranges.get(index..).unwrap_or_default();
        ranges.iter().map(move |&(start, end)| bytes.get(start..end).unwrap_or_default())
    }
}
