//! The request and response of Envoy's service in the JSON mapping of protocol buffers: `POST
//! /json`.

use std::fmt::{self, Write};

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

use super::answer::{RlsAnswer, answer};
use super::decide::Decide;
use super::error::RlsError;
use super::reply::{Options, response};
use super::request::{Descriptor, MalformedRequest, RlsRequest, few};
use crate::engine::Override;
use crate::messages::rls::rate_limit_response::{Code, DescriptorStatus};
use crate::net::RefusalReason;
use crate::protocol::json::{Bounded, JsonError, Object, read};
use crate::rule::Unit;
use crate::units::whole;

/// The reply to a request in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonAnswer {
    /// The HTTP status: 200 (OK), 429 (over the limit), 400 (no decision) or 401 (a credit without
    /// the token).
    pub status: u16,
    /// The response in the form of `envoyproxy/ratelimit`, or a text that states why there is no
    /// decision.
    pub body: String,
    /// The reason for which the call counts as refused, if it does.
    pub refusal: Option<RefusalReason>,
}

/// Decides a request in JSON.
pub async fn json(
    request: &[u8],
    engine: &impl Decide,
    options: &Options,
    may_credit: bool,
) -> JsonAnswer {
    let message: Result<Message, _> = read(request).map_err(|JsonError { pointer, detail }| {
        MalformedRequest::Json(if pointer.is_empty() { detail } else { pointer + ": " + &detail })
    });
    let question = message.as_ref().map_err(Clone::clone).and_then(Message::ask);
    match answer(engine, question, options, may_credit).await {
        Ok(answer) => json_answer(&answer, options),
        Err(error) => {
            let status = if matches!(error, RlsError::NoToken) { 401 } else { 400 };
            JsonAnswer { status, body: format!("{error}\n"), refusal: Some(error.refusal()) }
        }
    }
}

/// Denies a request over the size limit, as over gRPC.
///
/// The part that makes it long may come from a client, and callers let a request pass when they
/// receive an error.
#[must_use]
pub fn too_long(options: &Options) -> JsonAnswer {
    json_answer(&RlsAnswer::unread(), options)
}

fn json_answer(answer: &RlsAnswer, options: &Options) -> JsonAnswer {
    let status = match options.code(&answer.answer) {
        Code::OverLimit => 429,
        Code::Ok | Code::Unknown => 200,
    };
    JsonAnswer { status, body: write(answer, options), refusal: answer.refusal() }
}

/// `RateLimitRequest`. A null field has its default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Message {
    domain: Option<String>,
    descriptors: Option<Bounded<Item>>,
    #[serde(alias = "hits_addend", deserialize_with = "integer")]
    hits_addend: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Item {
    entries: Option<Bounded<Entry>>,
    limit: Option<Object<Limit>>,
    #[serde(alias = "hits_addend", deserialize_with = "integer")]
    hits_addend: Option<u64>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    key: Option<Bytes>,
    value: Option<Bytes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Limit {
    #[serde(alias = "requests_per_unit", deserialize_with = "integer")]
    requests_per_unit: Option<u32>,
    #[serde(deserialize_with = "unit")]
    unit: Option<Unit>,
}

/// A string whose bytes need not be UTF-8, nor its escapes whole characters: callers copy header
/// fields of their clients into it, and let a request pass when they receive an error.
#[derive(Debug)]
struct Bytes(Vec<u8>);

/// An integer, which may be written as a string, or the name of a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a whole number or a text")]
enum Number {
    Number(u64),
    Text(String),
}

impl Message {
    fn ask(&self) -> Result<RlsRequest<'_>, MalformedRequest> {
        let items = elements(self.descriptors.as_ref());
        few(items.len(), "descriptors")?;
        let descriptors = items.iter().enumerate().map(|(index, item)| item.descriptor(index));
        Ok(RlsRequest {
            domain: self.domain.as_deref().unwrap_or_default(),
            descriptors: descriptors.collect::<Result<_, _>>()?,
            hits: self.hits_addend.unwrap_or(0),
        })
    }
}

