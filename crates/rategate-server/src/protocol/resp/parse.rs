//! Bytes become commands: arrays of bulk strings, or lines of words. No IO, no clock, no memory for what is only announced.
//!
//! The texts of what is refused are those of Redis, and so is what it lets pass: an array of no or of fewer elements is
//! nothing. Two things are stricter. A length ends with a carriage return and a line feed, and so does a bulk string: what
//! lies there instead is not skipped, because a client that counts otherwise than the server would have its data read as
//! commands.

use memchr::{memchr, memchr2};

use super::words::{Spans, Words};

/// How much a client may send as one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most bytes of a command, with all its lengths. At least 64.
    pub frame_bytes: usize,
    /// The most words of a command.
    pub words: usize,
    /// Whether it has yet to say who it is: then 10 words and 16 KiB are the most, as in Redis.
    pub unauthenticated: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { frame_bytes: 64 << 10, words: 1024, unauthenticated: false }
    }
}

/// The most bytes of a length: sign, digits, and what ends it.
const LONGEST_LENGTH: usize = 24;
/// The most words before a client has said who it is.
const UNAUTHENTICATED_WORDS: usize = 10;
/// The most bytes of a word before that.
const UNAUTHENTICATED_BYTES: usize = 16_384;
/// The longest line of words, whatever a frame may have.
const LONGEST_LINE: usize = 64 << 10;

/// What lies at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command of so many bytes; its words are in the spans.
    Command(usize),
    /// So many bytes that ask for nothing: an empty line, an empty array.
    Nothing(usize),
    /// The start of a command. Looking again is no use with fewer than so many bytes in all.
    Short(usize),
    /// No command, and nobody can say where the next one starts: the connection ends.
    Broken(Broken),
}

/// Why bytes are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The number of words is none, or too many.
    #[error("invalid multibulk length")]
    Multibulk,
    /// The number of words does not end.
    #[error("too big mbulk count string")]
    MultibulkText,
    /// The number of words is too many for somebody who has not said who it is.
    #[error("unauthenticated multibulk length")]
    MultibulkUnauthenticated,
    /// A word has another type than a bulk string.
    #[error("expected '$', got '{}'", shown(*.0))]
    NoBulk(u8),
    /// A word's length is none, or too much.
    #[error("invalid bulk length")]
    Bulk,
    /// A word's length does not end.
    #[error("too big bulk count string")]
    BulkText,
    /// A word is too long for somebody who has not said who it is.
    #[error("unauthenticated bulk length")]
    BulkUnauthenticated,
    /// A word is longer than its length said.
    #[error("a bulk string does not end where its length says")]
    BulkEnd,
    /// A line of words is too long.
    #[error("too big inline request")]
    Line,
    /// A line's quotes do not match.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// What a length line says.
enum Length {
    Is(i64),
    Short,
    TooLong,
    Bad,
}

/// Looks at the front of `bytes` for one command, whose words go into `spans`. Costs nothing but time: a look at each length,
/// and at no byte of a bulk string.
///
/// The same bytes give the same steps however they arrive.
#[must_use]
pub fn parse(bytes: &[u8], bounds: &Bounds, spans: &mut Spans) -> Step {
    spans.clear();
    match bytes {
        [] => Step::Short(1),
        [b'*', rest @ ..] => array(bytes, rest, bounds, spans),
        _ => line(bytes, bounds, spans),
    }
}

fn array(bytes: &[u8], mut rest: &[u8], bounds: &Bounds, spans: &mut Spans) -> Step {
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

/// Whether a word that starts so far into a command leaves it within its bounds.
fn fits(size: usize, start: usize, bounds: &Bounds) -> bool {
    start.saturating_add(2).checked_add(size).is_some_and(|end| end <= bounds.frame_bytes)
}

/// Takes a length and its end off the front.
fn length(rest: &mut &[u8]) -> Length {
    // Nearly all there are.
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
    let window = rest.get(..LONGEST_LENGTH).unwrap_or(rest);
    let Some(end) = memchr(b'\r', window) else {
        return if window.len() < LONGEST_LENGTH { Length::Short } else { Length::TooLong };
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

/// A number as Redis reads lengths: no plus, no zeros before it, no spaces.
fn strict(digits: &[u8]) -> Option<i64> {
    let magnitude = digits.strip_prefix(b"-").unwrap_or(digits);
    match magnitude {
        [b'0'] if magnitude.len() == digits.len() => Some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

fn line(bytes: &[u8], bounds: &Bounds, spans: &mut Spans) -> Step {
    let longest = LONGEST_LINE.min(bounds.frame_bytes);
    let window = bytes.get(..longest).unwrap_or(bytes);
    let Some(end) = memchr(b'\n', window) else {
        return if bytes.len() < longest {
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

/// The words of a line; quotes as in a shell, `\x41` and the escapes of C within double ones. Whether all quotes are closed.
fn split(text: &[u8], most: usize, spans: &mut Spans) -> bool {
    if memchr2(b'"', b'\'', text).is_none() {
        let mut end = 0_usize;
        for word in text.split(|byte| ends_word(*byte)) {
            end = end.saturating_add(word.len());
            let size = skip_space(word).len();
            if size > 0 && spans.len() <= most {
                spans.push(end.saturating_sub(size), end);
            }
            end = end.saturating_add(1);
        }
        return true;
    }
    let mut rest = skip_space(text);
    while !rest.is_empty() && spans.len() <= most {
        let Some(after) = quoted(rest, spans) else { return false };
        rest = skip_space(after);
    }
    true
}

/// One word, without its quotes; what comes after it.
fn quoted<'a>(mut rest: &'a [u8], spans: &mut Spans) -> Option<&'a [u8]> {
    spans.begin();
    loop {
        match rest {
            [] => break,
            [end, ..] if ends_word(*end) => break,
            [quote @ (b'"' | b'\''), after @ ..] => {
                rest = within(*quote, after, spans)?;
                // A word ends with its quotes.
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

/// What stands between quotes; what comes after the closing one.
fn within<'a>(quote: u8, mut rest: &'a [u8], spans: &mut Spans) -> Option<&'a [u8]> {
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

/// What may stand between words.
const fn is_space(byte: u8) -> bool {
    ends_word(byte) || matches!(byte, 0x0b | 0x0c)
}

/// What a word without quotes goes up to.
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

/// A byte in the line of an error.
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

/// The words of the command that was just found in `bytes`.
#[must_use]
pub fn words<'a>(bytes: &'a [u8], spans: &'a Spans) -> Words<'a> {
    spans.over(bytes)
}
