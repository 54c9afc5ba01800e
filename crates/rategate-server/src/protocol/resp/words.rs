//! The words of a command: places in the bytes that were read, or in a copy where quotes had to go.

/// Where the words of a command are. Kept and used again, so that a command costs no memory of its own.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    places: Vec<(usize, usize)>,
    /// The words without their quotes, if there were any; then all places are in here.
    copy: Vec<u8>,
    copied: bool,
    begun: usize,
}

/// The words of a command, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    bytes: &'a [u8],
    places: &'a [(usize, usize)],
}

impl Spans {
    pub(super) fn clear(&mut self) {
        self.places.clear();
        if self.copied {
            self.copy.clear();
            self.copied = false;
        }
    }

    pub(super) fn push(&mut self, start: usize, end: usize) {
        self.places.push((start, end));
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// A word that is copied byte by byte.
    pub(super) fn begin(&mut self) {
        self.copied = true;
        self.begun = self.copy.len();
    }

    pub(super) fn add(&mut self, byte: u8) {
        self.copy.push(byte);
    }

    pub(super) fn end(&mut self) {
        self.places.push((self.begun, self.copy.len()));
    }

    pub(super) fn over<'a>(&'a self, bytes: &'a [u8]) -> Words<'a> {
        Words { bytes: if self.copied { &self.copy } else { bytes }, places: &self.places }
    }
}

impl<'a> Words<'a> {
    /// How many there are, with the name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none. A command has a name at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A word, the name at 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (start, end) = *self.places.get(index)?;
        self.bytes.get(start..end)
    }

    /// A word that must be there, or none of any bytes.
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// The words from one on.
    #[must_use]
    pub fn skip(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let places = self.places.get(index..).unwrap_or_default();
        places.iter().map(move |&(start, end)| bytes.get(start..end).unwrap_or_default())
    }
}
