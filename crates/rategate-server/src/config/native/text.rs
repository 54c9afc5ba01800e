//! Values of the native format that have their own grammar.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use rategate_core::span;
use rategate_redis::client::Server as StoreServer;
use rategate_tower::key::Network;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::config::settings::Address;
use crate::rule::Enforcement;

/// A value with its position.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A value that is written as text.
pub(crate) trait Grammar: Sized {
    /// The description for a schema, and examples.
    const WHAT: &'static str;
    const EXAMPLES: &'static [&'static str];

    fn read(text: &str) -> Result<Self, String>;
}

/// A value read by its grammar.
#[derive(Clone, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T: Grammar> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Grammar> Visitor<'_> for TextVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)?;
        T::EXAMPLES.first().map_or(Ok(()), |example| write!(f, ", as in {example:?}"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
        T::read(text).map(Text).map_err(E::custom)
    }
}

impl<T: Grammar> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": T::WHAT, "examples": T::EXAMPLES })
    }
}

/// The grammar of a length of time.
impl Grammar for Duration {
    const WHAT: &'static str = "a duration";
    const EXAMPLES: &'static [&'static str] = &["10s", "20ms", "5min"];

    fn read(text: &str) -> Result<Self, String> {
        match span::parse(text) {
            Ok(0) => Err("a duration of no time".to_owned()),
            Ok(ns) => Ok(Self::from_nanos(ns)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The grammar of an address to listen at.
impl Grammar for Address {
    const WHAT: &'static str = "an address and a port, or a socket in the file system";
    const EXAMPLES: &'static [&'static str] =
        &["127.0.0.1:6380", "[::1]:8080", "unix:/run/rategate.sock"];

    fn read(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path, as in \"unix:/run/rategate.sock\"".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "{text:?} is {}: host names are not supported",
                    "no address and port like \"127.0.0.1:6380\""
                )
            }),
        }
    }
}

/// The name of a host, without a port.
#[derive(Clone, Debug)]
pub(crate) struct HostName(pub(crate) String);

impl Grammar for HostName {
    const WHAT: &'static str = "the name of a host, without a port";
    const EXAMPLES: &'static [&'static str] = &["limits.example.com"];

    fn read(text: &str) -> Result<Self, String> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if (1..=253).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "{text:?} is no host name like \"limits.example.com\", without scheme and port"
        ))
    }
}

/// The access mode of a socket in the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketMode(pub(crate) u32);

impl Grammar for SocketMode {
    const WHAT: &'static str = "the mode of a file, as octal digits";
    const EXAMPLES: &'static [&'static str] = &["0600", "0660", "0666"];

    fn read(text: &str) -> Result<Self, String> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("{text:?} is not from \"0000\" to \"0777\""))
    }
}

/// The grammar of an address or a network.
impl Grammar for Network {
    const WHAT: &'static str = "an address, or a network of them";
    const EXAMPLES: &'static [&'static str] = &["10.0.0.0/8", "127.0.0.1", "2001:db8::/32"];

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{text:?}: {error}"))
    }
}

/// The grammar of the extent to which a rule is enforced.
impl Grammar for Enforcement {
    const WHAT: &'static str = "\"all\", \"shadow\", or a part of the keys";
    const EXAMPLES: &'static [&'static str] = &["all", "shadow", "12.5%"];

    fn read(text: &str) -> Result<Self, String> {
        const INVALID: &str =
            "it is \"all\", \"shadow\", or from \"0%\" to \"100%\" with at most two decimals";
        match text {
            "all" => return Ok(Self::All),
            "shadow" => return Ok(Self::Shadow),
            _ => {}
        }
        let number = text.strip_suffix('%').ok_or(INVALID)?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
            return Err(INVALID.to_owned());
        }
        let whole: u16 = whole.parse().map_err(|_| INVALID)?;
        let hundredths: u16 = format!("{decimals:0<2}").parse().map_err(|_| INVALID)?;
        match whole.saturating_mul(100).saturating_add(hundredths) {
            10_000 => Ok(Self::All),
            share if share < 10_000 => Ok(Self::Share(share)),
            _ => Err(INVALID.to_owned()),
        }
    }
}

/// A server of a store, with the login and database of its address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) server: StoreServer,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u16>,
}

