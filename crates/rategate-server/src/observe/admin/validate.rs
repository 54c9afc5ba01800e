//! Whether a configuration would be taken: what is wrong with it, and nothing of it in force.

use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::Body;
use super::reply::{Problem, json};
use crate::config::{self, ConfigError, Loaded, Problem as Wrong};

/// The longest configuration.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// More problems than these are counted, not told.
const MOST_TOLD: usize = 50;

#[derive(Debug, Serialize)]
struct Validated {
    is_valid: bool,
    /// The digest of its text, and how many rules it has. None of one that is wrong.
    hash: Option<String>,
    rules: Option<usize>,
    problems: Vec<Told>,
    /// How many more there are.
    untold: usize,
    warnings: Vec<Told>,
}

/// What is wrong, and where.
#[derive(Debug, Serialize)]
struct Told {
    message: String,
    help: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
}

/// Reads text as a file alone: in Envoy's format if its type says YAML. One at a time, on a thread that has nothing else to do.
pub(super) async fn call(
    one: &Semaphore,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<Body>, Problem> {
    let _only = one.try_acquire().map_err(|_| Problem::busy())?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let name = if kind.contains("yaml") { "body.yaml" } else { "body.toml" };
    let text = std::str::from_utf8(body).map_err(|_| Problem::bad("the body is no text"))?;
    let text = text.to_owned();
    let read = tokio::task::spawn_blocking(move || config::load_foreign(name, &text)).await;
    match read {
        Ok(read) => json(&Validated::of(&read)),
        Err(_) => Err(Problem::bad("it cannot be read")),
    }
}

impl Validated {
    fn of(read: &Result<Loaded, ConfigError>) -> Self {
        let told = |all: &[Wrong]| all.iter().take(MOST_TOLD).map(Told::of).collect();
        match read {
            Ok(Loaded { rules, hash, warnings, .. }) => Self {
                is_valid: true,
                hash: Some(hash.to_string()),
                rules: Some(rules.rules.len()),
                problems: Vec::new(),
                untold: 0,
                warnings: told(warnings),
            },
            Err(error) => Self {
                is_valid: false,
                hash: None,
                rules: None,
                problems: told(error.problems()),
                untold: error.problems().len().saturating_sub(MOST_TOLD),
                warnings: Vec::new(),
            },
        }
    }
}

impl Told {
    fn of(problem: &Wrong) -> Self {
        Self {
            message: problem.message().to_owned(),
            help: problem.what_to_do().map(str::to_owned),
            line: problem.line(),
            column: problem.column(),
        }
    }
}
