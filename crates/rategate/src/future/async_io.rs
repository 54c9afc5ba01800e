//! The timer of async-io, which smol and others run on.

use std::time::Duration;

use crate::clock::wait::{Sleep, Timer};

/// The timer of the async-io reactor, usually some 50 us late.
///
/// Combine it with a clock by [`Timed`](crate::wait::Timed).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsyncIoTimer;

impl Timer for AsyncIoTimer {
    fn after(&self, time: Duration) -> Sleep {
        let timer = async_io::Timer::after(time);
        Box::pin(async move {
            timer.await;
        })
    }
}
