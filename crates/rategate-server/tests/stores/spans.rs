//! Spans of decisions that take time, as a tracer receives them.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context as Trace, ContextGuard};
use rategate::Clock as _;
use rategate_server::engine::{Decided, Outcome, Span, Tracer, Verb};
use rategate_testkit::faulty::Fate;

use crate::engine::common::bucket;
use crate::stores::{BUDGET_NS, MS, World, decided, stored};

/// A tracer that records the spans of callers with a span.
#[derive(Debug, Default)]
struct RecordingTracer(Mutex<Vec<(Option<u8>, u64, &'static str)>>);

impl Tracer for RecordingTracer {
    fn samples(&self, caller: Option<&SpanContext>) -> bool {
        caller.is_some()
    }

    fn ended(&self, span: &Span<'_>) {
        let outcome = match span.outcome {
            Outcome::Answered(answer) if answer.allowed => "allowed",
            Outcome::Answered(_) => "denied",
            Outcome::Failed(_) => "failed",
            Outcome::GivenUp => "given up",
        };
        let caller = span.caller.map(|caller| caller.span_id().to_bytes()[0]);
        self.0.lock().unwrap().push((caller, span.took_ns, outcome));
    }
}

impl RecordingTracer {
    fn take(&self) -> Vec<(Option<u8>, u64, &'static str)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn of_caller(own: u8) -> ContextGuard {
    let (trace, span) = (TraceId::from_bytes([1; 16]), SpanId::from_bytes([own; 8]));
    let span = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::NONE);
    Trace::new().with_remote_span_context(span).attach()
}

#[test]
fn a_span_lasts_until_the_store_answers_or_the_request_is_abandoned() {
    let world = World::new();
    let recorded = Arc::new(RecordingTracer::default());
    let tracer: Arc<dyn Tracer> = Arc::<RecordingTracer>::clone(&recorded);
    let plain = world.server(vec![stored("far", 1), bucket("here", &["who"], 1)]);
    let server = plain.traced(tracer);
    world.store.set_usual(Fate::Slow { there_ns: 3 * MS, back_ns: 4 * MS });

    // The span is that of the caller, whichever thread polls the future.
    let decision = {
        let _within = of_caller(7);
        decided(&server, Verb::Take, &[("far", "x", 1)])
    };
    assert!(matches!(decision, Decided::Later(_)) && recorded.take().is_empty());
    {
        let _within = of_caller(8);
        let mut answer = pin!(decision.answer());
        let mut context = Context::from_waker(Waker::noop());
        while answer.as_mut().poll(&mut context).is_pending() {
            assert!(recorded.take().is_empty(), "it is not over");
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + MS));
        }
    }
    assert_eq!(recorded.take(), [(Some(7), 7 * MS, "allowed")]);

    // The answer is dropped.
    let decision = {
        let _within = of_caller(9);
        decided(&server, Verb::Take, &[("far", "y", 1)])
    };
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + 2 * MS));
    drop(decision);
    assert_eq!(recorded.take(), [(Some(9), 2 * MS, "given up")]);

    // At once.
    {
        let _within = of_caller(10);
        for _ in 0..2 {
            let _ = world.ask(&server, Verb::Take, &[("here", "x", 1)]);
        }
        let _ = decided(&server, Verb::Take, &[("nowhere", "x", 1)]);
        let _ = decided(&plain, Verb::Take, &[("here", "x", 1)]);
    }
    let ended = [(Some(10), 0, "allowed"), (Some(10), 0, "denied"), (Some(10), 0, "failed")];
    assert_eq!(recorded.take(), ended);
    let _ = world.ask(&server, Verb::Take, &[("here", "z", 1)]);
    assert!(recorded.take().is_empty(), "no caller had a span");

    // With an unavailable store.
    world.store.set_usual(Fate::Unreachable);
    let _within = of_caller(11);
    let _ = world.ask(&server.clone(), Verb::Take, &[("far", "x", 1)]);
    let [(caller_span, took_ns, _)] = recorded.take()[..] else { panic!("one is over") };
    assert!(caller_span == Some(11) && took_ns <= BUDGET_NS);
}
