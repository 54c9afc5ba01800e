//! Requests of Kuadrant's service, compared with a third-party implementation.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::{DecodeError, Message};
use rategate_protocol::kuadrant::{CommitRequest, ReserveRequest};
use rategate_protocol::rls::{Descriptor, MalformedRequest, RlsRequest};

/// `ReserveRequest`, as its file declares it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reserve {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint64, tag = "3")]
    pub(crate) amount: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) ttl: Option<Ttl>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Ttl {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `CommitRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Commit {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(string, tag = "3")]
    pub(crate) reservation_id: String,
    #[prost(uint64, tag = "4")]
    pub(crate) actual_amount: u64,
}

/// Checks that both implementations read the same.
pub(crate) fn check(bytes: &[u8]) {
    match (Reserve::decode(bytes), ReserveRequest::read(bytes)) {
        (Ok(theirs), Ok(ours)) => {
            check_descriptors(&theirs.descriptors, &ours.descriptors);
            let ttl = theirs.ttl.map(|ttl| duration(ttl).unwrap());
            assert_eq!((&*theirs.domain, theirs.amount, ttl), (ours.domain, ours.amount, ours.ttl));
        }
        (Ok(theirs), Err(refused)) => {
            let is_no_time = theirs.ttl.is_some_and(|ttl| duration(ttl).is_none());
            assert!(is_no_time || is_refused_here(&refused), "{theirs:?} but {refused:?}");
        }
        (Err(error), Ok(ours)) => assert!(has_other_bytes(&error), "{error} but {ours:?}"),
        (Err(_), Err(_)) => {}
    }
    match (Commit::decode(bytes), CommitRequest::read(bytes)) {
        (Ok(theirs), Ok(ours)) => {
            check_descriptors(&theirs.descriptors, &ours.descriptors);
            let theirs = (&*theirs.domain, &*theirs.reservation_id, theirs.actual_amount);
            assert_eq!(theirs, (ours.domain, ours.reservation_id, ours.actual_amount));
        }
        (Ok(theirs), Err(refused)) => {
            assert!(is_refused_here(&refused), "{theirs:?} but {refused:?}");
        }
        (Err(error), Ok(ours)) => assert!(has_other_bytes(&error), "{error} but {ours:?}"),
        (Err(_), Err(_)) => {}
    }
}

/// Returns the duration, unless a part of it is negative or too large.
fn duration(ttl: Ttl) -> Option<Duration> {
    let nanos = u32::try_from(ttl.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(ttl.seconds).ok()?, nanos))
}

/// Returns `true` for what the other implementation does not bound.
fn is_refused_here(refused: &MalformedRequest) -> bool {
    let is_deeper = *refused == MalformedRequest::Malformed("groups are nested too deep");
    is_deeper
        || matches!(refused, MalformedRequest::TooMany { .. } | MalformedRequest::NoUnit { .. })
}

fn has_other_bytes(error: &DecodeError) -> bool {
    let error = error.to_string();
    error.contains("Entry.") && error.contains("UTF-8")
}

fn entries(descriptor: &Descriptor<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    descriptor.entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Checks the descriptors through Envoy's message, whose reader is compared by itself.
fn check_descriptors(theirs: &[RateLimitDescriptor], ours: &[Descriptor<'_>]) {
    let message = RateLimitRequest { descriptors: theirs.to_vec(), ..RateLimitRequest::default() };
    let message = message.encode_to_vec();
    let read = RlsRequest::read(&message).unwrap();
    assert_eq!(read.descriptors.len(), ours.len());
    for (read, ours) in read.descriptors.iter().zip(ours) {
        assert_eq!(entries(read), entries(ours));
        assert_eq!((read.limit, read.hits, read.refund), (ours.limit, ours.hits, ours.refund));
    }
}
