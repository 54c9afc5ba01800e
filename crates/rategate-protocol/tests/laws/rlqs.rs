//! Messages of Envoy's quota service, compared with a third-party implementation.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use rategate_protocol::rlqs::{MalformedReport, UsageReport};

/// Returns `true` if a key or a value is not UTF-8, which is accepted here and an error there.
fn has_other_bytes(error: &DecodeError) -> bool {
    let error = error.to_string();
    error.contains("BucketId.") && error.contains("UTF-8")
}

/// Returns the fields of this number as far as the other implementation reads: their bytes, or
/// `None` for those of another wire type.
fn fields(mut bytes: &[u8], number: u32) -> Vec<Option<&[u8]>> {
    let mut found = Vec::new();
    while let Ok((field, wire_type)) = decode_key(&mut bytes) {
        if field != number {
            if skip_field(wire_type, field, &mut bytes, DecodeContext::default()).is_err() {
                break;
            }
        } else if wire_type == WireType::LengthDelimited {
            let length = decode_varint(&mut bytes).ok().and_then(|it| usize::try_from(it).ok());
            let Some((field, rest)) = length.and_then(|length| bytes.split_at_checked(length))
            else {
                break;
            };
            bytes = rest;
            found.push(Some(field));
        } else {
            found.push(None);
            break;
        }
    }
    found
}

/// Returns `true` if an entry of a bucket has another wire type than that of entries. The other
/// implementation reads it as if it had that.
fn has_other_entries(bytes: &[u8]) -> bool {
    let usages = fields(bytes, 2).into_iter().flatten();
    let mut buckets = usages.flat_map(|usage| fields(usage, 1)).flatten();
    buckets.any(|bucket| fields(bucket, 1).contains(&None))
}

/// Checks that both implementations read the same.
pub(crate) fn check(bytes: &[u8]) {
    let theirs = RateLimitQuotaUsageReports::decode(bytes);
    if let Ok(theirs) = &theirs
        && has_other_entries(bytes)
    {
        // As it writes them, both read them.
        return check(&theirs.encode_to_vec());
    }
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
