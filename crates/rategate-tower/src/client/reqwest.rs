//! The adaptor for `reqwest`: the only file that names it.

use http::Request;
use reqwest::{Body, RequestBuilder, Response};

use super::allowance::Tokens;
use super::layer::{PaceError, PaceLayer};

impl PaceLayer {
    /// Sends a request at its start, and follows the hints of its response.
    ///
    /// It takes the place of `RequestBuilder::send`. The request is built before the wait, so an
    /// invalid one costs no permit.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    /// use rategate_tower::client::PaceLayer;
    ///
    /// async fn pages() -> Result<(), Box<dyn std::error::Error>> {
    ///     // At most 5 a second, and less if the server says so.
    ///     let pace = PaceLayer::new(tokio::time::sleep)
    ///         .limiter(Limiter::new(Gcra::per_second(5)));
    ///     let client = reqwest::Client::new();
    ///     for page in 0..100 {
    ///         let response = pace.send(client.get(format!("http://127.0.0.1/{page}"))).await?;
    ///         println!("{}", response.status());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`PaceError`]; [`PaceError::Client`] has the errors of `reqwest`.
    pub async fn send(
        &self,
        request: RequestBuilder,
    ) -> Result<Response, PaceError<reqwest::Error>> {
        let (client, request) = request.build_split();
        let (tokens, request) =
            request.and_then(|request| self.with_tokens(request)).map_err(PaceError::Client)?;
        let head = |response: &Response| (response.status(), response.headers().clone());
        self.paced(tokens, || client.execute(request), head).await
    }

    /// Returns the tokens of a request, and the request. Only if they matter is it converted, which
    /// its extensions survive.
    fn with_tokens(
        &self,
        request: reqwest::Request,
    ) -> Result<(Tokens, reqwest::Request), reqwest::Error> {
        if self.rules.cost.is_none() {
            return Ok((Tokens::default(), request));
        }
        let (head, body) = Request::<Body>::try_from(request)?.into_parts();
        let tokens = self.tokens(&head);
        Ok((tokens, Request::from_parts(head, body).try_into()?))
    }
}