impl Item {
    fn descriptor(&self, index: usize) -> Result<Descriptor<'_>, MalformedRequest> {
        let entries = elements(self.entries.as_ref());
        few(entries.len(), "entries")?;
        let entries =
            entries.iter().map(|entry| (bytes(entry.key.as_ref()), bytes(entry.value.as_ref())));
        let limit = self.limit.as_ref().map(|Object(limit)| {
            let unit = limit.unit.ok_or(MalformedRequest::NoUnit { descriptor: index })?;
            Ok(Override { permits: limit.requests_per_unit.unwrap_or(0).into(), unit })
        });
        Ok(Descriptor {
            entries: entries.collect(),
            limit: limit.transpose()?,
            hits: self.hits_addend,
            refund: self.is_negative_hits.unwrap_or(false),
        })
    }
}

fn bytes(bytes: Option<&Bytes>) -> &[u8] {
    bytes.map_or(b"", |bytes| &bytes.0)
}

fn elements<T>(list: Option<&Bounded<T>>) -> &[T] {
    list.map_or(&[], |list| &list.0)
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadBytes;
        impl Visitor<'_> for ReadBytes {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(ReadBytes)
    }
}

fn integer<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let number = match Option::<Number>::deserialize(deserializer) {
        Ok(None) => return Ok(None),
        Ok(Some(Number::Number(number))) => Some(number),
        Ok(Some(Number::Text(text))) => whole(text.as_bytes()),
        Err(_) => None,
    };
    let number = number.and_then(|number| T::try_from(number).ok());
    let expected = "expected a whole number that is not negative, and not too large";
    number.map(Some).ok_or_else(|| D::Error::custom(expected))
}

/// Reads a unit by its name or its number. The unit 0 is none.
fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Unit>, D::Error> {
    let expected = "expected SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR";
    let mut units = Unit::ALL.into_iter();
    let unit = match Option::<Number>::deserialize(deserializer)? {
        None | Some(Number::Number(0)) => return Ok(None),
        Some(Number::Text(name)) if name == "UNKNOWN" => return Ok(None),
        Some(Number::Number(number)) => units.find(|unit| u64::from(unit.number()) == number),
        Some(Number::Text(name)) => units.find(|unit| unit.name().to_ascii_uppercase() == name),
    };
    unit.map(Some).ok_or_else(|| D::Error::custom(expected))
}

/// Writes a `RateLimitResponse`. Zero values are left out, as the mapping defines.
fn write(answer: &RlsAnswer, options: &Options) -> String {
    let response = response(answer, options);
    let mut out = String::with_capacity(256);
    // Writing to a string cannot fail.
    let code = response.overall_code().as_str_name();
    let _ = write!(out, "{{\"overallCode\":\"{code}\",\"statuses\":[");
    for (index, status) in response.statuses.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        descriptor_status(&mut out, status);
    }
    out.push(']');
    if !response.response_headers_to_add.is_empty() {
        out.push_str(",\"responseHeadersToAdd\":[");
        for (index, header) in response.response_headers_to_add.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let (key, value) = (json_of(&header.key), &header.value);
            let _ = write!(out, "{comma}{{\"key\":{key},\"value\":\"{value}\"}}");
        }
        out.push(']');
    }
    if let Some(metadata) = &answer.metadata {
        let _ = write!(out, ",\"dynamicMetadata\":{}", json_of(metadata));
    }
    out.push('}');
    out
}

/// Returns a value as JSON, whose writing cannot fail.
fn json_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn descriptor_status(out: &mut String, status: &DescriptorStatus) {
    let _ = write!(out, "{{\"code\":\"{}\"", status.code().as_str_name());
    if let Some(limit) = &status.current_limit {
        out.push_str(",\"currentLimit\":{");
        if !limit.name.is_empty() {
            let name = json_of(&limit.name);
            let _ = write!(out, "\"name\":{name},");
        }
        if limit.requests_per_unit > 0 {
            let _ = write!(out, "\"requestsPerUnit\":{},", limit.requests_per_unit);
        }
        let _ = write!(out, "\"unit\":\"{}\"}}", limit.unit().as_str_name());
    }
    if status.limit_remaining > 0 {
        let _ = write!(out, ",\"limitRemaining\":{}", status.limit_remaining);
    }
    if let Some(reset) = &status.duration_until_reset {
        let _ = write!(out, ",\"durationUntilReset\":\"{}s\"", reset.seconds);
    }
    out.push('}');
}
