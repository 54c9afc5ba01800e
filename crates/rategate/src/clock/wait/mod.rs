//! Waits: how exactly, by which timer, in what queue, and what ends them.
//!
//! A wait goes to an absolute instant, is never early, and ends at once when its cancellation
//! token is raised. Besides the clocks, only these files make a thread wait for an instant.

mod blocking;
mod cancel_token;
mod listeners;
mod precision;
mod real;
mod thread_timer;
mod timer;
mod waiter;

pub use self::blocking::assert_may_block;
pub use self::cancel_token::{CancelToken, Wake};
pub(crate) use self::listeners::Listeners;
pub use self::precision::{Precision, Wait};
pub(crate) use self::real::{margin_ns, on_real_time, spin_until};
pub use self::thread_timer::ThreadTimer;
pub use self::timer::{Sleep, Timer};
pub(crate) use self::waiter::{EARLY_NS, GATHER_NS, Waiter};
