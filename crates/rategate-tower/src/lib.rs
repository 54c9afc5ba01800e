//! Exact rate limiting for tower: a layer for servers, and one for clients that pace themselves.
//!
//! A [`RateLimitLayer`] wraps a service of axum, tonic, hyper or another library over `http`. It
//! answers requests over the limit itself, or lets them wait. A [`PaceLayer`](client::PaceLayer)
//! wraps a client, and delays requests until they will pass.
//!
//! # Which one do I want?
//!
//! | I want | use |
//! |---|---|
//! | one limit for all requests of a server, over all its connections | [`RateLimitLayer::new`] |
//! | a limit per client, key, user or route | [`RateLimitLayer::keyed`], [`Keyed`], [`key`] |
//! | a limit shared by several processes or machines | [`RateLimitLayer::distributed`] |
//! | requests over the limit to wait instead of a refusal | [`RateLimitLayer::wait_within`] |
//! | a maximum number of concurrent requests | [`RateLimitLayer::new`] with [`Concurrency`] |
//! | only some responses to count | [`RateLimitLayer::refund_when`] |
//! | clients on a list to be refused | [`RateLimitLayer::deny`] |
//! | several limits, all or nothing | [`RateLimitLayer::new`] with [`AllOf`] |
//! | several per client, all or nothing | [`RateLimitLayer::distributed`] with several [`limit`]s |
//! | a limit per client and one for all | [two layers](#two-layers), the one per client outside |
//! | a client that respects its own limit and the server's | [`client::PaceLayer`] |
//! | only the hints of a response | [`client::parse_hints`] |
//!
//! [`Concurrency`]: rategate::Concurrency
//! [`Keyed`]: rategate::Keyed
//! [`AllOf`]: rategate::AllOf
//! [`limit`]: rategate::distributed::Builder::limit
//!
//! # Smallest example
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use rategate::{Limiter, SlidingLog};
//! use rategate_tower::RateLimitLayer;
//!
//! // At most a hundred requests in any second, from all clients together.
//! let limiter = Limiter::new(SlidingLog::new(100, Duration::from_secs(1)));
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(limiter));
//! # drop(app);
//! # Ok::<(), rategate::error::LimitError>(())
//! ```
//!
//! The example `axum_server` has a limit per client and header fields. The example
//! `reqwest_client` is the other end.
//!
//! # Two layers
//!
//! The outer layer decides first, and does not know the inner one: its permits stay taken if the
//! inner layer refuses. So the limit per client belongs outside. A client over its own limit then
//! takes nothing from the shared limit. If the shared limit refuses, the client's own limit has
//! been charged, unless [`refund_when`](RateLimitLayer::refund_when) refunds it:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use http::StatusCode;
//! use rategate::{Keyed, Limiter, SlidingLog};
//! use rategate_tower::{RateLimitLayer, key};
//!
//! // Ten in any second per user, and a hundred for all users together.
//! let for_each = Keyed::new(SlidingLog::new(10, Duration::from_secs(1)));
//! let for_all = Limiter::new(SlidingLog::new(100, Duration::from_secs(1)));
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     // The layer added last is the outer one.
//!     .layer(RateLimitLayer::new(for_all))
//!     .layer(
//!         RateLimitLayer::keyed(for_each, key::header("x-user".parse()?))
//!             .refund_when(|head| head.status == StatusCode::TOO_MANY_REQUESTS),
//!     );
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Refusals
//!
//! | the request | HTTP | gRPC |
//! |---|---|---|
//! | is over the limit | 429, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, `grpc-retry-pushback-ms` |
//! | is from a client on the deny list | 429, `Retry-After` | 8, `grpc-retry-pushback-ms` |
//! | costs more than the limit's capacity | 400 | 3 `INVALID_ARGUMENT` |
//! | has no key for the limit or the deny list, with [`OnMissingKey::Refuse`] | 400 | 3 |
//! | names its client more than once, such as by a repeated header | 400 | 3 |
//! | has a new key, the table is full, with [`Overflow::Refuse`] | 503 | 14 `UNAVAILABLE` |
//! | would exceed the maximum number of waiters, or of keys with waiters | 503 | 14 |
//! | arrives after the limiter was closed, or waits when it is | 503 | 14 |
//! | needs a store that is unavailable, with [`OnUnavailable::Deny`] | 503 | 14 |
//! | is in a tier that the table does not have | 500 | 13 `INTERNAL` |
//! | lacks the extension for its key, which the server has to add | 500, a `tracing` error | 13 |
//!
//! [`Overflow::Refuse`]: rategate::keyed::Overflow::Refuse
//! [`OnUnavailable::Deny`]: rategate::distributed::OnUnavailable::Deny
//!
//! The body is a problem (RFC 9457), unless [`form`](RateLimitLayer::form) or
//! [`answer`](RateLimitLayer::answer) is configured. [`headers`] lists the fields that every
//! response can have.
//!
//! # Contract
//!
//! * **One limit.** Clones of a layer, its services and their clones share one limiter, or one
//!   table.
//! * **The limiter's own ceiling.** A request passes at the instant of the decision, or at its
//!   start after a wait. The inner service runs later.
//! * **Retry-After is enough.** It is rounded up to whole seconds, and never 0. A client that
//!   waits for that time passes, if no other request with the same key comes first; where requests
//!   wait, it may have to queue. For permits in flight in a store it is the latest instant: a
//!   response that ends earlier frees its permits sooner.
//! * **In flight until the end.** With a [`Concurrency`] or a [`CommitLog`](rategate::CommitLog),
//!   a request holds its permits until the body of its response has ended, has failed or is
//!   dropped. It also ends when the service has failed, or the client has disconnected.
//! * **One wait queue.** Waiting requests are served in FIFO order, together with all other
//!   threads and tasks that wait for the same limiter. A request that leaves makes way for those
//!   behind it.
//! * **A refusal takes nothing** from the layer's own limit, and the inner service does not see
//!   the request. Permits of outer layers [stay taken](#two-layers).
//! * **Flooding the table gains no client a new limit.** See [`Keyed`].
//! * **Reports of proxies are read from the right,** as far as the proxies are trusted, and only
//!   if configured. See [`key::client`].
//! * **No bytes from the network panic.** Fields that cannot be parsed are treated as absent, and
//!   no header can hold a client for longer than its own maximum.
//!
//! # Limits
//!
//! The bounds are in `docs/limits.md`, under "The layers for tower".
//!
//! # Features
//!
//! * `reqwest`: [`client::PaceLayer`] sends what a `reqwest` client builds, by `PaceLayer::send`.
//!
//! A mistake in the server's set-up is an event of `tracing`. `tokio` is not a dependency:
//! waiters of a limiter use its clock's [timer](rategate::Clock::timer), and a client receives its
//! sleep as a closure.
//!
//! # What it does not do
//!
//! * It does not see the end of an upgraded connection, such as a web socket: for [`Concurrency`]
//!   the request has ended with the body of its response, which is empty.
//! * It counts requests, not bytes: bodies are not read.
//! * The layer for clients does not resend requests. It makes the next call wait, so a retry
//!   around it needs no delay of its own.

mod body;
mod future;
mod gate;
mod layer;
mod refusal;
mod rules;

pub mod client;
pub mod headers;
pub mod key;
pub mod problem;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use layer::{RateLimit, RateLimitLayer};
pub use refusal::{Form, Reason, Refusal};
pub use rules::OnMissingKey;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The examples of a guide, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/moving-from-tower-governor.md")]
mod guide {}

/// The examples of a chapter of the book, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/clients.md")]
mod chapter {}
