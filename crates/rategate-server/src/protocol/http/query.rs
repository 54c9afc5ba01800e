//! The query of an address.

use std::borrow::Cow;

use http::Uri;
use percent_encoding::percent_decode_str;

/// Returns the names and values of a query, in order. `%` and two digits are a byte, `+` is a
/// space. Other text stands for itself.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    let segments = query.split('&').filter(|segment| !segment.is_empty());
    segments.map(|segment| {
        let (name, value) = segment.split_once('=').unwrap_or((segment, ""));
        (decoded(name), decoded(value))
    })
}

/// Returns the first parameter of an address with this name, if it is text.
pub(crate) fn parameter(address: &Uri, name: &str) -> Option<String> {
    let mut pairs = pairs(address.query().unwrap_or_default());
    let (_, value) = pairs.find(|(other, _)| **other == *name.as_bytes())?;
    String::from_utf8(value.into_owned()).ok()
}

/// Returns `true` if each `%` of a query is followed by two hexadecimal digits.
pub(super) fn is_well_formed(query: &str) -> bool {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().iter().take(2);
        digits.filter(|byte| byte.is_ascii_hexdigit()).count() == 2
    };
    query.split('%').skip(1).all(is_escape)
}

fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('+') {
        return percent_decode_str(text).into();
    }
    percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>().into()
}
