//! A client that paces itself, and learns from what servers answer.
//!
//! A [`PaceLayer`] holds back the requests of a client service: by a limiter of one's own, and by what
//! the server says in `Retry-After`, `RateLimit`, `RateLimit-*` and `X-RateLimit-*`. [`learn`] is that
//! reading alone, for clients of another kind.

mod layer;
mod learn;
mod pace;
mod read;

pub use self::layer::{DEFAULT_WAITERS, Pace, PaceError, PaceLayer, Sleep};
pub use self::learn::{BLIND_HOLD, LONGEST_HOLD, Lesson, learn};
