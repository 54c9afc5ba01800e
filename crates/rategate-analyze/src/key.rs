//! Identification of callers: from the text of a log line to the name that is counted.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rategate::deny::AddressGroups;

use crate::settings::{SettingError, Settings};

/// The maximum length of a stored name; longer ones are still distinguished.
pub(crate) const MAX_NAME: usize = rategate::deny::MAX_NAME_BYTES;

/// The part of a line that identifies the caller: parsed from `"addr"`, `"user"`, `"agent"`,
/// `"path"`, `"path=2"` or `"json=user.id"`, and printed so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerKey {
    /// The address.
    Addr,
    /// The name of the user.
    User,
    /// The user agent.
    Agent,
    /// The first segments of the path, by their number. `usize::MAX` is all of it, without the
    /// query.
    Path(usize),
    /// A field of a JSON object, or, as in `user.id`, one within others.
    Json(String),
}

impl FromStr for CallerKey {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let key = match text.split_once('=') {
            None => match text {
                "addr" => Some(Self::Addr),
                "user" => Some(Self::User),
                "agent" => Some(Self::Agent),
                "path" => Some(Self::Path(usize::MAX)),
                _ => None,
            },
            Some(("path", count)) => count.parse().ok().filter(|count| *count > 0).map(Self::Path),
            Some(("json", field)) if !field.is_empty() => Some(Self::Json(field.to_owned())),
            Some(_) => None,
        };
        let complaint = "not a key; write one of addr, user, agent, path, path=2, json=FIELD";
        key.ok_or_else(|| SettingError::new(complaint))
    }
}

impl fmt::Display for CallerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr => f.write_str("addr"),
            Self::User => f.write_str("user"),
            Self::Agent => f.write_str("agent"),
            Self::Path(usize::MAX) => f.write_str("path"),
            Self::Path(segments) => write!(f, "path={segments}"),
            Self::Json(field) => write!(f, "json={field}"),
        }
    }
}

/// Converts texts of log lines to names of callers.
#[derive(Debug)]
pub(crate) struct Namer {
    key: CallerKey,
    groups: AddressGroups,
    /// Each IPv4 address is a caller of its own, so the name is the text itself.
    is_v4_whole: bool,
}

impl Namer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let groups = AddressGroups::default().with_v4(settings.group_v4);
        let groups = groups.with_v6(settings.group_v6);
        Self { key: settings.key.clone(), groups, is_v4_whole: settings.group_v4 >= 32 }
    }

    /// Returns the name of a caller. It is written to `name` if it differs from the text.
    pub(crate) fn name<'a>(&self, written: &'a [u8], name: &'a mut Vec<u8>) -> &'a [u8] {
        match self.key {
            CallerKey::Addr => match self.network(written) {
                None => written,
                Some(network) => {
                    name.clear();
                    name.extend_from_slice(network.as_bytes());
                    name
                }
            },
            CallerKey::Path(segments) => path(written, segments),
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
    use super::{Namer, path};
    use crate::settings::{Limit, Settings};

    #[test]
    fn addresses_are_grouped() {
        let limit = Limit::any_window("1/s").unwrap();
        for (group_v4, group_v6, written, name) in [
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
            let settings = Settings { group_v4, group_v6, ..Settings::new(limit.clone()) };
            let namer = Namer::new(&settings);
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
