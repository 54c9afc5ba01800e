//! The service's JSON, as far as this command reads it.
//!
//! Unknown fields are ignored, and missing ones are empty, so that an older command works with a
//! newer service.

use std::collections::BTreeMap;
use std::fmt::Display;

use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::args::UsageArgs;
use super::http::{Answer, Client};
use crate::failure::Failure;

/// A request to `POST /v1/check` about one counter.
#[derive(Debug, Serialize)]
pub(super) struct CheckRequest<'a> {
    pub(super) verb: Verb,
    pub(super) rule: &'a str,
    /// A value for each entry of the rule that has none of its own.
    #[serde(skip_serializing_if = "no_keys")]
    pub(super) key: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) permits: Option<u64>,
    /// The units that were used, in place of permits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) usage: BTreeMap<&'a str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    /// The id of a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    /// The time of a new reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<&'a str>,
    /// The id under which the request counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) once: Option<&'a str>,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Take,
    Peek,
    Charge,
    Reset,
    Reserve,
    Commit,
    Cancel,
}

/// The reply to a check; `allowed` is mandatory.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Checked {
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) items: Vec<Item>,
    /// The operation under the request's id had been answered before.
    #[serde(default)]
    pub(super) repeated: bool,
    #[serde(default)]
    pub(super) reservation: Reservation,
}

/// The reservation of a reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reservation {
    pub(super) id: String,
}

/// The result for one counter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    pub(super) verdict: String,
    /// The name of the limit within its rule, if that has several.
    pub(super) dimension: Option<String>,
    /// The cost of the usage of the request.
    pub(super) cost: Option<u64>,
    /// The counter does not deny the call.
    pub(super) allowed: bool,
    /// The call is over the limit of a rule that is not enforced.
    pub(super) shadow: bool,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    /// The number of permits by which the limit is exceeded.
    pub(super) debt: u64,
    pub(super) charged: Option<u64>,
    pub(super) refunded: Option<u64>,
    pub(super) retry_after_ns: Option<u64>,
    pub(super) reset_after_ns: Option<u64>,
}

/// An error in the form of RFC 9457.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
    code: String,
}

/// The error codes that mean that a rule is for other keys.
const OTHER_KEYS: [&str; 2] = ["invalid_values", "other_value"];

/// The maximum length of the service's text that is shown.
const MAX_SHOWN: usize = 400;

fn no_keys(keys: &&[String]) -> bool {
    keys.is_empty()
}

impl<'a> CheckRequest<'a> {
    /// Creates a request without an id.
    pub(super) const fn new(
        verb: Verb,
        rule: &'a str,
        key: &'a [String],
        permits: Option<u64>,
    ) -> Self {
        let usage = BTreeMap::new();
        let (model, id, ttl, once) = (None, None, None, None);
        Self { verb, rule, key, permits, usage, model, id, ttl, once }
    }

    /// Sends what was used in place of permits, if anything was.
    pub(super) fn with_usage(mut self, args: &'a UsageArgs) -> Self {
        if !args.usage.is_empty() {
            self.usage = args.usage.iter().map(|(unit, count)| (unit.as_str(), *count)).collect();
            (self.permits, self.model) = (None, args.model.as_deref());
        }
        self
    }
}

/// Sends a request about one counter.
pub(super) fn check(
    client: &mut Client,
    request: &CheckRequest<'_>,
) -> Result<(Answer, Checked), Failure> {
    let body = serde_json::to_vec(request).map_err(|error| Failure::Usage(error.to_string()))?;
    let answer = send(client, &Method::POST, "/v1/check", &body)?;
    let checked = read(client, &answer)?;
    Ok((answer, checked))
}

/// Sends a request, and returns an error with the reason unless it succeeds.
pub(super) fn send(
    client: &mut Client,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Result<Answer, Failure> {
    let answer =
        client.send(method, path, body).map_err(|silence| unanswered(client, &silence.0))?;
    if answer.status.is_success() {
        return Ok(answer);
    }
    let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_for_others = OTHER_KEYS.contains(&problem.code.as_str());
    let message = [problem.detail, problem.title].into_iter().find(|text| !text.is_empty());
    let why = match (message, answer.status) {
        (message, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let hint = "pass the service's token by --token-file or RATEGATE_TOKEN";
            message.map_or_else(|| hint.to_owned(), |message| format!("{message}; {hint}"))
        }
        (Some(message), _) => message,
        (None, status) => format!("it replies {status}; is it a rategate service?"),
    };
    match unanswered(client, &why) {
        Failure::Unanswered(text) if is_for_others => Err(Failure::RuleMismatch(text)),
        failure => Err(failure),
    }
}

/// Parses the body of a successful reply.
pub(super) fn read<'a, T: Deserialize<'a>>(
    client: &Client,
    answer: &'a Answer,
) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| unanswered(client, &format!("its reply is not understood: {error}")))
}

/// Returns the error of a service, without control characters and with a maximum length.
fn unanswered(client: &Client, why: &str) -> Failure {
    let shown: String = why.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
    Failure::Unanswered(format!("{}: {shown}", client.endpoint()))
}

/// Encodes a segment of a path: all bytes but letters, digits and `-._~` are percent-encoded.
pub(super) fn in_path(text: &str) -> impl Display {
    const ENCODED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, ENCODED)
}

#[cfg(test)]
mod tests {
    use super::in_path;

    #[test]
    fn any_text_is_one_segment_of_a_path() {
        assert_eq!(in_path("user-7_a.b~c").to_string(), "user-7_a.b~c");
        assert_eq!(in_path("a/b?c#d %\u{e4}").to_string(), "a%2Fb%3Fc%23d%20%25%C3%A4");
    }
}
