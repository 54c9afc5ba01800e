//! A parser of commands: arrays of bulk strings, or lines of words. It uses no IO, no clock, and
//! no memory for what is only announced.
//!
//! Its errors have the texts of Redis, and it accepts what Redis accepts: an array of zero or
//! fewer elements is nothing. Two things are stricter. A length and a bulk string each end with a
//! carriage return and a line feed, and other bytes there are not skipped. A client that counts
//! differently from the server would otherwise have its data read as commands.
//!
//! The codec is our own: libraries allocate a value for each word, and an array as long as its
//! header announces. Here words are borrowed from the buffer that was read.

use memchr::{memchr, memchr2};

use super::words::{CommandWords, WordSpans};

/// The maximum size of a client's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of bytes of a command, with all its lengths. At least 64.
    pub frame_bytes: usize,
    /// The maximum number of words of a command.
    pub words: usize,
    /// `true` while the client is not authenticated. The maximum is then 10 words and 16 KiB, as
    /// in Redis.
    pub unauthenticated: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { frame_bytes: 64 << 10, words: 1024, unauthenticated: false }
    }
}

/// The maximum number of bytes of a length: sign, digits and line end.
const MAX_LENGTH_BYTES: usize = 24;
/// The maximum number of words of a client that is not authenticated.
const UNAUTHENTICATED_WORDS: usize = 10;
/// The maximum number of bytes of a word of such a client.
const UNAUTHENTICATED_BYTES: usize = 16_384;
/// The maximum length of an inline command in bytes, whatever the frame limit is.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The element at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command of the given length in bytes. Its words are in the spans.
    Command(usize),
    /// Bytes that request nothing, such as an empty line or an empty array.
    Nothing(usize),
    /// The start of a command. Parsing again is useless with fewer bytes in all than the given
    /// number.
    Short(usize),
    /// An invalid command. The start of the next one is unknown, so the connection ends.
    Broken(Broken),
}

/// The reason why bytes are not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The number of words is missing or too large.
    #[error("invalid multibulk length")]
    Multibulk,
    /// The text of the number of words does not end.
    #[error("too big mbulk count string")]
    MultibulkText,
    /// The number of words is too large for a client that is not authenticated.
    #[error("unauthenticated multibulk length")]
    MultibulkUnauthenticated,
    /// A word has another type than a bulk string.
    #[error("expected '$', got '{}'", shown(*.0))]
    NoBulk(u8),
    /// The length of a word is missing or too large.
    #[error("invalid bulk length")]
    Bulk,
    /// The text of a word's length does not end.
    #[error("too big bulk count string")]
    BulkText,
    /// A word is too long for a client that is not authenticated.
    #[error("unauthenticated bulk length")]
    BulkUnauthenticated,
    /// A word is longer than its length states.
    #[error("a bulk string does not end where its length says")]
    BulkEnd,
    /// An inline command is too long.
    #[error("too big inline request")]
    Line,
    /// The quotes of an inline command are unbalanced.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The result of reading a length.
enum Length {
    Is(i64),
    Short,
    TooLong,
    Bad,
}

/// Parses one command at the front of `bytes`, and puts its words into `spans`.
///
/// The parser reads each length and no byte of a bulk string. Equal bytes give equal steps however
/// they arrive.
#[must_use]
pub fn parse(bytes: &[u8], bounds: &Bounds, spans: &mut WordSpans) -> Step {
    spans.clear();
    match bytes {
        [] => Step::Short(1),
        [b'*', rest @ ..] => array(bytes, rest, bounds, spans),
        _ => line(bytes, bounds, spans),
    }
}

fn array(bytes: &[u8], mut rest: &[u8], bounds: &Bounds, spans: &mut WordSpans) -> Step {
    let words = match length(&mut rest) {
        Length::Is(words) => words,
        Length::Short => return Step::Short(bytes.len().saturating_add(1)),
        Length::TooLong => return Step::Broken(Broken::MultibulkText),
        Length::Bad => return Step::Broken(Broken::Multibulk),
    };
    if words <= 0 {
        return Step::Nothing(bytes.len().saturating_sub(rest.len()));
    }
    let words = usize::try_from(words).unwrap_or(usize::MAX);
    if words > bounds.words {
        return Step::Broken(Broken::Multibulk);
    }
    if bounds.unauthenticated && words > UNAUTHENTICATED_WORDS {
        return Step::Broken(Broken::MultibulkUnauthenticated);
    }
    for _ in 0..words {
        match rest {
            [] => return Step::Short(bytes.len().saturating_add(1)),
            [b'$', after @ ..] => rest = after,
            [other, ..] => return Step::Broken(Broken::NoBulk(*other)),
        }
        let size = match length(&mut rest) {
            Length::Is(size) => size,
            Length::Short => return Step::Short(bytes.len().saturating_add(1)),
            Length::TooLong => return Step::Broken(Broken::BulkText),
            Length::Bad => return Step::Broken(Broken::Bulk),
        };
        let start = bytes.len().saturating_sub(rest.len());
        let Some(size) = usize::try_from(size).ok().filter(|size| fits(*size, start, bounds))
        else {
            return Step::Broken(Broken::Bulk);
        };
        if bounds.unauthenticated && size > UNAUTHENTICATED_BYTES {
            return Step::Broken(Broken::BulkUnauthenticated);
        }
        let end = start.saturating_add(size);
        match rest.get(size..) {
            Some([b'\r', b'\n', after @ ..]) => rest = after,
            Some([] | [_]) | None => return Step::Short(end.saturating_add(2)),
            Some(_) => return Step::Broken(Broken::BulkEnd),
        }
        spans.push(start, end);
    }
    Step::Command(bytes.len().saturating_sub(rest.len()))
}

