//! Metadata: merged as envoyproxy/ratelimit does, and bounded.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use rategate_server::rule::{
    FiniteNumber, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Metadata, MetadataError, MetadataValue,
};

fn kind(kind: Kind) -> Struct {
    Struct { fields: [("k".to_owned(), Value { kind: Some(kind) })].into() }
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

#[test]
fn each_kind_of_value_has_its_message() {
    let message = |value| Struct::from(&map(&[("k", value)]));
    for (value, expected) in [
        (MetadataValue::Null, Kind::NullValue(0)),
        (MetadataValue::Bool(false), Kind::BoolValue(false)),
        (number(7), Kind::NumberValue(7.0)),
        (MetadataValue::text("x"), Kind::StringValue("x".to_owned())),
        (MetadataValue::Map(Metadata::default()), Kind::StructValue(Struct::default())),
        (MetadataValue::List(vec![]), Kind::ListValue(ListValue::default())),
    ] {
        assert_eq!(message(value), kind(expected));
    }
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
    let heads = Struct::from(&long(16_000)).encoded_len() - 16_000;
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
