//! Work at a rate: a throttle for one loop, a thread that runs submitted tasks on schedule, and
//! loads whose rate follows a shape.

mod dispatcher;
mod open_loop;
mod released;
mod throttle;

pub use self::dispatcher::{Dispatcher, MAX_QUEUE, Report, SubmitError, Task};
pub use self::open_loop::{OpenLoop, Release};
pub use self::released::Released;
pub use self::throttle::{CatchUp, Throttle};

pub use rategate_core::shape;
