//! The fields of draft-ietf-httpapi-ratelimit-headers-11 (May 2026), written and read.
//!
//! No other module knows the draft: a new version of it replaces this one. What is written here is
//! read here as it was, and any bytes give limits or none.
//!
//! * `RateLimit-Policy: "name";q=100;w=60;qu="tokens";pk=:key:` has quotas: `q` in units `qu`,
//!   which are requests if absent, within `w` seconds, for the partition `pk`.
//! * `RateLimit: "name";r=50;t=30` has the rest of each: no more than `r` within `t` seconds. After
//!   them the quota need not be full again.
//!
//! Read, and not written, are tokens as names, which some earlier versions had, and the dictionary
//! of version 07: `limit=100, remaining=50, reset=5`.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::seconds::{sf_integer, whole_seconds};
use super::text::field_text;
use super::unit::QuotaUnit;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The maximum number of items that are read of a line.
const MAX_ITEMS: usize = 32;

/// An item of `RateLimit`, with the numbers of its policy if the response has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: String,
    /// The partition key as it was sent, or nothing.
    pub(crate) partition: String,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset: Option<Duration>,
    pub(crate) quota: Option<u64>,
    pub(crate) window: Option<Duration>,
    /// The unit of the quota; `None` if it is not known here.
    pub(crate) unit: Option<QuotaUnit>,
}

/// Returns the item of a policy without its status: `"name";q=100;w=60`, without `w` if it has no
/// window. `None` if the name is not printable ASCII.
pub(super) fn policy(
    name: &str,
    quota: u64,
    window: Option<Duration>,
    unit: QuotaUnit,
) -> Option<HeaderValue> {
    let mut item = format!("{};q={}", quoted(name)?, sf_integer(quota));
    if let Some(window) = window {
        let _ = write!(item, ";w={}", sf_integer(whole_seconds(window)));
    }
    if unit != QuotaUnit::Requests {
        let _ = write!(item, ";qu={}", quoted(unit.name())?);
    }
    HeaderValue::try_from(item).ok()
}

/// Adds a policy's item, and one of its status, to those in the fields.
pub(super) fn write(
    headers: &mut HeaderMap,
    policy: HeaderValue,
    name: &str,
    remaining: u64,
    reset: Option<Duration>,
) {
    let Some(mut item) = quoted(name) else { return };
    let _ = write!(item, ";r={}", sf_integer(remaining));
    if let Some(reset) = reset {
        let _ = write!(item, ";t={}", sf_integer(whole_seconds(reset)));
    }
    if let Ok(item) = HeaderValue::try_from(item) {
        // A full map cannot hold the fields, which then are left out.
        let _ = headers.try_append(POLICY, policy);
        let _ = headers.try_append(RATELIMIT, item);
    }
}

/// Reads both fields. A line with any invalid part is ignored as a whole.
pub(crate) fn read(headers: &HeaderMap) -> Vec<Item> {
    let items = |name| {
        let lines = headers.get_all(name).into_iter().filter_map(field_text);
        lines.filter_map(items).flatten().take(MAX_ITEMS)
    };
    let policies: Vec<Item> = items(POLICY).collect();
    let with_policy = |item: Item| {
        let named = || policies.iter().filter(|policy| policy.name == item.name);
        let exact = named().find(|policy| policy.partition == item.partition);
        let policy = exact.or_else(|| named().next());
        let unit = policy.map_or(Some(QuotaUnit::Requests), |policy| policy.unit);
        let (quota, window) = policy.map_or((None, None), |policy| (policy.quota, policy.window));
        Item { quota: quota.or(item.quota), window, unit, ..item }
    };
    items(RATELIMIT).map(with_policy).collect()
}

/// Reads a line: a list of items, or a dictionary, which has one limit without a name.
fn items(line: &str) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    let mut entries = Item::default();
    for member in split_outside_quotes(line, b',').take(MAX_ITEMS) {
        let mut fields = split_outside_quotes(member, b';');
        let name = fields.next()?;
        match name.split_once('=') {
            _ if name.starts_with('"') => {}
            Some(("limit", value)) => entries.quota = Some(integer(value)?),
            Some(("remaining", value)) => entries.remaining = Some(integer(value)?),
            Some(("reset", value)) => entries.reset = Some(Duration::from_secs(integer(value)?)),
            _ => {}
        }
        let mut item =
            Item { name: unquoted(name)?, unit: Some(QuotaUnit::Requests), ..Item::default() };
        for field in fields {
            match field.split_once('=') {
                Some(("q", value)) => item.quota = Some(integer(value)?),
                Some(("r", value)) => item.remaining = Some(integer(value)?),
                Some(("t", value)) => item.reset = Some(Duration::from_secs(integer(value)?)),
                Some(("w", "0")) => return None,
                Some(("w", value)) => item.window = Some(Duration::from_secs(integer(value)?)),
                Some(("qu", value)) => item.unit = QuotaUnit::of_name(&unquoted(value)?),
                Some(("pk", value)) => value.clone_into(&mut item.partition),
                _ => {}
            }
        }
        items.push(item);
    }
    items.push(entries);
    items.retain(|item| item.remaining.is_some() || item.quota.is_some());
    Some(items)
}

