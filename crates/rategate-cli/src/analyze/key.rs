//! Identification of callers: from the text of a log line to the name that is counted.

use std::net::IpAddr;

use rategate::deny::AddressGroups;

use super::args::AnalyzeArgs;
use crate::failure::Failure;

/// The maximum length of a stored name; longer ones are still distinguished.
pub(super) const MAX_NAME: usize = rategate::deny::MAX_NAME_BYTES;

/// The part of a line that identifies the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Addr,
    User,
    Agent,
    /// The first segments of the path, by their number.
    Path(usize),
    /// A field of a JSON object.
    Json(String),
}

impl Source {
    /// Parses `--key`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let fail = || {
            let complaint = "not a key; write one of addr, user, agent, path, path=2, json=FIELD";
            Failure::argument("--key", text, complaint)
        };
        match text.split_once('=') {
            None => match text {
                "addr" => Ok(Self::Addr),
                "user" => Ok(Self::User),
                "agent" => Ok(Self::Agent),
                "path" => Ok(Self::Path(usize::MAX)),
                _ => Err(fail()),
            },
            Some(("path", count)) => match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Path(count)),
                _ => Err(fail()),
            },
            Some(("json", field)) if !field.is_empty() => Ok(Self::Json(field.to_owned())),
            Some(_) => Err(fail()),
        }
    }
}

/// Converts texts of log lines to names of callers.
#[derive(Debug)]
pub(super) struct Namer {
    source: Source,
    groups: AddressGroups,
    /// Each IPv4 address is a caller of its own, so the name is the text itself.
    is_v4_whole: bool,
}

impl Namer {
    pub(super) fn new(source: Source, args: &AnalyzeArgs) -> Self {
        Self::grouped(source, args.group_v4, args.group_v6)
    }

    fn grouped(source: Source, v4_bits: u8, v6_bits: u8) -> Self {
        let groups = AddressGroups::default().with_v4(v4_bits).with_v6(v6_bits);
        Self { source, groups, is_v4_whole: v4_bits == 32 }
    }

    /// Returns the name of a caller. It is written to `name` if it differs from the text.
    pub(super) fn name<'a>(&self, written: &'a [u8], name: &'a mut Vec<u8>) -> &'a [u8] {
        match self.source {
            Source::Addr => match self.network(written) {
                None => written,
                Some(network) => {
                    name.clear();
                    name.extend_from_slice(network.as_bytes());
                    name
                }
            },
            Source::Path(segments) => path(written, segments),
            _ => written,
        }
    }

    /// Returns the network of an address, unless the text itself is the name.
    fn network(&self, written: &[u8]) -> Option<String> {
        let is_v4 = !written.contains(&b':');
        if is_v4 && (self.is_v4_whole || !written.first()?.is_ascii_digit()) {
            return None;
        }
        let text = std::str::from_utf8(written).ok()?;
        let address = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok()?;
        Some(self.groups.name(address))
    }
}

/// Returns the first segments of a path without its query: of `/a/b/c?d` two are `/a/b`.
fn path(written: &[u8], segments: usize) -> &[u8] {
    let end = written.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(written.len());
    let path = written.get(..end).unwrap_or_default();
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let cut = slashes.map(|(at, _)| at).nth(segments);
    let named = cut.and_then(|cut| path.get(..cut)).unwrap_or(path);
    // A name must not be empty, so "?a" stays whole.
    if named.is_empty() { written } else { named }
}

#[cfg(test)]
mod tests {
    use super::{Namer, Source, path};

    #[test]
    fn addresses_are_grouped() {
        for (v4_bits, v6_bits, written, name) in [
            (32, 64, "10.1.2.3", "10.1.2.3"),
            (24, 64, "10.1.2.3", "10.1.2.0/24"),
            (0, 64, "10.1.2.3", "0.0.0.0/0"),
            (32, 64, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            (32, 128, "2001:DB8::0:1", "2001:db8::1"),
            (32, 0, "2001:db8::1", "::/0"),
            (32, 64, "::ffff:10.1.2.3", "10.1.2.3"),
            (24, 64, "host.example", "host.example"),
            (24, 64, "10.1.2.300", "10.1.2.300"),
            (24, 64, ":::", ":::"),
        ] {
            let namer = Namer::grouped(Source::Addr, v4_bits, v6_bits);
            let mut scratch = Vec::new();
            let group = namer.name(written.as_bytes(), &mut scratch);
            assert_eq!(String::from_utf8_lossy(group), name, "{written}");
        }
    }

    #[test]
    fn paths_are_cut_between_segments() {
        for (segments, written, name) in [
            (2, "/a/b/c?d", "/a/b"),
            (2, "/a/b", "/a/b"),
            (1, "/a?b/c", "/a"),
            (usize::MAX, "/a/b/c?d", "/a/b/c"),
            (1, "/", "/"),
            (1, "-", "-"),
            (1, "?a", "?a"),
        ] {
            let cut = path(written.as_bytes(), segments);
            assert_eq!(String::from_utf8_lossy(cut), name, "{written}");
        }
    }
}
