//! Gates: adaptors that put a limiter into the path of items or bytes.

#[cfg(any(feature = "futures", feature = "tokio"))]
mod async_bytes;
#[cfg(feature = "futures")]
mod futures;
pub(crate) mod io;
mod iter;
#[cfg(any(feature = "futures", feature = "tokio"))]
mod poll_wait;
#[cfg(feature = "rayon")]
mod rayon;
#[cfg(feature = "futures")]
pub(crate) mod sink;
#[cfg(feature = "futures")]
mod stream;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(feature = "rayon")]
pub use self::rayon::RateLimitedParallelExt;
#[cfg(any(feature = "futures", feature = "tokio"))]
pub use async_bytes::AsyncByteLimited;
pub use io::{AdapterError, ByteLimited, DEFAULT_CHUNK};
pub use iter::{RateLimited, RateLimitedExt};
#[cfg(feature = "futures")]
pub use sink::{RateLimitedSink, SinkError};
#[cfg(feature = "futures")]
pub use stream::{RateLimitedStream, RateLimitedStreamExt};
