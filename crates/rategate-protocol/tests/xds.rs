//! The messages of a control plane, compared with a third-party implementation, and their bounds.

#[path = "laws/xds.rs"]
mod laws;

use bytes::BytesMut;
use envoy_types::pb::envoy::service::discovery::v3 as theirs;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, ListValue, Struct, Value};
use proptest::prelude::*;
use prost::Message;
use rategate_protocol::xds::{
    CONFIG_TYPE, ConfigFault, DiscoveryRequest, DiscoveryResponse, MAX_DESCRIPTOR_DEPTH,
    MAX_RESOURCES, RateLimitConfig,
};

use self::laws::{ITEMS, TheirConfig, TheirDescriptor, TheirPolicy, TheirReplace, check};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(None),
        Just(Some(Kind::NullValue(0))),
        any::<bool>().prop_map(|value| Some(Kind::BoolValue(value))),
        any::<f64>().prop_map(|number| Some(Kind::NumberValue(number))),
        ".{0,5}".prop_map(|text| Some(Kind::StringValue(text))),
    ];
    let leaf = leaf.prop_map(|kind| Value { kind });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            list.prop_map(|values| Kind::ListValue(ListValue { values })),
            fields(inner).prop_map(Kind::StructValue),
        ]
        .prop_map(|kind| Value { kind: Some(kind) })
    })
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Struct> {
    prop::collection::hash_map(".{0,3}", value, 0..3)
        .prop_map(|fields| Struct { fields: fields.into_iter().collect() })
}

fn descriptors() -> impl Strategy<Value = Vec<TheirDescriptor>> {
    let replaces = prop::collection::vec(".{0,3}".prop_map(|name| TheirReplace { name }), 0..3);
    let policy = (-1..9_i32, any::<u32>(), any::<bool>(), ".{0,3}", replaces);
    let policy = policy.prop_map(|(unit, requests_per_unit, unlimited, name, replaces)| {
        TheirPolicy { unit, requests_per_unit, unlimited, name, replaces }
    });
    let own = (
        ".{0,3}",
        ".{0,3}",
        prop::option::of(policy),
        any::<[bool; 3]>(),
        prop::option::of(fields(value())),
    );
    let leaf = own.prop_map(|(key, value, rate_limit, flags, metadata)| TheirDescriptor {
        key,
        value,
        rate_limit,
        descriptors: Vec::new(),
        shadow_mode: flags[0],
        detailed_metric: flags[1],
        quota_mode: flags[2],
        metadata,
    });
    let leaf = leaf.boxed();
    let all = prop::collection::vec(leaf.clone(), 0..3);
    all.prop_recursive(3, 10, 3, move |inner| {
        let nested = (leaf.clone(), inner)
            .prop_map(|(one, descriptors)| TheirDescriptor { descriptors, ..one });
        prop::collection::vec(nested, 0..3)
    })
}

fn configs() -> impl Strategy<Value = TheirConfig> {
    (".{0,5}", ".{0,5}", descriptors()).prop_map(|(name, domain, descriptors)| TheirConfig {
        name,
        domain,
        descriptors,
    })
}

