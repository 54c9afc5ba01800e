//! A layer for clients that pace themselves and follow the hints of servers.
//!
//! A [`PaceLayer`] delays the requests of a client service by its own limiter, and by the server's
//! `Retry-After`, `RateLimit`, `RateLimit-*` and `X-RateLimit-*`. [`learn`] only reads these
//! fields, for clients of another kind.

mod layer;
mod learn;
mod pace;
mod read;

pub use self::layer::{DEFAULT_WAITERS, Pace, PaceError, PaceLayer, Sleep};
pub use self::learn::{BLIND_HOLD, LONGEST_HOLD, Lesson, learn};
