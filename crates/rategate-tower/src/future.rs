//! The future of a limited service: waiting for a decision, calling the inner service, or
//! returning a refusal.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::gate::{KeyStatus, Outcome, PendingOutcome, Taken};
use crate::rules::Rules;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Dropping it while it [waits](crate::RateLimitLayer::wait_within) leaves the wait queue,
    /// with nothing taken. Dropping it later ends the request, and frees its permits in flight.
    pub struct ResponseFuture<S, I>
    where
        S: Service<Request<I>>,
    {
        #[pin]
        state: State<S, I>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, I>
    where
        S: Service<Request<I>>,
    {
        Waiting { pending: PendingOutcome, waiting: Option<Box<Waiting<S, I>>> },
        Passed {
            #[pin] response: S::Future,
            rules: Arc<Rules>,
            key_status: Option<KeyStatus>,
            taken: Option<Taken>,
        },
        Refused { response: Option<Response<String>> },
    }
}

/// A waiting request, and the service that is ready for it.
pub(crate) struct Waiting<S, I> {
    pub(crate) service: S,
    pub(crate) rules: Arc<Rules>,
    pub(crate) head: Parts,
    pub(crate) body: I,
}

impl<S, I> ResponseFuture<S, I>
where
    S: Service<Request<I>>,
{
    pub(crate) fn waiting(pending: PendingOutcome, waiting: Waiting<S, I>) -> Self {
        Self { state: State::Waiting { pending, waiting: Some(Box::new(waiting)) } }
    }

    /// Calls the service, or answers instead of it.
    pub(crate) fn decided(
        outcome: Outcome,
        service: &mut S,
        rules: &Arc<Rules>,
        (head, body): (Parts, I),
    ) -> Self {
        let state = match outcome {
            Outcome::Passed(key_status, taken) => State::Passed {
                response: service.call(Request::from_parts(head, body)),
                rules: Arc::clone(rules),
                key_status,
                taken,
            },
            Outcome::Refused(refusal, key_status) => {
                State::Refused { response: Some(rules.answer(refusal, key_status, &head)) }
            }
        };
        Self { state }
    }
}

const ENDED: &str = "the future was polled after completion";

impl<S, I, B> Future for ResponseFuture<S, I>
where
    S: Service<Request<I>, Response = Response<B>>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Waiting { pending, waiting } => {
                    let outcome = ready!(pending.as_mut().poll(context));
                    let Waiting { mut service, rules, head, body } = *waiting.take().expect(ENDED);
                    let decided = Self::decided(outcome, &mut service, &rules, (head, body));
                    state.set(decided.state);
                }
                StateProjection::Passed { response, rules, key_status, taken } => {
                    let answered = ready!(response.poll(context));
                    let taken = taken.take();
                    let (mut head, body) = match answered {
                        Ok(response) => response.into_parts(),
                        Err(error) => {
                            taken.into_iter().for_each(Taken::failed);
                            return Poll::Ready(Err(error));
                        }
                    };
                    let answered =
                        |taken: Taken| taken.answered(rules.returns(&head), rules.outcome(&head));
                    let in_flight = taken.and_then(answered);
                    if let Some(key_status) = *key_status {
                        rules.write_status(key_status, &mut head.headers);
                    }
                    let body = ResponseBody::within(body, in_flight);
                    return Poll::Ready(Ok(Response::from_parts(head, body)));
                }
                StateProjection::Refused { response } => {
                    let response = response.take().expect(ENDED);
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
            }
        }
    }
}

impl<S, I> fmt::Debug for ResponseFuture<S, I>
where
    S: Service<Request<I>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Waiting { .. } => "waiting",
            State::Passed { .. } => "passed",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
