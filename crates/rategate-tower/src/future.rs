//! What a limited service is doing: the service within, or nothing but an answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::headers::Standing;
use crate::layer::Rules;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Passed { #[pin] response: F, told: Option<(Arc<Rules>, Standing)> },
        Refused { response: Option<Response<String>> },
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) const fn passed(response: F, told: Option<(Arc<Rules>, Standing)>) -> Self {
        Self { state: State::Passed { response, told } }
    }

    pub(crate) const fn refused(response: Response<String>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Passed { response, told } => {
                let mut response = ready!(response.poll(context))?;
                if let Some((rules, standing)) = told {
                    rules.tell(*standing, response.headers_mut());
                }
                Poll::Ready(Ok(response.map(ResponseBody::within)))
            }
            StateProjection::Refused { response } => {
                let response = response.take().expect("a future is not polled after it has ended");
                Poll::Ready(Ok(response.map(ResponseBody::own)))
            }
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Passed { .. } => "passed",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
