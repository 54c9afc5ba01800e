//! Problem details (RFC 9457).

use serde::{Serialize, Serializer};

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The registered problem type of exceeded quotas (draft-ietf-httpapi-ratelimit-headers).
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The type of all other problems, which the status describes.
pub const BLANK: &str = "about:blank";

/// A problem, before it is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Problem<'a> {
    /// The `type`: [`QUOTA_EXCEEDED`] or [`BLANK`].
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The `title`; that of the status, if the type is [`BLANK`].
    pub title: &'a str,
    /// The `status`.
    pub status: u16,
    /// The `detail`: one sentence for people.
    pub detail: &'a str,
    /// The `code` for programs, which distinguishes problems of equal status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    /// The members with numbers, such as the time to wait.
    #[serde(flatten, serialize_with = "members")]
    pub numbers: &'a [(&'a str, u64)],
    /// The violated policies.
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    pub violated: &'a [&'a str],
    /// The errors in the request's body, with their positions.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: &'a [FieldError<'a>],
}

/// An error in a part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
        // Texts and numbers always are JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn members<S: Serializer>(numbers: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(numbers.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::{BLANK, FieldError, Problem};

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
}
