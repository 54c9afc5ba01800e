//! A parser of replies in version 2 of the protocol, which continues where bytes were missing.

use memchr::memchr;

/// The value of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A null: there is no such thing.
    Null,
    /// A whole number.
    Int(i64),
    /// A string of any bytes, or a status such as `OK`.
    Bytes(Vec<u8>),
    /// An error, whose first word is its code.
    Error(String),
    /// A list.
    List(Vec<Self>),
}

/// The reason why bytes are not a reply. The connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// The first byte names no type of version 2.
    #[error("a reply begins with byte {0:#04x}, which is no type of RESP2")]
    Kind(u8),
    /// The line after the type has no end, or is too long.
    #[error("a line of a reply is longer than {MAX_LINE_BYTES} bytes")]
    Line,
    /// The number of a reply, or a length in it, is not one.
    #[error("a reply has a number that is not a whole number of 64 bits")]
    Number,
    /// A string does not end where its length says.
    #[error("a string does not end where its length says")]
    End,
    /// Lists are nested too deep.
    #[error("lists are nested more than {MAX_DEPTH} deep")]
    Depth,
    /// The reply is too long.
    #[error("a reply is longer than {MAX_REPLY_BYTES} bytes")]
    TooLong,
}

/// The maximum number of bytes of a reply.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// The maximum number of bytes of a line, without the bytes that end it.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The maximum depth of nested lists. That of `CLUSTER SLOTS` is 4.
const MAX_DEPTH: usize = 8;
/// The maximum number of elements that a list gets memory for before they arrive.
const MAX_RESERVED: usize = 64;

/// A parser of consecutive replies. It keeps the elements of an incomplete list, so that no byte
/// is parsed twice but those of an incomplete element.
#[derive(Debug, Default)]
pub struct ReplyParser {
    /// The lists that are not complete, the innermost last, each with the number of its missing
    /// elements.
    open: Vec<(usize, Vec<Value>)>,
    /// The number of bytes of the reply that are parsed.
    parsed: usize,
    /// The number of bytes below which parsing again is useless.
    needed: usize,
}

/// An element of a reply.
enum Element {
    Value(Value),
    /// The head of a list of so many elements, of which there is at least one.
    List(usize),
}

impl ReplyParser {
    /// Parses up to the end of a reply. Returns the number of bytes to drop from the front, and
    /// the reply if it is complete.
    ///
    /// Without a reply, the next call needs the bytes that were not dropped, and more.
    ///
    /// # Errors
    ///
    /// [`BadReply`], after which the parser is of no use.
    pub fn parse(&mut self, bytes: &[u8]) -> Result<(usize, Option<Value>), BadReply> {
        let mut rest = bytes;
        loop {
            if rest.len() < self.needed {
                break;
            }
            let before = rest.len();
            let Some(element) = self.element(&mut rest)? else { break };
            self.needed = 0;
            self.parsed = self.parsed.saturating_add(before.saturating_sub(rest.len()));
            if self.parsed > MAX_REPLY_BYTES {
                return Err(BadReply::TooLong);
            }
            let value = match element {
                Element::Value(value) => value,
                Element::List(length) => {
                    if self.open.len() >= MAX_DEPTH {
                        return Err(BadReply::Depth);
                    }
                    self.open.push((length, Vec::with_capacity(length.min(MAX_RESERVED))));
                    continue;
                }
            };
            if let Some(value) = self.close(value) {
                self.parsed = 0;
                return Ok((bytes.len().saturating_sub(rest.len()), Some(value)));
            }
        }
        Ok((bytes.len().saturating_sub(rest.len()), None))
    }

    /// Adds a value to the innermost list, and returns the reply if no list is open any more.
    fn close(&mut self, mut value: Value) -> Option<Value> {
        while let Some((missing, mut list)) = self.open.pop() {
            list.push(value);
            if missing > 1 {
                self.open.push((missing.saturating_sub(1), list));
                return None;
            }
            value = Value::List(list);
        }
        Some(value)
    }

    /// Removes an element from the front, if it is complete.
    fn element(&mut self, rest: &mut &[u8]) -> Result<Option<Element>, BadReply> {
        let Some((&kind, mut after)) = rest.split_first() else { return Ok(None) };
        if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'*') {
            return Err(BadReply::Kind(kind));
        }
        let Some(line) = line(&mut after)? else { return Ok(None) };
        let element = match kind {
            b'+' => Element::Value(Value::Bytes(line.to_vec())),
            b'-' => Element::Value(Value::Error(String::from_utf8_lossy(line).into_owned())),
            b':' => Element::Value(Value::Int(integer(line)?)),
            b'$' => match length(line)? {
                None => Element::Value(Value::Null),
                Some(length) => {
                    let start = rest.len().saturating_sub(after.len());
                    let Some(string) = self.string(start, length, &mut after)? else {
                        return Ok(None);
                    };
                    Element::Value(Value::Bytes(string.to_vec()))
                }
            },
            _ => match length(line)? {
                None => Element::Value(Value::Null),
                Some(0) => Element::Value(Value::List(Vec::new())),
                Some(length) => Element::List(length),
            },
        };
        *rest = after;
        Ok(Some(element))
    }

    /// Removes a string that starts at byte `start` of its element, if it is complete.
    fn string<'a>(
        &mut self,
        start: usize,
        length: usize,
        rest: &mut &'a [u8],
    ) -> Result<Option<&'a [u8]>, BadReply> {
        let end = start.saturating_add(length);
        if end > MAX_REPLY_BYTES.saturating_sub(self.parsed) {
            return Err(BadReply::TooLong);
        }
        let missing = match rest.split_at_checked(length) {
            Some((string, [b'\r', b'\n', after @ ..])) => {
                *rest = after;
                return Ok(Some(string));
            }
            Some((_, [b'\r'])) => 2,
            None | Some((_, [])) => 1,
            Some(_) => return Err(BadReply::End),
        };
        self.needed = end.saturating_add(missing);
        Ok(None)
    }
}

/// Removes a line from the front, if it is complete.
fn line<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BadReply> {
    let bytes = *rest;
    let window = bytes.get(..MAX_LINE_BYTES.saturating_add(1)).unwrap_or(bytes);
    let Some(end) = memchr(b'\r', window) else {
        return if window.len() > MAX_LINE_BYTES { Err(BadReply::Line) } else { Ok(None) };
    };
    let (line, after) = bytes.split_at(end);
    match after {
        [b'\r', b'\n', after @ ..] => *rest = after,
        [b'\r'] => return Ok(None),
        _ => return Err(BadReply::Line),
    }
    Ok(Some(line))
}

fn integer(digits: &[u8]) -> Result<i64, BadReply> {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(BadReply::Number)
}

/// Parses the length of a string or a list; `None` is that of a null, -1.
fn length(digits: &[u8]) -> Result<Option<usize>, BadReply> {
    match integer(digits)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| BadReply::Number),
    }
}
