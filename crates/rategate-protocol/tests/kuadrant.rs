//! The messages of Kuadrant's service, byte by byte, compared with a third-party implementation.

#[path = "laws/kuadrant.rs"]
mod laws;

use std::time::Duration;

use bytes::BytesMut;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use proptest::prelude::*;
use prost::Message;
use rategate_protocol::kuadrant::{self, CommitRequest, ReserveRequest};
use rategate_protocol::rls::{Code, MalformedRequest};

use self::laws::{Commit, Reserve, Ttl, check};

fn descriptors() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
    let entry = (".{0,5}", ".{0,5}").prop_map(|(key, value)| Entry { key, value });
    let entries = prop::collection::vec(entry, 0..4);
    let descriptor = entries
        .prop_map(|entries| RateLimitDescriptor { entries, ..RateLimitDescriptor::default() });
    prop::collection::vec(descriptor, 0..4)
}

/// Returns messages of both kinds.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let ttl = prop::option::of((any::<i64>(), any::<i32>()));
    let near = prop::option::of((-1..100_i64, -1..1_000_000_001_i32));
    let ttl = prop_oneof![ttl, near];
    let reserve = (".{0,5}", descriptors(), any::<u64>(), ttl).prop_map(
        |(domain, descriptors, amount, ttl)| {
            let ttl = ttl.map(|(seconds, nanos)| Ttl { seconds, nanos });
            Reserve { domain, descriptors, amount, ttl }.encode_to_vec()
        },
    );
    let commit = (".{0,5}", descriptors(), ".{0,40}", any::<u64>()).prop_map(
        |(domain, descriptors, reservation_id, actual_amount)| {
            Commit { domain, descriptors, reservation_id, actual_amount }.encode_to_vec()
        },
    );
    prop_oneof![reserve, commit]
}

proptest! {
    #[test]
    fn messages_read_as_others_read_them(message in messages()) {
        check(&message);
    }

    #[test]
    fn any_bytes_read_as_others_read_them(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&bytes);
    }

    #[test]
    fn damaged_messages_read_as_others_read_them(
        mut message in messages(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        prop_assume!(!message.is_empty());
        let at = at.index(message.len());
        message[at] = byte;
        if cut {
            message.truncate(at);
        }
        check(&message);
    }
}

/// Messages as they are on the wire: they must always be read in the same way.
#[test]
fn messages_of_long_ago_still_read() {
    let bytes = b"\x0a\x02ns\x12\x08\x0a\x06\x0a\x01k\x12\x01v\x18\xa0\x06\x22\x02\x08\x1e";
    let request = ReserveRequest::read(bytes).unwrap();
    assert_eq!((request.domain, request.amount), ("ns", 800));
    assert_eq!(request.descriptors[0].entries.as_slice(), [(&b"k"[..], &b"v"[..])]);
    assert_eq!(request.ttl, Some(Duration::from_secs(30)));
    let bytes = b"\x0a\x02ns\x12\x08\x0a\x06\x0a\x01k\x12\x01v\x1a\x02ab\x20\x8a\x05";
    let request = CommitRequest::read(bytes).unwrap();
    assert_eq!((request.reservation_id, request.actual_amount), ("ab", 650));
}

#[test]
fn replies_read_as_others_read_them() {
    #[derive(Clone, PartialEq, Message)]
    struct Reserved {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        reservation_id: String,
    }
    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    struct Committed {
        #[prost(bool, tag = "1")]
        reservation_released: bool,
    }
    for (code, number) in [(Code::Ok, 1), (Code::OverLimit, 2)] {
        for id in ["", "0123456789abcdef0123456789abcdef"] {
            let mut out = BytesMut::new();
            kuadrant::write_reserved(&mut out, code, id);
            let read = Reserved::decode(&out[..]).unwrap();
            assert_eq!((read.code, &*read.reservation_id), (number, id));
        }
    }
    for released in [true, false] {
        let mut out = BytesMut::new();
        kuadrant::write_committed(&mut out, released);
        assert_eq!(Committed::decode(&out[..]).unwrap().reservation_released, released);
    }
}

/// Two bytes of a message become some hundred of a descriptor, so excess is detected before
/// memory is allocated.
#[test]
fn more_than_can_be_decided_is_not_read() {
    let nothing = b"\x12\x00".repeat(64);
    assert_eq!(ReserveRequest::read(&nothing).unwrap().descriptors.len(), 64);
    assert_eq!(CommitRequest::read(&nothing).unwrap().descriptors.len(), 64);
    // The rest is not a message, and is never read.
    let more = [&nothing, &b"\x12\x00\xff"[..]].concat();
    let too_many = MalformedRequest::TooMany { what: "descriptors", max: 64 };
    assert_eq!(ReserveRequest::read(&more), Err(too_many.clone()));
    assert_eq!(CommitRequest::read(&more), Err(too_many));
}
