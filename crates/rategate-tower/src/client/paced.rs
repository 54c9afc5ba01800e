//! The way of a request through the layer: its wait, its start, and the hints of its response.

use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use rategate::adaptive::Outcome;
use rategate::{AcquireError, Grant};

use super::allowance::{Tokens, ns};
use super::hints::parse_hints;
use super::layer::{PaceError, PaceLayer};
use super::pacing::PacedRequest;

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
        let started = self.wait_for_start(tokens).await;
        let mut sent = started.map_err(|refused| match refused {
            NotStarted::Limiter(error) => PaceError::Limiter(error),
            NotStarted::TooLong(wait) => PaceError::TooLong { wait },
            NotStarted::QueueFull => PaceError::QueueFull,
        })?;
        let response = call().await.map_err(PaceError::Client)?;
        let (status, headers) = head(&response);
        let max_hold = self.pacing.longest_hold();
        let mut hints = parse_hints(status, &headers, SystemTime::now(), max_hold);
        sent.end_permit(hints.outcome(status));
        if hints.is_guess && self.rules.limiter.as_ref().is_some_and(|it| it.follows_outcomes()) {
            // The limiter has cut its rate instead.
            hints.hold = Duration::ZERO;
        }
        sent.request.follow(self.now_ns(), &hints);
        Ok(response)
    }

    /// Waits until one request may start.
    async fn wait_for_start(&self, tokens: Tokens) -> Result<SentRequest<'_>, NotStarted> {
        let deadline_ns = self.now_ns().saturating_add(ns(self.rules.max_wait));
        let request = self.pacing.join(tokens).ok_or(NotStarted::QueueFull)?;
        let mut sent = SentRequest { layer: self, request, permit: None };
        loop {
            while let Err(again_ns) = sent.request.start(self.now_ns()) {
                if again_ns > deadline_ns {
                    let wait_ns = again_ns.saturating_sub(self.now_ns());
                    return Err(NotStarted::TooLong(Duration::from_nanos(wait_ns)));
                }
                self.sleep_until(again_ns).await;
            }
            if let Some(limiter) = &self.rules.limiter {
                let left = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()));
                let permit = limiter.acquire_one_within(left).await.map_err(NotStarted::of)?;
                sent.permit = Some(permit);
            }
            // A hold may have begun while this request waited. Its permit then stays charged, and
            // it takes another one: a permit used later than its promised start could coincide
            // with others and exceed the limit.
            if sent.request.send(self.now_ns()) {
                return Ok(sent);
            }
            sent.end_permit(Outcome::Ignored);
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
}

impl NotStarted {
    fn of(error: AcquireError) -> Self {
        match error {
            AcquireError::TooLong(too_long) => Self::TooLong(too_long.wait()),
            other => Self::Limiter(other),
        }
    }
}

/// A request with its permit. Dropping it ends both.
struct SentRequest<'l> {
    layer: &'l PaceLayer,
    request: PacedRequest,
    /// The permit of the limiter, until it is known how the request ended.
    permit: Option<Grant>,
}

impl SentRequest<'_> {
    /// Ends the request for the limiter, of which it may have a permit.
    fn end_permit(&mut self, outcome: Outcome) {
        if let (Some(limiter), Some(permit)) = (&self.layer.rules.limiter, self.permit.take()) {
            limiter.end(&permit, outcome);
        }
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        self.end_permit(Outcome::Ignored);
    }
}
