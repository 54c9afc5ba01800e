//! Parsers of the reports of proxies, from right to left: the nearest proxy writes last. Reports
//! further left are unverified input of the writer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName};

/// The maximum number of reports that are read, from the right. Text further left may have any
/// length.
pub const MAX_HOPS: usize = 32;

/// The maximum length of a report, in bytes.
const MAX_REPORT_BYTES: usize = 256;

/// The report of one proxy about its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report<'h> {
    /// The address of the client.
    Address(IpAddr),
    /// An obfuscated name that the proxy has made up for the client: `_hidden` (RFC 7239, 6.3).
    Hidden(&'h str),
    /// A report that could not be parsed.
    Unknown,
}

/// Returns the reports of `X-Forwarded-For`, the nearest proxy's first.
pub(super) fn x_forwarded_for<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Report<'h>> {
    // Several lines form one list, with the last line at its end.
    let lines = headers.get_all(name).into_iter().rev();
    let reports = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
    reports.map(<[u8]>::trim_ascii).filter(|report| !report.is_empty()).take(MAX_HOPS).map(node)
}

/// Returns the reports of `Forwarded` (RFC 7239), the nearest proxy's first.
pub(super) fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = Report<'_>> {
    let lines = headers.get_all(http::header::FORWARDED).into_iter().rev();
    let elements = lines.flat_map(|line| RightToLeft { rest: Some(line.as_bytes()), at: b',' });
    elements.map(<[u8]>::trim_ascii).filter(|it| !it.is_empty()).take(MAX_HOPS).map(element)
}

/// Parses one element of `Forwarded`: `for=192.0.2.60;proto=http;by=203.0.113.43`.
fn element(element: &[u8]) -> Report<'_> {
    if element.len() > MAX_REPORT_BYTES {
        return Report::Unknown;
    }
    let mut found = None;
    for pair in (RightToLeft { rest: Some(element), at: b';' }) {
        let mut halves = pair.splitn(2, |&byte| byte == b'=');
        let (Some(name), Some(value)) = (halves.next(), halves.next()) else { continue };
        if name.trim_ascii().eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                // Each parameter may occur once. Of two, it is unknown which one is meant.
                return Report::Unknown;
            }
            found = Some(value.trim_ascii());
        }
    }
    found.map_or(Report::Unknown, |value| node(unquoted(value)))
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        // Addresses and names contain no escapes. An escape is left unchanged, so it is parsed as
        // neither.
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    }
}

/// Parses an address with or without a port, an obfuscated name, or neither.
fn node(bytes: &[u8]) -> Report<'_> {
    let text = match str::from_utf8(bytes) {
        Ok(text) if text.len() <= MAX_REPORT_BYTES => text,
        _ => return Report::Unknown,
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Report::Address(address.to_canonical());
    }
    if let Some(bracketed) = text.strip_prefix('[') {
        let Some((inside, after)) = bracketed.split_once(']') else { return Report::Unknown };
        let port = after.strip_prefix(':');
        return match inside.parse::<Ipv6Addr>() {
            Ok(address) if after.is_empty() || port.is_some_and(is_port) => {
                Report::Address(IpAddr::V6(address).to_canonical())
            }
            _ => Report::Unknown,
        };
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Report::Unknown;
    }
    if is_made_up(name) {
        return Report::Hidden(name);
    }
    name.parse::<Ipv4Addr>().map_or(Report::Unknown, |address| Report::Address(address.into()))
}

/// Returns `true` for a number of up to five digits, or an obfuscated name.
fn is_port(text: &str) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number || is_made_up(text)
}

fn is_made_up(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() > 1 && text.starts_with('_') && text.bytes().all(is_allowed)
}

/// The parts of a list, the last first. Separators within quotes do not count. Quotes are paired
/// from the right, so text further left cannot split a part.
struct RightToLeft<'h> {
    rest: Option<&'h [u8]>,
    at: u8,
}

