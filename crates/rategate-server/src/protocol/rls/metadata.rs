//! The dynamic metadata of replies: the request as it was read, and the metadata of the rules that
//! it passed.

use super::request::{Descriptor, RlsRequest};
use crate::engine::{Answer, ItemResult, Override, Verdict};
use crate::rule::{Metadata, MetadataValue, Unit};

/// Returns the part that states the request: its domain, descriptors and hits.
pub(super) fn of_request(ask: &RlsRequest<'_>) -> Metadata {
    let descriptors = ask.descriptors.iter().map(|it| MetadataValue::Map(of_descriptor(it)));
    let hits = (ask.hits > 0).then(|| number(ask.hits.into()));
    fields([
        ("domain", Some(MetadataValue::text(ask.domain))),
        ("descriptors", Some(MetadataValue::List(descriptors.collect()))),
        ("hitsAddend", hits),
    ])
}

/// Adds the merged metadata of the rules that the request passed, if they have any.
pub(super) fn add_rules(metadata: &mut Metadata, answer: &Answer) {
    let mut merged = Metadata::default();
    let passed = answer.results.iter().filter(|result| has_passed(result));
    for own in passed.filter_map(|result| result.rule.as_ref()?.metadata.as_ref()) {
        merged.merge(own);
    }
    if !merged.0.is_empty() {
        metadata.0.insert("metadata".into(), MetadataValue::Map(merged));
    }
    let name = |result: &ItemResult| result.rule.as_ref().map_or("", |rule| &*rule.name).to_owned();
    let limits = answer
        .results
        .iter()
        .flat_map(|it| if it.parts().is_empty() { std::slice::from_ref(it) } else { it.parts() });
    let soft = limits.filter(|result| result.is_soft());
    let soft: Vec<_> = soft.map(|result| MetadataValue::text(name(result))).collect();
    if !soft.is_empty() {
        metadata.0.insert("soft".into(), MetadataValue::List(soft));
    }
}

/// Returns `true` if a rule applied to the item and did not deny it. A rule in shadow denies
/// nothing.
const fn has_passed(result: &ItemResult) -> bool {
    match result.verdict {
        Verdict::Granted
        | Verdict::Refunded(_)
        | Verdict::Charged(_)
        | Verdict::Committed(_)
        | Verdict::Cancelled(_)
        | Verdict::Late(_)
        | Verdict::Denied { enforced: false, .. }
        | Verdict::Unavailable { admitted: true, .. } => true,
        Verdict::Unmatched
        | Verdict::Unlimited
        | Verdict::Replaced
        | Verdict::Reset
        | Verdict::Unknown
        | Verdict::Denied { enforced: true, .. }
        | Verdict::Unavailable { admitted: false, .. } => false,
    }
}

fn of_descriptor(descriptor: &Descriptor<'_>) -> Metadata {
    // Clients choose these bytes. A text of protocol buffers that is not UTF-8 makes a reply
    // invalid, and callers let a request pass then.
    let entry = |(key, value): &(&[u8], &[u8])| {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        MetadataValue::text(format!("{key}={value}"))
    };
    let entries = descriptor.entries.iter().map(entry).collect();
    fields([
        ("entries", Some(MetadataValue::List(entries))),
        ("limit", descriptor.limit.map(|limit| MetadataValue::text(limit_text(limit)))),
        ("hitsAddend", descriptor.hits.map(number)),
    ])
}

/// Returns a limit in the text form of protocol buffers, with one space between its fields.
fn limit_text(limit: Override) -> String {
    // `envoy.type.v3.RateLimitUnit` has no name for a week: the number of a caller's is shown.
    let unit = match limit.unit {
        Unit::Week => "7".to_owned(),
        unit => unit.name().to_ascii_uppercase(),
    };
    match limit.permits {
        0 => format!("unit:{unit}"),
        permits => format!("requests_per_unit:{permits} unit:{unit}"),
    }
}

fn fields<const N: usize>(fields: [(&str, Option<MetadataValue>); N]) -> Metadata {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
    Metadata(given.collect())
}

fn number(number: u64) -> MetadataValue {
    MetadataValue::Number(number.into())
}
