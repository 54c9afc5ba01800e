//! The text format of deny lists, with a parser, a formatter and their errors.
//!
//! The first line is `# rategate deny list 1`. Each line after it is an entry: the second of
//! Unix time at which the denial ends, a tab, and the client's name. A name is any bytes, at
//! least one; all but printable ASCII, and the backslash, are written as `\xHH`. Every line
//! ends with a newline, including the last, so that a line that was cut is not taken for a
//! shorter name.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, Read as _, Write};
use std::str;

/// The first line of a list.
const HEADING: &str = "# rategate deny list 1";
/// The longest name of a client, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// The longest line: a number, a tab, a name whose every byte is escaped, and a newline.
const MAX_LINE_BYTES: u64 = 1_048;
const SECOND_NS: u64 = 1_000_000_000;

/// A client that is denied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The client's name, in 1 to [`MAX_NAME_BYTES`] bytes.
    pub name: Vec<u8>,
    /// The second of Unix time at which the denial ends.
    pub until_s: u64,
}

impl Entry {
    /// Returns the end in nanoseconds, at most the end of 64 bits in the year 2554.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.until_s.saturating_mul(SECOND_NS)
    }
}

/// An error of reading a list.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The system reported an error.
    Io(io::Error),
    /// The text is not a deny list, or one that is too long.
    InvalidLine {
        /// The line, counted from 1.
        line: u64,
        /// The error in that line.
        problem: InvalidLine,
    },
}

/// An error in a line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLine {
    /// The first line is not that of a deny list of this version.
    Heading,
    /// A line is not a second, a tab and a name.
    Malformed,
    /// A name has a byte that has to be escaped, or a backslash that begins no `\xHH`.
    Escape,
    /// A name is longer than [`MAX_NAME_BYTES`].
    NameTooLong,
    /// The last line has no end: the file was cut, or is being written in place.
    Cut,
    /// There are more entries than the capacity.
    TooMany {
        /// The capacity.
        max_entries: usize,
    },
}

/// Parses a list of at most `max_entries` entries.
pub(super) fn parse(input: &mut impl BufRead, max_entries: usize) -> Result<Vec<Entry>, FileError> {
    let mut entries = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let problem = |problem| FileError::InvalidLine { line, problem };
        input.take(MAX_LINE_BYTES.saturating_add(1)).read_until(b'\n', &mut text)?;
        if text.is_empty() && line > 1 {
            break;
        }
        let is_long = u64::try_from(text.len()).is_ok_and(|length| length > MAX_LINE_BYTES);
        let ended = text.strip_suffix(b"\n");
        if line == 1 {
            match ended {
                Some(heading) if heading == HEADING.as_bytes() => continue,
                _ => return Err(problem(InvalidLine::Heading)),
            }
        }
        let whole = ended.ok_or(problem(if is_long {
            InvalidLine::NameTooLong
        } else {
            InvalidLine::Cut
        }))?;
        if entries.len() >= max_entries {
            return Err(problem(InvalidLine::TooMany { max_entries }));
        }
        entries.push(entry(whole).map_err(problem)?);
    }
    Ok(entries)
}

/// Writes a list in the text format.
pub(super) fn format<'a>(
    output: &mut impl Write,
    entries: impl IntoIterator<Item = (&'a [u8], u64)>,
) -> io::Result<()> {
    writeln!(output, "{HEADING}")?;
    for (name, until_s) in entries {
        writeln!(output, "{until_s}\t{}", escaped(name))?;
    }
    Ok(())
}

/// Escapes a name for display and for files.
///
/// Printable ASCII stays; all other bytes and the backslash become `\xHH`.
///
/// ```
/// assert_eq!(rategate::deny::escaped(b"a b\\\xff"), "a b\\x5c\\xff");
/// ```
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\\' => text.push_str("\\x5c"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.extend([format!("\\x{byte:02x}")]),
        }
    }
    text
}

fn entry(line: &[u8]) -> Result<Entry, InvalidLine> {
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or(InvalidLine::Malformed)?;
    let (until, name) = line.split_at(tab);
    let is_number = until.iter().all(u8::is_ascii_digit);
    let until = str::from_utf8(until).ok().filter(|_| is_number);
    let until_s = until.and_then(|until| until.parse().ok()).ok_or(InvalidLine::Malformed)?;
    let name = unescaped(name.get(1..).unwrap_or_default()).ok_or(InvalidLine::Escape)?;
    match name.len() {
        0 => Err(InvalidLine::Malformed),
        length if length > MAX_NAME_BYTES => Err(InvalidLine::NameTooLong),
        _ => Ok(Entry { name, until_s }),
    }
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        match first {
            b'\\' => {
                let (digits, rest) = rest.strip_prefix(b"x")?.split_at_checked(2)?;
                // `from_str_radix` would accept a sign.
                let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
                let digits = str::from_utf8(digits).ok().filter(|_| are_digits)?;
                name.push(u8::from_str_radix(digits, 16).ok()?);
                left = rest;
            }
            b' '..=b'~' => name.push(*first),
            _ => return None,
        }
    }
    Some(name)
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::InvalidLine { line, problem } => write!(f, "line {line}: {problem}"),
        }
    }
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heading => {
                write!(f, "not a deny list of this version; the first line must be \"{HEADING}\"")
            }
            Self::Malformed => f.write_str("not a second of Unix time, a tab and a name"),
            Self::Escape => f.write_str(
                "unescaped byte in the name: write all but printable ASCII, and \\, as \\xHH",
            ),
            Self::NameTooLong => {
                write!(f, "the name is too long; it must have at most {MAX_NAME_BYTES} bytes")
            }
            Self::Cut => f.write_str(
                "the line has no end: write a list completely before renaming it into place",
            ),
            Self::TooMany { max_entries } => {
                write!(f, "too many entries: the list has a capacity of {max_entries}")
            }
        }
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::InvalidLine { .. } => None,
        }
    }
}

impl Error for InvalidLine {}
