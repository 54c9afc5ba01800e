//! The status of the configuration: the text in force, and the outcome of the latest changes.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::ConfigError;
use super::load::Loaded;

/// The status of the configuration, for metrics and the page.
#[derive(Clone, Debug)]
pub struct State {
    /// The digest of the text in force.
    pub hash: Arc<str>,
    /// The time at which it came into force, by the wall clock.
    pub loaded_at: SystemTime,
    /// The reason why the current text is not in force; `None` if it is.
    pub last_error: Option<Refused>,
    /// The number of times that another text has come into force since the start.
    pub reloads: u64,
    /// The number of times that a text has been refused.
    pub failures: u64,
}

/// The reason why a text is not in force.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The time of the refusal, by the wall clock.
    pub at: SystemTime,
    /// The problems with their positions. `None` if the text is right but could not be put into
    /// force.
    pub error: Option<Arc<ConfigError>>,
    /// The problems as text, a line for each.
    pub message: Arc<str>,
}

impl State {
    /// Returns the state at the start.
    #[must_use]
    pub fn of(loaded: &Loaded) -> Self {
        Self {
            hash: Arc::clone(&loaded.hash),
            loaded_at: SystemTime::now(),
            last_error: None,
            reloads: 0,
            failures: 0,
        }
    }

    /// Returns the state after another text has come into force.
    pub(crate) fn accepted(&self, hash: &Arc<str>) -> Self {
        Self {
            hash: Arc::clone(hash),
            loaded_at: SystemTime::now(),
            last_error: None,
            reloads: self.reloads.saturating_add(1),
            failures: self.failures,
        }
    }

    /// Returns the state after the files contain the text in force again.
    pub(crate) fn restored(&self) -> Self {
        Self { last_error: None, ..self.clone() }
    }

    /// Returns the state after a text has been refused.
    pub(crate) fn refused(&self, error: Option<Arc<ConfigError>>, message: String) -> Self {
        let refused = Refused { at: SystemTime::now(), error, message: message.into() };
        Self {
            last_error: Some(refused),
            failures: self.failures.saturating_add(1),
            ..self.clone()
        }
    }
}
