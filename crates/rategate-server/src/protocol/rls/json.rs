//! The request and response of Envoy's service in the JSON mapping of protocol buffers: `POST
//! /json`.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use smallvec::SmallVec;

use super::answer::{RlsAnswer, answer};
use super::decide::Decide;
use super::error::RlsError;
use super::metadata::{quoted, write_json};
use super::reply::{Options, response};
use super::request::{Descriptor, MalformedRequest, RlsRequest};
use crate::engine::{MAX_ITEMS, Override};
use crate::messages::rls::rate_limit_response::{Code, DescriptorStatus};
use crate::net::RefusalReason;
use crate::protocol::bounded_list::{bounded_list, has_too_many};
use crate::protocol::object::{self, Object};
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
    let message = Message::read(request);
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
struct Message<'a> {
    #[serde(borrow)]
    domain: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "bounded_list")]
    descriptors: Option<Vec<Item<'a>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Integer<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Item<'a> {
    #[serde(borrow, deserialize_with = "bounded_list")]
    entries: Option<Vec<Entry<'a>>>,
    limit: Option<Object<Limit>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Integer<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry<'a> {
    #[serde(borrow)]
    key: Option<Bytes<'a>>,
    #[serde(borrow)]
    value: Option<Bytes<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Limit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Integer<u32>>,
    unit: Option<UnitNumber>,
}

#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string whose bytes need not be UTF-8, since they may come from header fields of clients.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub(crate) Cow<'a, [u8]>);

/// An integer, which may be written as a string.
#[derive(Debug)]
struct Integer<T>(T);

/// A unit, given by its name or its number.
#[derive(Debug)]
struct UnitNumber(u32);

impl<'a> Message<'a> {
    fn read(text: &'a [u8]) -> Result<Self, MalformedRequest> {
        object::read(text).map_err(|error| {
            if has_too_many(&error) {
                MalformedRequest::TooMany { what: "descriptors or entries", max: MAX_ITEMS }
            } else {
                MalformedRequest::Json(error.to_string())
            }
        })
    }

    fn ask(&self) -> Result<RlsRequest<'_>, MalformedRequest> {
        let items = self.descriptors.iter().flatten().enumerate();
        let descriptors = items.map(|(index, item)| item.descriptor(index));
        Ok(RlsRequest {
            domain: text(self.domain.as_ref()),
            descriptors: descriptors.collect::<Result<SmallVec<_>, _>>()?,
            hits: self.hits_addend.as_ref().map_or(0, |hits| hits.0),
        })
    }
}

impl Item<'_> {
    fn descriptor(&self, index: usize) -> Result<Descriptor<'_>, MalformedRequest> {
        let entries = self.entries.iter().flatten();
        let entries = entries.map(|entry| (bytes(entry.key.as_ref()), bytes(entry.value.as_ref())));
        let limit = self.limit.as_ref().map(|Object(limit)| {
            let number = limit.unit.as_ref().map_or(0, |unit| unit.0);
            let unit =
                Unit::of_number(number).ok_or(MalformedRequest::NoUnit { descriptor: index })?;
            let permits = limit.requests_per_unit.as_ref().map_or(0, |permits| permits.0);
            Ok::<_, MalformedRequest>(Override { permits: u64::from(permits), unit })
        });
        Ok(Descriptor {
            entries: entries.collect(),
            limit: limit.transpose()?,
            hits: self.hits_addend.as_ref().map(|hits| hits.0),
            refund: self.is_negative_hits.unwrap_or(false),
        })
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> &'a str {
    text.map_or("", |text| &text.0)
}

fn bytes<'a>(bytes: Option<&'a Bytes<'_>>) -> &'a [u8] {
    bytes.map_or(b"", |bytes| &bytes.0)
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E: de::Error>(self, bytes: &'de [u8]) -> Result<Bytes<'de>, E> {
        Ok(Bytes(Cow::Borrowed(bytes)))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes<'de>, E> {
        Ok(Bytes(Cow::Owned(bytes.to_vec())))
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Integer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor(PhantomData)).map(Self)
    }
}

struct IntegerVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for IntegerVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not negative, and not too large")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        T::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        let number = whole(value.as_bytes());
        let number = number.ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))?;
        self.visit_u64(number)
    }
}

impl<'de> Deserialize<'de> for UnitNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor).map(Self)
    }
}

struct UnitVisitor;

impl Visitor<'_> for UnitVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u32, E> {
        u32::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<u32, E> {
        let named = Unit::ALL.into_iter().find(|unit| unit.name().to_ascii_uppercase() == value);
        let found = named.map(|unit| unit.number().into());
        let unknown = (value == "UNKNOWN").then_some(0);
        found.or(unknown).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
    }
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
            let (key, value) = (quoted(&header.key), &header.value);
            let _ = write!(out, "{comma}{{\"key\":{key},\"value\":\"{value}\"}}");
        }
        out.push(']');
    }
    if let Some(metadata) = &answer.metadata {
        out.push_str(",\"dynamicMetadata\":");
        write_json(&mut out, metadata);
    }
    out.push('}');
    out
}

fn descriptor_status(out: &mut String, status: &DescriptorStatus) {
    let _ = write!(out, "{{\"code\":\"{}\"", status.code().as_str_name());
    if let Some(limit) = &status.current_limit {
        out.push_str(",\"currentLimit\":{");
        if !limit.name.is_empty() {
            let name = quoted(&limit.name);
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
