//! A line in the common format, or the combined one: `host ident user [date] "request" status bytes
//! "referer" "agent"`.

use memchr::{memchr, memchr_iter};

use super::time::{CLF_BYTES, whole_number};
use super::{Dates, Entry, Parser, SkipReason};
use crate::key::CallerKey;

/// The length of `[`, a date, and `] "`.
const BEFORE_REQUEST: usize = CLF_BYTES.saturating_add(3);

/// The parts of a line up to its request.
pub(super) struct Head<'a> {
    pub(super) at_ns: u64,
    /// The host and the names.
    who: &'a [u8],
    /// The request, from its quote on, and all after it.
    rest: &'a [u8],
}

/// Parses a line up to its request.
///
/// Clients can put any text into the user name and the request, except an unescaped quote. So the
/// date is the text right before the first such quote, whatever looks like a date elsewhere.
pub(super) fn head<'a>(dates: &mut Dates, line: &'a [u8]) -> Result<Head<'a>, SkipReason> {
    let quote = unescaped_quote(line).ok_or(SkipReason::Malformed)?;
    let (head, rest) = line.split_at(quote);
    let start = quote.checked_sub(BEFORE_REQUEST).ok_or(SkipReason::Malformed)?;
    let (who, date) = head.split_at(start);
    let date = date.strip_prefix(b"[").and_then(|date| date.strip_suffix(b"] "));
    let at_ns = date.and_then(|date| dates.clf(date)).ok_or(SkipReason::NoTime)?;
    Ok(Head { at_ns, who, rest })
}

/// Parses the needed parts of a line.
pub(super) fn read<'a>(parser: &mut Parser, line: &'a [u8]) -> Result<Entry<'a>, SkipReason> {
    let Head { at_ns, who, rest } = head(&mut parser.dates, line)?;
    let (request, rest) = quoted(rest).ok_or(SkipReason::Malformed)?;

    let rest = rest.strip_prefix(b" ").ok_or(SkipReason::Malformed)?;
    let (status, rest) = word(rest);
    let (bytes, rest) = word(rest);
    let status = match status {
        b"-" => None,
        digits => Some(super::status(digits).ok_or(SkipReason::Malformed)?),
    };
    let bytes = match bytes {
        b"-" => 0,
        digits => whole_number(digits).ok_or(SkipReason::Malformed)?,
    };
    let (host, names) = word(who);
    let key = match &parser.key {
        CallerKey::Addr => host,
        CallerKey::User => word(names).1.trim_ascii(),
        CallerKey::Path(_) => word(word(request).1).0,
        CallerKey::Agent => agent(rest).ok_or(SkipReason::NoKey)?,
        CallerKey::Json(_) => return Err(SkipReason::NoKey),
    };
    if host.is_empty() || key.is_empty() {
        return Err(SkipReason::NoKey);
    }
    Ok(Entry { at_ns, key, status, bytes })
}

/// Returns the text before the first space, and the text after it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', text) {
        None => (text, &[]),
        Some(space) => {
            let (word, rest) = text.split_at(space);
            (word, rest.get(1..).unwrap_or_default())
        }
    }
}

/// Returns the position of the first quote that has no odd number of backslashes before it.
fn unescaped_quote(text: &[u8]) -> Option<usize> {
    let is_plain = |quote: &usize| {
        let before = text.get(..*quote).unwrap_or_default().iter().rev();
        before.take_while(|byte| **byte == b'\\').count() & 1 == 0
    };
    memchr_iter(b'"', text).find(is_plain)
}

/// Returns the text between a quote and the next unescaped one, and the text after it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"\"")?;
    let (inside, rest) = inner.split_at(unescaped_quote(inner)?);
    Some((inside, rest.get(1..).unwrap_or_default()))
}

/// Returns the second quoted text after the byte count.
fn agent(rest: &[u8]) -> Option<&[u8]> {
    let (_, rest) = quoted(rest)?;
    quoted(rest.strip_prefix(b" ")?).map(|(agent, _)| agent)
}
