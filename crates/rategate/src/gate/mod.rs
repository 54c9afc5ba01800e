//! Gates: a limiter in the path of something that flows.

mod iter;

pub use iter::{RateLimited, RateLimitedExt};
