//! Settings of the protocols.

use std::collections::HashSet;

use rategate_tower::key::Network;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::config::rules::Reader;
use crate::config::text::{FieldName, HostName, Text, text, texts};
use crate::rule::Counting;

/// The header fields of HTTP answers, and the accepted host names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The header fields with the caller's status: "ietf", "x-ratelimit". Default: the first.
    pub headers: Vec<Dialect>,
    /// Host names by which browsers reach the service, such as a proxy's, or of pages that call it.
    /// Localhost and addresses need not be listed. Default: none.
    #[serde(deserialize_with = "hosts")]
    #[schemars(with = "Vec<Text<HostName>>")]
    pub hosts: Vec<String>,
    /// Networks of the proxies whose `X-Forwarded-For` is trusted. Without any, the client is the
    /// peer of the connection. Default: none.
    #[serde(deserialize_with = "texts")]
    #[schemars(with = "Vec<Text<Network>>")]
    pub trusted_proxies: Vec<Network>,
}

impl Http {
    /// Reports a style that is listed twice.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        let mut seen = HashSet::new();
        if let Some(twice) = self.headers.iter().find(|&&dialect| !seen.insert(dialect)) {
            let message = format!("{:?} is in the list twice", twice.name());
            let help = "leave out one: each style is written once";
            reader.suggest("http.headers", message, help);
        }
    }
}

/// Header fields with the caller's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`, structured fields: the current IETF draft. `"ietf"`.
    #[serde(rename = "ietf")]
    Current,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` in seconds from now.
    /// `"x-ratelimit"`.
    #[serde(rename = "x-ratelimit")]
    Legacy,
}

impl Dialect {
    /// Returns the word of a configuration.
    const fn name(self) -> &'static str {
        match self {
            Self::Current => "ietf",
            Self::Legacy => "x-ratelimit",
        }
    }
}

/// The behaviour of Envoy's protocol.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Grpc {
    /// Count a denied call in those limits that it fits. Counted windows count it in any case.
    /// Default: false.
    pub count_denied: bool,
    /// The counted windows that count a call which is over any of them: "all" of the call, or with
    /// "stop" those that it is over, and not those that it fits. Default: "all".
    pub counting: Counting,
    /// Let every call pass, and report limits that are over only in the descriptors' statuses.
    /// Default: false.
    pub shadow: bool,
    /// Treat every limit as a quota: a call is over only if all of its descriptors are.
    /// Default: false.
    pub quota: bool,
    /// Let several files in Envoy's format share a domain, with the descriptors of all of them.
    /// Default: false.
    pub merge_domains: bool,
    /// Put the caller's status under the nearest limit in `response_headers_to_add`.
    /// Default: false.
    pub headers: bool,
    /// The name of the header field with the limit. Default: "RateLimit-Limit".
    #[serde(deserialize_with = "field_name")]
    #[schemars(with = "Text<FieldName>")]
    pub limit_header: String,
    /// The name of the header field with the permits left. Default: "RateLimit-Remaining".
    #[serde(deserialize_with = "field_name")]
    #[schemars(with = "Text<FieldName>")]
    pub remaining_header: String,
    /// The name of the header field with the seconds until the reset.
    /// Default: "RateLimit-Reset".
    #[serde(deserialize_with = "field_name")]
    #[schemars(with = "Text<FieldName>")]
    pub reset_header: String,
    /// Put the descriptors of a call, and the metadata of the rules that it passed, in
    /// `dynamic_metadata`. Default: false.
    pub dynamic_metadata: bool,
    /// Take the entries `rategate.id`, `rategate.verb` and `rategate.ttl` out of descriptors, and
    /// reserve and commit as they say. Default: false.
    pub verbs: bool,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            count_denied: false,
            counting: Counting::All,
            shadow: false,
            quota: false,
            merge_domains: false,
            headers: false,
            limit_header: "RateLimit-Limit".to_owned(),
            remaining_header: "RateLimit-Remaining".to_owned(),
            reset_header: "RateLimit-Reset".to_owned(),
            dynamic_metadata: false,
            verbs: false,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self { headers: vec![Dialect::Current], hosts: Vec::new(), trusted_proxies: Vec::new() }
    }
}

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts: Vec<HostName> = texts(deserializer)?;
    Ok(hosts.into_iter().map(|host| host.0).collect())
}

fn field_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer).map(|FieldName(name)| name)
}
