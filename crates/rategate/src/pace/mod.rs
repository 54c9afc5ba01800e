//! Work at a rate: a throttle for one loop, a thread that runs submitted tasks on schedule, and
//! loads whose rate follows a shape.

pub(crate) mod dispatcher;
pub(crate) mod open_loop;
mod throttle;

pub use self::dispatcher::{Dispatcher, MAX_QUEUE, Report, Task};
pub use self::open_loop::{OpenLoop, Release};
pub use self::throttle::{CatchUp, Throttle};

pub use crate::future::Released;
pub use rategate_core::shape;
