//! The way of a paced request: its wait, its start, and the hints of its response.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use rategate::adaptive::Outcome;
use rategate::{AcquireError, Grant};

use super::allowance::{Cost, Tokens, ns};
use super::hints::parse_hints;
use super::layer::{PaceError, PaceLayer};
use super::pace::{Following, PacingState, Ticket};

/// The reason why a request may not start.
enum NotStarted {
    Limiter(AcquireError),
    TooLong(Duration),
    QueueFull,
}

impl PaceLayer {
    /// Returns the tokens that a request will take, as far as known.
    pub(super) fn tokens(&self, head: &Parts) -> Tokens {
        self.rules.cost.as_ref().map_or(Tokens::default(), |cost| cost(head))
    }

    /// Makes a call at its start, and follows the hints in the head of its response.
    pub(super) async fn paced<F, R, E>(
        &self,
        tokens: Tokens,
        call: impl FnOnce() -> F,
        head: impl FnOnce(&R) -> (StatusCode, HeaderMap),
    ) -> Result<R, PaceError<E>>
    where
        F: Future<Output = Result<R, E>>,
    {
        let started = self.wait_for_start(Cost::of_request(tokens)).await;
        let mut sent = started.map_err(|refused| match refused {
            NotStarted::Limiter(error) => PaceError::Limiter(error),
            NotStarted::TooLong(wait) => PaceError::TooLong { wait },
            NotStarted::QueueFull => PaceError::QueueFull,
        })?;
        let response = call().await.map_err(PaceError::Client)?;
        let (status, headers) = head(&response);
        let mut hints = parse_hints(status, &headers, SystemTime::now(), self.rules.max_hold);
        sent.end_permit(hints.outcome(status));
        if hints.is_guess && self.rules.limiter.as_ref().is_some_and(|it| it.follows_outcomes()) {
            // The limiter has cut its rate instead.
            hints.hold = Duration::ZERO;
        }
        let following = Following {
            spreads: self.rules.spreads,
            knows_tokens: self.rules.cost.is_some(),
            jitter_ns: self.rules.jitter.map(ns),
            release_ns: self.rules.jitter.map_or(0, ns),
        };
        let mut pacing = self.pacing();
        pacing.follow([sent.start_ns, self.now_ns()], sent.ticket, &hints, following, random);
        pacing.end(sent.ticket);
        drop(pacing);
        sent.stage = Stage::Ended;
        Ok(response)
    }

    /// Waits until one request may start.
    async fn wait_for_start(&self, cost: Cost) -> Result<PacedRequest<'_>, NotStarted> {
        let deadline_ns = self.now_ns().saturating_add(ns(self.rules.max_wait));
        let mut request = PacedRequest::new(self, cost).ok_or(NotStarted::QueueFull)?;
        loop {
            while let Err(again_ns) = request.start(self.now_ns()) {
                if again_ns > deadline_ns {
                    let wait_ns = again_ns.saturating_sub(self.now_ns());
                    return Err(NotStarted::TooLong(Duration::from_nanos(wait_ns)));
                }
                self.sleep_until(again_ns).await;
            }
            if let Some(limiter) = &self.rules.limiter {
                let left = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()));
                let permit = limiter.acquire_one_within(left).await.map_err(NotStarted::of)?;
                request.permit = Some(permit);
            }
            // A hold may have begun while this request waited. Its permit then stays charged, and
            // it takes another one: a permit used later than its promised start could coincide
            // with others and exceed the limit.
            if request.is_sent(self.now_ns()) {
                return Ok(request);
            }
            request.end_permit(Outcome::Ignored);
        }
    }

    /// Sleeps until `start_ns`, repeatedly if a sleep ends early.
    async fn sleep_until(&self, start_ns: u64) {
        loop {
            match start_ns.saturating_sub(self.now_ns()) {
                0 => return,
                left_ns => self.rules.sleep.sleep(Duration::from_nanos(left_ns)).await,
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.rules.clock.now_ns()
    }

    /// Locks the state. A panic under the lock leaves no partial update.
    pub(super) fn pacing(&self) -> MutexGuard<'_, PacingState> {
        self.pacing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotStarted {
    fn of(error: AcquireError) -> Self {
        match error {
            AcquireError::TooLong(too_long) => Self::TooLong(too_long.wait()),
            other => Self::Limiter(other),
        }
    }
}

/// A request from its arrival to its response. Dropping it removes it from the queue, withdraws a
/// start that was not used, or ends it.
struct PacedRequest<'l> {
    layer: &'l PaceLayer,
    ticket: Ticket,
    stage: Stage,
    start_ns: u64,
    /// The permit of the limiter, until it is known how the request ended.
    permit: Option<Grant>,
}

enum Stage {
    Waiting,
    Started,
    Sent,
    Ended,
}

impl<'l> PacedRequest<'l> {
    fn new(layer: &'l PaceLayer, cost: Cost) -> Option<Self> {
        let ticket = layer.pacing().join(cost, layer.rules.max_waiters)?;
        Some(Self { layer, ticket, stage: Stage::Waiting, start_ns: 0, permit: None })
    }

    fn start(&mut self, now_ns: u64) -> Result<(), u64> {
        self.layer.pacing().start(now_ns, self.ticket)?;
        (self.stage, self.start_ns) = (Stage::Started, now_ns);
        Ok(())
    }

    /// Sends a request that has started, unless a hold has begun: then it waits again.
    fn is_sent(&mut self, now_ns: u64) -> bool {
        let mut pacing = self.layer.pacing();
        let is_held = pacing.holds(now_ns);
        if is_held {
            pacing.end(self.ticket);
        }
        self.stage = if is_held { Stage::Waiting } else { Stage::Sent };
        !is_held
    }

    /// Ends the request for the limiter, of which it may have a permit.
    fn end_permit(&mut self, outcome: Outcome) {
        if let (Some(limiter), Some(permit)) = (&self.layer.rules.limiter, self.permit.take()) {
            limiter.end(&permit, outcome);
        }
    }
}

impl Drop for PacedRequest<'_> {
    fn drop(&mut self) {
        self.end_permit(Outcome::Ignored);
        let mut pacing = self.layer.pacing();
        match self.stage {
            Stage::Waiting => pacing.leave(self.ticket),
            Stage::Started => pacing.take_back(self.start_ns, self.ticket),
            Stage::Sent => pacing.abandon(self.ticket),
            Stage::Ended => {}
        }
    }
}

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
