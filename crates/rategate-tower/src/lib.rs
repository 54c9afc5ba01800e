//! Exact rate limiting for tower: a layer for servers, and one for clients that pace themselves.
//!
//! A [`RateLimitLayer`] stands before a service, of axum, tonic, hyper or whatever else speaks `http`,
//! and answers requests over the limit itself, or lets them wait. A [`PaceLayer`](client::PaceLayer) stands before a
//! client, and holds requests back until they will pass.
//!
//! # Which one do I want?
//!
//! | I want | it is |
//! |---|---|
//! | one limit for all requests of a server, over all its connections | [`RateLimitLayer::new`] |
//! | a limit for each client, key, user or route | [`RateLimitLayer::keyed`], with a [`Keyed`](rategate::Keyed) table and a source in [`key`] |
//! | the same limit in several processes, or on several machines | [`RateLimitLayer::distributed`] |
//! | requests over the limit to wait for their turn instead of being refused | [`RateLimitLayer::wait_within`] |
//! | at most so many requests at the same time | [`RateLimitLayer::new`] with a [`Concurrency`](rategate::Concurrency) |
//! | only some responses to count | [`RateLimitLayer::refund_when`] |
//! | clients that somebody has listed to be turned away | [`RateLimitLayer::deny`] |
//! | several limits on all requests, all or nothing | [`RateLimitLayer::new`] with [`Limiter::all_of`](rategate::Limiter::all_of) |
//! | several limits for each client in a store, all or nothing | [`RateLimitLayer::distributed`] with several [`limit`](rategate::distributed::Builder::limit)s |
//! | a limit for each client and one for all | [two layers](#two-layers), the one for each client outside |
//! | a client that stays below its own limit, and below what the server says | [`client::PaceLayer`] |
//! | only what a response says | [`client::learn`] |
//!
//! # Smallest example
//!
//! ```
//! use axum::{Router, routing::get};
//! use rategate::{Limiter, SlidingLog};
//! use rategate_tower::RateLimitLayer;
//!
//! // At most a hundred requests in any second, whoever sends them.
//! let limiter = Limiter::new(SlidingLog::new(100, 1_000_000_000)?);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(limiter));
//! # drop(app);
//! # Ok::<(), rategate::LimitError>(())
//! ```
//!
//! The example `axum_server` has a limit for each client and header fields, `reqwest_client` the other
//! end.
//!
//! # Two layers
//!
//! The outer layer is asked first, and knows nothing of the inner one: what it has taken stays taken where the inner one
//! refuses. So the limit for each client stands outside. A client over its own limit then takes nothing of what all
//! share. What the limit of all refuses has been taken from the client's, unless
//! [`refund_when`](RateLimitLayer::refund_when) gives it back:
//!
//! ```
//! use axum::{Router, routing::get};
//! use http::StatusCode;
//! use rategate::{Keyed, Limiter, SlidingLog};
//! use rategate_tower::{RateLimitLayer, key};
//!
//! // Ten in any second for each user, and a hundred for all of them.
//! let for_each = Keyed::new(SlidingLog::new(10, 1_000_000_000)?);
//! let for_all = Limiter::new(SlidingLog::new(100, 1_000_000_000)?);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     // The last layer that is added is the outer one.
//!     .layer(RateLimitLayer::new(for_all))
//!     .layer(
//!         RateLimitLayer::keyed(for_each, key::header("x-user".parse()?))
//!             .refund_when(|head| head.status == StatusCode::TOO_MANY_REQUESTS),
//!     );
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a refused client is told
//!
//! | the request | HTTP | gRPC |
//! |---|---|---|
//! | is over the limit | 429, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, `grpc-retry-pushback-ms` |
//! | is from a client on the deny list | 429, `Retry-After` | 8, `grpc-retry-pushback-ms` |
//! | costs more than could ever pass | 400 | 3 `INVALID_ARGUMENT` |
//! | has no key for the limit or for the deny list, with [`Missing::Refuse`] | 400 | 3 |
//! | names its client more than once, such as by a header that comes twice | 400 | 3 |
//! | is a newcomer's, with [`Overflow::Refuse`](rategate::Overflow::Refuse) and the table full | 503 | 14 `UNAVAILABLE` |
//! | would wait, and as many wait as may, or for as many keys | 503 | 14 |
//! | comes after the limiter was closed, or waits when it is | 503 | 14 |
//! | needs a store that does not answer, with [`WhenGone::Deny`](rategate::distributed::WhenGone::Deny) | 503 | 14 |
//! | is in a tier that the table does not have | 500 | 13 `INTERNAL` |
//! | lacks the extension that its key is made of, which the server has to add | 500, and an error of `tracing` | 13 |
//!
//! The body is a problem (RFC 9457), unless [`form`](RateLimitLayer::form) or
//! [`answer`](RateLimitLayer::answer) says otherwise. [`headers`] lists the fields that every response
//! can have.
//!
//! # Contract
//!
//! * **One limit.** Clones of a layer, its services and their clones share one limiter, or one table.
//! * **The limiter's own ceiling.** A request passes at the instant of the decision, or at its turn in
//!   line; what the service within does with it comes later.
//! * **Retry-After is enough.** It is rounded up to whole seconds, and never 0. A client that waits as told
//!   passes, if no other request with the same key comes first; where requests wait, it may stand in line. For permits in
//!   flight in a store it is the latest instant: a response that ends before makes room sooner.
//! * **In flight until the end.** With a [`Concurrency`](rategate::Concurrency) or a
//!   [`CommitLog`](rategate::CommitLog), a request holds its permits until the body of its response has ended, has failed
//!   or is dropped; or until the service has failed, or the client has gone away.
//! * **One line.** Requests that wait are served in the order of asking, with all others who wait for
//!   the same limiter, threads and tasks. Who goes away gives its place to those behind.
//! * **A refusal takes nothing** from the layer's own limit, and the service within does not see the request. What layers
//!   further out have taken [stays taken](#two-layers).
//! * **Nobody gets a fresh limit by flooding the table.** See [`Keyed`](rategate::Keyed).
//! * **Reports of proxies are read from the right,** as far as the proxies are trusted, and not at
//!   all unless asked for. See [`key::client`].
//! * **No bytes from the network panic.** What cannot be understood is as if it were not there, and
//!   no header can stop a client for longer than it lets itself be stopped.
//!
//! # Limits
//!
//! Every bound is in `docs/limits.md`, under "The layers for tower".
//!
//! # Features
//!
//! None. An error in how the server is set up is an event of `tracing`. `tokio` is no dependency: who waits for a limiter waits by its clock's
//! [timer](rategate::Clock::timer), and a client is given its sleep as a closure.
//!
//! # What it does not do
//!
//! * It does not see the end of a connection that was upgraded, such as a web socket: for
//!   [`Concurrency`](rategate::Concurrency) the request has ended with the body of its response, which is empty.
//! * It counts requests, not bytes: a body is not looked at.
//! * The layer for clients does not send a request again. It makes the next call wait, so a retry
//!   around it needs no delay of its own.

mod body;
mod future;
mod gate;
mod layer;
mod refusal;

pub mod client;
pub mod headers;
pub mod key;
pub mod problem;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use layer::{Missing, RateLimit, RateLimitLayer};
pub use refusal::{Form, Reason, Refusal};
