//! Spans of decisions: each lasts from when a request is there until its answer is, or until nobody waits for it any more.
//!
//! Who wants spans is a [`Tracer`]. It is asked before each decision whether that is to have one, and told of it afterwards; what it does
//! then is its own business. A decision without a span costs that question.

use std::fmt::Debug;
use std::sync::Arc;

use rategate::Clock;
use smallvec::smallvec;

use super::answer::{Answer, Decided, Part};
use super::caller::CallerSpan;
use super::fault::Fault;
use super::request::Verb;
use super::{Engine, Inner};

/// Takes the spans of decisions.
pub trait Tracer: Send + Sync + Debug {
    /// Whether a decision that is about to be made has a span; `caller` is in which span it is asked for. On the path of each decision: it
    /// should take next to nothing.
    fn samples(&self, caller: Option<&CallerSpan>) -> bool;

    /// A decision that has one is over.
    fn ended(&self, span: &Span<'_>);
}

/// A decision, from the question to the answer.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The caller's span that it is part of; none if it is the first of its trace.
    pub caller: Option<CallerSpan>,
    /// What was asked.
    pub verb: Verb,
    /// How long it took, by the engine's clock.
    pub took_ns: u64,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What came of a decision.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// An answer.
    Answered(&'a Answer),
    /// It could not be asked.
    Failed(&'a Fault),
    /// Whoever asked did not wait for it.
    GivenUp,
}

/// A span that has begun. Dropped, nobody waits for its answer.
pub(super) struct Open<C: Clock> {
    inner: Arc<Inner<C>>,
    tracer: Arc<dyn Tracer>,
    caller: Option<CallerSpan>,
    verb: Verb,
    began_ns: u64,
    has_ended: bool,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// The same engine, with somebody who takes spans of what is decided by this handle and its clones.
    #[must_use]
    pub fn traced(&self, tracer: Arc<dyn Tracer>) -> Self {
        Self { inner: Arc::clone(&self.inner), tracer: Some(tracer) }
    }

    /// The span of a decision that is about to be made, if it has one.
    pub(super) fn span(&self, verb: Verb) -> Option<Open<C>> {
        let tracer = self.tracer.as_ref()?;
        let caller = CallerSpan::current();
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
    /// Decides, by the engine without spans.
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

    /// The same for a decision about one item.
    pub(super) fn of_one(
        self,
        decide: impl FnOnce(&Engine<C>) -> Result<Part, Fault>,
    ) -> Result<Part, Fault> {
        let part = decide(&self.engine());
        match &part {
            Ok(part) => {
                let allowed = !part.verdict.is_over();
                self.end(Ok(&Answer { allowed, parts: smallvec![part.clone()] }));
            }
            Err(fault) => self.end(Err(fault)),
        }
        part
    }

    fn engine(&self) -> Engine<C> {
        Engine { inner: Arc::clone(&self.inner), tracer: None }
    }
}

impl<C: Clock> Open<C> {
    fn end(mut self, answer: Result<&Answer, &Fault>) {
        self.tell(answer.map_or_else(Outcome::Failed, Outcome::Answered));
    }

    fn tell(&mut self, outcome: Outcome<'_>) {
        self.has_ended = true;
        let took_ns = self.inner.clock.now_ns().saturating_sub(self.began_ns);
        let (caller, verb) = (self.caller, self.verb);
        self.tracer.ended(&Span { caller, verb, took_ns, outcome });
    }
}

impl<C: Clock> Drop for Open<C> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tell(Outcome::GivenUp);
        }
    }
}
