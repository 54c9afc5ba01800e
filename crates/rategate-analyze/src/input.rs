//! Input streams: plain or gzip, detected by the first bytes, and split into lines in a buffer of
//! fixed size.

use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;

/// The maximum length of a line, without its end.
pub(crate) const MAX_LINE: usize = 65_536;
const BUFFER: usize = 4 * MAX_LINE;

/// Returns the plain bytes of an input.
pub(crate) fn plain<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let (start, is_gzip) = start(&mut input)?;
    let whole = Cursor::new(start).chain(input);
    if !is_gzip {
        return Ok(Box::new(whole));
    }
    Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(MAX_LINE, whole))))
}

/// Returns the first two bytes, as far as they exist, and `true` if they are those of gzip.
pub(crate) fn start(input: &mut impl Read) -> io::Result<(Vec<u8>, bool)> {
    let mut start = Vec::new();
    input.take(2).read_to_end(&mut start)?;
    let is_gzip = start == [0x1f, 0x8b];
    Ok((start, is_gzip))
}

/// An iterator over the lines of one input after another.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The current line is already too long, and is being dropped.
    is_dropping: bool,
}

/// The next item of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A line without its end.
    Line(&'a [u8]),
    /// The end of a line that was too long.
    TooLong,
    /// No complete line before more is read.
    Dry,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER], start: 0, end: 0, is_dropping: false }
    }

    /// Reads once, and returns the number of bytes read, 0 at the end. Call it when the buffer is
    /// dry.
    pub(crate) fn fill(&mut self, input: &mut dyn Read) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end = self.end.saturating_sub(self.start);
        self.start = 0;
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        let count = loop {
            match input.read(free) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end = self.end.saturating_add(count);
        Ok(count)
    }

    /// Returns the next complete line.
    pub(crate) fn next(&mut self) -> Next<'_> {
        let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some(length) = memchr(b'\n', waiting) else {
            if waiting.len() > MAX_LINE {
                self.start = self.end;
                self.is_dropping = true;
            }
            return Next::Dry;
        };
        let line = waiting.get(..length).unwrap_or_default();
        self.start = self.start.saturating_add(length).saturating_add(1);
        if std::mem::take(&mut self.is_dropping) || length > MAX_LINE {
            return Next::TooLong;
        }
        Next::Line(without_return(line))
    }

    /// Returns the last line of the input if it lacks a line end.
    pub(crate) fn last(&mut self) -> Next<'_> {
        let waiting = self.buffer.get(self.start..self.end).unwrap_or_default();
        self.start = self.end;
        if std::mem::take(&mut self.is_dropping) || waiting.len() > MAX_LINE {
            return Next::TooLong;
        }
        if waiting.is_empty() { Next::Dry } else { Next::Line(without_return(waiting)) }
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
