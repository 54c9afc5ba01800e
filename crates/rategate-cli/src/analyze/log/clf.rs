//! A line in the common format, or the combined one: `host ident user [date] "request" status bytes
//! "referer" "agent"`.

use memchr::{memchr, memchr_iter};

use super::time::{CLF_BYTES, whole_number};
use super::{Entry, Parser, Unread};
use crate::analyze::key::Source;

/// `[`, a date, `] "`.
const BEFORE_REQUEST: usize = CLF_BYTES.saturating_add(3);

/// Reads what is needed of a line.
///
/// Whoever calls can write what they like into the name of a user and into a request, but no quote that
/// is not escaped. So the date is what stands right before the first quote, whatever looks like one elsewhere.
pub(super) fn read<'a>(parser: &mut Parser, line: &'a [u8]) -> Result<Entry<'a>, Unread> {
    let quote = memchr(b'"', line).ok_or(Unread::Malformed)?;
    let (head, rest) = line.split_at(quote);
    let start = quote.checked_sub(BEFORE_REQUEST).ok_or(Unread::Malformed)?;
    let (who, date) = head.split_at(start);
    let date = date.strip_prefix(b"[").and_then(|date| date.strip_suffix(b"] "));
    let at_ns = date.and_then(|date| parser.remembered.clf(date)).ok_or(Unread::NoTime)?;
    let (request, rest) = quoted(rest).ok_or(Unread::Malformed)?;

    let rest = rest.strip_prefix(b" ").ok_or(Unread::Malformed)?;
    let (status, rest) = word(rest);
    let (bytes, rest) = word(rest);
    let status = match status {
        b"-" => None,
        digits => Some(super::status(digits).ok_or(Unread::Malformed)?),
    };
    let bytes = match bytes {
        b"-" => 0,
        digits => whole_number(digits).ok_or(Unread::Malformed)?,
    };
    let (host, names) = word(who);
    let key = match &parser.source {
        Source::Addr => host,
        Source::User => word(names).1.trim_ascii(),
        Source::Path(_) => word(word(request).1).0,
        Source::Agent => agent(rest).ok_or(Unread::NoKey)?,
        Source::Json(_) => return Err(Unread::NoKey),
    };
    if host.is_empty() || key.is_empty() {
        return Err(Unread::NoKey);
    }
    Ok(Entry { at_ns, key, status, bytes })
}

/// What stands before the first space, and behind it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', text) {
        None => (text, &[]),
        Some(space) => {
            let (word, rest) = text.split_at(space);
            (word, rest.get(1..).unwrap_or_default())
        }
    }
}

/// What stands between a quote and the next one that is not escaped, and what is behind it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"\"")?;
    let is_plain = |quote: &usize| {
        let before = inner.get(..*quote).unwrap_or_default().iter().rev();
        before.take_while(|byte| **byte == b'\\').count() & 1 == 0
    };
    let end = memchr_iter(b'"', inner).find(is_plain)?;
    let (inside, rest) = inner.split_at(end);
    Some((inside, rest.get(1..).unwrap_or_default()))
}

/// The second text of what follows the bytes.
fn agent(rest: &[u8]) -> Option<&[u8]> {
    let (_, rest) = quoted(rest)?;
    quoted(rest.strip_prefix(b" ")?).map(|(agent, _)| agent)
}
