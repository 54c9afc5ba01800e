//! Work at a rate: a throttle for one loop, and a thread that runs submitted tasks on schedule.

pub(crate) mod dispatcher;
mod throttle;

pub use self::dispatcher::{Dispatcher, MAX_QUEUE, Report, Task};
pub use self::throttle::{CatchUp, Throttle};