/// Reads an integer that is not negative: up to 15 digits (RFC 9651, 3.3.1).
fn integer(text: &str) -> Option<u64> {
    let fits = text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// Writes a string (RFC 9651, 3.3.3): printable ASCII, with quotes and backslashes escaped.
fn quoted(text: &str) -> Option<String> {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => return None,
        }
    }
    quoted.push('"');
    Some(quoted)
}

/// Reads a string, or a token as it stands. `None` if a string has no end, or something behind it.
fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let mut characters = inner.chars();
    let mut unquoted = String::new();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(unquoted),
            '\\' => unquoted.push(characters.next()?),
            character => unquoted.push(character),
        }
    }
}

/// Splits a text at separators outside quotes.
fn split_outside_quotes(text: &str, at: u8) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_border = move |character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            _ => {}
        }
        !is_quoted && character == char::from(at)
    };
    text.split(is_border).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue};

    use super::{
        Item, MAX_ITEMS, POLICY, RATELIMIT, items, policy, read, split_outside_quotes, write,
    };
    use crate::headers::QuotaUnit;

    const MAX: u64 = 999_999_999_999_999;

    /// The oracle is the list of items itself.
    #[test]
    fn what_is_written_is_read() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2000 {
            let mut headers = HeaderMap::new();
            let mut written: Vec<Item> = Vec::new();
            for _ in 0..random.usize(..5) {
                let name: String =
                    (0..random.usize(1..9)).map(|_| char::from(random.u8(b' '..=b'~'))).collect();
                let number = |random: &mut fastrand::Rng| random.u64(..=MAX) >> random.u8(..50);
                let item = Item {
                    name: name.clone(),
                    partition: String::new(),
                    remaining: Some(number(&mut random)),
                    reset: random.bool().then(|| Duration::from_secs(number(&mut random))),
                    quota: Some(number(&mut random)),
                    window: random
                        .u8(..4)
                        .ne(&0)
                        .then(|| Duration::from_secs(number(&mut random).max(1))),
                    unit: Some(random.choice(QuotaUnit::ALL).unwrap()),
                };
                if written.iter().any(|other| other.name == name) {
                    continue;
                }
                let (quota, window) = (item.quota.unwrap(), item.window);
                let line = policy(&name, quota, window, item.unit.unwrap()).unwrap();
                write(&mut headers, line, &name, item.remaining.unwrap(), item.reset);
                written.push(item);
            }
            assert_eq!(read(&headers), written);
            // The same items on one line.
            for name in [POLICY, RATELIMIT] {
                let lines = headers.get_all(&name).iter().map(|line| line.to_str().unwrap());
                let line = lines.collect::<Vec<_>>().join(",");
                headers.insert(name, HeaderValue::try_from(line).unwrap());
            }
            assert_eq!(read(&headers), written);
        }
    }

    /// The examples of the draft.
    #[test]
    fn items_find_their_policies() {
        let of = |policies: &'static str, status: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(POLICY, HeaderValue::from_static(policies));
            headers.insert(RATELIMIT, HeaderValue::from_static(status));
            let brief = |item: Item| {
                let window_s = item.window.map(|window| window.as_secs());
                (item.name, item.quota, window_s, item.unit)
            };
            read(&headers).into_iter().map(brief).collect::<Vec<_>>()
        };
        let item = |name: &str, quota, window_s, unit| (name.to_owned(), quota, window_s, unit);
        let requests = Some(QuotaUnit::Requests);
        assert_eq!(
            of(r#""permin";q=50;w=60,"perhr";q=1000;w=3600"#, r#""perhr";r=9;t=9,"permin";r=8"#),
            [
                item("perhr", Some(1000), Some(3600), requests),
                item("permin", Some(50), Some(60), requests)
            ]
        );
        let bytes = r#""peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#;
        assert_eq!(
            of(bytes, r#""peruser";r=1;t=2;pk=:sdfjLJUOUH==:"#),
            [item("peruser", Some(65_535), Some(10), Some(QuotaUnit::ContentBytes))]
        );
        let two = r#""u";q=1;w=1;pk=:YQ==:, "u";q=2;w=2;pk=:Yg==:"#;
        assert_eq!(of(two, r#""u";r=1;pk=:Yg==:"#), [item("u", Some(2), Some(2), requests)]);
        assert_eq!(
            of(r#""a";q=5;w=9;qu="tokens", "b";q=5;qu="smiles""#, r#""a";r=1, "b";r=1, "c";r=1"#),
            [
                item("a", Some(5), Some(9), Some(QuotaUnit::Tokens)),
                item("b", Some(5), None, None),
                item("c", None, None, requests)
            ]
        );
        // A malformed field is ignored, and the other one is not.
        for malformed in [r#""a";q=x;w=9"#, r#""a";q=5;w=0"#, r#""a;q=5"#, "100;w=60"] {
            assert_eq!(of(malformed, r#""a";r=1;t=2"#), [item("a", None, None, requests)]);
        }
    }

    /// A line, and its expected remaining numbers and resets; `None` if the whole line is ignored.
    type Case = (&'static str, Option<&'static [(u64, u64)]>);

    #[test]
    fn structured_fields() {
        let table: [Case; 19] = [
            (r#""default";r=50;t=30"#, Some(&[(50, 30)])),
            (r#""default" ; r=50 ; t=30 "#, Some(&[(50, 30)])),
            ("default;r=50;t=30", Some(&[(50, 30)])),
            (r#""a";r=1;t=2,"b";r=3;t=4"#, Some(&[(1, 2), (3, 4)])),
            (r#""a";t=2;pk=:cHsdsRa894==:;r=1;x"#, Some(&[(1, 2)])),
            (r#""a;r=9;t=9,b";r=1;t=2"#, Some(&[(1, 2)])),
            (r#""a\";r=9;t=9\\";r=1;t=2"#, Some(&[(1, 2)])),
            (r#""default";r=50"#, Some(&[])),
            (r#""default""#, Some(&[])),
            ("limit=100, remaining=50, reset=5", Some(&[(50, 5)])),
            (r#""a";r=999999999999999;t=0"#, Some(&[(999_999_999_999_999, 0)])),
            (r#""a";r=1000000000000000;t=0"#, None),
            (r#""a";r=-1;t=2"#, None),
            (r#""a";r=1.5;t=2"#, None),
            (r#""a";r=;t=2"#, None),
            (r#""a";r=1;t=2,"b";r=x;t=4"#, None),
            (r#""a";r=1;t=2,"b;r=3;t=4"#, None),
            (r#""a"b;r=1;t=2"#, None),
            ("", Some(&[])),
        ];
        for (line, expected) in table {
            let pair = |item: Item| Some((item.remaining?, item.reset?.as_secs()));
            let found = items(line).map(|items| items.into_iter().filter_map(pair).collect());
            assert_eq!(found, expected.map(<[_]>::to_vec), "{line}");
        }
    }

    #[test]
    fn borders_within_quotes_are_none() {
        let split = |text| split_outside_quotes(text, b',').collect::<Vec<_>>();
        assert_eq!(split(r#"a, "b,c" ,d"#), ["a", r#""b,c""#, "d"]);
        assert_eq!(split(r#""a\",b",c"#), [r#""a\",b""#, "c"]);
        assert_eq!(split(r#""open, for ever"#), [r#""open, for ever"#]);
    }

    /// Reads seeded random sequences of what fields consist of. All work is bounded by the length
    /// of a value and the number of items.
    #[test]
    fn any_bytes_give_items_or_none() {
        let pieces: Vec<&str> = r#"" \ ; , = a "a" "a";r=1 ;r= ;t= ;q= ;w= ;qu= pk= : 0 1 - remaining="#
            .split(' ')
            .chain(["999999999999999", " ", "\t", "reset="])
            .collect();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut understood, rounds) = (0, 20_000);
        for _ in 0..rounds {
            let mut headers = HeaderMap::new();
            for name in [POLICY, RATELIMIT, RATELIMIT] {
                let mut bytes = Vec::new();
                for _ in 0..random.usize(..12) {
                    if random.u8(..16) == 0 {
                        bytes.push(random.u8(..));
                    } else {
                        bytes.extend(random.choice(&pieces).unwrap().bytes());
                    }
                }
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(name, value);
                }
            }
            understood += usize::from(!read(&headers).is_empty());
        }
        assert!(understood > rounds / 50, "some are items: {understood}");
        let many = HeaderValue::try_from(r#""a";r=1;t=1,"#.repeat(600)).unwrap();
        let mut headers = HeaderMap::new();
        for _ in 0..10 {
            headers.append(RATELIMIT, many.clone());
        }
        assert_eq!(read(&headers).len(), MAX_ITEMS);
    }
}
