//! The messages of `kuadrant.service.ratelimit.v1.RateLimitService` that are not Envoy's: those of
//! `Reserve` and `Commit`.
//!
//! # Contract
//!
//! * A message is read as a third-party implementation reads it, but that keys and values of
//!   entries may be any bytes, and that lists are bounded before they get memory.
//! * A ttl is a duration of 0 or more, with less than a second in its nanoseconds.
//! * Of several fields with one number the last counts. The seconds and nanoseconds of several ttls
//!   are merged.

use std::time::Duration;

use bytes::BytesMut;
use smallvec::SmallVec;

use crate::protobuf::{Malformed, Reader, Value, put_bytes, put_integer};
use crate::rls::{Code, Descriptor, MalformedRequest};

/// A parsed `ReserveRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReserveRequest<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The descriptors. The estimate is held of each of them, or of none.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
    /// The estimate, in permits.
    pub amount: u64,
    /// The time after which the reservation ends by itself, if it is stated.
    pub ttl: Option<Duration>,
}

/// A parsed `CommitRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitRequest<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The descriptors, as in the reservation.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
    /// The id of the reservation. Empty if there is none.
    pub reservation_id: &'a str,
    /// The permits that were used.
    pub actual_amount: u64,
}

impl<'a> ReserveRequest<'a> {
    /// Parses the message.
    ///
    /// # Errors
    ///
    /// [`MalformedRequest::Malformed`], [`MalformedRequest::TooMany`],
    /// [`MalformedRequest::NoUnit`].
    pub fn read(message: &'a [u8]) -> Result<Self, MalformedRequest> {
        let mut request = Self::default();
        let mut ttl = None;
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => request.domain = value.text()?,
                2 => Descriptor::push(&mut request.descriptors, value.bytes()?)?,
                3 => request.amount = value.integer()?,
                4 => read_duration(value, ttl.get_or_insert((0, 0)))?,
                _ => {}
            }
        }
        request.ttl = ttl.map(duration).transpose()?;
        Ok(request)
    }
}

impl<'a> CommitRequest<'a> {
    /// Parses the message.
    ///
    /// # Errors
    ///
    /// [`MalformedRequest::Malformed`], [`MalformedRequest::TooMany`],
    /// [`MalformedRequest::NoUnit`].
    pub fn read(message: &'a [u8]) -> Result<Self, MalformedRequest> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => request.domain = value.text()?,
                2 => Descriptor::push(&mut request.descriptors, value.bytes()?)?,
                3 => request.reservation_id = value.text()?,
                4 => request.actual_amount = value.integer()?,
                _ => {}
            }
        }
        Ok(request)
    }
}

/// Writes `ReserveResponse`. The id is empty unless something is reserved.
pub fn write_reserved(out: &mut BytesMut, code: Code, reservation_id: &str) {
    put_integer(out, 1, u64::from(code.number()));
    if !reservation_id.is_empty() {
        put_bytes(out, 2, reservation_id.as_bytes());
    }
}

/// Writes `CommitResponse`. `released` is `true` if the reservation was open.
pub fn write_committed(out: &mut BytesMut, released: bool) {
    put_integer(out, 1, u64::from(released));
}

/// Adds the fields of a `google.protobuf.Duration`: its seconds, and its nanoseconds.
fn read_duration(value: Value<'_>, parts: &mut (u64, u32)) -> Result<(), Malformed> {
    let mut fields = Reader::new(value.bytes()?);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => parts.0 = value.integer()?,
            2 => parts.1 = value.small()?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a duration of seconds and nanoseconds. Negative numbers look like huge ones here.
fn duration((seconds, nanos): (u64, u32)) -> Result<Duration, Malformed> {
    if i64::try_from(seconds).is_err() || nanos >= 1_000_000_000 {
        return Err(Malformed("the ttl is no duration of 0 or more"));
    }
    Ok(Duration::new(seconds, nanos))
}
