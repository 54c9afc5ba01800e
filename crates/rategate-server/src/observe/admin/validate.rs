//! Validation of a configuration: reports its problems, and puts nothing into force.

use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::reply::{Problem, json};
use crate::config::{self, ConfigError, Loaded, Problem as ConfigProblem};
use crate::protocol::body::Body;

/// The maximum length of a configuration, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The maximum number of problems in an answer. The rest is counted.
const MAX_REPORTED: usize = 50;

#[derive(Debug, Serialize)]
struct Validated {
    is_valid: bool,
    /// The digest of its text and the number of its rules. `None` if it is invalid.
    hash: Option<String>,
    rules: Option<usize>,
    problems: Vec<ReportedProblem>,
    /// The number of problems that the answer leaves out.
    untold: usize,
    warnings: Vec<ReportedProblem>,
}

/// A problem with its position.
#[derive(Debug, Serialize)]
struct ReportedProblem {
    message: String,
    help: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
}

/// Reads a text as a single file, in Envoy's format if its content type contains "yaml". One at a
/// time, on a blocking thread.
pub(super) async fn call(
    one: &Semaphore,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<Body>, Problem> {
    let _only = one.try_acquire().map_err(|_| Problem::busy())?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let name = if kind.contains("yaml") { "body.yaml" } else { "body.toml" };
    let text =
        std::str::from_utf8(body).map_err(|_| Problem::bad("the body is not valid UTF-8"))?;
    let text = text.to_owned();
    let read = tokio::task::spawn_blocking(move || config::load_foreign(name, &text)).await;
    match read {
        Ok(read) => json(&Validated::of(&read)),
        Err(_) => Err(Problem::bad("the configuration cannot be read")),
    }
}

impl Validated {
    fn of(read: &Result<Loaded, ConfigError>) -> Self {
        let reported = |all: &[ConfigProblem]| {
            all.iter().take(MAX_REPORTED).map(ReportedProblem::of).collect()
        };
        match read {
            Ok(Loaded { rules, hash, warnings, .. }) => Self {
                is_valid: true,
                hash: Some(hash.to_string()),
                rules: Some(rules.rules.len()),
                problems: Vec::new(),
                untold: 0,
                warnings: reported(warnings),
            },
            Err(error) => Self {
                is_valid: false,
                hash: None,
                rules: None,
                problems: reported(error.problems()),
                untold: error.problems().len().saturating_sub(MAX_REPORTED),
                warnings: Vec::new(),
            },
        }
    }
}

impl ReportedProblem {
    fn of(problem: &ConfigProblem) -> Self {
        Self {
            message: problem.message().to_owned(),
            help: problem.help_text().map(str::to_owned),
            line: problem.line(),
            column: problem.column(),
        }
    }
}