impl<'h> Iterator for RightToLeft<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        let list = self.rest.take()?;
        let mut is_quoted = false;
        for (index, &byte) in list.iter().enumerate().rev() {
            if byte == b'"' {
                // Within quotes only an unescaped quote opens them. Outside, any quote closes
                // them.
                is_quoted = !is_quoted || is_escaped(list, index);
            } else if byte == self.at && !is_quoted {
                let (before, from_here) = list.split_at_checked(index)?;
                self.rest = Some(before);
                return from_here.get(1..);
            }
        }
        Some(list)
    }
}

/// Returns `true` if an odd number of backslashes precedes the position.
fn is_escaped(list: &[u8], index: usize) -> bool {
    let before = list.get(..index).unwrap_or_default();
    let backslashes = before.iter().rev().take_while(|&&byte| byte == b'\\').count();
    !backslashes.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use http::header::FORWARDED;
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{MAX_HOPS, Report, forwarded, node, x_forwarded_for};

    const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");

    fn address(text: &str) -> Report<'static> {
        Report::Address(text.parse().unwrap())
    }

    fn headers(name: &HeaderName, lines: &[&[u8]]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line).unwrap())).collect()
    }

    #[test]
    fn nodes() {
        let one = || address("192.0.2.1");
        let six = || address("2001:db8::1");
        let table: [(&str, Report<'_>); 34] = [
            ("192.0.2.1", one()),
            ("192.0.2.1:80", one()),
            ("192.0.2.1:_obf", one()),
            ("192.0.2.1:", Report::Unknown),
            ("192.0.2.1:x", Report::Unknown),
            ("192.0.2.1:123456", Report::Unknown),
            ("192.0.2.1:80:80", Report::Unknown),
            ("192.0.2.256", Report::Unknown),
            ("192.0.2", Report::Unknown),
            ("0192.0.2.1", Report::Unknown),
            ("192.0.2.1 192.0.2.2", Report::Unknown),
            ("::ffff:192.0.2.1", one()),
            ("[::ffff:192.0.2.1]:80", one()),
            ("2001:db8::1", six()),
            ("[2001:db8::1]", six()),
            ("[2001:db8::1]:4711", six()),
            ("[2001:db8::1]:", Report::Unknown),
            ("[2001:db8::1]4711", Report::Unknown),
            ("[2001:db8::1", Report::Unknown),
            ("2001:db8::1]", Report::Unknown),
            ("[192.0.2.1]", Report::Unknown),
            ("[]", Report::Unknown),
            ("fe80::1%eth0", Report::Unknown),
            ("_hidden", Report::Hidden("_hidden")),
            ("_SEVKISEK:80", Report::Hidden("_SEVKISEK")),
            ("_a.b-c_1:_p", Report::Hidden("_a.b-c_1")),
            ("_", Report::Unknown),
            ("_no spaces", Report::Unknown),
            ("unknown", Report::Unknown),
            ("unknown:80", Report::Unknown),
            ("example.com", Report::Unknown),
            ("-1", Report::Unknown),
            ("\"192.0.2.1\"", Report::Unknown),
            ("", Report::Unknown),
        ];
        for (text, expected) in table {
            assert_eq!(node(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(node(&[0xff, 0xfe]), Report::Unknown);
        assert_eq!(node("_".repeat(300).as_bytes()), Report::Unknown);
    }

    #[test]
    fn lines_and_lists_are_read_from_the_right() {
        let given = headers(&XFF, &[b"6.6.6.6, 192.0.2.1", b" 192.0.2.2 ,, ,192.0.2.3,"]);
        let read: Vec<_> = x_forwarded_for(&given, &XFF).collect();
        let expected = ["192.0.2.3", "192.0.2.2", "192.0.2.1", "6.6.6.6"].map(address);
        assert_eq!(read, expected);
    }

    #[test]
    fn forwarded_elements() {
        let table: [(&[u8], Report<'_>); 15] = [
            (b"for=192.0.2.60;proto=http;by=203.0.113.43", address("192.0.2.60")),
            (b"proto=http; FOR = 192.0.2.60 ;by=203.0.113.43", address("192.0.2.60")),
            (b"For=\"[2001:db8:cafe::17]:4711\"", address("2001:db8:cafe::17")),
            (b"for=\"192.0.2.60:80\"", address("192.0.2.60")),
            (b"for=\"_gazonk\"", Report::Hidden("_gazonk")),
            (b"for=unknown", Report::Unknown),
            (b"by=192.0.2.60", Report::Unknown),
            (b"for", Report::Unknown),
            (b"for=", Report::Unknown),
            (b"for=\"", Report::Unknown),
            (b"for=\"\"", Report::Unknown),
            (b"for=1.1.1.1;for=2.2.2.2", Report::Unknown),
            // The client's text for the host is not a parameter of its own.
            (b"host=\"a;for=6.6.6.6\";for=192.0.2.60", address("192.0.2.60")),
            (b"for=192.0.2.60;host=\"a\\\";for=6.6.6.6;x=\\\\\"", address("192.0.2.60")),
            (b"for=\"192.0.2.60\\\"\"", Report::Unknown),
        ];
        for (element, expected) in table {
            let given = headers(&FORWARDED, &[element]);
            let read: Vec<_> = forwarded(&given).collect();
            assert_eq!(read, [expected], "{}", element.escape_ascii());
        }
    }

    /// A quote that the client left open does not include the text that a proxy wrote after it.
    #[test]
    fn an_open_quote_further_left_spoils_nothing() {
        let written_after: [&[u8]; 3] = [
            b"for=\"6.6.6.6, for=192.0.2.1",
            b"for=\"6.6.6.6\\, for=192.0.2.1",
            b"for=6.6.6.6\", for=\"192.0.2.1\"",
        ];
        for line in written_after {
            let given = headers(&FORWARDED, &[line]);
            assert_eq!(forwarded(&given).next(), Some(address("192.0.2.1")));
        }
        let given = headers(&FORWARDED, &[b"for=1.1.1.1, for=2.2.2.2;host=\"a,b\\\"\""]);
        let read: Vec<_> = forwarded(&given).collect();
        assert_eq!(read, [address("2.2.2.2"), address("1.1.1.1")]);
    }

    /// Parses seeded random texts of clients: no byte of them changes the report that a proxy
    /// wrote after them.
    #[test]
    fn nothing_further_left_changes_what_the_nearest_proxy_says() {
        const PIECES: [&str; 16] = [
            "\"", "\\", ";", ",", "=", "for=", "for=\"", "6.6.6.6", "[::1]:80", "_x", "unknown",
            " ", "\t", "host=", "é", "\u{80}",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..5000 {
            let pieces = 0..random.usize(..12);
            let clients: String = pieces.map(|_| random.choice(PIECES).unwrap()).collect();
            for (name, own) in [(XFF, "192.0.2.1"), (FORWARDED, "by=_me;for=\"192.0.2.1:80\"")] {
                let one_line = format!("{clients}, {own}");
                for lines in [&[one_line.as_bytes()][..], &[clients.as_bytes(), own.as_bytes()]] {
                    let given = headers(&name, lines);
                    let first = if name == XFF {
                        x_forwarded_for(&given, &XFF).next()
                    } else {
                        forwarded(&given).next()
                    };
                    assert_eq!(first, Some(address("192.0.2.1")), "{clients:?}");
                }
            }
        }
    }

    #[test]
    fn long_values_are_read_as_far_as_they_count() {
        let long = "6.6.6.6,".repeat(1024) + "192.0.2.1";
        assert!(long.len() > 8192);
        let given = headers(&XFF, &[long.as_bytes()]);
        let read: Vec<_> = x_forwarded_for(&given, &XFF).collect();
        assert_eq!((read.len(), read[0]), (MAX_HOPS, address("192.0.2.1")));

        let wide = format!("{}, 192.0.2.1", "6".repeat(8192));
        let given = headers(&XFF, &[wide.as_bytes()]);
        let read: Vec<_> = x_forwarded_for(&given, &XFF).collect();
        assert_eq!(read, [address("192.0.2.1"), Report::Unknown]);
    }
}
