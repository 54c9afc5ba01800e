//! Gates: a limiter in the path of something that flows.

mod io;
mod iter;
#[cfg(feature = "rayon")]
mod rayon;

#[cfg(feature = "rayon")]
pub use self::rayon::RateLimitedParallelExt;
pub use io::{ByteLimited, DEFAULT_CHUNK, GateError};
pub use iter::{RateLimited, RateLimitedExt};
