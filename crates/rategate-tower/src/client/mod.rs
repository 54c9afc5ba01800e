//! A layer for clients that pace themselves and follow the hints of servers.
//!
//! A [`PaceLayer`] delays the requests of a client service by its own limiter, and by the server's
//! `Retry-After`, `RateLimit`, `RateLimit-*`, `X-RateLimit-*`, and the fields of OpenAI, Anthropic
//! and Shopify. With the feature `reqwest`, `PaceLayer::send` sends what that client builds.
//!
//! Clients of another kind read these fields by [`parse_hints`], which has a table of all, and
//! start their requests by [`Pacing`], which neither sleeps nor sends.

mod allowance;
mod hints;
#[cfg(test)]
mod laws;
mod layer;
mod pace;
mod paced;
mod pacing;
#[cfg(feature = "reqwest")]
mod reqwest;

pub use self::allowance::Tokens;
pub use self::hints::{DEFAULT_BACKOFF, MAX_HOLD, Refill, ServerHints, ServerLimit, parse_hints};
pub use self::layer::{Pace, PaceError, PaceLayer, Sleep};
pub use self::pacing::DEFAULT_WAITERS;
pub use self::pacing::{PacedRequest, Pacing};
