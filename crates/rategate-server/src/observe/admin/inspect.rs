//! The status of one key, and the explanation of one descriptor. Nothing is taken.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::Uri;
use serde::{Deserialize, Serialize};

use super::super::{View, name, summary};
use super::shapes::Written;
use super::{MAX_BODY_BYTES, Shared};
use crate::config::hint;
use crate::engine::{Answer, Item, ItemResult, Request, Target, Verb, Verdict};
use crate::protocol::http::{Refused, WITHIN, read};
use crate::protocol::json;

/// A descriptor, as Envoy writes it in JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    domain: String,
    entries: Vec<json::Object<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    value: String,
}

/// The answer that a call for one permit would get now.
#[derive(Debug, Serialize)]
pub(super) struct KeyStatus {
    rule: Option<String>,
    allowed: bool,
    /// The word for the verdict: `granted`, `denied`, `unlimited`, ...
    verdict: &'static str,
    enforced: bool,
    limit_permits: u64,
    /// The permits left. `None` if only a store knows.
    remaining_permits: Option<u64>,
    /// The permits by which the limit is exceeded, after charges.
    debt_permits: u64,
    /// The time until one permit fits; `None` if it does now, or if time cannot help.
    retry_after_ms: Option<u64>,
    /// The time until none of the limit is in use; `None` if it never recovers by itself.
    reset_after_ms: Option<u64>,
    sentence: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Explained {
    matched: bool,
    rule: Option<Written>,
    now: KeyStatus,
    /// A sentence about an unknown domain or key, with the most similar existing name.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Answers `GET /v1/keys/{rule}/{key}`. The path has the rule and the values of the key,
/// percent-encoded: any bytes.
pub(super) async fn key(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Json<KeyStatus>, Refused> {
    let view = &*shared.view;
    let rest = uri.path().trim_start_matches("/v1/keys/");
    let (rule, key) = rest.split_once('/').map_or((rest, None), |(rule, key)| (rule, Some(key)));
    let bad = || Refused::invalid("", "the path is not percent-encoded UTF-8");
    let rule = String::from_utf8(name::decode(rule).ok_or_else(bad)?).map_err(|_| bad())?;
    let values = match key {
        None => Vec::new(),
        Some(key) => name::values(key).ok_or_else(bad)?,
    };
    let mut values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    // A rule with one counter has a key without values.
    if values == [b""] && view.rule(&rule).is_some_and(|rule| rule.values_counted() == 0) {
        values.clear();
    }
    let result = evaluate(view, Target::Rule { name: &rule, values: &values }).await?;
    Ok(Json(KeyStatus::of(&result)))
}

/// Answers `POST /v1/explain`.
pub(super) async fn explain(
    State(shared): State<Arc<Shared>>,
    body: Body,
) -> Result<Json<Explained>, Refused> {
    let body = read(body, MAX_BODY_BYTES, WITHIN).await?;
    let Descriptor { domain, entries } = json::read(&body)?;
    let entries: Vec<_> = entries.into_iter().map(|json::Object(entry)| entry).collect();
    let view = &*shared.view;
    let pairs: Vec<(&[u8], &[u8])> =
        entries.iter().map(|entry| (entry.key.as_bytes(), entry.value.as_bytes())).collect();
    let result =
        evaluate(view, Target::Descriptor { domain: &domain, entries: &pairs, limit: None })
            .await?;
    let keys = entries.iter().map(|entry| &*entry.key);
    let rules = if result.rule.is_none() { view.rules() } else { None };
    let hint = rules.and_then(|rules| hint(rules.rules.iter(), &domain, keys));
    Ok(Json(Explained {
        hint,
        matched: result.rule.is_some(),
        rule: result.rule.as_deref().map(Written::of),
        now: KeyStatus::of(&result),
    }))
}

async fn evaluate(view: &dyn View, target: Target<'_>) -> Result<ItemResult, Refused> {
    let items = [Item::of(target, 1)];
    let decided = view.evaluate(&Request { verb: Verb::Peek, items: &items, counts_denied: false });
    let Answer { results, .. } = decided.answer().await?;
    results.into_iter().next().ok_or(Refused::NotFound)
}

impl KeyStatus {
    fn of(result: &ItemResult) -> Self {
        let retry_after_ns = result.verdict.retry_after_ns();
        let enforced = match result.verdict {
            Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced => false,
            Verdict::Denied { enforced, .. } => enforced,
            _ => true,
        };
        Self {
            rule: result.rule.as_ref().map(|rule| rule.name.to_string()),
            allowed: !result.verdict.is_over(),
            verdict: word(result.verdict),
            enforced,
            limit_permits: result.limit,
            remaining_permits: result.remaining,
            debt_permits: result.debt,
            retry_after_ms: retry_after_ns.map(|wait| wait.get().div_ceil(1_000_000)),
            reset_after_ms: result.reset_after().map(|ns| ns.div_ceil(1_000_000)),
            sentence: sentence(result),
        }
    }
}

/// Returns the word for a verdict. These answers have no other field that says if the item
/// passes.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unavailable { admitted: true, .. } => "store-unreachable-admitted",
        Verdict::Unavailable { admitted: false, .. } => "store-unreachable-denied",
        verdict => verdict.word(),
    }
}

fn counts_in_flight(result: &ItemResult) -> bool {
    result.rule.as_deref().is_some_and(|rule| rule.limit.counts_in_flight())
}

/// Returns a sentence about the verdict, with its times.
fn sentence(result: &ItemResult) -> String {
    let span = |ns: u64| summary::span(ns.div_ceil(1_000_000));
    let left = |result: &ItemResult| match result.remaining {
        _ if result.debt > 0 => {
            let debt = summary::number(result.debt, "permit");
            format!("charges exceed the limit of {} by {debt}", summary::grouped(result.limit))
        }
        Some(left) => format!("{left} of {} permits are left", result.limit),
        None => "only the store knows how many permits are left".to_owned(),
    };
    match result.verdict {
        Verdict::Unmatched => "No rule matches: the call passes uncounted.".to_owned(),
        Verdict::Unlimited => "Everything passes, uncounted.".to_owned(),
        Verdict::Replaced => "Another rule replaces this one.".to_owned(),
        Verdict::Denied { retry_after_ns, enforced } if counts_in_flight(result) => {
            let not = if enforced { "Denied" } else { "Over the limit, which is not enforced" };
            let latest =
                retry_after_ns.map(|wait| format!(", in {} at the latest", span(wait.get())));
            let latest = latest.unwrap_or_default();
            let limit = result.limit;
            format!("{not}: all {limit} permits are in flight. One fits when a call ends{latest}.")
        }
        Verdict::Denied { retry_after_ns: Some(wait), enforced } => {
            let not = if enforced { "Denied" } else { "Over the limit, which is not enforced" };
            format!("{not}: {}. One fits in {}.", left(result), span(wait.get()))
        }
        Verdict::Denied { retry_after_ns: None, .. } => {
            "Denied, and time cannot help: nothing is allowed.".to_owned()
        }
        Verdict::Unavailable { admitted: true, .. } => {
            "The store is unavailable; the rule admits everything then.".to_owned()
        }
        Verdict::Unavailable { admitted: false, retry_after_ns } => {
            let again =
                retry_after_ns.map(|wait| format!(" It is tried again in {}.", span(wait.get())));
            let again = again.unwrap_or_default();
            format!("The store is unavailable; the rule denies everything then.{again}")
        }
        // Only a call for permits, and a peek, are explained.
        Verdict::Unknown => "No reservation has this id.".to_owned(),
        Verdict::Granted
        | Verdict::Charged(_)
        | Verdict::Refunded(_)
        | Verdict::Reset
        | Verdict::Committed(_)
        | Verdict::Cancelled(_)
        | Verdict::Late(_) => match result.reset_after() {
            None => format!("Allowed: {}.", left(result)),
            Some(0) => format!("Allowed: {}, nothing is in use.", left(result)),
            Some(reset) => {
                format!("Allowed: {}. All permits are free again in {}.", left(result), span(reset))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_has_words_of_its_own() {
        let unavailable = |admitted| word(Verdict::Unavailable { admitted, retry_after_ns: None });
        assert_eq!(unavailable(true), "store-unreachable-admitted");
        assert_eq!(unavailable(false), "store-unreachable-denied");
        let denied = Verdict::Denied { retry_after_ns: None, enforced: false };
        assert_eq!(word(denied), "denied");
    }
}
