//! Configurations of a control plane, compared with a third-party implementation.

#[path = "xds_messages.rs"]
mod xds_messages;

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use prost::Message;
use rategate_protocol::rls::{Metadata, MetadataError, MetadataValue};
use rategate_protocol::xds::{ConfigDescriptor, ConfigFault, MalformedConfig, RateLimitConfig};

pub(crate) use self::xds_messages::{TheirConfig, TheirDescriptor};
#[allow(unused_imports, reason = "the fuzz target makes none of them")]
pub(crate) use self::xds_messages::{TheirPolicy, TheirReplace};

/// The number of descriptors and replaced names that the tests allow.
pub(crate) const ITEMS: usize = 1_000;

/// Checks that both implementations read the same.
pub(crate) fn check(bytes: &[u8]) {
    let ours = RateLimitConfig::read(bytes, &mut ITEMS.clone());
    let theirs = TheirConfig::decode(bytes);
    match (&theirs, &ours) {
        (Ok(theirs), Ok(ours)) => check_config(theirs, ours),
        (Err(_), Err(_)) => {}
        // The other one has no such bounds.
        (Ok(_), Err(error))
            if matches!(
                error.fault,
                ConfigFault::TooDeep
                    | ConfigFault::TooMany
                    | ConfigFault::Metadata(
                        MetadataError::TooDeep
                            | MetadataError::TooLong { .. }
                            | MetadataError::NotFinite
                    )
            ) => {}
        (Ok(_), Err(error)) if error.to_string().contains("groups are nested too deep") => {}
        // The other one takes the entries of a mapping whatever their wire type is. As it writes
        // them, both read them.
        (Ok(theirs), Err(error)) if is_malformed_metadata(error) => {
            let written = theirs.encode_to_vec();
            let again = RateLimitConfig::read(&written, &mut ITEMS.clone());
            assert!(!again.is_err_and(|error| is_malformed_metadata(&error)), "{theirs:?}");
        }
        _ => panic!("{theirs:?} but {ours:?}"),
    }
}

fn is_malformed_metadata(error: &MalformedConfig) -> bool {
    matches!(error.fault, ConfigFault::Metadata(MetadataError::Malformed(_)))
}

fn check_config(theirs: &TheirConfig, ours: &RateLimitConfig<'_>) {
    assert_eq!((&*theirs.name, &*theirs.domain), (ours.name, ours.domain));
    check_descriptors(&theirs.descriptors, &ours.descriptors);
}

fn check_descriptors(theirs: &[TheirDescriptor], ours: &[ConfigDescriptor<'_>]) {
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(ours) {
        assert_eq!((&*theirs.key, &*theirs.value), (ours.key, ours.value));
        let flags = [theirs.shadow_mode, theirs.detailed_metric, theirs.quota_mode];
        assert_eq!(flags, [ours.shadow, ours.detailed_metric, ours.quota]);
        assert_eq!(theirs.rate_limit.is_some(), ours.limit.is_some());
        if let (Some(theirs), Some(ours)) = (&theirs.rate_limit, &ours.limit) {
            assert_eq!(theirs.unit.cast_unsigned(), ours.unit);
            assert_eq!(theirs.requests_per_unit, ours.permits);
            assert_eq!((theirs.unlimited, &*theirs.name), (ours.unlimited, ours.name));
            let replaced: Vec<&str> = theirs.replaces.iter().map(|name| &*name.name).collect();
            assert_eq!(replaced, ours.replaces);
        }
        assert_eq!(theirs.metadata.as_ref().map(metadata), ours.metadata);
        check_descriptors(&theirs.descriptors, &ours.descriptors);
    }
}

fn metadata(theirs: &Struct) -> Metadata {
    let fields = theirs.fields.iter().map(|(name, value)| (name.as_str().into(), of_value(value)));
    Metadata(fields.collect())
}

fn of_value(value: &Value) -> MetadataValue {
    use rategate_protocol::rls::FiniteNumber;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => MetadataValue::Null,
        Some(Kind::BoolValue(value)) => MetadataValue::Bool(*value),
        Some(Kind::NumberValue(number)) => {
            MetadataValue::Number(FiniteNumber::new(*number).unwrap())
        }
        Some(Kind::StringValue(text)) => MetadataValue::text(text.as_str()),
        Some(Kind::StructValue(fields)) => MetadataValue::Map(metadata(fields)),
        Some(Kind::ListValue(all)) => {
            MetadataValue::List(all.values.iter().map(of_value).collect())
        }
    }
}
