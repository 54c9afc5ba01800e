//! Problem details (RFC 9457), written by hand: the members are few and known.

use std::fmt::Write;

use crate::headers::retry_seconds;
use crate::refusal::{Reason, Refusal};

/// The media type of a problem.
pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// The registered type of "over the limit" (draft-ietf-httpapi-ratelimit-headers). All else is what
/// its status says, and has the type that says so.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const BLANK: &str = "about:blank";

/// A refusal as a JSON object.
pub(crate) fn problem(refusal: &Refusal) -> String {
    let status = refusal.status();
    let (kind, title) = match refusal.reason() {
        Reason::OverLimit => (QUOTA_EXCEEDED, "Quota Exceeded"),
        _ => (BLANK, status.canonical_reason().unwrap_or_default()),
    };
    let mut json = String::with_capacity(256);
    json.push_str("{\"type\":");
    push_string(&mut json, kind);
    json.push_str(",\"title\":");
    push_string(&mut json, title);
    // Writing to a string does not fail.
    let _ = write!(json, ",\"status\":{}", status.as_u16());
    json.push_str(",\"detail\":");
    push_string(&mut json, refusal.detail());
    if let Some(wait) = refusal.retry_after() {
        let _ = write!(json, ",\"retry_after\":{}", retry_seconds(wait));
        let _ = write!(json, ",\"retry_after_ms\":{}", refusal.retry_after_ms().unwrap_or(1));
    }
    if let (Reason::OverLimit, Some(policy)) = (refusal.reason(), refusal.policy()) {
        json.push_str(",\"violated-policies\":[");
        push_string(&mut json, policy);
        json.push(']');
    }
    json.push('}');
    json
}

/// A string in quotes, escaped as RFC 8259 asks.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\u{0}'..='\u{1f}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{problem, push_string};
    use crate::refusal::{Reason, Refusal};

    #[test]
    fn strings_are_escaped() {
        let mut json = String::new();
        push_string(&mut json, "a\"b\\c\n\u{0}\u{1f}\u{7f}ä\u{1f600}");
        assert_eq!(json, "\"a\\\"b\\\\c\\u000a\\u0000\\u001f\u{7f}ä\u{1f600}\"");
    }

    #[test]
    fn golden_problems() {
        let over = Refusal::new(Reason::OverLimit, Some(Duration::from_micros(1_500_001)));
        assert_eq!(
            problem(&over.clone().under("a\"b")),
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                r#""title":"Quota Exceeded","status":429,"#,
                r#""detail":"The limit is reached.","#,
                r#""retry_after":2,"retry_after_ms":1501,"violated-policies":["a\"b"]}"#
            )
        );
        assert_eq!(
            problem(&Refusal::new(Reason::Closed, None).under("p")),
            concat!(
                r#"{"type":"about:blank","title":"Service Unavailable","status":503,"#,
                r#""detail":"The limiter is closed."}"#
            )
        );
    }
}
