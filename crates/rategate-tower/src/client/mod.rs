//! A layer for clients that pace themselves and follow the hints of servers.
//!
//! A [`PaceLayer`] delays the requests of a client service by its own limiter, and by the server's
//! `Retry-After`, `RateLimit`, `RateLimit-*` and `X-RateLimit-*`. [`parse_hints`] only reads these
//! fields, for clients of another kind. With the feature `reqwest`, `PaceLayer::send` sends what
//! that client builds.

mod hints;
mod layer;
mod pace;
mod read;
#[cfg(feature = "reqwest")]
mod reqwest;

pub use self::hints::{DEFAULT_BACKOFF, MAX_HOLD, ServerHint, parse_hints};
pub use self::layer::{DEFAULT_WAITERS, Pace, PaceError, PaceLayer, Sleep};