proptest! {
    #[test]
    fn configurations_read_as_others_read_them(config in configs()) {
        check(&config.encode_to_vec());
    }

    /// A message in two parts is one whose parts are merged.
    #[test]
    fn repeated_messages_read_as_others_read_them(one in configs(), other in configs()) {
        let limit = |config: &TheirConfig| {
            let descriptors: Vec<_> = config.descriptors.iter().take(1).cloned().collect();
            descriptors.first().map(Message::encode_to_vec).unwrap_or_default()
        };
        let descriptor = [limit(&one), limit(&other)].concat();
        prop_assume!(descriptor.len() < 128);
        let length = u8::try_from(descriptor.len()).unwrap();
        check(&[&[3 << 3 | 2, length], &descriptor[..]].concat());
    }

    #[test]
    fn any_bytes_read_as_others_read_them(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&bytes);
        let ours = DiscoveryResponse::read(&bytes);
        let theirs = theirs::DiscoveryResponse::decode(&bytes[..]);
        // The other one reads fields that are not needed here, too.
        prop_assert!(ours.is_ok() || theirs.is_err());
    }

    #[test]
    fn damaged_configurations_read_as_others_read_them(
        config in configs(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = config.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        check(&bytes);
    }

    #[test]
    fn responses_read_as_others_wrote_them(
        texts in prop::array::uniform3(".{0,9}"),
        resources in prop::collection::vec(
            (".{0,9}", prop::collection::vec(any::<u8>(), 0..9)), 0..4
        ),
    ) {
        let [version_info, type_url, nonce] = texts;
        let resources = resources.into_iter().map(|(type_url, value)| Any { type_url, value });
        let theirs = theirs::DiscoveryResponse {
            version_info,
            resources: resources.collect(),
            type_url,
            nonce,
            ..theirs::DiscoveryResponse::default()
        };
        let bytes = theirs.encode_to_vec();
        let ours = DiscoveryResponse::read(&bytes).unwrap();
        prop_assert_eq!(
            [&theirs.version_info, &theirs.type_url, &theirs.nonce],
            [ours.version, ours.type_url, ours.nonce]
        );
        let of = |any: &Any| (any.type_url.clone(), any.value.clone());
        let known: Vec<_> = theirs.resources.iter().map(of).collect();
        let read = ours.resources.iter().map(|one| (one.type_url.to_owned(), one.value.to_vec()));
        prop_assert_eq!(known, read.collect::<Vec<_>>());
    }

    #[test]
    fn requests_are_read_by_others_as_they_were_written(
        texts in prop::array::uniform4(".{0,300}"),
        error in prop::option::of(".{1,300}"),
    ) {
        let [version, node, type_url, nonce] = &texts;
        let request = DiscoveryRequest { version, node, type_url, nonce, error: error.as_deref() };
        let mut out = BytesMut::new();
        request.write(&mut out);
        let read = theirs::DiscoveryRequest::decode(&out[..]).unwrap();
        prop_assert_eq!(
            [&read.version_info, &read.type_url, &read.response_nonce],
            [version, type_url, nonce]
        );
        prop_assert_eq!(&read.node.as_ref().unwrap().id, node);
        prop_assert!(
            read.resource_names.is_empty(), "all resources of the type are asked for"
        );
        let detail = read.error_detail.map(|status| (status.code, status.message));
        prop_assert_eq!(detail, error.map(|error| (3, error)));
    }
}

fn config(descriptors: Vec<TheirDescriptor>) -> Vec<u8> {
    TheirConfig { domain: "edge".to_owned(), descriptors, ..TheirConfig::default() }.encode_to_vec()
}

fn fault(bytes: &[u8], mut items: usize) -> String {
    RateLimitConfig::read(bytes, &mut items).unwrap_err().to_string()
}

/// An entry of metadata that is a number, which the other implementation passes over.
#[test]
fn metadata_of_another_kind_is_refused() {
    let bytes = b"\x1a\x06\x1a\x00\x42\x02\x08\x00";
    check(bytes);
    assert_eq!(
        fault(bytes, ITEMS),
        "descriptors[0].metadata: it is malformed: a field is of the wrong kind"
    );
}

#[test]
fn a_fault_has_its_path() {
    let bytes = config(vec![TheirDescriptor::default(); 2]);
    assert_eq!(fault(&[&bytes[..], b"\x1a\x02\x0a\x05"].concat(), ITEMS), {
        "descriptors[2]: it is malformed: the message ends within a field"
    });
    // A key that is no text, in the second descriptor of the third.
    let bytes = [&bytes[..], b"\x1a\x07\x22\x00\x22\x03\x0a\x01\xff"].concat();
    assert_eq!(
        fault(&bytes, ITEMS),
        "descriptors[2].descriptors[1].key: it is malformed: text is not UTF-8"
    );
    // A name of a replaced limit that is a number.
    let bytes = b"\x1a\x08\x1a\x06\x2a\x00\x2a\x02\x08\x01";
    assert_eq!(
        fault(bytes, ITEMS),
        "descriptors[0].rate_limit.replaces[1].name: it is malformed: \
         a field is of the wrong kind"
    );
    let number = Value { kind: Some(Kind::NumberValue(f64::INFINITY)) };
    let metadata = Struct { fields: [("n".to_owned(), number)].into() };
    let bytes = config(vec![TheirDescriptor { metadata: Some(metadata), ..Default::default() }]);
    assert_eq!(fault(&bytes, ITEMS), "descriptors[0].metadata: a number that is not finite");
    assert_eq!(fault(b"\x0f", ITEMS), "it is malformed: a field is of no known kind");
}

#[test]
fn descriptors_nest_as_deep_as_the_bound() {
    let nested = |depth: usize| {
        let within = |inner: Vec<TheirDescriptor>, _| {
            vec![TheirDescriptor { descriptors: inner, ..TheirDescriptor::default() }]
        };
        config((0..depth).fold(Vec::new(), within))
    };
    let read = |depth| RateLimitConfig::read(&nested(depth), &mut ITEMS.clone()).map(drop);
    assert_eq!(read(MAX_DESCRIPTOR_DEPTH), Ok(()));
    assert_eq!(read(MAX_DESCRIPTOR_DEPTH + 1).unwrap_err().fault, ConfigFault::TooDeep);
}

