//! Requests of Envoy's service, compared with a third-party implementation.

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;
use rategate_protocol::rls::{MalformedRequest, RlsRequest, Unit};

const UNITS: [Unit; 7] =
    [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];

fn unit(number: i32) -> Option<Unit> {
    UNITS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Returns `true` if a key or a value is not UTF-8, which is accepted here and an error there.
fn has_other_bytes(ask: &RlsRequest<'_>) -> bool {
    let mut entries = ask.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    entries.any(|(key, value)| [key, value].iter().any(|text| str::from_utf8(text).is_err()))
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
        (Err(_), Ok(ours)) if has_other_bytes(&ours) => return,
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
