//! Messages of Envoy's quota service, compared with a third-party implementation.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use prost::{DecodeError, Message};
use rategate_protocol::rlqs::{MalformedReport, UsageReport};

/// Returns `true` if a key or a value is not UTF-8, which is accepted here and an error there.
fn has_other_bytes(error: &DecodeError) -> bool {
    let error = error.to_string();
    error.contains("BucketId.") && error.contains("UTF-8")
}

/// Checks that both implementations read the same.
pub(crate) fn check(bytes: &[u8]) {
    let theirs = RateLimitQuotaUsageReports::decode(bytes);
    let ours = UsageReport::read(bytes);
    let (theirs, ours) = match (theirs, ours) {
        (Err(_), Err(_)) => return,
        (Err(error), Ok(_)) if has_other_bytes(&error) => return,
        (Ok(theirs), Err(MalformedReport::NoBucket { usage })) => {
            let bucket = theirs.bucket_quota_usages[usage].bucket_id.as_ref();
            assert!(bucket.is_none_or(|bucket| bucket.bucket.is_empty()));
            return;
        }
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (theirs, ours) => panic!("{theirs:?} but {ours:?}"),
    };
    assert_eq!(&theirs.domain, ours.domain);
    assert_eq!(theirs.bucket_quota_usages.len(), ours.usages.len());
    for (theirs, ours) in theirs.bucket_quota_usages.iter().zip(&ours.usages) {
        let bucket = theirs.bucket_id.as_ref().unwrap();
        let sorted: BTreeMap<_, _> =
            bucket.bucket.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        assert_eq!(sorted.into_iter().collect::<Vec<_>>(), ours.bucket.as_slice());
        assert_eq!(theirs.num_requests_allowed, ours.allowed);
        assert_eq!(theirs.num_requests_denied, ours.denied);
    }
}