/// Omits the password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl Grammar for StoreUrl {
    const WHAT: &'static str = "a server of a store";
    const EXAMPLES: &'static [&'static str] = &[
        "redis://127.0.0.1:6379",
        "rediss://user:password@store.example:6380/0",
        "unix:/run/redis.sock",
    ];

    /// Parses the address. Errors omit the text, since it may hold a password.
    fn read(text: &str) -> Result<Self, String> {
        const INVALID: &str = "not \"redis://host:port\", \"rediss://host:port\" or \"unix:/path\"";
        let plain = |server| Self { server, user: None, password: None, database: None };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(INVALID.to_owned()),
                path => Ok(plain(StoreServer::Unix(path.into()))),
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or(INVALID)?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(l, r)| (Some(l), r));
        let (address, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((address, number)) => {
                let number = number
                    .parse()
                    .map_err(|_| "the slash must be followed by a database number")?;
                (address, Some(number))
            }
        };
        let (host, port) = host_and_port(address)?;
        let server = match scheme {
            "redis" => StoreServer::Tcp(host, port),
            "rediss" => StoreServer::Tls(host, port),
            _ => return Err(INVALID.to_owned()),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, password)) => (unescaped(user)?, unescaped(password)?),
        };
        Ok(Self { server, user, password, database })
    }
}

fn host_and_port(address: &str) -> Result<(String, u16), String> {
    const INVALID: &str =
        "the scheme must be followed by a host and a port, as in \"redis://127.0.0.1:6379\"";
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(INVALID)?;
            (host, rest.strip_prefix(':'))
        }
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| INVALID))?;
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "?#".contains(c)) {
        return Err(INVALID.to_owned());
    }
    Ok((host.to_owned(), port))
}

/// Decodes `%40`s in a text of an address; `None` if it is empty.
fn unescaped(text: &str) -> Result<Option<String>, String> {
    const INVALID: &str = "a % in a name or password must be followed by two hexadecimal digits";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or(INVALID)?, digit().ok_or(INVALID)?);
        let byte = u8::try_from(high.saturating_mul(16).saturating_add(low));
        bytes.push(byte.map_err(|_| INVALID)?);
    }
    let text = String::from_utf8(bytes).map_err(|_| INVALID)?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(Address::read("127.0.0.1:1"), Ok(Address::loopback(1)));
        assert_eq!(Address::read("unix:/run/a"), Ok(Address::Unix("/run/a".into())));
        for invalid in ["", "localhost:1", "127.0.0.1", ":1", "unix:", "127.0.0.1:99999"] {
            assert!(Address::read(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn enforcement() {
        assert_eq!(Enforcement::read("12.5%"), Ok(Enforcement::Share(1_250)));
        assert_eq!(Enforcement::read("0.01%"), Ok(Enforcement::Share(1)));
        assert_eq!(Enforcement::read("0%"), Ok(Enforcement::Share(0)));
        assert_eq!(Enforcement::read("100%"), Ok(Enforcement::All));
        for invalid in ["", "%", "half", "-1%", "+1%", "100.01%", "1.234%", "1.%", "99999999%", "5"]
        {
            assert!(Enforcement::read(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn servers_of_a_store() {
        let url = StoreUrl::read("rediss://us%40er:p%3Aw@h.example:1/3").unwrap();
        assert_eq!(url.server, StoreServer::Tls("h.example".into(), 1));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("us@er"), Some("p:w")));
        assert_eq!(url.database, Some(3));
        let plain = StoreUrl::read("redis://[::1]").unwrap();
        assert_eq!((plain.server, plain.user), (StoreServer::tcp("::1", 6379), None));
        let password_only = StoreUrl::read("redis://:secret@h:1/").unwrap();
        assert_eq!((password_only.user, password_only.password.as_deref()), (None, Some("secret")));
        assert_eq!(StoreUrl::read("unix:/s").unwrap().server, StoreServer::Unix("/s".into()));
        for invalid in [
            "h:1",
            "http://h:1",
            "redis://",
            "redis://h:x",
            "redis://h/x",
            "redis://%zz@h",
            "unix:",
        ] {
            assert!(StoreUrl::read(invalid).is_err(), "{invalid}");
        }
        let error = StoreUrl::read("redis://u:sesame@h:port").unwrap_err();
        assert!(!error.contains("sesame") && !format!("{url:?}").contains("p:w"));
    }

    #[test]
    fn durations_have_a_length() {
        assert_eq!(Duration::read("20ms"), Ok(Duration::from_millis(20)));
        assert!(Duration::read("0s").is_err() && Duration::read("5").is_err());
    }
}
