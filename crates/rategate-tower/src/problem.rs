//! Problem details (RFC 9457). The JSON is written by hand, as the members are few and known.

use std::fmt::Write;

use crate::headers::retry_seconds;
use crate::refusal::{Reason, Refusal};

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The registered problem type of exceeded quotas (draft-ietf-httpapi-ratelimit-headers).
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The type of all other problems, which the status describes.
pub const BLANK: &str = "about:blank";

/// A problem, before it is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The `type`: [`QUOTA_EXCEEDED`] or [`BLANK`].
    pub kind: &'a str,
    /// The `title`; that of the status, if the type is [`BLANK`].
    pub title: &'a str,
    /// The `status`.
    pub status: u16,
    /// The `detail`: one sentence for people.
    pub detail: &'a str,
    /// The `code` for programs, which distinguishes problems of equal status.
    pub code: Option<&'a str>,
    /// The members with numbers, such as the time to wait.
    pub numbers: &'a [(&'a str, u64)],
    /// The violated policies.
    pub violated: &'a [&'a str],
    /// The errors in the request's body, with their positions.
    pub errors: &'a [FieldError<'a>],
}

/// An error in a part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError<'a> {
    /// The JSON pointer of the part (RFC 6901). Empty for the whole body.
    pub pointer: &'a str,
    /// The fault and an accepted form.
    pub detail: &'a str,
}

impl Problem<'_> {
    /// Returns the JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(256);
        json.push_str("{\"type\":");
        push_string(&mut json, self.kind);
        json.push_str(",\"title\":");
        push_string(&mut json, self.title);
        // Writing to a string does not fail.
        let _ = write!(json, ",\"status\":{}", self.status);
        json.push_str(",\"detail\":");
        push_string(&mut json, self.detail);
        if let Some(code) = self.code {
            json.push_str(",\"code\":");
            push_string(&mut json, code);
        }
        for (name, number) in self.numbers {
            let _ = write!(json, ",\"{name}\":{number}");
        }
        push_list(&mut json, "violated-policies", self.violated, |json, policy| {
            push_string(json, policy);
        });
        push_list(&mut json, "errors", self.errors, |json, error| {
            json.push_str("{\"pointer\":");
            push_string(json, error.pointer);
            json.push_str(",\"detail\":");
            push_string(json, error.detail);
            json.push('}');
        });
        json.push('}');
        json
    }
}

/// Returns a refusal as a JSON object.
pub(crate) fn problem(refusal: &Refusal) -> String {
    let status = refusal.status();
    let over = matches!(refusal.reason(), Reason::OverLimit);
    let wait = refusal.retry_after().map(|wait| {
        let wait_ms = refusal.retry_after_ms().unwrap_or(1);
        [("retry_after", retry_seconds(wait)), ("retry_after_ms", wait_ms)]
    });
    let policy = refusal.policy().filter(|_| over);
    let problem = Problem {
        kind: if over { QUOTA_EXCEEDED } else { BLANK },
        title: if over { "Quota Exceeded" } else { status.canonical_reason().unwrap_or_default() },
        status: status.as_u16(),
        detail: refusal.detail(),
        code: None,
        numbers: wait.as_ref().map_or(&[], <[_; 2]>::as_slice),
        violated: policy.as_slice(),
        errors: &[],
    };
    problem.to_json()
}

/// Writes a member that is a list, unless it is empty.
fn push_list<T>(json: &mut String, name: &str, list: &[T], push: impl Fn(&mut String, &T)) {
    let mut before = '[';
    for item in list {
        if before == '[' {
            json.push(',');
            push_string(json, name);
            json.push(':');
        }
        json.push(before);
        push(json, item);
        before = ',';
    }
    if before == ',' {
        json.push(']');
    }
}

/// Writes a string in quotes, escaped as RFC 8259 requires.
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

    use super::{BLANK, FieldError, Problem, problem, push_string};
    use crate::refusal::{Reason, Refusal};

    #[test]
    fn golden_errors() {
        let (first, second) = (
            FieldError { pointer: "/items/0/permits", detail: "\"no\" number" },
            FieldError { pointer: "", detail: "none" },
        );
        let problem = Problem {
            kind: BLANK,
            title: "Bad Request",
            status: 400,
            detail: "no",
            code: Some("invalid_request"),
            numbers: &[("n", 1)],
            violated: &["a", "b"],
            errors: &[first, second],
        };
        assert_eq!(
            problem.to_json(),
            concat!(
                r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"no","#,
                r#""code":"invalid_request","n":1,"violated-policies":["a","b"],"#,
                r#""errors":[{"pointer":"/items/0/permits","detail":"\"no\" number"},"#,
                r#"{"pointer":"","detail":"none"}]}"#
            )
        );
    }

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
