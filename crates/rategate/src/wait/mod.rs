//! The one place where a thread really waits: to an absolute instant, never early, and woken at
//! once by an alarm.

mod alarm;
mod precision;
mod real;
mod waiter;

pub use self::alarm::{Alarm, Wake};
pub use self::precision::{Precision, Wait};
pub(crate) use self::real::on_real_time;
pub(crate) use self::waiter::Waiter;
