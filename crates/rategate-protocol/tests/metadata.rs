//! Metadata: merged as envoyproxy/ratelimit does, written as a third-party implementation reads
//! it, and bounded.

use std::collections::BTreeMap;

use bytes::BytesMut;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
use proptest::prelude::*;
use prost::Message;
use rategate_protocol::rls::{
    Code, FiniteNumber, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Metadata, MetadataError,
    MetadataValue, write,
};

fn written(metadata: &Metadata) -> BytesMut {
    let mut out = BytesMut::new();
    write(&mut out, Code::Ok, std::iter::empty(), std::iter::empty(), Some(metadata));
    out
}

fn theirs(metadata: &Metadata) -> Struct {
    let fields = metadata.0.iter().map(|(name, value)| (name.to_string(), their_value(value)));
    Struct { fields: fields.collect() }
}

fn their_value(value: &MetadataValue) -> Value {
    let kind = match value {
        MetadataValue::Null => Kind::NullValue(0),
        MetadataValue::Bool(value) => Kind::BoolValue(*value),
        MetadataValue::Number(number) => Kind::NumberValue(number.get()),
        MetadataValue::Text(text) => Kind::StringValue(text.to_string()),
        MetadataValue::List(all) => {
            Kind::ListValue(ListValue { values: all.iter().map(their_value).collect() })
        }
        MetadataValue::Map(fields) => Kind::StructValue(theirs(fields)),
    };
    Value { kind: Some(kind) }
}

fn map(fields: &[(&str, MetadataValue)]) -> Metadata {
    Metadata(fields.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
}

fn number(number: u64) -> MetadataValue {
    MetadataValue::Number(number.into())
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let leaf = prop_oneof![
        Just(MetadataValue::Null),
        any::<bool>().prop_map(MetadataValue::Bool),
        any::<f64>().prop_filter_map("finite", FiniteNumber::new).prop_map(MetadataValue::Number),
        ".{0,200}".prop_map(MetadataValue::text),
    ];
    let value = leaf.prop_recursive(6, 40, 5, |inner| {
        let fields = prop::collection::btree_map(name(), inner.clone(), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(MetadataValue::List),
            fields.prop_map(|fields| MetadataValue::Map(Metadata(fields))),
        ]
    });
    prop::collection::btree_map(name(), value, 0..6).prop_map(Metadata)
}

fn name() -> impl Strategy<Value = Box<str>> {
    "[a-c]{0,2}".prop_map(String::into_boxed_str)
}

/// The rule of the merge: what the first has stays, and only two mappings become one.
fn merged_by_rule(first: &Metadata, second: &Metadata) -> Metadata {
    let mut all = first.0.clone();
    for (name, value) in &second.0 {
        let value = match (first.0.get(name), value) {
            (Some(MetadataValue::Map(one)), MetadataValue::Map(other)) => {
                MetadataValue::Map(merged_by_rule(one, other))
            }
            (Some(present), _) => present.clone(),
            (None, value) => value.clone(),
        };
        all.insert(name.clone(), value);
    }
    Metadata(all)
}

proptest! {
    #[test]
    fn it_is_read_as_it_was_written(metadata in metadata()) {
        let response = RateLimitResponse::decode(&written(&metadata)[..]).unwrap();
        prop_assert_eq!(response.dynamic_metadata, Some(theirs(&metadata)));
        prop_assert_eq!(response.overall_code, 1);
    }

    #[test]
    fn what_is_present_stays_and_mappings_are_merged(first in metadata(), second in metadata()) {
        let mut merged = first.clone();
        merged.merge(&second);
        prop_assert_eq!(&merged, &merged_by_rule(&first, &second));
        let before = merged.clone();
        merged.merge(&second);
        prop_assert_eq!(merged, before, "a second time adds nothing");
    }

    #[test]
    fn a_whole_number_is_the_nearest_of_53_bits(whole in any::<u64>()) {
        let nearest = FiniteNumber::new(whole.to_string().parse().unwrap());
        prop_assert_eq!(Some(FiniteNumber::from(whole)), nearest);
    }
}

#[test]
fn a_present_value_wins_over_a_mapping_and_the_other_way_round() {
    let inner = MetadataValue::Map(map(&[("x", number(1))]));
    let (flat, nested) = (map(&[("a", number(7))]), map(&[("a", inner)]));
    for (first, second) in [(&flat, &nested), (&nested, &flat)] {
        let mut merged = first.clone();
        merged.merge(second);
        assert_eq!(&merged, first);
    }
    let list = |nth| map(&[("a", MetadataValue::List(vec![number(nth)]))]);
    let mut merged = list(1);
    merged.merge(&list(2));
    assert_eq!(merged, list(1), "lists are not merged");
}

/// Bytes on the wire, which must never change.
#[test]
fn each_kind_of_value_has_its_bytes() {
    let bytes = |value| written(&map(&[("k", value)])).to_vec();
    let around = |value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap();
        let head = [8, 1, 0x32, length + 7, 0x0a, length + 5, 0x0a, 1, b'k', 0x12, length];
        [&head, value].concat()
    };
    assert_eq!(bytes(MetadataValue::Null), around(b"\x08\x00"));
    assert_eq!(bytes(MetadataValue::Bool(false)), around(b"\x20\x00"));
    assert_eq!(bytes(number(0)), around(b"\x11\0\0\0\0\0\0\0\0"));
    assert_eq!(bytes(MetadataValue::text("")), around(b"\x1a\x00"));
    assert_eq!(bytes(MetadataValue::Map(Metadata::default())), around(b"\x2a\x00"));
    assert_eq!(bytes(MetadataValue::List(vec![])), around(b"\x32\x00"));
    assert_eq!(written(&Metadata::default()).to_vec(), [8, 1, 0x32, 0]);
}

#[test]
fn it_has_a_maximum_depth_and_size() {
    let nested = |levels, is_list| {
        let wrap = |value, _| {
            if is_list {
                MetadataValue::List(vec![value])
            } else {
                MetadataValue::Map(map(&[("k", value)]))
            }
        };
        map(&[("k", (1..levels).fold(MetadataValue::Null, wrap))])
    };
    for is_list in [true, false] {
        assert_eq!(nested(MAX_METADATA_DEPTH, is_list).check(), Ok(()));
        let deeper = nested(MAX_METADATA_DEPTH + 1, is_list).check();
        assert_eq!(deeper, Err(MetadataError::TooDeep));
    }
    let long = |bytes: usize| map(&[("k", MetadataValue::text("x".repeat(bytes)))]);
    // The code and the head of the field take five bytes, the name and other heads the rest.
    let heads = written(&long(16_000)).len() - 5 - 16_000;
    assert_eq!(long(MAX_METADATA_BYTES - heads).check(), Ok(()));
    let error = long(MAX_METADATA_BYTES - heads + 1).check();
    assert_eq!(error, Err(MetadataError::TooLong { bytes: MAX_METADATA_BYTES + 1 }));
}

#[test]
fn numbers_are_finite() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(FiniteNumber::new(number), None);
    }
    assert!(FiniteNumber::new(-0.5).is_some_and(|number| number.get() < 0.0));
    let fields: BTreeMap<_, _> = [("k".into(), number(u64::MAX))].into();
    assert_eq!(Metadata(fields), map(&[("k", number(u64::MAX))]));
}
