//! Gates: a limiter in the path of something that flows.

mod io;
mod iter;

pub use io::{ByteLimited, DEFAULT_CHUNK, GateError};
pub use iter::{RateLimited, RateLimitedExt};
