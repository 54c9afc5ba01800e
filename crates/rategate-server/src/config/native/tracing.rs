//! Values of the table `tracing` that have their own grammar.

use super::text::Grammar;
use crate::config::settings::{Receiver, Sample};

/// The grammar of a receiver of spans, or "off".
impl Grammar for Option<Receiver> {
    const WHAT: &'static str = "the receiver of spans by OTLP over HTTP, or \"off\"";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:4318", "off"];

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(None) } else { receiver(text).map(Some) }
    }
}

/// The grammar of a percentage.
impl Grammar for Sample {
    const WHAT: &'static str = "a part of the decisions";
    const EXAMPLES: &'static [&'static str] = &["1%", "0.01%", "100%"];

    fn read(text: &str) -> Result<Self, String> {
        const INVALID: &str = "it must be from \"0%\" to \"100%\" with at most four decimals";
        let number = text.strip_suffix('%').ok_or(INVALID)?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
            return Err(INVALID.to_owned());
        }
        let whole: u32 = whole.parse().map_err(|_| INVALID)?;
        let ten_thousandths: u32 = format!("{decimals:0<4}").parse().map_err(|_| INVALID)?;
        let sample = whole.saturating_mul(10_000).saturating_add(ten_thousandths);
        Self::new(sample).ok_or_else(|| INVALID.to_owned())
    }
}

/// Parses the address of a receiver. Errors omit the text, since it may hold a password.
fn receiver(text: &str) -> Result<Receiver, String> {
    const INVALID: &str =
        "it must be \"off\", or a host and a port, as in \"http://127.0.0.1:4318\"";
    if text.starts_with("https://") {
        return Err(
            "spans are sent without TLS; write http:// and a collector nearby that forwards them"
                .to_owned(),
        );
    }
    let rest = text.strip_prefix("http://").ok_or(INVALID)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').ok_or(INVALID)?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').ok_or(INVALID)?,
        None if host.contains(':') => return Err(INVALID.to_owned()),
        None => host,
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    let is_path = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) || !path.bytes().all(is_path) {
        return Err(INVALID.to_owned());
    }
    let path = match path.trim_end_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    };
    match port.parse() {
        Ok(port) if port > 0 => Ok(Receiver { host: host.to_owned(), port, path }),
        _ => Err(INVALID.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers() {
        let of = |text: &str| Option::<Receiver>::read(text).unwrap().unwrap();
        let plain = of("http://127.0.0.1:4318");
        assert_eq!((plain.host(), plain.port()), ("127.0.0.1", 4318));
        assert_eq!(plain.to_string(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(of("http://[::1]:4318/").host(), "::1");
        assert_eq!(of("http://[::1]:4318/").to_string(), "http://[::1]:4318/v1/traces");
        assert_eq!(of("http://a-b.c:1/x/y/").to_string(), "http://a-b.c:1/x/y/v1/traces");
        assert_eq!(Option::<Receiver>::read("off"), Ok(None));
        let invalid = [
            "",
            "127.0.0.1:4318",
            "http://",
            "http://h",
            "http://h:",
            "http://h:0",
            "http://h:65536",
            "http://:4318",
            "http://::1:4318",
            "http://[::1:4318",
            "http://h:1?x",
            "http://h:1/a b",
            "grpc://h:1",
        ];
        for invalid in invalid {
            assert!(Option::<Receiver>::read(invalid).is_err(), "{invalid}");
        }
        let secret = Option::<Receiver>::read("http://user:sesame@h:1").unwrap_err();
        assert!(!secret.contains("sesame"));
        let tls = Option::<Receiver>::read("https://h:4318").unwrap_err();
        assert!(tls.contains("without TLS"), "{tls}");
    }

    #[test]
    fn samples() {
        let of = |text: &str| Sample::read(text).map(Sample::of_a_million);
        assert_eq!(of("1%"), Ok(10_000));
        assert_eq!(of("0.0001%"), Ok(1));
        assert_eq!(of("0%"), Ok(0));
        assert_eq!(of("100%"), Ok(1_000_000));
        for invalid in
            ["", "%", "1", "0.01", "-1%", "100.0001%", "0.00001%", "1.%", ".5%", "9999999999%"]
        {
            assert!(of(invalid).is_err(), "{invalid}");
        }
    }
}
