//! Tracing spans of decisions, where built with them. Builds without them refuse a configured
//! receiver.

#[cfg(feature = "otlp")]
use std::sync::Arc;

use super::StartError;
use crate::config::settings::Tracing;
#[cfg(feature = "otlp")]
use crate::observe::{Observe, Spans};

/// Starts the sender of spans, if a receiver is configured.
#[cfg(feature = "otlp")]
pub(super) fn spans(
    tracing: &Tracing,
    observe: &Arc<Observe>,
) -> Result<Option<Spans>, StartError> {
    Spans::start(tracing, observe).map_err(StartError::Tracing)
}

/// Refuses a configured receiver. Configuration files with one are refused earlier, but settings
/// may have another source.
#[cfg(not(feature = "otlp"))]
pub(super) fn refuse(tracing: &Tracing) -> Result<(), StartError> {
    match tracing.otlp {
        None => Ok(()),
        Some(_) => Err(StartError::Tracing("this rategate is built without OTLP".to_owned())),
    }
}
