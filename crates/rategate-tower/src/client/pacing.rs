//! The pacing of one server's requests, for clients of any kind. Time is an argument.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::allowance::{Cost, Tokens, ns};
use super::hints::{MAX_HOLD, ServerHints};
use super::pace::{Following, PacingState, Ticket};

/// The default number of requests of a client that may wait for the server at the same time.
pub const DEFAULT_WAITERS: usize = 65_536;

/// The instants at which the requests to one server may start, by what it reports.
///
/// It is the part of a [`PaceLayer`](super::PaceLayer) that neither sleeps nor sends, for clients
/// without tower. Clones share one state. Instants are nanoseconds of any clock that does not go
/// back.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use http::{HeaderMap, StatusCode};
/// use rategate_tower::client::{MAX_HOLD, Pacing, Tokens, parse_hints};
///
/// let pacing = Pacing::new().jitter(Duration::ZERO);
/// let mut first = pacing.join(Tokens::default()).expect("no other request waits");
/// assert_eq!(first.start(0), Ok(()));
/// assert!(first.send(0));
///
/// let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, "7".parse()?)]);
/// let status = StatusCode::TOO_MANY_REQUESTS;
/// let hints = parse_hints(status, &headers, SystemTime::now(), MAX_HOLD);
/// assert_eq!(first.follow(1_000_000_000, &hints), Some(Duration::from_secs(7)));
///
/// let mut second = pacing.join(Tokens::default()).expect("no other request waits");
/// assert_eq!(second.start(1_000_000_000), Err(8_000_000_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pacing {
    options: Options,
    state: Arc<Mutex<PacingState>>,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    spreads: bool,
    knows_tokens: bool,
    jitter: Option<Duration>,
    max_hold: Duration,
    max_waiters: usize,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::new()
    }
}

impl Pacing {
    /// Creates a pacing without a report of the server.
    #[must_use]
    pub fn new() -> Self {
        let options = Options {
            spreads: true,
            knows_tokens: false,
            jitter: None,
            max_hold: MAX_HOLD,
            max_waiters: DEFAULT_WAITERS,
        };
        Self { options, state: Arc::default() }
    }

    /// Ends each hold later than the server asks, by a random part of `max`.
    /// [`PaceLayer::jitter`](super::PaceLayer::jitter) has the details.
    #[must_use]
    pub const fn jitter(mut self, max: Duration) -> Self {
        self.options.jitter = Some(max);
        self
    }

    /// Sets the longest time that a server can make this client hold: [`MAX_HOLD`] by default.
    #[must_use]
    pub const fn max_hold(mut self, max: Duration) -> Self {
        self.options.max_hold = max;
        self
    }

    /// Sets the number of requests that may wait: [`DEFAULT_WAITERS`] by default, at least one.
    #[must_use]
    pub fn bound_queue(mut self, waiters: usize) -> Self {
        self.options.max_waiters = waiters.max(1);
        self
    }

    /// Starts the remaining requests as fast as they arrive, and then holds.
    #[must_use]
    pub const fn without_spreading(mut self) -> Self {
        self.options.spreads = false;
        self
    }

    /// Counts the tokens of each request, which [`join`](Self::join) then has to know.
    #[must_use]
    pub const fn with_tokens(mut self) -> Self {
        self.options.knows_tokens = true;
        self
    }

    /// Returns the longest time of a hold, for [`parse_hints`](super::parse_hints).
    #[must_use]
    pub const fn longest_hold(&self) -> Duration {
        self.options.max_hold
    }

    /// Adds a request behind those that wait, unless as many as may wait do already.
    #[must_use]
    pub fn join(&self, tokens: Tokens) -> Option<PacedRequest> {
        let ticket = self.state().join(Cost::of_request(tokens), self.options.max_waiters)?;
        Some(PacedRequest { pacing: self.clone(), ticket, stage: Stage::Waiting, start_ns: 0 })
    }

    /// Locks the state. A panic under the lock leaves no partial update.
    fn state(&self) -> MutexGuard<'_, PacingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request from its arrival to its response.
///
/// Dropped, it leaves the line, withdraws a start that was not used, or counts as one without a
/// response, which the server may have counted.
#[derive(Debug)]
pub struct PacedRequest {
    pacing: Pacing,
    ticket: Ticket,
    stage: Stage,
    start_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Started,
    Sent,
    Ended,
}

impl PacedRequest {
    /// Starts the request at `now_ns`, if it waits and may start.
    ///
    /// # Errors
    ///
    /// The instant from which it may start, as far as known: the time of the next call.
    pub fn start(&mut self, now_ns: u64) -> Result<(), u64> {
        if self.stage == Stage::Waiting {
            self.pacing.state().start(now_ns, self.ticket)?;
            (self.stage, self.start_ns) = (Stage::Started, now_ns);
        }
        Ok(())
    }

    /// Records that a request that has started is sent, and returns `true`.
    ///
    /// Returns `false` if a hold has begun since its start: it waits again, in its place, and
    /// [`start`](Self::start) comes next.
    #[must_use]
    pub fn send(&mut self, now_ns: u64) -> bool {
        if self.stage == Stage::Started {
            let mut state = self.pacing.state();
            let is_held = state.holds(now_ns);
            if is_held {
                state.end(self.ticket);
            }
            self.stage = if is_held { Stage::Waiting } else { Stage::Sent };
        }
        self.stage == Stage::Sent
    }

    /// Follows the hints of the response to a request that was sent, once. Returns the time of the
    /// hold that begins or grows by them, without its jitter.
    pub fn follow(&mut self, now_ns: u64, hints: &ServerHints) -> Option<Duration> {
        if self.stage != Stage::Sent {
            return None;
        }
        let Options { spreads, knows_tokens, jitter, .. } = self.pacing.options;
        let following = Following {
            spreads,
            knows_tokens,
            jitter_ns: jitter.map(ns),
            release_ns: jitter.map_or(0, ns),
        };
        let mut state = self.pacing.state();
        let instants = [self.start_ns, now_ns];
        let hold_ns = state.follow(instants, self.ticket, hints, following, random);
        state.end(self.ticket);
        self.stage = Stage::Ended;
        hold_ns.map(Duration::from_nanos)
    }
}

impl Drop for PacedRequest {
    fn drop(&mut self) {
        let mut state = self.pacing.state();
        match self.stage {
            Stage::Waiting => state.leave(self.ticket),
            Stage::Started => state.take_back(self.start_ns, self.ticket),
            Stage::Sent => state.abandon(self.ticket),
            Stage::Ended => {}
        }
    }
}

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