/// Returns `true` if a word that starts at `start` keeps the command within its bounds.
fn fits(size: usize, start: usize, bounds: &Bounds) -> bool {
    start.saturating_add(2).checked_add(size).is_some_and(|end| end <= bounds.frame_bytes)
}

/// Removes a length and its line end from the front.
fn length(rest: &mut &[u8]) -> Length {
    // Fast paths for one and two digits, which nearly all lengths have.
    match *rest {
        [ones @ b'0'..=b'9', b'\r', b'\n', after @ ..] => {
            *rest = after;
            return Length::Is(i64::from(ones & 15));
        }
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', after @ ..] => {
            *rest = after;
            return Length::Is(
                i64::from(tens & 15).wrapping_mul(10).wrapping_add(i64::from(ones & 15)),
            );
        }
        _ => {}
    }
    let window = rest.get(..MAX_LENGTH_BYTES).unwrap_or(rest);
    let Some(end) = memchr(b'\r', window) else {
        return if window.len() < MAX_LENGTH_BYTES { Length::Short } else { Length::TooLong };
    };
    let (digits, after) = rest.split_at(end);
    match after {
        [b'\r'] => Length::Short,
        [b'\r', b'\n', after @ ..] => {
            *rest = after;
            strict(digits).map_or(Length::Bad, Length::Is)
        }
        _ => Length::Bad,
    }
}

/// Parses a number as Redis reads lengths: no plus sign, no leading zeros, no spaces.
fn strict(digits: &[u8]) -> Option<i64> {
    let magnitude = digits.strip_prefix(b"-").unwrap_or(digits);
    match magnitude {
        [b'0'] if magnitude.len() == digits.len() => Some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

fn line(bytes: &[u8], bounds: &Bounds, spans: &mut WordSpans) -> Step {
    let max_line = MAX_LINE_BYTES.min(bounds.frame_bytes);
    let window = bytes.get(..max_line).unwrap_or(bytes);
    let Some(end) = memchr(b'\n', window) else {
        return if bytes.len() < max_line {
            Step::Short(bytes.len().saturating_add(1))
        } else {
            Step::Broken(Broken::Line)
        };
    };
    let text = bytes.get(..end).unwrap_or_default();
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let consumed = end.saturating_add(1);
    if !split(text, bounds.words, spans) {
        return Step::Broken(Broken::Quotes);
    }
    match spans.len() {
        0 => Step::Nothing(consumed),
        words if words > bounds.words => Step::Broken(Broken::Line),
        _ => Step::Command(consumed),
    }
}

/// Splits a line into words, with quotes as in a shell; `\x41` and the escapes of C work within
/// double quotes. Returns `false` if a quote is not closed.
fn split(text: &[u8], max_words: usize, spans: &mut WordSpans) -> bool {
    if memchr2(b'"', b'\'', text).is_none() {
        let mut end = 0_usize;
        for word in text.split(|byte| ends_word(*byte)) {
            end = end.saturating_add(word.len());
            let size = skip_space(word).len();
            if size > 0 && spans.len() <= max_words {
                spans.push(end.saturating_sub(size), end);
            }
            end = end.saturating_add(1);
        }
        return true;
    }
    let mut rest = skip_space(text);
    while !rest.is_empty() && spans.len() <= max_words {
        let Some(after) = quoted(rest, spans) else { return false };
        rest = skip_space(after);
    }
    true
}

/// Reads one word without its quotes. Returns the rest after it.
fn quoted<'a>(mut rest: &'a [u8], spans: &mut WordSpans) -> Option<&'a [u8]> {
    spans.begin();
    loop {
        match rest {
            [] => break,
            [end, ..] if ends_word(*end) => break,
            [quote @ (b'"' | b'\''), after @ ..] => {
                rest = within(*quote, after, spans)?;
                // A quoted word ends with its closing quote.
                if rest.first().is_some_and(|byte| !is_space(*byte)) {
                    return None;
                }
                break;
            }
            [byte, after @ ..] => {
                spans.add(*byte);
                rest = after;
            }
        }
    }
    spans.end();
    Some(rest)
}

/// Reads the text up to the closing quote. Returns the rest after that quote.
fn within<'a>(quote: u8, mut rest: &'a [u8], spans: &mut WordSpans) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match (quote, rest) {
            (_, []) => return None,
            (b'"', [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high).wrapping_mul(16).wrapping_add(hex(*low)), after)
            }
            (b'"', [b'\\', escaped, after @ ..]) => (unescaped(*escaped), after),
            (b'\'', [b'\\', b'\'', after @ ..]) => (b'\'', after),
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (_, [byte, after @ ..]) => (*byte, after),
        };
        spans.add(byte);
        rest = after;
    }
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

/// Returns `true` for a byte that may separate words.
const fn is_space(byte: u8) -> bool {
    ends_word(byte) || matches!(byte, 0x0b | 0x0c)
}

/// Returns `true` for a byte that ends a word without quotes.
const fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// Returns a byte as an error shows it.
fn shown(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        _ if byte.is_ascii_graphic() || byte == b' ' => char::from(byte),
        _ => '?',
    }
}

fn hex(digit: u8) -> u8 {
    u8::try_from(char::from(digit).to_digit(16).unwrap_or(0)).unwrap_or(0)
}

/// Returns the words of the command that was just found in `bytes`.
#[must_use]
pub fn words<'a>(bytes: &'a [u8], spans: &'a WordSpans) -> CommandWords<'a> {
    spans.over(bytes)
}
