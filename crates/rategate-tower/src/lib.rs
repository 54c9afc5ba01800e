//! Exact rate limiting for tower.

mod body;
mod future;
mod gate;
mod keys;
mod layer;
mod problem;
mod refusal;

pub mod client;
pub mod headers;
pub mod key;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use keys::{DEFAULT_KEYS, Keyed, Overflow, Room};
pub use layer::{Missing, RateLimit, RateLimitLayer};
pub use refusal::{Form, Reason, Refusal};
