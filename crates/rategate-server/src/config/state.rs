//! What became of the configuration so far.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::ConfigError;
use super::load::Loaded;

/// What became of the configuration so far, for a metric and a page.
#[derive(Clone, Debug)]
pub struct State {
    /// The digest of the text that is in force.
    pub hash: Arc<str>,
    /// Since when it is, by the wall clock.
    pub loaded_at: SystemTime,
    /// Why the text that is there now is not in force; `None` if it is.
    pub last_error: Option<Refused>,
    /// How often another text has come into force since the start.
    pub reloads: u64,
    /// How often a text has been refused.
    pub failures: u64,
}

/// Why a text is not in force.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Since when, by the wall clock.
    pub at: SystemTime,
    /// What is wrong with it, and where. `None`: nothing, and whoever was to use it would not.
    pub error: Option<Arc<ConfigError>>,
    /// The same in words, a line for each problem.
    pub message: Arc<str>,
}

impl State {
    /// The state at the start.
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

    /// After another text has come into force.
    pub(crate) fn accepted(&self, hash: &Arc<str>) -> Self {
        Self {
            hash: Arc::clone(hash),
            loaded_at: SystemTime::now(),
            last_error: None,
            reloads: self.reloads.saturating_add(1),
            failures: self.failures,
        }
    }

    /// After the text that is in force has been found again, where another one was refused.
    pub(crate) fn restored(&self) -> Self {
        Self { last_error: None, ..self.clone() }
    }

    /// After a text has been refused.
    pub(crate) fn refused(&self, error: Option<Arc<ConfigError>>, message: String) -> Self {
        let refused = Refused { at: SystemTime::now(), error, message: message.into() };
        Self {
            last_error: Some(refused),
            failures: self.failures.saturating_add(1),
            ..self.clone()
        }
    }
}
