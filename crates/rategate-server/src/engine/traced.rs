//! Spans of decisions: each lasts from the arrival of a request to its answer, or until its
//! caller stops waiting.
//!
//! A [`Tracer`] decides before each decision whether it has a span, and receives the span
//! afterwards. A decision without a span costs only that check.

use std::fmt::Debug;
use std::sync::Arc;

use opentelemetry::trace::SpanContext;
use rategate::Clock;
use smallvec::smallvec;

use super::answer::{Answer, Decided, ItemResult};
use super::caller;
use super::error::EngineError;
use super::request::Verb;
use super::{Engine, Inner};

/// A consumer of the spans of decisions.
pub trait Tracer: Send + Sync + Debug {
    /// Returns `true` if the decision about to be made has a span; `caller` is the span of its
    /// caller. Runs on the path of each decision, so it should take next to no time.
    fn samples(&self, caller: Option<&SpanContext>) -> bool;

    /// Receives the span of a decision that has ended.
    fn ended(&self, span: &Span<'_>);
}

/// A decision, from the request to the answer.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The caller's span that contains it; `None` if it is the first of its trace.
    pub caller: Option<&'a SpanContext>,
    /// The verb of the request.
    pub verb: Verb,
    /// The duration in nanoseconds, by the engine's clock.
    pub took_ns: u64,
    /// The answer or error, or neither if the caller stopped waiting.
    pub outcome: Outcome<'a>,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// An answer.
    Answered(&'a Answer),
    /// An error instead of an answer.
    Failed(&'a EngineError),
    /// The caller stopped waiting.
    GivenUp,
}

/// A span that has begun. Dropping it means that the caller stopped waiting.
pub(super) struct Open<C: Clock> {
    inner: Arc<Inner<C>>,
    tracer: Arc<dyn Tracer>,
    caller: Option<SpanContext>,
    verb: Verb,
    began_ns: u64,
    has_ended: bool,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Returns the same engine, with a tracer for the decisions made through this handle and its
    /// clones.
    #[must_use]
    pub fn traced(&self, tracer: Arc<dyn Tracer>) -> Self {
        Self { tracer: Some(tracer), ..self.clone() }
    }

    /// Begins the span of a decision about to be made, if it has one.
    pub(super) fn span(&self, verb: Verb) -> Option<Open<C>> {
        let tracer = self.tracer.as_ref()?;
        let caller = caller::current();
        if !tracer.samples(caller.as_ref()) {
            return None;
        }
        Some(Open {
            inner: Arc::clone(&self.inner),
            tracer: Arc::clone(tracer),
            caller,
            verb,
            began_ns: self.inner.clock.now_ns(),
            has_ended: false,
        })
    }
}

impl<C: Clock + Clone + 'static> Open<C> {
    /// Runs a decision by the engine without spans, and ends the span with its answer.
    pub(super) fn of(self, decide: impl FnOnce(&Engine<C>) -> Decided) -> Decided {
        match decide(&self.engine()) {
            Decided::Now(answer) => {
                self.end(answer.as_ref());
                Decided::Now(answer)
            }
            Decided::Later(answer) => Decided::Later(Box::pin(async move {
                let answer = answer.await;
                self.end(answer.as_ref());
                answer
            })),
        }
    }

    /// Runs a decision about one item, and ends the span with its result.
    pub(super) fn of_one(
        self,
        decide: impl FnOnce(&Engine<C>) -> Result<ItemResult, EngineError>,
    ) -> Result<ItemResult, EngineError> {
        let result = decide(&self.engine());
        match &result {
            Ok(result) => {
                let allowed = !result.verdict.is_over();
                self.end(Ok(&Answer { allowed, results: smallvec![result.clone()] }));
            }
            Err(error) => self.end(Err(error)),
        }
        result
    }

    fn engine(&self) -> Engine<C> {
        Engine { inner: Arc::clone(&self.inner), tracer: None, unmatched: None }
    }
}

impl<C: Clock> Open<C> {
    fn end(mut self, answer: Result<&Answer, &EngineError>) {
        self.report(answer.map_or_else(Outcome::Failed, Outcome::Answered));
    }

    fn report(&mut self, outcome: Outcome<'_>) {
        self.has_ended = true;
        let took_ns = self.inner.clock.now_ns().saturating_sub(self.began_ns);
        let (caller, verb) = (self.caller.as_ref(), self.verb);
        self.tracer.ended(&Span { caller, verb, took_ns, outcome });
    }
}

impl<C: Clock> Drop for Open<C> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.report(Outcome::GivenUp);
        }
    }
}
