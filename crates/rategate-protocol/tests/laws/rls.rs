//! Requests of Envoy's service, compared with a third-party implementation.

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::{DecodeError, Message};
use rategate_protocol::rls::{MalformedRequest, RlsRequest, Unit};

const UNITS: [Unit; 7] =
    [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];

fn unit(number: i32) -> Option<Unit> {
    UNITS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Returns `true` if a key or a value is not UTF-8, which is accepted here and an error there, also
/// where the message repeats the field with another value.
fn has_other_bytes(error: &DecodeError) -> bool {
    let error = error.to_string();
    error.contains("Entry.") && error.contains("UTF-8")
}

/// Checks that both implementations read the same.
pub(crate) fn check(bytes: &[u8]) {
    let theirs = match (RateLimitRequest::decode(bytes), RlsRequest::read(bytes)) {
        (Err(_), Err(MalformedRequest::Malformed(_) | MalformedRequest::NoUnit { .. })) => {
            return;
        }
        (Ok(theirs), Err(MalformedRequest::NoUnit { descriptor })) => {
            let limit = theirs.descriptors[descriptor].limit.as_ref().unwrap();
            assert_eq!(unit(limit.unit), None);
            return;
        }
        (Err(error), Ok(_)) if has_other_bytes(&error) => return,
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (theirs, ours) => {
            panic!("{theirs:?} but {ours:?}");
        }
    };
    let (theirs, ours) = theirs;
    assert_eq!(&theirs.domain, ours.domain);
    assert_eq!(theirs.hits_addend, ours.hits);
    assert_eq!(theirs.descriptors.len(), ours.descriptors.len());
    for (theirs, ours) in theirs.descriptors.iter().zip(&ours.descriptors) {
        let entries: Vec<_> =
            theirs.entries.iter().map(|e| (e.key.as_bytes(), e.value.as_bytes())).collect();
        assert_eq!(entries.as_slice(), ours.entries.as_slice());
        assert_eq!(theirs.hits_addend.as_ref().map(|hits| hits.value), ours.hits);
        assert_eq!(theirs.is_negative_hits, ours.refund);
        let limit = theirs.limit.as_ref();
        let limit =
            limit.map(|limit| (u64::from(limit.requests_per_unit), unit(limit.unit).unwrap()));
        assert_eq!(limit, ours.limit.map(|limit| (limit.permits, limit.unit)));
    }
}
