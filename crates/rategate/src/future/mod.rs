//! Limiters for tasks, under any executor: nothing here blocks a thread.

mod acquire;
mod driver;
mod limiter;
mod reservation;
mod timed;
mod verbs;

#[cfg(feature = "async-io")]
mod async_io;
#[cfg(feature = "tokio")]
mod tokio;

pub use self::acquire::{Acquire, AcquireHold, AcquireOwned, AcquireWithin};
#[cfg(feature = "async-io")]
pub use self::async_io::AsyncIoTimer;
pub use self::limiter::AsyncLimiter;
pub use self::reservation::{AsyncReservation, Ready};
pub use self::timed::Timed;
#[cfg(feature = "tokio")]
pub use self::tokio::{TokioClock, TokioTimer};
