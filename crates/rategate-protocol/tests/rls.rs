//! The messages of Envoy's service, byte by byte, compared with a third-party implementation.

#[path = "laws/rls.rs"]
mod laws;

use self::laws::check;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;
use prost::Message;
use rategate_protocol::rls::{MalformedRequest, RlsRequest, Unit};

/// A message as it is on the wire: it must always be read in the same way.
#[test]
fn a_message_of_long_ago_still_reads() {
    let bytes = b"\x0a\x04edge\x12\x1d\x0a\x12\x0a\x04plan\x12\x0aenterprise\
                  \x12\x04\x08\x07\x10\x03\x1a\x01\x08\x18\x05";
    // The descriptor's hits are cut off: an error, and not a number.
    assert!(matches!(RlsRequest::read(bytes), Err(MalformedRequest::Malformed(_))));
    let bytes = b"\x0a\x04edge\x12\x20\x0a\x12\x0a\x04plan\x12\x0aenterprise\
                  \x12\x04\x08\x07\x10\x03\x1a\x02\x08\x09\x20\x01\x18\x05";
    let bytes = [&bytes[..6], b"\x12\x20", &bytes[8..]].concat();
    let ask = RlsRequest::read(&bytes).unwrap();
    assert_eq!((ask.domain, ask.hits), ("edge", 5));
    let descriptor = &ask.descriptors[0];
    assert_eq!(descriptor.entries.as_slice(), [(&b"plan"[..], &b"enterprise"[..])]);
    let limit = descriptor.limit.unwrap();
    assert_eq!((limit.permits, limit.unit), (7, Unit::Hour));
    assert_eq!((descriptor.hits, descriptor.refund), (Some(9), true));
}

fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let entry = (".{0,5}", ".{0,5}").prop_map(|(key, value)| Entry { key, value });
    let limit = (any::<u32>(), -1..9_i32);
    let limit =
        limit.prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
    let hits = any::<u64>().prop_map(|value| UInt64Value { value });
    let descriptor = (
        prop::collection::vec(entry, 0..6),
        prop::option::of(limit),
        prop::option::of(hits),
        any::<bool>(),
    );
    let descriptor = descriptor.prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    });
    (".{0,5}", prop::collection::vec(descriptor, 0..5), any::<u32>()).prop_map(
        |(domain, descriptors, hits_addend)| RateLimitRequest { domain, descriptors, hits_addend },
    )
}

proptest! {
    #[test]
    fn requests_read_as_others_read_them(request in requests()) {
        check(&request.encode_to_vec());
    }

    #[test]
    fn any_bytes_read_as_others_read_them(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&bytes);
    }

    #[test]
    fn damaged_requests_read_as_others_read_them(
        request in requests(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = request.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        check(&bytes);
    }
}

/// Proxies copy header fields of their clients into entries unchecked.
#[test]
fn entries_of_any_bytes_are_read_and_the_last_of_a_repeated_field_counts() {
    let bytes = b"\x12\x0a\x0a\x08\x0a\x01k\x12\x01\xff\x12\x00";
    check(bytes);
    assert_eq!(RlsRequest::read(bytes).unwrap().descriptors[0].entries[0], (&b"k"[..], &b""[..]));
    let bytes = b"\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff";
    check(bytes);
    assert_eq!(RlsRequest::read(bytes).unwrap().descriptors[0].entries[0].1, b"\xff");
}

/// Groups, a deprecated kind of field, are skipped to a depth of 16.
#[test]
fn nested_groups_are_skipped_as_deep_as_the_bound() {
    let nested = |depth| [b"\x6b".repeat(depth), b"\x6c".repeat(depth)].concat();
    check(&nested(16));
    assert_eq!(RlsRequest::read(&nested(16)), Ok(RlsRequest::default()));
    let bytes = nested(17);
    let deeper = RlsRequest::read(&bytes);
    assert_eq!(deeper, Err(MalformedRequest::Malformed("groups are nested too deep")));
}

/// Two bytes of a message become some hundred of a descriptor, so excess is detected before
/// memory is allocated.
#[test]
fn more_than_can_be_decided_is_not_read() {
    let nothing = &b"\x12\x00"[..];
    let max = [&b"\x0a\x01e"[..], &nothing.repeat(64)].concat();
    assert_eq!(RlsRequest::read(&max).unwrap().descriptors.len(), 64);
    // The rest is not a message, and is never read.
    let more = [&max, nothing, &b"\xff"[..]].concat();
    assert_eq!(
        RlsRequest::read(&more),
        Err(MalformedRequest::TooMany { what: "descriptors", max: 64 })
    );
    let entries = b"\x0a\x00".repeat(64);
    let max = [&b"\x12\x80\x01"[..], &entries].concat();
    assert_eq!(RlsRequest::read(&max).unwrap().descriptors[0].entries.len(), 64);
    let more = [&b"\x12\x83\x01"[..], &entries, b"\x0a\x00\xff"].concat();
    assert_eq!(
        RlsRequest::read(&more),
        Err(MalformedRequest::TooMany { what: "entries", max: 64 })
    );
}
