//! Loads whose operations are released at their due instants.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate::pace::shape::{DueInstants, Load, LoadError, ShapeError};
use rategate::pace::{self, Release};

use crate::clock::Clock;
use crate::replies::Later;

/// An open loop over a load that is known at run time.
///
/// Clones are handles of one loop: each operation goes to one call of any of them.
#[derive(Clone, Debug)]
pub struct OpenLoop(Arc<pace::OpenLoop<DueInstants, Clock>>);

/// The reason why there is no open loop of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenLoopError {
    /// The text is no load.
    Load {
        /// The text.
        text: String,
        /// The fault, and where it is.
        error: LoadError,
    },
    /// The load has no such part.
    Part(ShapeError),
}

impl OpenLoop {
    /// Starts a load now, such as `"ramp:0/s>100/s@10s then constant:100/s@1min"`, or a part of
    /// it: `(part, parts)`, of which the first is part 0.
    ///
    /// # Errors
    ///
    /// [`OpenLoopError`], with the place of the fault in the text.
    pub fn new(text: &str, part: Option<(u64, u64)>, clock: Clock) -> Result<Self, OpenLoopError> {
        let load: Load =
            text.parse().map_err(|error| OpenLoopError::Load { text: text.to_owned(), error })?;
        let (part, parts) = part.unwrap_or((0, 1));
        let operations = load.into_operations().split(part, parts).map_err(OpenLoopError::Part)?;
        Ok(Self(Arc::new(pace::OpenLoop::with_clock(operations, clock))))
    }

    /// Blocks the thread until the next operation is due. `None` once the load is over, or the
    /// loop closed.
    #[must_use = "an operation is released once"]
    pub fn wait(&self) -> Option<Release> {
        self.0.wait()
    }

    /// Returns what waits for the next operation, for a [`Replies`](crate::Replies). Its operation
    /// is released by the poll that finds it due.
    ///
    /// Dropped before, it leaves the operation to the next call.
    #[must_use]
    pub fn wait_later(&self) -> Later<Option<Release>> {
        let open_loop = Arc::clone(&self.0);
        Box::pin(async move { open_loop.wait_async().await })
    }

    /// Ends all waits: no operation is released any more.
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns the time since the start of the load.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.now()
    }
}

impl fmt::Display for OpenLoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { text, error } => write!(f, "the load {text:?}: {error}"),
            Self::Part(error) => error.fmt(f),
        }
    }
}

impl Error for OpenLoopError {}
