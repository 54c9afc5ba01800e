//! Validation of a configuration: reports its problems, and puts nothing into force.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::Shared;
use crate::config::{self, ConfigError, Loaded, Problem};
use crate::protocol::http::{Refused, WITHIN, read};

/// The maximum length of a configuration, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The maximum number of problems in an answer. The rest is counted.
const MAX_REPORTED: usize = 50;

#[derive(Debug, Serialize)]
pub(super) struct Validated {
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

/// Answers `POST /v1/config/validate`. Reads a text as a single file, in Envoy's format if its
/// content type contains "yaml". One at a time, on a blocking thread.
pub(super) async fn call(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Json<Validated>, Refused> {
    let (head, body) = request.into_parts();
    let body = read(body, MAX_BYTES, WITHIN).await?;
    let _only = shared.readings.try_acquire().map_err(|_| Refused::Busy)?;
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_yaml = kind.is_some_and(|kind| kind.contains("yaml"));
    let name = if is_yaml { "body.yaml" } else { "body.toml" };
    let text = String::from_utf8(body.into())
        .map_err(|_| Refused::invalid("", "the body is not valid UTF-8"))?;
    let read = tokio::task::spawn_blocking(move || config::load_foreign(name, &text)).await;
    let read = read.map_err(|_| Refused::invalid("", "the configuration cannot be read"))?;
    Ok(Json(Validated::of(&read)))
}

impl Validated {
    fn of(read: &Result<Loaded, ConfigError>) -> Self {
        let reported =
            |all: &[Problem]| all.iter().take(MAX_REPORTED).map(ReportedProblem::of).collect();
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
    fn of(problem: &Problem) -> Self {
        Self {
            message: problem.message().to_owned(),
            help: problem.help_text().map(str::to_owned),
            line: problem.line(),
            column: problem.column(),
        }
    }
}