/// Two bytes of a message become some hundred in memory, so excess is detected before that.
#[test]
fn items_are_counted_before_they_are_read() {
    let replaces = vec![TheirReplace::default(); 2];
    let rate_limit = Some(TheirPolicy { replaces, ..TheirPolicy::default() });
    let inner = vec![TheirDescriptor::default()];
    let bytes =
        config(vec![TheirDescriptor { rate_limit, descriptors: inner, ..Default::default() }]);
    let mut items = 5;
    RateLimitConfig::read(&bytes, &mut items).unwrap();
    assert_eq!(items, 1, "two descriptors and two names");
    for items in 0..4 {
        assert!(fault(&bytes, items).ends_with("too many descriptors and replaced names"));
    }
}

#[test]
fn metadata_is_bounded() {
    let nested = |depth: usize| {
        let within = |inner: Option<Kind>, _| {
            Some(Kind::ListValue(ListValue { values: vec![Value { kind: inner }] }))
        };
        let value = Value { kind: (1..depth).fold(None, within) };
        let metadata = Some(Struct { fields: [("n".to_owned(), value)].into() });
        config(vec![TheirDescriptor { metadata, ..TheirDescriptor::default() }])
    };
    assert!(RateLimitConfig::read(&nested(16), &mut ITEMS.clone()).is_ok());
    assert!(fault(&nested(17), ITEMS).ends_with("it is nested deeper than 16 levels"));
    let value = Value { kind: Some(Kind::StringValue("x".repeat(16 << 10))) };
    let metadata = Some(Struct { fields: [("n".to_owned(), value)].into() });
    let bytes = config(vec![TheirDescriptor { metadata, ..TheirDescriptor::default() }]);
    assert!(fault(&bytes, ITEMS).ends_with("and at most 16384 are accepted"));
}

#[test]
fn too_many_resources_are_seen_and_not_kept() {
    let kept = |resources: usize| {
        let bytes = [&b"\x12\x00".repeat(resources)[..], b"\x2a\x01n"].concat();
        let response = DiscoveryResponse::read(&bytes).unwrap();
        (response.resources.len(), response.nonce.to_owned())
    };
    assert_eq!(kept(MAX_RESOURCES), (MAX_RESOURCES, "n".to_owned()));
    assert_eq!(kept(MAX_RESOURCES + 1), (MAX_RESOURCES + 1, "n".to_owned()));
    assert_eq!(kept(MAX_RESOURCES + 9), (MAX_RESOURCES + 1, "n".to_owned()));
}

/// Messages as they are on the wire: they must always be read and written in the same way.
#[test]
fn messages_of_long_ago_still_read() {
    let bytes = b"\x0a\x01r\x12\x04edge\x1a\x1d\x0a\x04plan\x12\x02go\x1a\x0d\x08\x04\x10\x07\
                  \x22\x01n\x2a\x04\x0a\x02ol\x28\x01";
    let bytes = [&bytes[..], b"\x1a\x02\x38\x01"].concat();
    let config = RateLimitConfig::read(&bytes, &mut ITEMS.clone());
    assert!(config.is_err(), "a length that is one too long: {config:?}");
    let bytes = b"\x0a\x01r\x12\x04edge\x1a\x1b\x0a\x04plan\x12\x02go\x1a\x0d\x08\x04\x10\x07\
                  \x22\x01n\x2a\x04\x0a\x02ol\x28\x01\x1a\x02\x38\x01";
    let config = RateLimitConfig::read(bytes, &mut ITEMS.clone()).unwrap();
    assert_eq!((config.name, config.domain), ("r", "edge"));
    let [first, second] = &config.descriptors[..] else { panic!("{config:?}") };
    assert_eq!((first.key, first.value, first.shadow), ("plan", "go", true));
    let limit = first.limit.as_ref().unwrap();
    assert_eq!((limit.unit, limit.permits, limit.unlimited), (4, 7, false));
    assert_eq!((limit.name, &limit.replaces[..]), ("n", &["ol"][..]));
    assert!(second.quota && second.limit.is_none());
    let request = DiscoveryRequest {
        version: "7",
        node: "me",
        type_url: CONFIG_TYPE,
        nonce: "n",
        error: Some("no"),
    };
    let mut out = BytesMut::new();
    request.write(&mut out);
    let expected = [
        &b"\x0a\x017\x12\x04\x0a\x02me\x22\x41"[..],
        b"type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig",
        b"\x2a\x01n\x32\x06\x08\x03\x12\x02no",
    ];
    assert_eq!(out, expected.concat());
}
